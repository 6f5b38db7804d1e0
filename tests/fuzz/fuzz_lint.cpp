// Fuzz target: parsing, lint, suppressions, reports and fixes of arbitrary bytes. No crash, no exception, no hang.
//
// Built with clang's -fsanitize=fuzzer (-DSHARDWRIGHT_LIBFUZZER=ON) it is a libFuzzer target. Built otherwise it has a main of its own that
// mutates the corpus: `fuzz_lint --runs 100000 --seed 1 FILE|FOLDER…`, and `--replay FILE`. Each run has five seconds; the input of one
// that fails is written to fuzz-failure.py, and its seed and number are printed.
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "driver/lint.h"
#include "lint/report.h"
#include "support/edits.h"
#include "support/files.h"

using namespace shardwright;

namespace {

const rules::Database& database() {
  static support::SourceManager sm;
  static const auto db = rules::Database::load(sm);
  return **db;
}

void one(const std::string& text) {
  const python::MemoryFileSystem memory({{"/fuzz/input.py", text}});
  lint::OverlayFileSystem overlay(memory);
  driver::LintRequest request;
  request.what.paths = {"/fuzz/input.py"};
  request.what.max_steps = 20'000;
  request.error_on = "warning";
  request.what.files = &overlay;
  support::SourceManager sm;
  const auto outcome = driver::run_lint(request, sm, database());
  if (outcome) {
    lint::text_report(outcome->findings, sm, true);
    lint::json_report(outcome->findings, sm);
    lint::sarif_report(outcome->findings, sm, {}, "0");
    lint::github_report(outcome->findings, sm);
    lint::junit_report(outcome->findings, sm);
  }
  if (const auto fixes = driver::fix_lint(request, overlay, database(), true))
    for (const auto& [path, file] : fixes->files) support::unified_diff(file.before, file.after, path, path);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  one(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}

#ifndef SHARDWRIGHT_LIBFUZZER

namespace {

using Random = std::mt19937_64;

std::size_t below(Random& r, std::size_t n) { return n ? static_cast<std::size_t>(r() % n) : 0; }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    out.back() += c;
    if (c == '\n') out.emplace_back();
  }
  return out;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const auto& l : lines) out += l;
  return out;
}

std::string repeated(const std::string& s, std::size_t n) {
  std::string out;
  for (std::size_t i = 0; i < n; ++i) out += s;
  return out;
}

// One change of one kind. Kinds are as they occur: damaged files, other encodings, generated code, half-typed code.
std::string mutated(std::string text, const std::string& other, Random& r) {
  static const std::vector<std::string> kTokens = {"(",
                                                   ")",
                                                   "[",
                                                   "]",
                                                   "{",
                                                   "}",
                                                   ":",
                                                   ",",
                                                   "=",
                                                   "\n",
                                                   "    ",
                                                   "\t",
                                                   "\"",
                                                   "'''",
                                                   "#",
                                                   "\\",
                                                   "class ",
                                                   "def ",
                                                   "lambda: ",
                                                   "yield ",
                                                   "await ",
                                                   "None",
                                                   "0",
                                                   "-1",
                                                   "1e999",
                                                   "999999999999999999999",
                                                   "*",
                                                   "**",
                                                   "//",
                                                   "@",
                                                   "%",
                                                   ";",
                                                   "\xff",
                                                   "\xe2\x80\xa8",
                                                   "\f",
                                                   "# shardwright: ignore[",
                                                   "# shardwright: ignore-file[SW1] x\n",
                                                   "self",
                                                   ".",
                                                   "..."};
  const std::size_t at = below(r, text.size() + 1);
  switch (below(r, 18)) {
    case 0: return text.substr(0, at);  // cut off
    case 1: return text.substr(at);
    case 2:
      for (std::size_t i = 0; i < 1 + below(r, 20) && !text.empty(); ++i) text[below(r, text.size())] = static_cast<char>(r());
      return text;
    case 3: return text.insert(at, kTokens[below(r, kTokens.size())]);
    case 4: return text.erase(at, below(r, 40));
    case 5: {
      auto l = lines_of(text);
      l.erase(l.begin() + static_cast<std::ptrdiff_t>(below(r, l.size())));
      return joined(l);
    }
    case 6: {
      auto l = lines_of(text);
      const auto line = l[below(r, l.size())];
      l.insert(l.begin() + static_cast<std::ptrdiff_t>(below(r, l.size())), line);
      return joined(l);
    }
    case 7: {
      auto l = lines_of(text);
      std::swap(l[below(r, l.size())], l[below(r, l.size())]);
      return joined(l);
    }
    case 8: {
      const char* open[] = {"(", "[", "{", "lambda: ", "not ", "-", "f(", "a[", "if x:\n "};
      return text.insert(at, repeated(open[below(r, 9)], 1 + below(r, 3000)));
    }  // deep nesting
    case 9: return text.insert(at, repeated("x.a", 1 + below(r, 3000)));
    case 10: {
      std::string out;
      for (const char c : text) out += c == '\n' ? "\r\n" : std::string(1, c);
      return out;
    }
    case 11: std::replace(text.begin(), text.end(), ' ', '\t'); return text;
    case 12: return "\xef\xbb\xbf" + text;
    case 13: {
      std::string out = "\xff\xfe";
      for (const char c : text) {
        out += c;
        out += '\0';
      }
      return out;
    }                                                                           // UTF-16
    case 14: return text.insert(at, "x = [" + repeated("1, ", 20000) + "]\n");  // a huge line
    case 15: {
      const std::size_t from = below(r, other.size() + 1);
      return text.substr(0, at) + other.substr(from);
    }  // two files in one
    case 16: {
      std::string number = std::to_string(static_cast<std::int64_t>(r()));
      const auto digit = text.find_first_of("0123456789", at);
      return digit == std::string::npos ? text : text.replace(digit, 1, number);
    }
    default: {
      static const char* words[] = {"gather_output=True", "input_is_parallel=True", "[0]", "self.", "forward", "config"};
      const auto w = text.find(words[below(r, 6)], at);
      return w == std::string::npos ? text : text.erase(w, 1 + below(r, 12));
    }
  }
}

// Five seconds of this process's own time: a busy machine must not fail a test. A minute on the clock for what waits for ever.
void limit(int seconds) {
  const itimerval timer{{0, 0}, {seconds, 0}};
  ::setitimer(ITIMER_VIRTUAL, &timer, nullptr);
  ::alarm(static_cast<unsigned>(12 * seconds));
}

std::string current;
std::uint64_t seed = 1;
std::size_t number = 0;
volatile std::sig_atomic_t failing = 0;

// Everything here is async-signal-safe enough for a test that ends anyway.
extern "C" void failed(int signal) {
  if (failing) ::_exit(3);
  failing = 1;
  std::fprintf(stderr, "\nfuzz: %s in run %zu of seed %llu; the input is in fuzz-failure.py\n",
               signal == SIGALRM || signal == SIGVTALRM ? "more than 5 s" : "a crash", number, static_cast<unsigned long long>(seed));
  if (std::FILE* f = std::fopen("fuzz-failure.py", "wb")) {
    std::fwrite(current.data(), 1, current.size(), f);
    std::fclose(f);
  }
  ::_exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t runs = 1000;
  bool replay = false;
  std::vector<std::string> corpus;
  auto take = [&](const std::string& path) {
    if (replay) {  // as it is: read_file refuses what failures are made of (NUL bytes)
      std::ifstream in(path, std::ios::binary);
      corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    } else if (auto text = support::read_file(path)) corpus.push_back(*text);
  };
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--runs" && i + 1 < argc) runs = std::strtoull(argv[++i], nullptr, 10);
    else if (a == "--seed" && i + 1 < argc) seed = std::strtoull(argv[++i], nullptr, 10);
    else if (a == "--replay") replay = true;
    else if (support::is_directory(a)) {
      if (auto files = support::walk(a))
        for (const auto& f : *files)
          if (f.ends_with(".py")) take(support::join_path(a, f));
    } else take(a);
  }
  if (replay) {  // a failure's input as it is, without the limit
    for (const auto& text : corpus) one(text);
    return 0;
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "usage: fuzz_lint [--runs N] [--seed S] FILE|FOLDER…   or   fuzz_lint --replay FILE\n");
    return 2;
  }
  // Handlers run on a stack of their own: exhausting the stack by deep nesting is one of the faults looked for.
  static char alternate[1 << 16];
  stack_t stack{};
  stack.ss_sp = alternate;
  stack.ss_size = sizeof alternate;
  ::sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = failed;
  action.sa_flags = SA_ONSTACK;
  for (const int s : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL, SIGALRM, SIGVTALRM}) ::sigaction(s, &action, nullptr);
  Random random(seed);
  std::size_t bytes = 0;
  for (number = 0; number < runs; ++number) {
    current = corpus[below(random, corpus.size())];
    for (std::size_t i = 0, n = 1 + below(random, 3); i < n; ++i)
      current = mutated(std::move(current), corpus[below(random, corpus.size())], random);
    bytes += current.size();
    limit(5);
    one(current);
    limit(0);
  }
  std::printf("fuzz: %zu inputs (%zu KB) from %zu files, seed %llu: no crash, none over 5 s\n", runs, bytes / 1024, corpus.size(),
              static_cast<unsigned long long>(seed));
  return 0;
}

#endif
