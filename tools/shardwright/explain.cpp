// shardwright explain: what a code means, and which rule decided what.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "rules/lint.h"
#include "rules/lookup.h"
#include "support/yaml.h"

namespace shardwright::cli {
namespace {

struct Options : Common {
  std::string code, rule;
};

std::string usage_text(const std::vector<std::string>& codes) {
  std::string all;
  for (const auto& c : codes) all += (all.empty() ? "" : ", ") + c;
  return all;
}

/// A paragraph in lines of at most 100 characters.
std::string wrapped(const std::string& text) {
  std::string out, line;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = text.find_first_of(" \n", at);
    if (end == std::string::npos) end = text.size();
    if (!line.empty() && line.size() + 1 + (end - at) > 100) out += line + "\n", line.clear();
    line += (line.empty() ? "" : " ") + text.substr(at, end - at);
    at = end + 1;
    if (end < text.size() && text[end] == '\n') out += line + "\n", line.clear();
  }
  return out + line + "\n";
}

std::string example(const std::vector<rules::LintRule::File>& files) {
  std::string out;
  for (const auto& f : files) {
    if (files.size() > 1) out += "    # " + f.name + "\n";
    std::size_t at = 0;
    while (at < f.text.size()) {
      std::size_t end = f.text.find('\n', at);
      if (end == std::string::npos) end = f.text.size();
      const std::string line = f.text.substr(at, end - at);
      out += line.empty() ? "\n" : "    " + line + "\n";
      at = end + 1;
    }
    if (&f != &files.back()) out += "\n";
  }
  return out;
}

nlohmann::json example_json(const std::vector<rules::LintRule::File>& files) {
  if (files.size() == 1) return files[0].text;
  nlohmann::json j = nlohmann::json::object();
  for (const auto& f : files) j[f.name] = f.text;
  return j;
}

int explain_code(Options& o, support::SourceManager& sm) {
  std::string code = o.code;
  std::transform(code.begin(), code.end(), code.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  auto all = rules::lint_rules(sm);
  if (!all) return report(all.error(), sm, o);
  for (const auto& r : *all) {
    if (r.code != code) continue;
    if (o.json) {
      nlohmann::ordered_json j{{"code", r.code},
                               {"title", r.title},
                               {"severity", r.severity},
                               {"applicability", r.applicability},
                               {"effort", r.effort},
                               {"since", r.since},
                               {"why", r.why},
                               {"fix", r.fix},
                               {"wrong", example_json(r.wrong)},
                               {"right", example_json(r.right)}};
      fmt::print("{}\n", j.dump(2));
      return kDone;
    }
    fmt::print("{}: {}\n{}; its fix is {}, effort {}; since {}\n\n{}\nWhat to do\n{}\nWrong\n\n{}\nRight\n\n{}", r.code, r.title,
               r.severity,
               r.applicability == "safe"         ? "safe (--fix)"
                   : r.applicability == "review" ? "for review (--fix --unsafe)"
                                                 : "made by hand",
               r.effort, r.since, wrapped(r.why), wrapped(r.fix), example(r.wrong), example(r.right));
    return kDone;
  }
  const auto codes = rules::lint_codes();
  const auto near = support::yaml::nearest(code, codes);
  return report(
      support::failure("there is no code '" + o.code + "'" + (near ? "; did you mean " + *near + "?" : "; there are: " + usage_text(codes)),
                       {}, "usage"),
      sm, o);
}

int explain_rule(Options& o, support::SourceManager& sm) {
  auto db = rules::Database::load(sm, o.model.rules);
  if (!db) return report(db.error(), sm, o);
  const auto found = rules::rules_of(**db, o.rule);
  if (found.empty()) {
    const std::string near = rules::nearest_rule(**db, o.rule);
    return report(support::failure("no rule speaks of '" + o.rule + "'" + (near.empty() ? "" : " (did you mean '" + near + "'?)") +
                                       "; an operation without a rule is opaque: everything it touches stays whole",
                                   {}, "usage"),
                  sm, o);
  }
  if (o.json) {
    nlohmann::ordered_json j = nlohmann::ordered_json::array();
    for (const auto& r : found) j.push_back({{"name", r.name}, {"file", r.file}, {"line", r.line}, {"text", r.text}});
    fmt::print("{}\n", j.dump(2));
    return kDone;
  }
  for (const auto& r : found) fmt::print("{}# {} ({}:{})\n{}", &r == &found.front() ? "" : "\n", r.name, r.file, r.line, r.text);
  return kDone;
}

int run(Options& o) {
  support::SourceManager sm;
  if (o.code.empty() == o.rule.empty()) return report(support::failure("expected one of CODE and --rule NAME", {}, "usage"), sm, o);
  return o.rule.empty() ? explain_code(o, sm) : explain_rule(o, sm);
}

}  // namespace

Run add_explain(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("explain", "what a finding's code means; which rule speaks of an operation or layer");
  c->add_option("CODE", o->code, "SW101, …");
  c->add_option("--rule", o->rule, "an operation or layer: torch.nn.functional.softmax, torch.nn.Linear, view");
  c->add_option("--rules", o->model.rules, "folder of further rules (repeatable)")->take_all();
  add_output_options(*c, *o);
  return [o] { return run(*o); };
}

}  // namespace shardwright::cli
