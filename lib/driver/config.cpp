#include "driver/config.h"

#include <algorithm>
#include <filesystem>
#include <map>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "support/files.h"
#include "support/yaml.h"

namespace shardwright::driver {
namespace {

using support::failure;

// What both formats come down to: "lint.select" → its texts and place.
struct Setting {
  std::vector<std::string> values;
  bool list = false;
  support::Range range;
};
using Settings = std::map<std::string, Setting>;

support::Expected<bool> flatten(const support::yaml::Node& node, const std::string& prefix, Settings& out) {
  for (const auto& [key, value] : node.entries()) {
    const std::string name = prefix + key.text();
    if (value.is_map()) {
      if (auto inner = flatten(value, name + ".", out); !inner) return inner.error();
      continue;
    }
    Setting s;
    s.range = key.range();
    s.list = value.is_list();
    if (value.is_scalar()) s.values.push_back(value.text());
    for (const auto& item : value.items()) {
      if (!item.is_scalar()) return failure("'" + name + "': texts are expected", item.range(), "input");
      s.values.push_back(item.text());
    }
    out[name] = std::move(s);
  }
  return true;
}

support::Range place(const toml::source_region& r, const support::SourceManager& sm, support::FileId file) {
  const auto& f = sm.file(file);
  const std::size_t line = r.begin.line ? r.begin.line - 1 : 0;
  if (line >= f.line_starts.size()) return {file, 0, 0};
  const std::uint32_t at =
      std::min<std::uint32_t>(f.line_starts[line] + (r.begin.column ? r.begin.column - 1 : 0), static_cast<std::uint32_t>(f.text.size()));
  return {file, at, at};
}

support::Expected<bool> flatten(const toml::table& table, const std::string& prefix, const support::SourceManager& sm, support::FileId file,
                                Settings& out) {
  for (const auto& [key, value] : table) {
    const std::string name = prefix + std::string(key.str());
    if (const auto* inner = value.as_table()) {
      if (auto r = flatten(*inner, name + ".", sm, file, out); !r) return r.error();
      continue;
    }
    Setting s;
    s.range = place(key.source(), sm, file);
    auto add = [&](const toml::node& n) {
      if (const auto* text = n.as_string()) s.values.push_back(text->get());
      else if (const auto* number = n.as_integer()) s.values.push_back(std::to_string(number->get()));
      else if (const auto* flag = n.as_boolean()) s.values.push_back(flag->get() ? "true" : "false");
      else return false;
      return true;
    };
    if (const auto* list = value.as_array()) {
      s.list = true;
      for (const auto& item : *list)
        if (!add(item)) return failure("'" + name + "': texts are expected", place(item.source(), sm, file), "input");
    } else if (!add(value)) {
      return failure("'" + name + "': a text, a number or a list of texts is expected", s.range, "input");
    }
    out[name] = std::move(s);
  }
  return true;
}

support::Expected<Config> interpret(const Settings& settings, const std::string& path) {
  Config c;
  c.path = path;
  const std::string folder = support::parent_path(path);
  auto joined = [&](const std::string& p) {
    return std::filesystem::path(p).is_absolute() || folder.empty() ? p : support::normal_path(support::join_path(folder, p));
  };
  const std::map<std::string, std::pair<std::vector<std::string>*, bool>> lists = {{"rules", {&c.rules, true}},
                                                                                   {"python_path", {&c.python_path, true}},
                                                                                   {"lint.select", {&c.lint.select, false}},
                                                                                   {"lint.ignore", {&c.lint.ignore, false}},
                                                                                   {"lint.exclude", {&c.lint.exclude, false}}};
  for (const auto& [name, s] : settings) {
    if (auto it = lists.find(name); it != lists.end()) {
      for (const auto& v : s.values) it->second.first->push_back(it->second.second ? joined(v) : v);
      continue;
    }
    const std::string value = s.values.size() == 1 && !s.list ? s.values[0] : "";
    if (name == "lint.tp") {
      char* end = nullptr;
      const long n = std::strtol(value.c_str(), &end, 10);
      if (value.empty() || *end || n < 1 || n > 1 << 20) return failure("'lint.tp': a positive whole number is expected", s.range, "input");
      c.lint.tp = static_cast<int>(n);
    } else if (name == "lint.error_on") {
      if (value != "error" && value != "warning") return failure("'lint.error_on' is error or warning", s.range, "input");
      c.lint.error_on = value;
    } else if (name == "lint.baseline") {
      if (value.empty()) return failure("'lint.baseline': a file's name is expected", s.range, "input");
      c.lint.baseline = joined(value);
    } else {
      std::vector<std::string> known = {"lint.tp", "lint.error_on", "lint.baseline"};
      for (const auto& [k, v] : lists) known.push_back(k);
      std::sort(known.begin(), known.end());
      std::string all;
      for (const auto& k : known) all += (all.empty() ? "" : ", ") + k;
      const auto near = support::yaml::nearest(name, known);
      return failure(
          "unknown key '" + name + "' in the configuration" + (near ? "; did you mean '" + *near + "'?" : "") + " Known are " + all,
          s.range, "input");
    }
  }
  return c;
}

bool is_toml(const std::string& path) { return path.ends_with(".toml"); }

// Nothing: a pyproject.toml without [tool.shardwright].
support::Expected<std::optional<Config>> read(const std::string& path, support::SourceManager& sm) {
  auto text = support::read_file(path);
  if (!text) return text.error();
  if (is_toml(path) && text->find("shardwright") == std::string::npos) return std::optional<Config>{};
  const auto file = sm.add(path, *text);
  Settings settings;
  if (is_toml(path)) {
    toml::parse_result parsed = toml::parse(*text, path);
    if (!parsed)
      return failure("not valid TOML: " + std::string(parsed.error().description()), place(parsed.error().source(), sm, file), "input");
    const toml::node_view<toml::node> node = parsed.table()["tool"]["shardwright"];
    if (!node) return std::optional<Config>{};
    if (!node.is_table()) return failure("[tool.shardwright] is a table", place(node.node()->source(), sm, file), "input");
    if (auto r = flatten(*node.as_table(), "", sm, file, settings); !r) return r.error();
  } else {
    auto root = support::yaml::parse(sm, file);
    if (!root) return root.error();
    if (!root->is_null() && !root->is_map()) return failure("a configuration is a mapping", root->range(), "input");
    if (auto r = flatten(*root, "", settings); !r) return r.error();
  }
  auto config = interpret(settings, path);
  if (!config) return config.error();
  return std::optional<Config>(*config);
}

}  // namespace

support::Expected<Config> read_config(const std::string& path, support::SourceManager& sm) {
  auto c = read(path, sm);
  if (!c) return c.error();
  return c->value_or(Config{});
}

support::Expected<Config> find_config(const std::string& folder, support::SourceManager& sm) {
  std::error_code ec;
  std::filesystem::path at = std::filesystem::absolute(folder.empty() ? "." : folder, ec).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();
  for (;; at = at.parent_path()) {
    for (const char* name : {"shardwright.yaml", "pyproject.toml"}) {
      const std::string path = (at / name).string();
      if (!support::is_file(path)) continue;
      auto c = read(path, sm);
      if (!c) return c.error();
      if (*c) return **c;
    }
    if (at == at.root_path() || at.empty()) return Config{};
  }
}

}  // namespace shardwright::driver
