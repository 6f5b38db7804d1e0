// The tree as text, JSON, Mermaid and Graphviz.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/tree.h"

namespace shardwright::report {
namespace {

std::string last_part(const std::string& dotted) { return dotted.substr(dotted.find_last_of('.') + 1); }
std::string base_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

/// Columns of a terminal: code points (all characters that are printed here are one column wide).
std::size_t width(const std::string& s) {
  return static_cast<std::size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

Folded unfolded(const Node& n) {
  Folded f{&n, n.name, 1, {}};
  for (const Node& c : n.children) f.children.push_back(unfolded(c));
  return f;
}

std::string stage_text(const std::vector<int>& s) {
  if (s.empty()) return "";
  std::string out = std::to_string(s.front());
  for (std::size_t i = 1; i < s.size(); ++i) out += "," + std::to_string(s[i]);
  return out;
}

struct Row {
  std::string left, type, where, parameters, flops, kind, role, stage;
};

void rows(const Folded& f, const std::string& prefix, const std::string& branch, const TextOptions& o, int depth, std::vector<Row>& out) {
  const Node& n = *f.node;
  Row r;
  r.left = prefix + branch + f.label + (f.count > 1 ? " (" + std::to_string(f.count) + "×)" : "");
  r.type = last_part(n.type);
  if (depth == 0) r.type = "";
  if (!n.shared_with.empty()) r.type += " = " + n.shared_with;
  if (!n.file.empty()) r.where = base_name(n.file) + ":" + std::to_string(n.line);
  r.parameters = n.parameters ? human_count(static_cast<double>(n.parameters)) : "";
  r.flops = n.flops > 0 ? plan::human_flops(n.flops) : "";
  r.kind = n.kind;
  r.role = n.role;
  r.stage = stage_text(n.stages);
  out.push_back(std::move(r));
  if (depth + 1 >= o.depth) return;
  const std::string below = branch.empty() ? prefix : prefix + (branch[0] == '\xE2' && branch.compare(0, 3, "└") == 0 ? "   " : "│  ");
  for (std::size_t i = 0; i < f.children.size(); ++i)
    rows(f.children[i], below, i + 1 == f.children.size() ? "└─ " : "├─ ", o, depth + 1, out);
}

std::string escaped(const std::string& s, bool html) {
  std::string out;
  for (const char c : s) {
    if (c == '"') out += html ? "&quot;" : "\\\"";
    else if (c == '\\' && !html) out += "\\\\";
    else if (html && c == '<') out += "&lt;";
    else if (html && c == '>') out += "&gt;";
    else out += c;
  }
  return out;
}

std::string label(const Folded& f, const char* newline, bool html) {
  const Node& n = *f.node;
  std::string s = f.label + (f.count > 1 ? " (" + std::to_string(f.count) + "×)" : "");
  if (n.module != 0) s += ": " + last_part(n.type);
  s = escaped(s, html);
  std::string second;
  auto add = [&](const std::string& x) {
    if (!x.empty()) second += (second.empty() ? "" : ", ") + escaped(x, html);
  };
  if (n.parameters) add(human_count(static_cast<double>(n.parameters)) + " parameters");
  if (n.flops > 0) add(plan::human_flops(n.flops));
  add(n.role);
  return second.empty() ? s : s + newline + second;
}

template <class F>
int walk(const Folded& f, int parent, int& next, int depth, int limit, F visit) {
  const int id = next++;
  visit(f, id, parent);
  if (depth + 1 < limit)
    for (const Folded& c : f.children) walk(c, id, next, depth + 1, limit, visit);
  return id;
}

}  // namespace

std::string human_count(double v) {
  static const char* const units[] = {"", " k", " M", " G", " T"};
  int u = 0;
  while (u < 4 && v >= 1000) v /= 1000, ++u;
  if (u == 0) return fmt::format("{:.0f}", v);
  return fmt::format("{:.{}f}{}", v, v < 10 ? 2 : v < 100 ? 1 : 0, units[u]);
}

std::string to_text(const Node& root, const TextOptions& o) {
  std::vector<Row> all;
  rows(o.unfolded ? unfolded(root) : fold(root), "", "", o, 0, all);
  // A column that is empty everywhere is left out.
  struct Column {
    const char* title;
    std::string Row::*field;
    bool right;
    const char* color;
    std::size_t size = 0;
  };
  std::vector<Column> columns = {
      {"module", &Row::left, false, ""},          {"class", &Row::type, false, "\x1b[36m"}, {"defined in", &Row::where, false, "\x1b[2m"},
      {"parameters", &Row::parameters, true, ""}, {"FLOPs", &Row::flops, true, ""},         {"kind", &Row::kind, false, "\x1b[33m"},
      {"tp", &Row::role, false, "\x1b[32m"},      {"stage", &Row::stage, false, "\x1b[35m"}};
  std::erase_if(columns,
                [&](const Column& c) { return std::all_of(all.begin(), all.end(), [&](const Row& r) { return (r.*c.field).empty(); }); });
  for (Column& c : columns) {
    c.size = width(c.title);
    for (const Row& r : all) c.size = std::max(c.size, width(r.*c.field));
  }
  std::string out;
  auto put = [&](auto text_of, bool plain) {
    std::string line;
    for (const Column& c : columns) {
      const std::string s = text_of(c);
      const std::string pad(c.size - width(s), ' ');
      const bool paint = o.color && !plain && *c.color && !s.empty();
      line +=
          (line.empty() ? "" : "  ") + (c.right ? pad : "") + (paint ? c.color : "") + s + (paint ? "\x1b[0m" : "") + (c.right ? "" : pad);
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
  };
  put([](const Column& c) { return std::string(c.title); }, true);
  for (const Row& r : all) put([&](const Column& c) { return r.*c.field; }, false);
  return out;
}

nlohmann::json to_json(const Node& n) {
  nlohmann::json j = {{"name", n.name},
                      {"fqn", n.fqn},
                      {"class", n.type},
                      {"parameters", n.parameters},
                      {"own_parameters", n.own_parameters},
                      {"buffers", n.buffers},
                      {"flops", n.flops},
                      {"calls", n.calls},
                      {"kind", n.kind},
                      {"role", n.role}};
  j["file"] = n.file.empty() ? nlohmann::json(nullptr) : nlohmann::json(n.file);
  j["line"] = n.file.empty() ? nlohmann::json(nullptr) : nlohmann::json(n.line);
  if (!n.shared_with.empty()) j["shared_with"] = n.shared_with;
  if (!n.stages.empty()) j["stages"] = n.stages;
  j["children"] = nlohmann::json::array();
  for (const Node& c : n.children) j["children"].push_back(to_json(c));
  return j;
}

std::string to_mermaid(const Node& root, int depth) {
  std::string out = "graph TD\n";
  int next = 0;
  walk(fold(root), -1, next, 0, depth, [&](const Folded& f, int id, int parent) {
    out += fmt::format("  n{}[\"{}\"]\n", id, label(f, "<br/>", true));
    if (parent >= 0) out += fmt::format("  n{} --> n{}\n", parent, id);
  });
  return out;
}

std::string to_dot(const Node& root, int depth) {
  std::string out = "digraph model {\n  rankdir=LR;\n  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n";
  int next = 0;
  walk(fold(root), -1, next, 0, depth, [&](const Folded& f, int id, int parent) {
    out += fmt::format("  n{} [label=\"{}\"];\n", id, label(f, "\\n", false));
    if (parent >= 0) out += fmt::format("  n{} -> n{};\n", parent, id);
  });
  return out + "}\n";
}

}  // namespace shardwright::report
