#include "emit/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "model/shape.h"

namespace shardwright::emit {
namespace {

std::string last(const std::string& dotted) { return dotted.substr(dotted.rfind('.') + 1); }

/// "blocks.0.attn" and "blocks.5.attn" are one row: "blocks.*.attn".
std::string starred(const std::string& fqn) {
  std::string out;
  for (std::size_t at = 0; at <= fqn.size();) {
    std::size_t dot = std::min(fqn.find('.', at), fqn.size());
    std::string part = fqn.substr(at, dot - at);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    out += (out.empty() ? "" : ".") + (number ? "*" : part);
    at = dot + 1;
  }
  return out;
}

class Tables {
 public:
  Tables(const PackageInput& in, const std::vector<File>& files) : in_(in), t_(in.traced.trace), files_(files) {}

  std::vector<Table> run() { return {file_table(), chain(), registries(), boundaries(), stages(), roles()}; }

 private:
  const rewrite::Definition* made(const program::ClassDef* c) const {
    if (!c) return nullptr;
    for (const auto& d : in_.specialized.definitions)
      if (d.stage < 0 && d.origin == c->module && d.original == c->name) return &d;
    return nullptr;
  }
  bool written(const std::string& path) const {
    return std::any_of(files_.begin(), files_.end(), [&](const File& f) { return f.path == path; });
  }

  Table file_table() const {
    Table t{"files", "Files", {"original", "class", "distributed", "class there", "done"}, {}};
    std::set<std::vector<std::string>> seen;
    for (const auto& d : in_.specialized.definitions) {
      const std::string path = d.stage >= 0 ? in_.layout.stages(*d.origin).path : in_.layout.beside(*d.origin).path;
      std::vector<std::string> row{in_.layout.same(*d.origin).path, d.original, path, d.name, written(path) ? "yes" : "no"};
      if (seen.insert(row).second) t.rows.push_back(std::move(row));
    }
    std::stable_sort(t.rows.begin(), t.rows.end(), [](const auto& a, const auto& b) { return a[0] < b[0]; });
    return t;
  }

  /// The tree of classes, each kind of child once.
  Table chain() const {
    Table t{"call_chain", "Call chain", {"module", "before", "after", "instances"}, {}};
    std::map<std::string, int> count;
    for (const auto& m : t_.modules)
      if (m.parent >= 0) ++count[starred(m.fqn)];
    std::set<std::string> seen;
    std::map<model::ModuleId, const rewrite::LayerRole*> roles;
    for (const auto& r : in_.edits.roles) roles[r.module] = &r;
    std::function<void(model::ModuleId, int)> walk = [&](model::ModuleId id, int depth) {
      const auto& m = t_.module(id);
      const std::string name = starred(m.fqn);
      if (id != 0 && !seen.insert(name).second) return;
      std::string after = last(m.type);
      if (id == 0) after = after + fmt::format("_stage0 … {}", in_.grid.pp - 1);
      else if (const auto* d = m.mro.empty() ? nullptr : made(m.mro.front())) after = d->name;
      else if (auto r = roles.find(id); r != roles.end())
        after = r->second->generated_class.empty() ? after + ", cut in place" : r->second->generated_class;
      const bool changed = after != last(m.type);
      bool below = false;
      for (const auto& [attr, child] : m.children) below = below || child >= 0;
      if (id == 0 || changed || below) {
        std::string pad;
        for (int i = 0; i < depth; ++i) pad += "· ";
        t.rows.push_back({pad +
                              (id == 0                 ? "(model)"
                                   : last(name) == "*" ? name.substr(name.rfind('.', name.size() - 3) + 1)
                                                       : last(name)),
                          last(m.type), changed ? after : "=", id == 0 ? "1" : std::to_string(count[name])});
      }
      for (const auto& [attr, child] : m.children)
        if (child >= 0) walk(child, depth + 1);
    };
    walk(0, 0);
    return t;
  }

  Table registries() const {
    Table t{"registries", "Registries", {"registry", "entry", "module", "complete"}, {}};
    for (const auto& d : in_.specialized.definitions) {
      if (d.stage >= 0 || d.text.find("class " + d.name) == std::string::npos) continue;
      bool any = false;
      for (const auto& [path, text] : registry_texts()) {
        if (text.find("\"" + d.name + "\"") == std::string::npos && text.find("'" + d.name + "'") == std::string::npos) continue;
        t.rows.push_back({path, d.name, in_.layout.beside(*d.origin).module, "yes"});
        any = true;
      }
      if (!any) t.rows.push_back({"–", d.name, in_.layout.beside(*d.origin).module, d.original + " is in none"});
    }
    return t;
  }
  /// Registry files as they are after the conversion.
  const std::map<std::string, std::string>& registry_texts() const {
    if (!texts_.empty()) return texts_;
    for (const auto* m : registry_modules(in_)) texts_[in_.layout.same(*m).path] = in_.sources.file(m->file).text;
    for (const auto& f : files_)
      if (f.edited) texts_[f.path] = f.text;
    return texts_;
  }

  Table boundaries() const {
    Table t{"boundaries", "Between the stages", {"from", "to", "tensors", "bytes"}, {}};
    for (std::size_t k = 0; k < in_.partition.cuts.size(); ++k) {
      std::string list;
      double sum = 0;
      for (auto x : in_.partition.cuts[k].live) {
        const auto& tensor = t_.tensor(x);
        list += (list.empty() ? "" : ", ") + model::shape_text(tensor.shape) + " " + std::string(model::short_name(tensor.dtype));
        sum += static_cast<double>(model::numel(tensor)) * model::bytes_of(tensor.dtype);
      }
      t.rows.push_back({std::to_string(k), std::to_string(k + 1), list, bytes_text(sum)});
    }
    return t;
  }

  Table stages() const {
    Table t{"stages", "Balance", {"stage", "holds", "FLOPs", "of the mean", "parameters"}, {}};
    double total = 0;
    for (const auto& s : in_.partition.stages) total += s.cost;
    const double mean = in_.partition.stages.empty() ? 1 : total / static_cast<double>(in_.partition.stages.size());
    for (std::size_t k = 0; k < in_.partition.stages.size(); ++k) {
      const auto& s = in_.partition.stages[k];
      t.rows.push_back({std::to_string(k), in_.holds(k, SIZE_MAX), fmt::format("{:.3g}", s.cost),
                        fmt::format("{:.0f} %", mean > 0 ? 100 * s.cost / mean : 100), bytes_text(static_cast<double>(s.parameter_bytes))});
    }
    return t;
  }

  Table roles() const {
    Table t{"roles", "Layers", {"layers", "how many", "role", "class", "input_is_parallel", "why"}, {}};
    struct Row {
      int n = 0;
      const rewrite::LayerRole* role = nullptr;
    };
    std::map<std::vector<std::string>, Row> rows;
    std::vector<std::vector<std::string>> order;
    for (const auto& r : in_.edits.roles) {
      std::vector<std::string> key{starred(t_.module(r.module).fqn), r.role, r.generated_class, starred_reason(r.reason)};
      auto [it, fresh] = rows.try_emplace(key);
      if (fresh) it->second.role = &r, order.push_back(key);
      ++it->second.n;
    }
    for (const auto& key : order) {
      const std::string parallel = key[1] != "row"                      ? "–"
          : key[3].find("input_is_parallel=True") != std::string::npos  ? "True"
          : key[3].find("input_is_parallel=False") != std::string::npos ? "False"
                                                                        : "–";
      t.rows.push_back({key[0], std::to_string(rows[key].n), key[1], key[2].empty() ? "cut in place" : key[2], parallel, key[3]});
    }
    return t;
  }
  /// Numbers of blocks in names that a reason mentions do not make it another reason.
  static std::string starred_reason(std::string s) {
    for (std::size_t i = 0; i + 1 < s.size(); ++i)
      if (s[i] == '.' && std::isdigit(static_cast<unsigned char>(s[i + 1]))) {
        std::size_t end = i + 1;
        while (end < s.size() && std::isdigit(static_cast<unsigned char>(s[end]))) ++end;
        if (end < s.size() && s[end] == '.') s.replace(i + 1, end - i - 1, "*");
      }
    return s;
  }

  const PackageInput& in_;
  const model::Trace& t_;
  const std::vector<File>& files_;
  mutable std::map<std::string, std::string> texts_;
};

/// Columns that a terminal shows: characters, not bytes.
std::size_t width(const std::string& s) {
  return static_cast<std::size_t>(std::count_if(s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string bytes_text(double b) {
  if (b >= 1 << 30) return fmt::format("{:.2f} GiB", b / (1 << 30));
  if (b >= 1 << 20) return fmt::format("{:.1f} MiB", b / (1 << 20));
  return fmt::format("{:.1f} KiB", b / 1024);
}

std::vector<Table> tables(const PackageInput& in, const std::vector<File>& files) { return Tables(in, files).run(); }

std::string markdown(const std::vector<Table>& all) {
  std::string out;
  for (const auto& t : all) {
    if (t.rows.empty()) continue;
    out += (out.empty() ? "" : "\n") + ("## " + t.title) + "\n\n|";
    for (const auto& c : t.columns) out += " " + c + " |";
    out += "\n|";
    for (std::size_t i = 0; i < t.columns.size(); ++i) out += " --- |";
    out += "\n";
    for (const auto& row : t.rows) {
      out += "|";
      for (const auto& cell : row) out += " " + cell + " |";
      out += "\n";
    }
  }
  return out;
}

std::string plain(const std::vector<Table>& all) {
  std::string out;
  for (const auto& t : all) {
    if (t.rows.empty()) continue;
    std::vector<std::size_t> widths;
    for (std::size_t i = 0; i < t.columns.size(); ++i) {
      widths.push_back(width(t.columns[i]));
      for (const auto& row : t.rows) widths[i] = std::max(widths[i], width(row[i]));
    }
    out += "\n" + t.title + "\n";
    auto line = [&](const std::vector<std::string>& cells) {
      std::string l = "  ";
      for (std::size_t i = 0; i < cells.size(); ++i)
        l += cells[i] + (i + 1 < cells.size() ? std::string(widths[i] - width(cells[i]) + 2, ' ') : "");
      out += l + "\n";
    };
    line(t.columns);
    for (const auto& row : t.rows) line(row);
  }
  return out;
}

std::string json(const std::vector<Table>& all) {
  nlohmann::ordered_json j;
  for (const auto& t : all) {
    j[t.name] = nlohmann::ordered_json::array();
    for (const auto& row : t.rows) {
      nlohmann::ordered_json r;
      for (std::size_t i = 0; i < row.size(); ++i) r[t.columns[i]] = row[i];
      j[t.name].push_back(std::move(r));
    }
  }
  return j.dump(2) + "\n";
}

}  // namespace shardwright::emit
