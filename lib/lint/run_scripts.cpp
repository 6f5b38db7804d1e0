#include "lint/run_scripts.h"

#include <charconv>
#include <map>
#include <optional>
#include <vector>

#include "lint/syntax_help.h"
#include "program/visit.h"
#include "support/files.h"

namespace shardwright::lint {

using support::Severity;

namespace {

struct Word {
  std::string text;
  std::uint32_t begin = 0, end = 0;
};

/// Words of a command, line ends after a backslash taken as blanks; one list a command.
std::vector<std::vector<Word>> commands(const std::string& text) {
  std::vector<std::vector<Word>> out(1);
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] == '\n') {
      i += 2;
    } else if (text[i] == '\n' || text[i] == ';') {
      if (!out.back().empty()) out.emplace_back();
      ++i;
    } else if (text[i] == '#') {
      while (i < text.size() && text[i] != '\n') ++i;
    } else if (std::isspace(static_cast<unsigned char>(text[i]))) {
      ++i;
    } else {
      Word w;
      w.begin = static_cast<std::uint32_t>(i);
      char quote = 0;
      for (; i < text.size() && (quote || !(std::isspace(static_cast<unsigned char>(text[i])) || text[i] == ';')); ++i) {
        if (text[i] == '\\' && i + 1 < text.size() && text[i + 1] == '\n') break;
        if (quote ? text[i] == quote : text[i] == '"' || text[i] == '\'') {
          quote = quote ? 0 : text[i];
          continue;
        }
        w.text += text[i];
      }
      w.end = static_cast<std::uint32_t>(i);
      out.back().push_back(std::move(w));
    }
  }
  return out;
}

std::optional<long> number(const std::string& s) {
  long v = 0;
  const auto [p, error] = std::from_chars(s.data(), s.data() + s.size(), v);
  return error == std::errc() && p == s.data() + s.size() && v > 0 ? std::optional<long>(v) : std::nullopt;
}

/// $NAME, ${NAME} and ${NAME:-default} by what the script sets.
std::string expanded(const std::string& s, const std::map<std::string, std::string>& values) {
  if (s.size() < 2 || s[0] != '$' || s[1] == '(') return s;
  std::string name = s[1] == '{' ? s.substr(2, s.size() - 3) : s.substr(1), fallback;
  if (const auto at = name.find(":-"); at != std::string::npos) {
    fallback = name.substr(at + 2);
    name.resize(at);
  }
  const auto at = values.find(name);
  return at != values.end() ? at->second : fallback.empty() ? s : fallback;
}

/// num_stages of the training script's boundaries, where it is a number.
std::optional<std::pair<long, support::Range>> stages_of(const program::Module& m) {
  std::optional<std::pair<long, support::Range>> out;
  program::walk_exprs(m.body, [&](const program::Expr* e) {
    if (syntax::callee(e) == "PipelineTensorShapeConfig")
      if (const auto* n = syntax::argument(e, "num_stages"); n && n->kind == program::ExprKind::Int)
        out = {static_cast<long>(n->integer), n->range};
    return true;
  });
  return out;
}

}  // namespace

void check_run_script(support::FileId script, const support::SourceManager& sources,
                      const std::function<const program::Module*(const std::string&)>& load, Found& found) {
  const auto& file = sources.file(script);
  std::map<std::string, std::string> values;
  for (const auto& words : commands(file.text)) {
    for (const auto& w : words)  // NAME=value, also before a command
      if (const auto eq = w.text.find('='); eq != std::string::npos && eq > 0 && w.text[0] != '-' && w.text.find('/') > eq)
        values[w.text.substr(0, eq)] = expanded(w.text.substr(eq + 1), values);
    struct Given {
      std::optional<long> value;
      support::Range where;
    };
    std::map<std::string, Given> given;
    bool launched = false;
    const Word* python = nullptr;
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string& t = words[i].text;
      launched = launched || t.ends_with("torchrun") || t == "torch.distributed.run" || t == "torch.distributed.launch";
      if (!python && t.ends_with(".py")) python = &words[i];
      if (!t.starts_with("--")) continue;
      const auto eq = t.find('=');
      std::string name = t.substr(2, eq == std::string::npos ? eq : eq - 2);
      for (char& c : name)
        if (c == '_') c = '-';
      const std::string value = eq != std::string::npos ? t.substr(eq + 1) : i + 1 < words.size() ? words[i + 1].text : "";
      const Word& at = eq != std::string::npos || i + 1 >= words.size() ? words[i] : words[i + 1];
      given[name] = {number(expanded(value, values)), {script, at.begin, at.end}};
    }
    if (!launched) continue;
    auto value = [&](const char* name, std::optional<long> absent) { return given.count(name) ? given[name].value : absent; };
    const auto tp = value("tensor-model-parallel-size", 1), pp = value("pipeline-model-parallel-size", 1),
               each = value("nproc-per-node", std::nullopt), nodes = value("nnodes", 1);
    const bool asked = given.count("tensor-model-parallel-size") || given.count("pipeline-model-parallel-size");
    if (asked && tp && pp && each && nodes && (*each * *nodes) % (*tp * *pp) != 0)
      found.add(Severity::Error, "SW306", given["nproc-per-node"].where,
                std::to_string(*each * *nodes) + " processes are started, but tensor parallel " + std::to_string(*tp) +
                    " x pipeline parallel " + std::to_string(*pp) + " takes a multiple of " + std::to_string(*tp * *pp),
                {});
    if (const auto heads = value("num-attention-heads", std::nullopt); heads && tp && *heads % *tp != 0)
      found.add(Severity::Error, "SW306", given["num-attention-heads"].where,
                std::to_string(*heads) + " heads cannot be divided over tensor parallel " + std::to_string(*tp),
                {{given["tensor-model-parallel-size"].where, "the tensor-parallel size"}});
    if (!python || !pp || !given.count("pipeline-model-parallel-size")) continue;
    if (const auto* m = load(support::join_path(support::parent_path(file.path), python->text)))
      if (const auto stages = stages_of(*m); stages && stages->first != *pp)
        found.add(Severity::Error, "SW306", given["pipeline-model-parallel-size"].where,
                  "pipeline parallel " + std::to_string(*pp) + " is started, but " + python->text + " makes " +
                      std::to_string(stages->first) + " stages",
                  {{stages->second, "here"}});
  }
}

}  // namespace shardwright::lint
