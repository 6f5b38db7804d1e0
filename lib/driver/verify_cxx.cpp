#include "driver/verify_cxx.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "driver/python.h"
#include "support/files.h"
#include "support/process.h"

namespace shardwright::driver {
namespace {

namespace fs = std::filesystem;
using support::failure;
using support::finish;

/// Starts a program with further environment variables, output into a file.
pid_t start(const std::vector<std::string>& arguments, const std::vector<std::pair<std::string, std::string>>& environment,
            const std::string& log) {
  return support::start(arguments, [&] {
    for (const auto& [k, v] : environment) ::setenv(k.c_str(), v.c_str(), 1);
    const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd >= 0) ::dup2(fd, 1), ::dup2(fd, 2);
  });
}

std::string tail(const std::string& path, std::size_t bytes = 2000) {
  auto t = support::read_file(path, 64u << 20);
  if (!t) return "";
  return t->size() > bytes ? "…" + t->substr(t->size() - bytes) : *t;
}

struct Record {
  std::string kind, name;
  std::vector<double> values;
  bool absent = false;
};

support::Expected<std::vector<Record>> read_records(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<Record> out;
  std::string kind, name;
  long long n = 0;
  while (in >> kind >> name >> n) {
    in.get();
    Record r{kind, name, {}, n < 0};
    if (n > 0) {
      r.values.resize(static_cast<std::size_t>(n));
      in.read(reinterpret_cast<char*>(r.values.data()), n * 8);
    }
    if (!in) return failure(path + ": what the program wrote is incomplete", {}, "run");
    in.get();
    out.push_back(std::move(r));
  }
  if (out.empty()) return failure(path + ": the program wrote nothing", {}, "run");
  return out;
}

/// max|a - b| / max(max|a|, 1e-6 × the largest |a| of the kind); NaN is a difference.
double difference(const Record& a, const Record& b, double largest) {
  if (a.absent != b.absent || a.values.size() != b.values.size()) return INFINITY;
  double d = 0, m = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    if (std::isnan(a.values[i]) != std::isnan(b.values[i])) return INFINITY;
    if (std::isnan(a.values[i]) || a.values[i] == b.values[i]) continue;
    d = std::max(d, std::abs(a.values[i] - b.values[i]));
  }
  for (double v : a.values)
    if (std::isfinite(v)) m = std::max(m, std::abs(v));
  const double scale = std::max(m, 1e-6 * largest);
  return d == 0 ? 0 : scale == 0 ? INFINITY : d / scale;
}

}  // namespace

bool is_cxx_directory(const std::string& dir) {
  return support::is_file(support::join_path(dir, "verify.cpp")) && support::is_file(support::join_path(dir, "job.h"));
}

std::string runtime_folder() {
  const std::string tree = support::above_program("runtime/include/shardwright/parallel.h");
  return tree.empty() ? "" : tree + "/runtime";
}

support::Expected<CxxVerified> verify_cxx(const CxxVerifyRequest& r, const std::function<void(const std::string&)>& progress) {
  const auto began = std::chrono::steady_clock::now();
  auto python = find_python(r.python);
  if (!python) return python.error();
  const std::string build = support::join_path(r.dir, "build"), log = support::join_path(build, "log.txt");
  std::error_code ec;
  fs::create_directories(build, ec);
  std::vector<std::string> configure{
      "cmake", "-S", r.dir, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O0", "-DPYTHON=" + *python};
  if (const char* ccache = "/usr/bin/ccache"; fs::exists(ccache, ec)) configure.push_back("-DCMAKE_CXX_COMPILER_LAUNCHER=ccache");
  // The runtime as it was built with this program, if it was.
  const fs::path built = fs::read_symlink("/proc/self/exe", ec).parent_path().parent_path() / "runtime" / "libshardwright_runtime.a";
  if (fs::exists(built, ec)) configure.push_back("-DSHARDWRIGHT_RUNTIME_LIBRARY=" + built.string());
  progress("configuring");
  if (finish(start(configure, {}, log)) != 0) return failure("the build could not be configured:\n" + tail(log), {}, "build");
  progress("building both programs (LibTorch's headers take a minute)");
  if (finish(start({"cmake", "--build", build, "--target", "verify_original", "verify_parallel"}, {}, log)) != 0)
    return failure("the programs could not be built:\n" + tail(log, 6000), {}, "build");
  progress("running");
  const std::string steps = std::to_string(r.steps), micro = std::to_string(r.micro_batches);
  const std::string original = support::join_path(build, "original.bin"), parallel = support::join_path(build, "parallel.bin");
  const pid_t first = start({support::join_path(build, "verify_original"), original, steps, micro}, {{"WORLD_SIZE", "1"}}, log);
  if (int code = finish(first); code != 0)
    return failure(fmt::format("the original program ended with status {}:\n{}", code, tail(log)), {}, "run");
  const std::string port = std::to_string(20000 + ::getpid() % 20000);
  std::vector<pid_t> ranks;
  for (int k = 0; k < r.tp; ++k)
    ranks.push_back(
        start({support::join_path(build, "verify_parallel"), parallel, steps, micro},
              {{"WORLD_SIZE", std::to_string(r.tp)}, {"RANK", std::to_string(k)}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", port}},
              log + "." + std::to_string(k)));
  int failed = -1, code = 0;
  for (std::size_t left = ranks.size(); left > 0; --left) {
    int status = 0;
    const pid_t done = ::waitpid(-1, &status, 0);
    const int c = support::status_of(status);
    for (std::size_t k = 0; k < ranks.size(); ++k)
      if (ranks[k] == done && c != 0 && failed < 0) {
        failed = static_cast<int>(k), code = c;
        for (pid_t p : ranks)  // the others would wait for it
          if (p != done) ::kill(p, SIGTERM);
      }
  }
  if (failed >= 0)
    return failure(
        fmt::format("rank {} of the parallel program ended with status {}:\n{}", failed, code, tail(log + "." + std::to_string(failed))),
        {}, "run");
  auto a = read_records(original), b = read_records(parallel);
  if (!a) return a.error();
  if (!b) return b.error();
  CxxVerified out;
  std::map<std::string, double> largest, worst;
  std::map<std::string, int> count;
  std::map<std::string, const Record*> other;
  for (const auto& x : *b) other[x.kind + " " + x.name] = &x;
  for (const auto& x : *a)
    for (double v : x.values)
      if (std::isfinite(v)) largest[x.kind] = std::max(largest[x.kind], std::abs(v));
  out.same = a->size() == b->size();
  for (const auto& x : *a) {
    auto it = other.find(x.kind + " " + x.name);
    const double d = it == other.end() ? INFINITY : difference(x, *it->second, largest[x.kind]);
    worst[x.kind] = std::max(worst[x.kind], d);
    ++count[x.kind];
    const double bound = r.tp == 1 ? 0 : r.tolerance;
    if (!(d <= bound)) {
      out.same = false;
      if (out.first_difference.empty()) out.first_difference = x.kind + " " + x.name;
    }
  }
  out.compared.assign(count.begin(), count.end());
  out.worst.assign(worst.begin(), worst.end());
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return out;
}

}  // namespace shardwright::driver
