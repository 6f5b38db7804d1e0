#include "rewrite/typed_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "rewrite/tp_context.h"
#include "rewrite/variants.h"
#include "support/text.h"

namespace shardwright::rewrite {
namespace {

using program::Function;
using program::Stmt;
using program::StmtKind;

bool word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// A fragment of tp_edits in C++: our names qualified, // as /, tuples as braces.
std::string in_cxx(std::string s, const std::vector<std::string>& names) {
  s = support::replaced(s, " // ", " / ");
  std::set<std::string> ours(names.begin(), names.end());
  ours.insert("tp_size");
  std::string out;
  for (std::size_t at = 0; at < s.size();) {
    if (!word(s[at])) {
      out += s[at++];
      continue;
    }
    std::size_t end = at;
    while (end < s.size() && word(s[end])) ++end;
    const std::string w = s.substr(at, end - at);
    out += ours.count(w) ? "shardwright::" + w : w == "None" ? "0" : w;
    at = end;
  }
  // ", 1, (3, 0)": factors of a dimension
  for (std::size_t at = out.find(", ("); at != std::string::npos; at = out.find(", (", at + 1)) {
    const std::size_t close = out.find(')', at);
    if (close == std::string::npos) break;
    out[at + 2] = '{';
    out[close] = '}';
  }
  return out;
}

/// Does a statement stand alone between two others (and not as the only one under an if or a for)?
bool in_block(std::string_view text, std::uint32_t begin) {
  std::size_t at = begin;
  for (;;) {
    while (at > 0 && std::isspace(static_cast<unsigned char>(text[at - 1]))) --at;
    // a comment line above
    const std::size_t line = text.rfind('\n', at == 0 ? 0 : at - 1);
    const std::size_t from = line == std::string_view::npos ? 0 : line + 1;
    const std::size_t comment = text.substr(from, at - from).find("//");
    if (comment == std::string_view::npos) break;
    at = from + comment;
  }
  return at > 0 && (text[at - 1] == '{' || text[at - 1] == '}' || text[at - 1] == ';');
}

/// What a line begins with.
std::string indentation(const support::SourceManager& sources, support::FileId file, std::uint32_t offset) {
  const std::string_view line = sources.line_at(file, offset);
  return std::string(line.substr(0, line.find_first_not_of(" \t")));
}

class Printer {
 public:
  Printer(const model::Trace& t, const sharding::Result& r, const support::SourceManager& s, const rules::Database& d,
          const rules::Target& target)
      : trace_(t), result_(r), sources_(s), ctx_(t, r, s, d, target) {}

  TypedText run(const TpEdits& wanted) {
    for (const auto& r : wanted.refusals) out_.refusals.push_back(r);
    places(wanted);
    held();
    return std::move(out_);
  }

 private:
  support::Edits& edits(support::FileId f) { return out_.edits.try_emplace(f, support::Edits(f)).first->second; }

  void refuse(int axis, Range where, std::string message) { out_.refusals.push_back({axis, where, std::move(message)}); }

  void places(const TpEdits& wanted) {
    // What the frames want at each place; templates' instances share places.
    struct Place {
      std::set<EditKey> keys;
      const Verdict* verdict = nullptr;
      std::vector<const Verdict*> all;
      bool kept = false;
    };
    std::map<Range, Place, RangeLess> all;
    for (const auto& v : wanted.verdicts) {
      Place& p = all[v.range];
      if (v.kind == Verdict::Keep) p.kept = true;
      else if (p.keys.insert({static_cast<int>(v.kind), v.text, v.prefix, v.suffix}).second) p.all.push_back(&v);
    }
    // Frames whose verdicts differ: a set per frame must be the same.
    std::map<Range, std::map<model::FrameId, std::set<EditKey>>, RangeLess> frames;
    for (const auto& v : wanted.verdicts) {
      auto& set = frames[v.range][v.frame];
      if (v.kind != Verdict::Keep) set.insert({static_cast<int>(v.kind), v.text, v.prefix, v.suffix});
    }
    for (auto& [range, p] : all) {
      if (p.all.empty()) continue;
      const auto& sets = frames[range];
      const bool alike = std::all_of(sets.begin(), sets.end(), [&](const auto& s) { return s.second == sets.begin()->second; });
      if (!alike) {
        for (const Verdict* v : p.all) refuse(v->axis, range, "instances of one class need different text here: " + v->why);
        continue;
      }
      for (const Verdict* v : p.all) write(*v);
    }
  }

  void write(const Verdict& v) {
    const std::string_view text = sources_.file(v.range.file).text;
    auto& e = edits(v.range.file);
    Range at = v.range;
    switch (v.kind) {
      case Verdict::Keep: return;
      case Verdict::Replace: {
        e.replace(at, in_cxx(v.text, v.imports));
        break;
      }
      case Verdict::Wrap: {
        std::string prefix = v.prefix, suffix = v.suffix;
        if (prefix.rfind("[size // tp_size() for size in ", 0) == 0) prefix = "shardwright::local_pieces(", suffix = ")";
        // f->forward(x) handed over is f, x
        const std::string_view of = text.substr(at.begin, at.end - at.begin);
        const bool handed = !v.imports.empty() && suffix.empty() && prefix.size() > 1 && prefix.back() == '(';
        if (handed)
          for (std::string_view tail : {std::string_view("->forward"), std::string_view(".forward")})
            if (of.size() > tail.size() && of.substr(of.size() - tail.size()) == tail)
              e.remove({at.file, at.end - static_cast<std::uint32_t>(tail.size()), at.end});
        e.wrap(at, in_cxx(prefix, v.imports), in_cxx(suffix, v.imports));
        break;
      }
      case Verdict::InsertBefore: {
        if (!in_block(text, at.begin))
          return refuse(v.axis, at, "a statement has to stand before this one, which is not in a block of its own");
        std::string s = in_cxx(v.text, v.imports);
        // A variable that is new is declared; `x = f(x)` assigns to the one there is.
        const auto eq = s.find(" = ");
        const std::string name = s.substr(0, eq);
        const bool fresh = eq != std::string::npos && s.find("(" + name + ")", eq) == std::string::npos &&
            s.find("(" + name + ",", eq) == std::string::npos;
        const std::string in = indentation(sources_, at.file, at.begin);
        const std::size_t line = text.rfind('\n', at.begin == 0 ? 0 : at.begin - 1);
        const bool own_line =
            text.substr(line == std::string_view::npos ? 0 : line + 1, at.begin - (line == std::string_view::npos ? 0 : line + 1))
                .find_first_not_of(" \t") == std::string_view::npos;
        e.insert_before(at.begin, (fresh ? "auto " : "") + s + ";" + (own_line ? "\n" + in : " "));
        break;
      }
      case Verdict::InsertAfter: {
        std::uint32_t end = at.end;
        if (end == 0 || text[end - 1] != ';') {
          while (end < text.size() && std::isspace(static_cast<unsigned char>(text[end]))) ++end;
          if (end >= text.size() || text[end] != ';')
            return refuse(v.axis, at, "a statement has to stand after this one, which has no end of its own");
          ++end;
        }
        if (!in_block(text, at.begin))
          return refuse(v.axis, at, "a statement has to stand after this one, which is not in a block of its own");
        e.insert_after(end, in_cxx(v.text, v.imports) + ";");
        break;
      }
      case Verdict::AppendArgument: return refuse(v.axis, at, "a further argument has no form in C++ here");
    }
    if (!v.why.empty()) {
      const std::string line = sources_.describe(v.range) + ": " + v.why;
      if (std::find(out_.why.begin(), out_.why.end(), line) == out_.why.end()) out_.why.push_back(line);
    }
  }

  // ---- what each rank holds ---------------------------------------------------------------------------------------------------

  HeldParameter describe(const model::Module& m, const model::ParamRef& p) {
    HeldParameter h;
    h.name = m.fqn.empty() ? p.attr : m.fqn + "." + p.attr;
    h.buffer = p.buffer;
    h.summed = !p.buffer && std::find(result_.grad_summed.begin(), result_.grad_summed.end(), p.tensor) != result_.grad_summed.end();
    if (const int axis = ctx_.axis_of(p.tensor); axis >= 0) {
      const tp::Layout l = ctx_.layout(p.tensor);
      h.dim = l.dim;
      h.outer = l.outer;
      for (const auto& s : l.segments) h.segments.emplace_back(s.rows, s.outer);
      if (!l.expressible) refuse(axis, {}, h.name + ": the shard is a concatenation inside another factor, which has no spelling");
    }
    return h;
  }

  /// The user's class that writes the statement for a module's parameters: the module itself, or the nearest above it.
  model::ModuleId writer(model::ModuleId m) const {
    for (; m >= 0; m = trace_.module(m).parent)
      if (!trace_.module(m).builtin && trace_.module(m).init_frame >= 0) return m;
    return -1;
  }

  void held() {
    // class → statements of each instance
    std::map<const program::ClassDef*, std::vector<std::pair<model::ModuleId, std::vector<std::string>>>> by_class;
    std::map<model::ModuleId, std::vector<std::string>> of_module;
    std::map<std::string, int> axis_of_statement;
    std::set<model::TensorId> seen;
    for (const auto& m : trace_.modules) {
      if (!ctx_.index.within(m.id, 0)) continue;
      if (!m.builtin) of_module[m.id];
      for (const auto& p : m.params) {
        HeldParameter h = describe(m, p);
        if (!seen.insert(p.tensor).second) continue;  // tied: one tensor
        if (h.dim < 0 && !h.summed) {
          out_.held.push_back(std::move(h));
          continue;
        }
        const int axis = std::max(ctx_.axis_of(p.tensor), axis_met(p.tensor));
        const model::ModuleId w = writer(m.id);
        if (w < 0) {
          refuse(axis, {}, h.name + " is made by code that cannot be edited");
          continue;
        }
        const std::string prefix = trace_.module(w).fqn;
        const std::string relative = prefix.empty() ? h.name : h.name.substr(prefix.size() + 1);
        std::string s;
        if (h.dim >= 0) {
          s = fmt::format("shardwright::shard(*this, \"{}\", {}", relative, h.dim);
          if (!h.segments.empty()) {
            s += ", {";
            for (std::size_t i = 0; i < h.segments.size(); ++i)
              s += fmt::format("{}{{{}, {}}}", i ? ", " : "", h.segments[i].first, h.segments[i].second);
            s += "}";
          } else if (h.outer != 1) {
            s += fmt::format(", {}", h.outer);
          }
          s += ");";
        } else {
          s = fmt::format("shardwright::sum_gradients_over_tp(*this, \"{}\");", relative);
        }
        axis_of_statement[s] = axis;
        of_module[w].push_back(std::move(s));
        out_.held.push_back(std::move(h));
      }
    }
    for (auto& [m, list] : of_module)
      if (const auto* def = trace_.module(m).class_def) by_class[def].emplace_back(m, list);
    std::set<std::pair<support::FileId, std::uint32_t>> written;  // a template's instances share the place
    std::map<std::pair<support::FileId, std::uint32_t>, std::vector<std::string>> at_place;
    for (auto& [def, instances] : by_class) {
      const auto& first = instances.front().second;
      bool alike = true;
      for (const auto& [m, list] : instances) alike = alike && list == first;
      if (!alike) {
        for (const auto& [m, list] : instances)
          for (const auto& s : list)
            if (std::any_of(instances.begin(), instances.end(),
                            [&](const auto& i) { return std::find(i.second.begin(), i.second.end(), s) == i.second.end(); }))
              refuse(axis_of_statement[s], def->range, "instances of " + def->name + " hold different slices (" + s + " for some)");
        continue;
      }
      for (const auto& [m, list] : instances) {
        const Function* init = trace_.frame(trace_.module(m).init_frame).function;
        if (!init || !init->body_range.valid()) {
          if (!first.empty())
            refuse(axis_of_statement[first.front()], def->range, def->name + " has no constructor of its own to say what a rank holds");
          break;
        }
        const std::uint32_t end = init->body_range.end - 1;  // before the closing brace
        auto [it, fresh] = at_place.try_emplace({init->body_range.file, end}, first);
        if (!fresh) {
          if (it->second != first)
            for (const auto& s : first) refuse(axis_of_statement[s], def->range, "instances of one template hold different slices");
          continue;
        }
        if (first.empty()) continue;
        const std::string_view text = sources_.file(init->body_range.file).text;
        // On a line of its own: `{}` opens, `… }` on its own line gets the lines before it.
        std::size_t before = end;
        while (before > init->body_range.begin + 1 && (text[before - 1] == ' ' || text[before - 1] == '\t')) --before;
        const bool own_line = text[before - 1] == '\n';
        const std::string margin = indentation(sources_, init->body_range.file, own_line ? end : init->range.begin);
        const std::string in = margin + unit(text);
        std::string s = own_line ? in.substr(std::min(in.size(), end - before)) : "\n" + in;
        s += "// What a tensor-parallel rank holds of each parameter.";
        for (const auto& line : first) s += "\n" + in + line;
        s += "\n" + margin;
        edits(init->body_range.file).insert_before(end, s);
      }
    }
  }

  int axis_met(model::TensorId t) const {
    for (const auto& u : ctx_.index.uses(t))
      for (model::TensorId o : trace_.op(u.op).outputs)
        if (ctx_.axis_of(o) >= 0) return ctx_.axis_of(o);
    return -1;
  }

  /// One level of indentation in this file.
  static std::string unit(std::string_view text) {
    for (std::size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1)) {
      std::size_t n = 0;
      while (at + 1 + n < text.size() && text[at + 1 + n] == ' ') ++n;
      if (at + 1 < text.size() && text[at + 1] == '\t') return "\t";
      if (n >= 2 && at + 1 + n < text.size() && text[at + 1 + n] != '\n' && text[at + 1 + n] != '*') return std::string(n, ' ');
    }
    return "  ";
  }

  const model::Trace& trace_;
  const sharding::Result& result_;
  const support::SourceManager& sources_;
  tp::Context ctx_;
  TypedText out_;
};

}  // namespace

TypedText typed_text(const model::Trace& trace, const sharding::Result& result, const TpEdits& wanted,
                     const support::SourceManager& sources, const rules::Database& rules, const rules::Target& target) {
  return Printer(trace, result, sources, rules, target).run(wanted);
}

}  // namespace shardwright::rewrite
