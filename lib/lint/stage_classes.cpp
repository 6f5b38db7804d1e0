// Checks of pipeline stage classes ("…_stage3") as they are written: what the schedule asks of them, how they read what they receive,
// what they return. Stages of one file are held against each other.
#include <algorithm>
#include <map>
#include <optional>

#include "lint/classes.h"
#include "lint/scripts.h"
#include "lint/syntax_help.h"
#include "program/visit.h"

namespace shardwright::lint {

using program::ClassDef;
using program::Expr;
using program::ExprKind;
using program::Function;
using program::Stmt;
using program::StmtKind;
using support::Severity;
using namespace syntax;

namespace {

struct Stage {
  const ClassDef* def = nullptr;
  std::size_t number = 0;
  std::string model;  ///< the name without "_stage3"
  std::string_view text;
  bool generated = false;  ///< by this program: where it cuts, and why not elsewhere, is in its plan
  const Function* init = nullptr;
  const Function* forward = nullptr;
  std::optional<std::size_t> returned;  ///< length of the tuple it returns, where every return tells
  std::vector<std::string> received;    ///< names that its received tuple is unpacked to
  const Stmt* unpacking = nullptr;
};

std::optional<Stage> stage_of(const ClassDef& c, const support::SourceManager& sources) {
  const auto number = stage_number(c.name);
  if (!number) return std::nullopt;
  Stage s;
  s.def = &c;
  s.number = *number;
  s.model = c.name.substr(0, c.name.rfind("_stage"));
  s.text = sources.text(c.range);
  s.generated = generated(c.range.file, sources);
  s.init = method(c, "__init__");
  s.forward = method(c, "forward");
  if (!s.forward) return std::nullopt;
  auto all = returns(*s.forward);
  bool tuples = !all.empty();
  for (const auto* r : all)
    tuples = tuples && r->kind == ExprKind::Tuple && r->kids.size() == all[0]->kids.size() &&
        std::none_of(r->kids.begin(), r->kids.end(), [](const auto* k) { return k->kind == ExprKind::Starred; });
  if (tuples) s.returned = all[0]->kids.size();
  program::walk(s.forward->body, [&](const Stmt* st) {
    if (st->kind == StmtKind::Assign && st->targets.size() == 1 && self_attribute(st->value) == "input_tensor" &&
        (st->targets[0]->kind == ExprKind::Tuple || st->targets[0]->kind == ExprKind::List)) {
      s.unpacking = st;
      for (const auto* t : st->targets[0]->kids) s.received.push_back(t->kind == ExprKind::Name ? t->text : "");
    }
    return true;
  });
  return s;
}

/// Only classes whose bases are torch's module: others may inherit what seems to be missing.
bool plain(const Stage& s, const support::SourceManager& sources) {
  for (const auto& b : s.def->bases) {
    const auto text = b.value ? sources.text(b.value->range) : std::string_view();
    if (text != "nn.Module" && text != "torch.nn.Module" && text != "Module") return false;
  }
  return !s.def->bases.empty();
}

/// Is it set in the class itself?
bool class_attribute(const ClassDef& c, std::string_view name) {
  return std::any_of(c.body.begin(), c.body.end(), [&](const Stmt* s) {
    return s->kind == StmtKind::Assign &&
        std::any_of(s->targets.begin(), s->targets.end(), [&](const Expr* t) { return t->kind == ExprKind::Name && t->text == name; });
  });
}

void interface_of(const Stage& s, const support::SourceManager& sources, Found& found) {
  // Megatron's schedule asks this; others have stages too.
  if (!plain(s, sources) || !contains(s.text, {"pre_process", "share_embeddings_and_output_weights"})) return;
  std::string missing;
  for (const char* a : {"config", "input_tensor", "pre_process", "share_embeddings_and_output_weights"})
    if (!contains(s.text, {std::string("self.") + a}) && !class_attribute(*s.def, a))
      missing += (missing.empty() ? "" : ", ") + std::string(a);
  if (!method(*s.def, "set_input_tensor")) missing += (missing.empty() ? "" : ", ") + std::string("set_input_tensor()");
  if (!missing.empty())
    found.add(Severity::Error, "SW201", name_range(*s.def), s.def->name + " lacks what the pipeline schedule asks of a stage: " + missing,
              {});
  if (!method(*s.def, "state_dict_for_save_checkpoint") && !method(*s.def, "sharded_state_dict"))
    found.add(Severity::Warning, "SW213", name_range(*s.def),
              s.def->name + " has neither state_dict_for_save_checkpoint nor sharded_state_dict: saving fails at the first interval", {});
}

/// SW203: the same names, in another order.
void order_of(const Stage& s, const Stage& before, Found& found) {
  for (const auto* r : returns(*before.forward)) {
    if (r->kind != ExprKind::Tuple || r->kids.size() != s.received.size()) continue;
    std::vector<std::string> sent;
    for (const auto* k : r->kids) sent.push_back(k->kind == ExprKind::Name ? k->text : "");
    if (sent == s.received || !std::is_permutation(sent.begin(), sent.end(), s.received.begin()) ||
        std::count(sent.begin(), sent.end(), ""))
      continue;
    found.add(Severity::Error, "SW203", s.unpacking->range,
              before.def->name + " returns " + std::string(sent[0]) + ", …; " + s.def->name +
                  " takes the same tensors in another order: " + s.received[0] + ", …",
              {{r->range, "what is sent"}});
  }
}

void received_of(const Stage& s, const Stage* before, Found& found) {
  const bool reads = contains(s.text, {"self.input_tensor"}) && [&] {
    bool any = false;
    program::walk(s.forward->body, [&](const Stmt* st) {
      if (st->kind != StmtKind::Assert)
        program::for_each_expr(st, [&](const Expr* e) {
          program::walk(e, [&](const Expr* x) {
            any = any || self_attribute(x) == "input_tensor";
            return true;
          });
        });
      return true;
    });
    return any;
  }();
  if (s.number == 0) {
    if (reads)
      found.add(Severity::Error, "SW202", name_range(*s.def),
                s.def->name + " is the first stage and reads self.input_tensor, which nobody sets; it reads its argument", {});
    return;
  }
  // A part of a module inside the model, which the model's own stage calls with all that it needs.
  const auto needed = std::count_if(s.forward->parameters.begin(), s.forward->parameters.end(), [](const auto& p) {
    return p.kind != program::Parameter::VarArgs && p.kind != program::Parameter::VarKeywords && !p.name.empty() && !p.default_value;
  });
  if (!reads && needed > 2 && !contains(s.text, {"input_tensor"})) return;
  if (!reads) {
    found.add(Severity::Error, "SW202", s.forward->def_range.valid() ? name_range(*s.def) : s.forward->range,
              s.def->name + " never reads self.input_tensor: a later stage gets its input there, its argument is None", {});
    return;
  }
  for (std::size_t i = 1; i < s.forward->parameters.size(); ++i) {
    const auto& p = s.forward->parameters[i];
    if (!p.name.empty() && !p.default_value && p.kind != program::Parameter::VarArgs && p.kind != program::Parameter::VarKeywords)
      found.add(Severity::Warning, "SW202", p.range, "forward of a later stage is called without an input: " + p.name + " needs a default",
                {});
  }
  if (s.unpacking) {
    if (before && before->returned && *before->returned != s.received.size())
      found.add(Severity::Error, "SW203", s.unpacking->range,
                s.def->name + " unpacks " + std::to_string(s.received.size()) + " tensors, " + before->def->name + " returns " +
                    std::to_string(*before->returned),
                {{before->forward->def_range, "what is sent"}});
    if (before) order_of(s, *before, found);
    return;
  }
  // x = self.input_tensor, and then used as one tensor.
  program::walk(s.forward->body, [&](const Stmt* st) {
    if (st->kind != StmtKind::Assign || self_attribute(st->value) != "input_tensor" || st->targets.size() != 1 ||
        st->targets[0]->kind != ExprKind::Name)
      return true;
    const std::string& name = st->targets[0]->text;
    bool opened = false;
    program::walk_exprs(s.forward->body, [&](const Expr* e) {
      if (e->kind == ExprKind::Subscript && e->kids[0]->kind == ExprKind::Name && e->kids[0]->text == name) opened = true;
      if (callee(e) == "isinstance" && !e->args.empty() && e->args[0].value && e->args[0].value->text == name) opened = true;
      if (e->kind == ExprKind::Starred && e->kids[0]->text == name) opened = true;
      return true;
    });
    program::walk(s.forward->body, [&](const Stmt* other) {
      if (other->kind == StmtKind::Assign && other->value && other->value->kind == ExprKind::Name && other->value->text == name &&
          (other->targets[0]->kind == ExprKind::Tuple || other->targets[0]->kind == ExprKind::List))
        opened = true;
      return true;
    });
    if (!opened) {
      support::Fix fix{"safe",
                       {{{st->value->range.file, st->value->range.end, st->value->range.end},
                         "[0] if isinstance(self.input_tensor, (list, tuple)) else self.input_tensor"}}};
      found.add(Severity::Error, "SW203", st->range,
                "self.input_tensor is a list or a tuple of what the previous stage returned; here it is used as one tensor", {},
                before && before->returned && *before->returned > 1 ? std::optional<support::Fix>() : fix);
    }
    return true;
  });
}

void returned_of(const Stage& s, bool last, Found& found) {
  for (const auto* r : returns(*s.forward)) {
    if (last && r->kind == ExprKind::Tuple) {
      std::optional<support::Fix> fix;
      if (r->kids.size() == 1)
        fix = support::Fix{
            "safe",
            {{{r->outer.file, r->outer.begin, r->kids[0]->outer.begin}, ""}, {{r->outer.file, r->kids[0]->outer.end, r->outer.end}, ""}}};
      if (r->kids.size() == 1)
        found.add(Severity::Error, "SW204", r->range,
                  s.def->name + " is the last stage and packs its result in a tuple; the loss function gets it as it is", {}, fix);
    }
    const bool bare =
        r->kind == ExprKind::Call || r->kind == ExprKind::Binary || r->kind == ExprKind::Attribute || r->kind == ExprKind::Subscript;
    if (!last && bare && callee(r) != "tuple") {
      support::Fix fix{"safe",
                       {{{r->outer.file, r->outer.begin, r->outer.begin}, "("}, {{r->outer.file, r->outer.end, r->outer.end}, ",)"}}};
      found.add(Severity::Error, "SW204", r->range,
                s.def->name + " is not the last stage and returns a bare value; every stage but the last returns a tuple", {}, fix);
    }
    if (last || r->kind != ExprKind::Tuple) continue;
    for (const auto* k : r->kids) {
      std::string what;
      if (k->kind == ExprKind::None || k->kind == ExprKind::Int || k->kind == ExprKind::Float || k->kind == ExprKind::String ||
          k->kind == ExprKind::True || k->kind == ExprKind::False)
        what = "a constant";
      if (auto a = self_attribute(k);
          !a.empty() && contains(s.text, {"register_buffer(\"" + std::string(a) + "\"", "register_buffer('" + std::string(a) + "'"}))
        what = "the buffer " + std::string(a);
      if (!what.empty())
        found.add(Severity::Warning, "SW205", k->range,
                  what + " crosses the cut, though the next stage can make it itself; it gets no gradient, and its sender may wait for one",
                  {});
    }
    if (r->kids.size() > 3)
      found.add(s.generated ? Severity::Info : Severity::Warning, "SW205", r->range,
                std::to_string(r->kids.size()) + " tensors cross the cut; cut where fewer do", {});
  }
}

/// What __init__ builds and nothing reads.
void unused_of(const Stage& s, Found& found) {
  if (!s.init) return;
  if (contains(s.text, {"getattr(self", "self.children()", "self.modules()", "_modules", "self.named_"})) return;
  // drop_unused(self, ["blocks", "head.norm"]): only these stay.
  std::optional<std::vector<std::string>> kept;
  program::walk_exprs(s.init->body, [&](const Expr* e) {
    if (e->kind != ExprKind::Call || callee(e) != "drop_unused" || e->args.size() != 2 || e->args[1].value->kind != ExprKind::List)
      return true;
    kept.emplace();
    for (const auto* k : e->args[1].value->kids)
      if (k->kind == ExprKind::String) kept->push_back(k->text.substr(0, k->text.find('.')));
    return true;
  });
  program::walk(s.init->body, [&](const Stmt* st) {
    if (st->kind != StmtKind::Assign || st->targets.size() != 1 || !st->value || st->value->kind != ExprKind::Call) return true;
    const auto name = self_attribute(st->targets[0]);
    const auto made = callee(st->value);
    if (name.empty() || made.empty() || !std::isupper(static_cast<unsigned char>(made[0])) || made == "Parameter") return true;
    if (kept && std::find(kept->begin(), kept->end(), name) == kept->end()) return true;
    const std::string word = "self." + std::string(name);
    std::size_t uses = 0;
    for (std::size_t at = s.text.find(word); at != std::string_view::npos; at = s.text.find(word, at + 1)) {
      const std::size_t end = at + word.size();
      uses += end >= s.text.size() || !(std::isalnum(static_cast<unsigned char>(s.text[end])) || s.text[end] == '_');
    }
    if (uses == 1)
      found.add(Severity::Warning, "SW209", st->range,
                std::string(name) + " is built in " + s.def->name +
                    " but never used there: its parameters get no gradient and take memory on a stage that does not need them",
                {});
    return true;
  });
}

/// SW214: a received tensor that is only used detached.
void detached_of(const Stage& s, Found& found) {
  for (const auto& name : s.received) {
    if (name.empty()) continue;
    std::size_t detached = 0, all = 0;
    const Expr* where = nullptr;
    program::walk_exprs(s.forward->body, [&](const Expr* e) {
      if (e->kind == ExprKind::Name && e->text == name) ++all;
      if (callee(e) == "detach" && e->kids[0]->kind == ExprKind::Attribute && e->kids[0]->kids[0]->kind == ExprKind::Name &&
          e->kids[0]->kids[0]->text == name)
        ++detached, where = e;
      return true;
    });
    // One of the names is the target of the unpacking.
    if (detached > 0 && all == detached + 1)
      found.add(
          Severity::Error, "SW214", where->range,
          name +
              " is received from the previous stage and used detached only: it gets no gradient, and the stage that sent it waits for one",
          {{s.unpacking->range, "received here"}});
  }
}

}  // namespace

void check_stages(const program::Module& m, const support::SourceManager& sources, Found& found) {
  if (m.file < 0 || sources.file(m.file).text.find("_stage") == std::string::npos) return;
  if (contains(sources.file(m.file).text, {"shardwright.parallel"})) return;  // our runtime asks other things of its stages
  std::map<std::string, std::vector<Stage>> models;
  for (const auto* s : m.body)
    if (s->kind == StmtKind::ClassDef)
      if (auto stage = stage_of(*s->class_def, sources)) models[stage->model].push_back(*stage);
  for (auto& [name, stages] : models) {
    // Parts of a submodule that is cut: the stages call them with what they received.
    if (std::none_of(stages.begin(), stages.end(), [](const Stage& s) { return contains(s.text, {"input_tensor", "pre_process"}); }))
      continue;
    std::sort(stages.begin(), stages.end(), [](const Stage& a, const Stage& b) { return a.number < b.number; });
    for (std::size_t i = 0; i < stages.size(); ++i) {
      const Stage& s = stages[i];
      const Stage* before = i > 0 && stages[i - 1].number + 1 == s.number ? &stages[i - 1] : nullptr;
      const bool in_file = stages.size() > 1 && stages[0].number == 0;
      interface_of(s, sources, found);
      received_of(s, before, found);
      // Which stage is the last one is known only when all are at hand.
      if (in_file) returned_of(s, i + 1 == stages.size(), found);
      unused_of(s, found);
      detached_of(s, found);
    }
  }
}

}  // namespace shardwright::lint
