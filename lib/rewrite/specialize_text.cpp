// The text of a variant's definition: the original's, with verdicts, redirected constructors, renamed bases and sliced methods.
#include <algorithm>
#include <functional>

#include "program/visit.h"
#include "rewrite/specialize.h"
#include "rewrite/text_layout.h"
#include "rewrite/variants.h"
#include "support/edits.h"

namespace shardwright::rewrite {
namespace {

using program::Expr;
using program::ExprKind;
using program::Stmt;

/// The edits of one definition; any part of it can be printed.
class DefinitionEdits {
 public:
  explicit DefinitionEdits(std::string_view file) : file_(file) {}
  void replace(Range r, std::string text) {
    add({r.begin, r.end, [r, text](support::Edits& e, std::uint32_t base) { e.replace(moved(r, base), text); }});
  }
  void wrap(Range r, std::string prefix, std::string suffix) {
    add({r.begin, r.end, [=](support::Edits& e, std::uint32_t base) { e.wrap(moved(r, base), prefix, suffix); }});
  }
  void insert_before(std::uint32_t at, std::string text) {
    add({at, at, [=](support::Edits& e, std::uint32_t base) { e.insert_before(at - base, text); }});
  }
  void insert_after(std::uint32_t at, std::string text) {
    add({at, at, [=](support::Edits& e, std::uint32_t base) { e.insert_after(at - base, text); }});
  }
  /// New text for a range, whatever was to be edited inside it.
  void supersede(Range r, std::string text) {
    std::erase_if(entries_, [&](const Entry& x) { return r.begin <= x.begin && x.end <= r.end; });
    replace(r, std::move(text));
  }
  support::Expected<std::string> apply(Range r, const Render::Replacements& with = {}) const {
    support::Edits edits;
    for (const auto& x : entries_) {
      if (x.begin < r.begin || x.end > r.end) continue;
      const bool replaced = std::any_of(with.begin(), with.end(), [&](const auto& w) {
        return w.first.begin <= x.begin && x.end <= w.first.end && w.first.begin != w.first.end;
      });
      if (!replaced) x.put(edits, r.begin);
    }
    for (const auto& [range, text] : with) edits.replace(moved(range, r.begin), text);
    edits.remove_duplicates();
    return edits.apply(file_.substr(r.begin, r.end - r.begin));
  }

 private:
  struct Entry {
    std::uint32_t begin, end;
    std::function<void(support::Edits&, std::uint32_t)> put;
  };
  static Range moved(Range r, std::uint32_t base) { return {r.file, r.begin - base, r.end - base}; }
  void add(Entry x) { entries_.push_back(std::move(x)); }
  std::string_view file_;
  std::vector<Entry> entries_;
};

std::string indentation(const support::SourceManager& sm, support::FileId file, std::uint32_t offset) {
  std::string_view line = sm.line_at(file, offset);
  return std::string(line.substr(0, line.find_first_not_of(" \t")));
}

/// Variable that counts the iterations of a loop from 0, when the loop's header names one.
std::string counter_of(int clause, const Expr* comprehension, const Stmt* statement) {
  const Expr* target = nullptr;
  const Expr* iterable = nullptr;
  if (comprehension) {
    if (clause < static_cast<int>(comprehension->clauses.size())) {
      target = comprehension->clauses[static_cast<std::size_t>(clause)].target;
      iterable = comprehension->clauses[static_cast<std::size_t>(clause)].iterable;
    }
  } else if (statement && statement->kind == program::StmtKind::For && !statement->targets.empty()) {
    target = statement->targets[0];
    iterable = statement->value;
  }
  if (!target || !iterable || iterable->kind != ExprKind::Call || iterable->kids.empty() || iterable->kids[0]->kind != ExprKind::Name)
    return "";
  const std::string& f = iterable->kids[0]->text;
  if (f == "range" && iterable->args.size() == 1 && target->kind == ExprKind::Name) return target->text;
  if (f == "enumerate" && iterable->args.size() == 1 && target->kind == ExprKind::Tuple && !target->kids.empty() &&
      target->kids[0]->kind == ExprKind::Name)
    return target->kids[0]->text;
  return "";
}

/// Finds the loop that an Iteration names inside a definition.
struct LoopFinder {
  const Expr* comprehension = nullptr;
  const Stmt* statement = nullptr;
  LoopFinder(const std::vector<Stmt*>& body, const void* loop) {
    program::walk(body, [&](const Stmt* s) {
      if (s == loop) statement = s;
      return statement == nullptr;
    });
    if (!statement)
      program::walk_exprs(body, [&](const Expr* e) {
        if (e == loop) comprehension = e;
        return comprehension == nullptr;
      });
  }
};

class Printer {
 public:
  Printer(const std::vector<Variant>& all, const support::SourceManager& sm) : all_(all), sources_(sm) {}

  Printed out;
  std::function<std::string(const void*)> sliced_counter;  ///< of loops whose header the stage slicer changes

  void verdict(DefinitionEdits& edits, const Verdict& v, const Expr* call, const std::vector<Stmt*>& body) {
    switch (v.kind) {
      case Verdict::Keep: return;
      case Verdict::Replace: edits.replace(v.range, v.text); break;
      case Verdict::Wrap: edits.wrap(v.range, v.prefix, v.suffix); break;
      case Verdict::InsertBefore: edits.insert_before(v.range.begin, v.text + "\n" + lines_around(edits, v.range, body)); break;
      case Verdict::InsertAfter: edits.insert_after(v.range.end, v.text); break;
      case Verdict::AppendArgument: append_argument(edits, call, v.text); break;
    }
    for (const auto& i : v.imports) out.runtime.insert(i);
    if (!v.why.empty()) out.why.push_back(v.why);
  }

  /// Indentation of the statement at a range; a body on its header's line gets lines of its own.
  std::string lines_around(DefinitionEdits& edits, const Range& at, const std::vector<Stmt*>& body) {
    std::string indent = indentation(sources_, at.file, at.begin);
    const auto look = [&](const std::vector<Stmt*>& block, std::uint32_t header) {
      if (std::none_of(block.begin(), block.end(), [&](const Stmt* s) { return s->range == at; })) return;
      const Suite lines = suite_of(sources_, block, header);
      if (!lines.on_header) return;
      indent = lines.indent;
      for (const auto& [range, text] : lines.breaks) edits.replace(range, text);
    };
    program::walk(body, [&](const Stmt* s) {
      if (!s->range.contains(at)) return false;
      if (s->function) look(s->function->body, s->function->def_range.begin);
      look(s->body, s->range.begin);
      for (const auto* block : {&s->orelse, &s->finally})
        if (!block->empty()) look(*block, block->front()->range.begin);
      for (const auto& h : s->handlers)
        if (!h.body.empty()) look(h.body, h.body.front()->range.begin);
      return true;
    });
    return indent;
  }

  void append_argument(DefinitionEdits& edits, const Expr* call, const std::string& text) {
    if (call == nullptr) {
      out.error = "a call to be edited was not found in the text";
      return;
    }
    if (call->args.empty()) edits.insert_after(call->range.end - 1, text);
    else edits.insert_after(call->args.back().range.end, (text[0] == '\n' ? "," : ", ") + text);
  }

  void redirect(DefinitionEdits& edits, const Redirect& r, const std::vector<Stmt*>& body) {
    if (!r.by_stage.empty()) return choose_by_stage(edits, r);
    if (r.variant < 0 && r.exceptions.empty()) return;  // the original serves
    if (lookup(r.variant) || std::any_of(r.exceptions.begin(), r.exceptions.end(), [&](const auto& x) { return lookup(x.second); }))
      return restyle(edits, r, body);
    const Expr* callee = r.callee;
    std::string name = r.variant >= 0 ? refer(r.variant) : std::string(sources_.text(callee->range));
    if (!r.exceptions.empty() &&
        !by_iteration(edits, r, body, name, [&](int v) { return v >= 0 ? refer(v) : std::string(sources_.text(callee->range)); }))
      return;
    if (r.partial) {
      out.runtime.insert("rebind");
      name = "rebind(" + std::string(sources_.text(callee->range)) + ", " + name + ")";
    }
    if (name != sources_.text(callee->range)) edits.replace(callee->range, name);
  }

  /// `Wrap(Net())` in build_stage(stage): `Wrap([Net_stage0, Net_stage1][stage]())`.
  void choose_by_stage(DefinitionEdits& edits, const Redirect& r) {
    const Expr* callee = r.callee;
    const std::string plain(sources_.text(callee->range));
    std::string names;
    for (const int v : r.by_stage) names += (names.empty() ? "" : ", ") + (v >= 0 ? refer(v) : plain);
    if (r.partial || !r.exceptions.empty() || std::any_of(r.by_stage.begin(), r.by_stage.end(), [&](int v) { return lookup(v); }))
      out.error = "what is handed to the model's constructor needs a class of its own in each stage";
    else edits.replace(callee->range, "[" + names + "][stage]");
  }

  /// `for x in xs` becomes `for index, x in enumerate(xs)`; empty when the loop is none whose header can be changed so.
  std::string add_counter(DefinitionEdits& edits, const Redirect& r, const LoopFinder& loop, const std::vector<Stmt*>& body) {
    const Expr *target = nullptr, *iterable = nullptr;
    if (loop.comprehension && r.clause < static_cast<int>(loop.comprehension->clauses.size())) {
      target = loop.comprehension->clauses[static_cast<std::size_t>(r.clause)].target;
      iterable = loop.comprehension->clauses[static_cast<std::size_t>(r.clause)].iterable;
    } else if (loop.statement && loop.statement->kind == program::StmtKind::For && !loop.statement->targets.empty()) {
      target = loop.statement->targets[0];
      iterable = loop.statement->value;
    }
    if (!target || !iterable) return "";
    auto& counter = added_[target];
    if (!counter.empty()) return counter;
    program::NameSet used;
    program::names_read(body, used);
    program::names_written(body, used);
    auto taken = [&](const std::string& n) {
      return used.contains(n) || std::any_of(added_.begin(), added_.end(), [&](const auto& a) { return a.second == n; });
    };
    std::string name = "index";
    for (int n = 2; taken(name); ++n) name = "index" + std::to_string(n);
    counter = name;
    const bool bare_target = target->kind == ExprKind::Tuple && sources_.text(target->outer).front() != '(';
    const bool bare_iterable = iterable->kind == ExprKind::Tuple && sources_.text(iterable->outer).front() != '(';
    edits.wrap(target->outer, counter + ", " + (bare_target ? "(" : ""), bare_target ? ")" : "");
    edits.wrap(iterable->outer, bare_iterable ? "enumerate((" : "enumerate(", bare_iterable ? "))" : ")");
    return counter;
  }

  /// `name` becomes a choice between what `say` gives for the variants of a loop's iterations.
  bool by_iteration(DefinitionEdits& edits, const Redirect& r, const std::vector<Stmt*>& body, std::string& name,
                    const std::function<std::string(int)>& say) {
    LoopFinder loop(body, r.loop);
    std::string counter = sliced_counter ? sliced_counter(r.loop) : "";
    if (counter.empty()) counter = counter_of(r.clause, loop.comprehension, loop.statement);
    if (counter.empty() && !sliced_counter) counter = add_counter(edits, r, loop, body);
    if (counter.empty()) {
      out.error = "objects made in one loop need different classes, and the loop has no counter to tell them apart by";
      return false;
    }
    std::map<int, std::vector<int>> by_variant;
    for (auto [i, v] : r.exceptions) by_variant[v].push_back(i);
    std::string text = "(";
    for (auto& [v, indices] : by_variant) {
      text += say(v) + " if " + counter;
      if (indices.size() == 1) text += " == " + std::to_string(indices[0]);
      else {
        text += " in (";
        for (std::size_t i = 0; i < indices.size(); ++i) text += (i ? ", " : "") + std::to_string(indices[i]);
        text += ")";
      }
      text += " else ";
    }
    name = text + name + ")";
    return true;
  }

  /// The variant that a registry's name stands for, when that is how it is reached.
  bool lookup(int variant) const { return variant >= 0 && all_[static_cast<std::size_t>(variant)].registered >= 0; }

  /// Most objects of a loop are looked up by one name, others (a block that two stages hold in part) have a class of their own, which
  /// takes the name and needs it for nothing.
  bool restyle_most(DefinitionEdits& edits, const Redirect& r, const std::vector<Stmt*>& body, const Expr& literal) {
    if (r.partial || r.exceptions.empty()) return false;
    std::set<std::string> names;
    bool others = false;
    auto see = [&](int v) {
      if (lookup(v)) names.insert(refer(all_[static_cast<std::size_t>(v)].registered));
      else others = others || v < 0;
    };
    see(r.variant);
    for (const auto& [i, v] : r.exceptions) see(v);
    if (names.size() != 1 || others) return false;
    const Expr* callee = r.callee;
    const std::string plain(sources_.text(callee->range));
    auto say = [&](int v) { return lookup(v) ? plain : refer(v); };
    std::string name = say(r.variant);
    if (!by_iteration(edits, r, body, name, say)) return true;
    edits.replace(callee->range, name);
    const std::string quote = sources_.text(literal.range).substr(0, 1) == "'" ? "'" : "\"";
    edits.replace(literal.range, quote + *names.begin() + quote);
    return true;
  }

  /// The name that a constructor looks its class up by becomes the variant's.
  void restyle(DefinitionEdits& edits, const Redirect& r, const std::vector<Stmt*>& body) {
    const Variant* any = nullptr;
    bool mixed = r.partial;
    auto see = [&](int v) {
      if (lookup(v)) any = &all_[static_cast<std::size_t>(v)];
      else if (v >= 0) mixed = true;
    };
    see(r.variant);
    for (const auto& [i, v] : r.exceptions) see(v);
    const Expr* literal = argument_for(r.call, any->style, any->style_position);
    if (mixed && literal && literal->kind == ExprKind::String && restyle_most(edits, r, body, *literal)) return;
    if (mixed || !literal || literal->kind != ExprKind::String) {
      out.error = "objects made by one call are looked up by name and constructed in other ways as well";
      return;
    }
    auto say = [&](int v) -> std::string {
      if (v < 0) return std::string(sources_.text(literal->range));
      std::string quote = sources_.text(literal->range).substr(0, 1) == "'" ? "'" : "\"";
      return quote + refer(all_[static_cast<std::size_t>(v)].registered) + quote;
    };
    std::string name = say(r.variant);
    if (!r.exceptions.empty() && !by_iteration(edits, r, body, name, say)) return;
    if (name != sources_.text(literal->range)) edits.replace(literal->range, name);
  }

  std::string refer(int variant) {
    const Variant& v = all_[static_cast<std::size_t>(variant)];
    std::string n = variant_name(v, *v.container);
    out.refs[n] = variant;
    return n;
  }

 private:
  const std::vector<Variant>& all_;
  const support::SourceManager& sources_;
  std::map<const Expr*, std::string> added_;  ///< counters of loops, by the loop's target
};

/// A template's text (indented by fours from column 0) at an indentation, placeholders filled.
std::string indented(const std::string& text, const std::string& in, const std::map<std::string, std::string>& values) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    std::size_t depth = line.find_first_not_of(' ');
    if (depth == std::string::npos) {
      out += "\n";
      continue;
    }
    line.erase(0, depth);
    if (std::any_of(values.begin(), values.end(), [&](const auto& v) { return v.second.empty() && line == "{" + v.first + "}"; })) continue;
    for (const auto& [key, value] : values)
      for (std::size_t p; (p = line.find("{" + key + "}")) != std::string::npos;) line.replace(p, key.size() + 2, value);
    for (std::size_t i = 0; i <= depth / 4; ++i) out += in;
    out += line + "\n";
  }
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

/// `("tokens.weight", "head.weight"),`: all names of each of these parameters.
std::string tied_names(const model::Trace& trace, const std::vector<model::TensorId>& tied) {
  std::string out;
  if (tied.empty()) return out;
  const auto named = model::named_tensors(trace, false);
  for (model::TensorId t : tied) {
    std::string names;
    for (const auto& n : named)
      if (n.ref.tensor == t) names += "\"" + n.fqn + "\", ";
    if (names.empty()) continue;
    names.pop_back();
    out += (out.empty() ? "(" : " (") + names + "),";
  }
  return out;
}

/// All calls of a definition by range.
std::map<Range, const Expr*, RangeLess> calls_in(const std::vector<Stmt*>& body) {
  std::map<Range, const Expr*, RangeLess> out;
  program::walk_exprs(body, [&](const Expr* e) {
    if (e->kind == ExprKind::Call) out.emplace(e->range, e);
    return true;
  });
  return out;
}

/// A stage's constructor takes the target's configuration, or gets it, under the name that the constructors below are given.
void stage_constructor(Printer& p, DefinitionEdits& edits, const program::ClassDef& cls, const program::Function& init,
                       const std::string& in, const rules::Target& target, const support::SourceManager& sources) {
  const auto& locals = init.locals;
  const bool taken = std::find(locals.begin(), locals.end(), target.config.parameter) != locals.end();
  const std::string name = taken ? target.config.otherwise : target.config.parameter;
  const program::Parameter* last = nullptr;
  bool rest = false;
  for (const auto& x : init.parameters) {
    if (x.kind == program::Parameter::VarKeywords) rest = true;
    else last = &x;
  }
  if (!last) return;
  bool strict = false;
  for (const auto& base : cls.bases)
    if (base.value)
      strict = strict ||
          std::find(target.strict_bases.begin(), target.strict_bases.end(), std::string(sources.text(base.value->range))) !=
              target.strict_bases.end();
  std::string lead = line_of_its_own(sources, last->range);
  if (lead.empty()) lead = " ";
  edits.insert_after(last->range.end, "," + lead + name + "=None" + (strict && !rest ? "," + lead + "**kwargs" : ""));
  const Stmt* first = init.body.front();
  const bool docstring =
      first->kind == program::StmtKind::Expression && first->value && first->value->kind == ExprKind::String && init.body.size() > 1;
  if (docstring) first = init.body[1];
  std::string text = indented(target.text(target.stage_config), "", {{"config", name}, {"self", init.parameters.front().name}});
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) text.insert(at + 1, in);
  edits.insert_before(first->range.begin, text + "\n" + in);
  for (const auto& n : target.stage_config_names) p.out.runtime.insert(n);
}

/// `obj["mask"]` → `obj.get("mask")`, `obj.mask` → `getattr(obj, "mask", None)`; what is asked of the mask at once (`obj["mask"].clone()`)
/// needs one.
void optional_member(DefinitionEdits& edits, const program::ClassDef& cls, const std::string& member,
                     const support::SourceManager& sources) {
  const auto* forward = program::method(cls, "forward");
  if (!forward || forward->parameters.size() < 2) return;
  const std::string& given = forward->parameters[1].name;
  std::set<const Expr*> kept;
  program::walk(forward->body, [&](const Stmt* s) {
    kept.insert(s->targets.begin(), s->targets.end());
    return true;
  });
  program::walk_exprs(forward->body, [&](const Expr* e) {
    if (e->kind == ExprKind::Attribute || e->kind == ExprKind::Subscript) kept.insert(e->kids[0]);
    return true;
  });
  program::walk_exprs(forward->body, [&](const Expr* e) {
    if ((e->kind != ExprKind::Attribute && e->kind != ExprKind::Subscript) || kept.count(e)) return true;
    const Expr* of = e->kids[0];
    if (of->kind != ExprKind::Name || of->text != given) return true;
    if (e->kind == ExprKind::Attribute && e->text == member) edits.replace(e->range, "getattr(" + given + ", \"" + member + "\", None)");
    if (e->kind == ExprKind::Subscript && e->kids[1]->kind == ExprKind::String && e->kids[1]->text == member)
      edits.replace({e->range.file, of->outer.end, e->range.end}, ".get(" + std::string(sources.text(e->kids[1]->range)) + ")");
    return true;
  });
}

/// `def forward(self, mask=None):` → the other inputs too, which this stage ignores: every stage is called alike.
std::string with_optional_inputs(const std::string& text, const program::Function& forward, const std::vector<std::string>& needed) {
  auto end = text.find("):\n");
  if (end == std::string::npos) return text;
  std::string more;
  for (std::size_t i = 1; i < forward.parameters.size(); ++i) {
    const auto& x = forward.parameters[i];
    if (x.kind == program::Parameter::VarArgs || x.kind == program::Parameter::VarKeywords || x.name.empty()) continue;
    if (std::find(needed.begin(), needed.end(), x.name) == needed.end()) more += ", " + x.name + "=None";
  }
  return text.substr(0, end) + more + text.substr(end);
}

}  // namespace

Printed print_definition(const Variant& v, const Container& c, const std::vector<Variant>& all, const model::Trace& trace,
                         const StageSlicer* stages, const support::SourceManager& sources, const std::vector<std::string>& inputs,
                         bool asked, bool module) {
  Printer p(all, sources);
  const std::vector<Stmt*>& body = c.class_def ? c.class_def->body : c.function->body;
  auto calls = calls_in(body);
  DefinitionEdits edits(sources.file(c.range.file).text);
  if (v.sliced && stages) p.sliced_counter = [&](const void* loop) { return stages->loop_counter(v.stage, v.module, loop); };
  for (const Verdict* w : v.verdicts) {
    if (!c.range.contains(w->range)) continue;
    auto it = calls.find(w->range);
    p.verdict(edits, *w, it == calls.end() ? nullptr : it->second, body);
  }
  for (const auto& r : v.redirects)
    if (c.range.contains(r.call->range)) p.redirect(edits, r, body);

  // Its own name, and what its text says about itself.
  const std::string name = variant_name(v, c);
  if (name != c.name) {
    std::string_view text = sources.text(c.class_def ? c.class_def->def_range : c.function->def_range);
    const std::uint32_t at = (c.class_def ? c.class_def->def_range : c.function->def_range).begin +
        static_cast<std::uint32_t>(text.find(c.name, text.find(c.class_def ? "class" : "def") + 3));
    edits.replace({c.range.file, at, at + static_cast<std::uint32_t>(c.name.size())}, name);
    program::walk_exprs(body, [&](const Expr* e) {
      if (e->kind == ExprKind::Name && e->text == c.name && c.class_def) {
        bool redirected = false;
        for (const auto& r : v.redirects) redirected = redirected || r.callee == e;
        if (!redirected) edits.replace(e->range, name);
      }
      return true;
    });
  }
  // A copy under another name must not take the original's place in a registry.
  if (name != c.name)
    for (const Expr* d : c.class_def ? c.class_def->decorators : c.function->decorators)
      if (trace.entering.count(d)) {
        const std::string_view text = sources.file(c.range.file).text;
        const auto at = static_cast<std::uint32_t>(text.rfind('@', d->range.begin)),
                   end = static_cast<std::uint32_t>(text.find('\n', d->range.end));
        std::uint32_t next = end;
        while (next < c.range.end && (text[next] == '\n' || text[next] == ' ' || text[next] == '\t')) ++next;
        edits.replace({c.range.file, at, next}, "");
      }
  if (c.class_def && (asked || module) && !body.empty()) {
    // Behind the docstring, above the comments of the first statement.
    const Stmt* first = body.front();
    const bool doc = first->kind == program::StmtKind::Expression && first->value && first->value->kind == ExprKind::String;
    const std::string_view text = sources.file(c.range.file).text;
    std::size_t at = doc ? text.find('\n', first->range.end) : text.rfind('\n', first->range.begin);
    const auto blank_or_comment = [&](std::size_t line) {
      const auto word = text.find_first_not_of(" \t\r", line);
      return word == std::string_view::npos || text[word] == '\n' || text[word] == '#';
    };
    while (!doc && at != std::string_view::npos && at > c.range.begin) {
      const std::size_t before = text.rfind('\n', at - 1);
      if (before == std::string_view::npos || before < c.range.begin || !blank_or_comment(before + 1)) break;
      at = before;
    }
    if (at != std::string_view::npos && at > c.class_def->def_range.begin && at < c.range.end) {
      const std::string indent = indentation(sources, c.range.file, first->range.begin);
      std::string text;
      if (module) text += indent + "__module__ = \"" + c.module->name + "\"\n" + (asked ? "" : "\n");
      if (asked) text += indent + "__class__ = stands_for(" + original_name(c.name) + ")\n\n";
      edits.insert_after(static_cast<std::uint32_t>(at + 1), text);
      if (asked) p.out.runtime.insert("stands_for");
    }
  }
  // Bases that have a text of their own.
  if (c.class_def) {
    bool after = false;
    for (const Container* b : v.chain) {
      if (after) {
        const Expr* match = nullptr;
        for (const auto& base : c.class_def->bases)
          if (base.keyword.empty() && base.value && (base.value->kind == ExprKind::Name || base.value->kind == ExprKind::Attribute) &&
              base.value->text == b->name)
            match = base.value;
        if (match) {
          const std::string base_name = variant_name(v, *b);
          if (base_name != sources.text(match->range)) edits.replace(match->range, base_name);
          p.out.refs[base_name] = v.id;
        }
        // `Base.__init__(self, …)`, `super(Base, self)`: what is asked of it has the new text, too.
        if (const std::string base_name = variant_name(v, *b); base_name != b->name)
          program::walk_exprs(body, [&](const Expr* e) {
            const Expr* named = e->kind == ExprKind::Attribute ? e->kids[0] : nullptr;
            if (e->kind == ExprKind::Call && e->kids[0]->kind == ExprKind::Name && e->kids[0]->text == "super" && !e->args.empty())
              named = e->args[0].value;
            if (!named || named->text != b->name || (named->kind != ExprKind::Name && named->kind != ExprKind::Attribute)) return true;
            edits.replace(named->range, base_name);
            p.out.refs[base_name] = v.id;
            return true;
          });
      }
      if (b == &c) after = true;
    }
  }
  // Statements at the end of __init__.
  const program::Function* init = c.class_def ? program::method(*c.class_def, "__init__") : nullptr;
  const Suite init_lines = init ? suite_of(sources, init->body, init->def_range.begin) : Suite{};
  std::string tail;
  if (init)
    for (const auto* s : v.init) {
      tail += "\n" + init_lines.indent + s->text;
      for (const auto& i : s->imports) p.out.runtime.insert(i);
    }

  const bool root = v.module == 0 && c.class_def && v.container == &c;
  const rules::Target& target = *v.target;
  if (root && init)
    for (const auto& m : trace.modules)
      if (auto reserved = target.stage_reserved.find(m.attr); m.parent == 0 && reserved != target.stage_reserved.end()) {
        tail += "\n" + init_lines.indent + reserved->second + "(" + init->parameters.front().name + ")";
        p.out.runtime.insert(reserved->second);
      }
  std::string tied;  // the names of every parameter that another stage holds, too
  if (root && stages && !target.stage_tied.empty()) {
    tied = tied_names(trace, stages->interface(v.stage).tied);
    if (!tied.empty() && !init) p.out.error = "the class has no __init__ of its own, where parameters that two stages hold can be marked";
    if (!tied.empty() && init) {
      tail += "\n" + init_lines.indent + indented(target.text(target.stage_tied_mark), "", {{"copy", v.stage > 0 ? "True" : "False"}});
      p.out.runtime.insert(target.stage_tied_names.begin(), target.stage_tied_names.end());
    }
  }
  if (c.class_def)
    for (const auto& [word, member] : target.optional_members)
      if (c.name.find(word) != std::string::npos) optional_member(edits, *c.class_def, member, sources);
  const bool configured = root && init && !target.config.parameter.empty();
  if (configured) stage_constructor(p, edits, *c.class_def, *init, init_lines.indent, target, sources);
  if (init_lines.on_header && (configured || !tail.empty()))
    for (const auto& [range, text] : init_lines.breaks) edits.replace(range, text);
  const std::string& file = sources.file(c.range.file).text;
  const auto behind = [&](const program::Function& f) { return end_with_comments(file, f.def_range); };
  support::Range whole = c.range;
  whole.end = end_with_comments(file, c.range);
  if (v.sliced && stages) {
    std::string refused;
    Render render = [&](Range r, const Render::Replacements& with) {
      auto t = edits.apply(r, with);
      if (!t) {
        refused = t.error().message;
        return std::string();
      }
      return *t;
    };
    // Slices first, from the edits so far; then they replace the methods.
    std::vector<std::pair<Range, std::string>> sliced;
    std::string inherited;
    for (const program::ClassDef* k : {c.class_def}) {
      for (const Stmt* s : k->body)
        if (s->kind == program::StmtKind::FunctionDef)
          if (auto t = stages->method(v.stage, v.module, s->function, render)) {
            if (s->function == init) *t += tail;
            if (root && v.stage > 0 && target.optional_inputs && s->function->name == "forward")
              *t = with_optional_inputs(*t, *s->function, stages->interface(v.stage).needs_inputs);
            sliced.emplace_back(Range{c.range.file, s->function->def_range.begin, behind(*s->function)}, *t);
          }
    }
    if (!refused.empty()) p.out.error = refused;
    for (const auto& line : stages->extra_imports(v.stage, v.module)) {
      if (line.rfind("from ", 0) == 0 || line.rfind("import ", 0) == 0) p.out.plain_imports.insert(line);
      else p.out.runtime.insert(line);
    }
    bool init_sliced = false;
    for (auto& [r, text] : sliced) {
      edits.supersede(r, text);
      init_sliced = init_sliced || (init && r.begin == init->def_range.begin);
    }
    if (!init_sliced && init && !tail.empty()) edits.insert_after(behind(*init), tail);
  } else if (!tail.empty()) {
    if (init) edits.insert_after(behind(*init), tail);
  }
  if (root) {
    // What the runtime asks of a stage.
    const Suite lines = suite_of(sources, c.class_def->body, c.class_def->def_range.begin);
    if (lines.on_header)
      for (const auto& [range, text] : lines.breaks) edits.replace(range, text);
    const std::string& in = lines.indent;
    std::string names;
    const StageInterface face = v.sliced && stages ? stages->interface(v.stage) : StageInterface{{}, {}, inputs, {}};
    for (const auto& n : face.needs_inputs) names += "\"" + n + "\", ";
    std::string passes;
    for (const auto& [from, to] : face.passes) passes += (passes.empty() ? "" : ", ") + std::to_string(from) + ": " + std::to_string(to);
    if (!passes.empty())
      passes = "passes = {" + passes + "}  # entries of input_tensor that it returns unread: they are sent past this stage";
    if (!names.empty()) names.pop_back();
    edits.insert_after(whole.end,
                       "\n\n" +
                           indented(target.text(target.stage_members), in,
                                    {{"inputs", names}, {"passes", passes}, {"shares", tied.empty() ? "None" : "True"}}));
    if (!tied.empty()) edits.insert_after(whole.end, "\n\n" + indented(target.text(target.stage_tied), in, {{"tied", tied}}));
    for (const auto& n : target.stage_names) p.out.runtime.insert(n);
  }
  if (init == nullptr && !v.init.empty() && v.chain.size() == 1) p.out.error = "the class has no __init__ of its own to add to";
  auto text = edits.apply(whole);
  if (!text) p.out.error = text.error().message;
  else p.out.text = *text;
  // A definition under `if`/`try` of the top level is indented: bring it to the margin.
  std::string margin = indentation(sources, c.range.file, c.range.begin);
  if (!margin.empty()) {
    std::string t = p.out.text;
    for (std::size_t at = t.find("\n" + margin); at != std::string::npos; at = t.find("\n" + margin, at + 1))
      t.erase(at + 1, margin.size());
    p.out.text = t;
  }
  return std::move(p.out);
}

Printed print_expression(const Range& e, const std::vector<Redirect>& redirects, const std::vector<Variant>& all,
                         const support::SourceManager& sources) {
  Printer p(all, sources);
  DefinitionEdits edits(sources.file(e.file).text);
  std::vector<Stmt*> none;
  for (const auto& r : redirects)
    if (e.contains(r.call->range)) p.redirect(edits, r, none);
  auto text = edits.apply(e);
  if (text) p.out.text = *text;
  else p.out.error = text.error().message;
  return std::move(p.out);
}

}  // namespace shardwright::rewrite
