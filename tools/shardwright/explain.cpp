// shardwright explain: what a code means, and which rule decided what.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli.h"
#include "rules/embedded.h"
#include "rules/rules.h"

namespace shardwright::cli {
namespace {

struct Options : Common {
  std::string code, rule;
};

int run(Options& o) {
  support::SourceManager sm;
  if (o.code.empty() == o.rule.empty()) return report(support::failure("expected one of CODE and --rule NAME", {}, "usage"), sm, o);
  if (!o.code.empty()) {
    auto text = rules::embedded("lint/" + o.code + ".yaml");
    if (!text) {
      std::string known;
      for (const auto& f : rules::embedded_files())
        if (f.path.substr(0, 5) == "lint/") known += (known.empty() ? "" : ", ") + std::string(f.path.substr(5, f.path.size() - 10));
      return report(support::failure("there is no code '" + o.code + "'; " + (known.empty() ? "this version has none, expected --rule NAME" : "there are: " + known), {}, "usage"), sm, o);
    }
    fmt::print("{}", *text);
    return kDone;
  }
  auto db = rules::Database::load(sm, o.model.rules);
  if (!db) return report(db.error(), sm, o);
  // The rule's own text: the entry of the file that names it.
  bool found = false;
  for (const auto& f : rules::embedded_files()) {
    if (f.path.size() < 5 || f.path.substr(f.path.size() - 5) != ".yaml") continue;
    std::size_t at = 0;
    while ((at = f.text.find(o.rule, at)) != std::string_view::npos) {
      auto boundary = [&](std::size_t i) { return i >= f.text.size() || std::string_view(" ,[]\n\"':").find(f.text[i]) != std::string_view::npos; };
      if (boundary(at + o.rule.size()) && (at == 0 || boundary(at - 1))) {
        std::size_t begin = f.text.rfind("\n- ", at);
        begin = begin == std::string_view::npos ? 0 : begin + 1;
        std::size_t end = f.text.find("\n- ", at);
        fmt::print("# rules/{}\n{}\n", f.path, f.text.substr(begin, end == std::string_view::npos ? end : end - begin));
        found = true;
        break;
      }
      at += o.rule.size();
    }
  }
  if (!found) return report(support::failure("no rule speaks of '" + o.rule + "'; an operation without a rule is opaque: everything it touches stays whole", {}, "usage"), sm, o);
  return kDone;
}

}  // namespace

Run add_explain(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("explain", "what a finding's code means; which rule speaks of an operation or layer");
  c->add_option("CODE", o->code, "SW101, …");
  c->add_option("--rule", o->rule, "an operation or layer: torch.nn.functional.softmax");
  c->add_option("--rules", o->model.rules, "folder of further rules (repeatable)")->take_all();
  add_output_options(*c, *o);
  return [o] { return run(*o); };
}

}  // namespace shardwright::cli
