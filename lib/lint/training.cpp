// Checks of training scripts: data sets, the forward step, the loss, seeds, the run script's sizes.
#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>

#include "lint/scripts.h"
#include "lint/syntax_help.h"
#include "program/visit.h"

namespace shardwright::lint {

using program::Expr;
using program::ExprKind;
using program::Function;
using program::Stmt;
using program::StmtKind;
using support::Severity;
using namespace syntax;

namespace {

/// SW302: what a data set provider gives to `pretrain`.
void providers(const program::Module& m, std::string_view text, Found& found) {
  program::walk_exprs(m.body, [&](const Expr* e) {
    if (callee(e) != "pretrain" || e->args.empty() || !e->args[0].value || e->args[0].value->kind != ExprKind::Name) return true;
    const std::string& name = e->args[0].value->text;
    for (const Function* f : functions(m)) {
      if (f->name != name || f->owner) continue;
      for (const auto* r : returns(*f)) {
        const std::vector<Expr*> parts = r->kind == ExprKind::Tuple ? r->kids : std::vector<Expr*>{const_cast<Expr*>(r)};
        for (const auto* p : parts)
          if (callee(p) == "DataLoader")
            found.add(Severity::Error, "SW302", p->range, "the provider returns a DataLoader; pretrain builds its own from a data set",
                      {{e->range, "given to pretrain here"}});
      }
      if (!contains(text, {name + ".is_distributed"}))
        found.add(
            Severity::Error, "SW302",
            f->def_range.valid()
                ? support::Range{f->def_range.file, f->def_range.begin, f->def_range.begin + 4 + static_cast<std::uint32_t>(name.size())}
                : f->range,
            name + ".is_distributed = True is missing: only one rank would build the data sets", {{e->range, "given to pretrain here"}});
    }
    const Expr* defaults = argument(e, "args_defaults");
    if (!defaults || (defaults->kind == ExprKind::Dict && !contains(text, {"dataloader_type"})))
      found.add(Severity::Warning, "SW302", e->range,
                "args_defaults names no dataloader_type: the default expects Megatron's own index of samples; give {'dataloader_type': "
                "'cyclic'} for a plain data set",
                {});
    return true;
  });
}

/// SW303: an exception hides that the data ended, or that a rank reads none.
void guarded_next(const program::Module& m, const support::SourceManager& sources, Found& found) {
  static const support::WordSearch kNext{"next("};
  program::walk(m.body, [&](const Stmt* s) {
    if (s->kind == StmtKind::FunctionDef) return kNext.in(sources.text(s->range));
    if (s->kind != StmtKind::Try || s->handlers.empty()) return true;
    const bool broad = std::any_of(s->handlers.begin(), s->handlers.end(), [](const auto& h) {
      return !h.type || (h.type->kind == ExprKind::Name && (h.type->text == "Exception" || h.type->text == "StopIteration"));
    });
    if (!broad) return true;
    for (const Stmt* k : s->body)
      calls_of(k, [&](const Expr* c) {
        if (callee(c) == "next" && c->kids[0]->kind == ExprKind::Name && !c->args.empty() && c->args[0].value &&
            contains(c->args[0].value->text, {"iter", "loader", "data"}))
          found.add(Severity::Warning, "SW303", s->range.valid() ? k->range : s->range,
                    "an exception around next() hides an iterator that ended or that this rank does not have: this micro-batch runs with "
                    "nothing while the others go on",
                    {});
      });
    return true;
  });
}

/// `return output, partial(…)`?
bool may_bind(std::string_view text) {
  for (std::size_t at = text.find("partial("); at != std::string_view::npos; at = text.find("partial(", at + 1)) {
    std::size_t before = at;
    if (text.substr(0, before).ends_with("functools.")) before -= 10;
    while (before > 0 && (text[before - 1] == ' ' || text[before - 1] == '\n' || text[before - 1] == '\\')) --before;
    if (before > 0 && text[before - 1] == ',') return true;
  }
  return false;
}

/// SW305: partial(loss, output) binds the prediction where the label belongs.
void bound_output(const program::Module& m, const support::SourceManager& sources, Found& found) {
  for (const Function* f : functions(m, sources, may_bind))
    for (const auto* r : returns(*f)) {
      if (r->kind != ExprKind::Tuple || r->kids.size() != 2 || callee(r->kids[1]) != "partial" || r->kids[0]->kind != ExprKind::Name)
        continue;
      const auto& args = r->kids[1]->args;
      if (args.size() >= 2 && args[1].keyword.empty() && args[1].value && args[1].value->kind == ExprKind::Name &&
          args[1].value->text == r->kids[0]->text)
        found.add(Severity::Error, "SW305", r->kids[1]->range,
                  "the output is bound to the loss function's first argument, where the label belongs: the schedule passes the output "
                  "itself, so the loss compares it with itself; bind the label: partial(loss, label=label)",
                  {});
    }
}

bool may_be_unconverted(std::string_view text) {
  return contains(text, {"from_numpy", "as_tensor", "torch.tensor"}) && contains(text, {"model("}) &&
      contains(text, {"float64", "np.double", ".double()", "float16", ".half()"}) &&
      !contains(text, {"set_default_dtype", "model.double()", "model.half()", "autocast", "bfloat16"});
}

/// SW304: double or half precision that reaches the model as it was read.
void unconverted_inputs(const program::Module& m, const support::SourceManager& sources, std::string_view text, Found& found) {
  if (!may_be_unconverted(text)) return;
  auto other_type = [&](const Expr* e) {
    const auto t = sources.text(e->range);
    return contains(t, {"float64", "np.double", ".double()", "float16", ".half()"}) && contains(t, {"from_numpy", "tensor("}) &&
        !contains(t, {".float()", ".to(", ".type(", "torch.float32", "dtype=torch"});
  };
  static const support::WordSearch kModel{"model("};
  for (const Function* f : functions(m, sources, kModel)) {
    if (f->owner || std::none_of(f->parameters.begin(), f->parameters.end(), [](const auto& p) { return p.name == "model"; })) continue;
    std::map<std::string, support::Range> unconverted;
    auto check = [&](const Expr* call) {
      if (call->kids[0]->kind != ExprKind::Name || call->kids[0]->text != "model") return;
      for (const auto& a : call->args) {
        if (!a.value) continue;
        const bool named = a.value->kind == ExprKind::Name && unconverted.count(a.value->text);
        if (!named && !other_type(a.value)) continue;
        support::Fix fix{"safe", {{{a.value->outer.file, a.value->outer.end, a.value->outer.end}, ".float()"}}};
        found.add(
            Severity::Error, "SW304", a.value->range,
            std::string(sources.text(a.value->range)) +
                " is not of the parameters' type: 'mat1 and mat2 must have the same dtype'; convert it, .float() or .to(weight.dtype)",
            {{named ? unconverted[a.value->text] : support::Range{}, "made here"}}, fix);
      }
    };
    program::walk(f->body, [&](const Stmt* s) {
      calls_of(s, check);
      if (s->kind == StmtKind::Assign && s->targets.size() == 1 && s->targets[0]->kind == ExprKind::Name) {
        unconverted.erase(s->targets[0]->text);
        if (other_type(s->value)) unconverted.emplace(s->targets[0]->text, s->value->range);
      }
      return s->kind != StmtKind::FunctionDef;
    });
  }
}

/// SW308: a seed set after the model-parallel one.
void overwritten_seed(const program::Module& m, const support::SourceManager& sources, Found& found) {
  static const support::WordSearch kSeed{"model_parallel_cuda_manual_seed"};
  for (const Function* f : functions(m, sources, kSeed)) {
    const Expr* first = nullptr;
    program::walk(f->body, [&](const Stmt* s) {
      calls_of(s, [&](const Expr* c) {
        if (callee(c) == "model_parallel_cuda_manual_seed") first = c;
        else if (first && (callee(c) == "manual_seed" || callee(c) == "manual_seed_all") && c->kids[0]->kind == ExprKind::Attribute &&
                 c->kids[0]->kids[0]->text == "cuda")
          found.add(Severity::Warning, "SW308", c->range,
                    "torch.cuda's seed after model_parallel_cuda_manual_seed replaces the stream that all tensor-parallel ranks share: "
                    "replicated dropout then differs between them",
                    {{first->range, "set here before"}});
      });
      return s->kind != StmtKind::FunctionDef;
    });
  }
}

/// SW405: a mask that a dict or an object need not have.
void mask_without_default(const program::Module& m, std::string_view text, Found& found) {
  if (!contains(text, {"Fuser"})) return;
  for (const auto* s : m.body) {
    if (s->kind != StmtKind::ClassDef || !contains(s->class_def->name, {"Fuser"})) continue;
    const Function* f = method(*s->class_def, "forward");
    if (!f || f->parameters.size() < 2) continue;
    const std::string& data = f->parameters[1].name;
    std::set<const Expr*> stored;
    program::walk(f->body, [&](const Stmt* st) {
      for (const auto* t : st->targets)
        if (st->kind == StmtKind::Assign) stored.insert(t);
      return true;
    });
    // obj["mask"].clone() wants a mask: None would not do either.
    program::walk_exprs(f->body, [&](const Expr* e) {
      if (e->kind == ExprKind::Attribute || e->kind == ExprKind::Subscript) stored.insert(e->kids[0]);
      return true;
    });
    program::walk_exprs(f->body, [&](const Expr* e) {
      if (stored.count(e)) return true;
      if (e->kind == ExprKind::Subscript && e->kids[0]->kind == ExprKind::Name && e->kids[0]->text == data &&
          e->kids[1]->kind == ExprKind::String && e->kids[1]->text == "mask") {
        support::Fix fix{"safe", {{{e->range.file, e->kids[0]->outer.end, e->range.end}, ".get(\"mask\")"}}};
        found.add(Severity::Error, "SW405", e->range, data + "[\"mask\"] fails where there is no mask; use " + data + ".get(\"mask\")", {},
                  fix);
      }
      if (e->kind == ExprKind::Attribute && e->text == "mask" && e->kids[0]->kind == ExprKind::Name && e->kids[0]->text == data) {
        support::Fix fix{"safe", {{e->range, "getattr(" + data + ", \"mask\", None)"}}};
        found.add(Severity::Error, "SW405", e->range,
                  data + ".mask fails where there is no mask; use getattr(" + data + ", \"mask\", None)", {}, fix);
      }
      return true;
    });
  }
}

}  // namespace

bool trains(std::string_view text) { return may_bind(text) || may_be_unconverted(text); }

void check_training(const program::Module& m, const support::SourceManager& sources, Found& found) {
  if (m.file < 0) return;
  const std::string_view text = sources.file(m.file).text;
  if (contains(text, {"megatron"}) && contains(text, {"pretrain("})) providers(m, text, found);
  if (contains(text, {"megatron", "pipeline"}) && contains(text, {"next("})) guarded_next(m, sources, found);
  bound_output(m, sources, found);
  unconverted_inputs(m, sources, text, found);
  overwritten_seed(m, sources, found);
  mask_without_default(m, text, found);
}

}  // namespace shardwright::lint
