#include "emit/training_loop.h"

#include <functional>
#include <vector>

#include "program/visit.h"

namespace shardwright::emit {

using program::Expr;
using program::ExprKind;
using program::Stmt;
using program::StmtKind;

bool is_plain(const Stmt* s) {
  return s->kind != StmtKind::FunctionDef && s->kind != StmtKind::ClassDef && s->kind != StmtKind::Import &&
      s->kind != StmtKind::ImportFrom;
}

bool calls_model(const Expr* e, const TrainingParts& parts) {
  return e->kind == ExprKind::Call && e->kids[0]->kind == ExprKind::Name && parts.models.count(e->kids[0]->text);
}

bool is_backward(const Expr* e) {
  return e->kind == ExprKind::Call && e->kids[0]->kind == ExprKind::Attribute && e->kids[0]->text == "backward";
}

bool TrainingLoop::makes(const Expr* e) const {
  if (e->kind != ExprKind::Call) return false;
  const std::string name = last_name(e->kids[0]);
  return name == model_class || (e->kids[0]->kind == ExprKind::Name && makers.count(name));
}

namespace {

class Finder {
 public:
  Finder(const TrainingScript& script, TrainingParts& parts, TrainingLoop& at) : script_(script), parts_(parts), at_(at) {}

  std::string run() {
    if (!find_model()) return "no call of " + at_.model_class + " was found: expected model = " + at_.model_class + "(…)";
    if (!find_loop() && !find_loop_in_a_function()) return "no loop was found that calls the model and backward()";
    return "";
  }

 private:
  bool find_model() {
    for (const auto* s : script_.module().body)  // def build(cfg): return Model(…)
      if (s->kind == StmtKind::FunctionDef)
        program::walk(s->function->body, [&](const Stmt* inner) {
          if (inner->kind == StmtKind::Return && inner->value && at_.makes(inner->value)) at_.makers.insert(s->function->name);
          return is_plain(inner);
        });
    std::function<void(const std::vector<Stmt*>&, const program::Function*)> look = [&](const std::vector<Stmt*>& body,
                                                                                        const program::Function* f) {
      for (const auto* s : body) {
        if (s->kind == StmtKind::FunctionDef) {
          if (!at_.makers.count(s->function->name)) look(s->function->body, s->function);
          continue;
        }
        if ((s->kind == StmtKind::Assign || s->kind == StmtKind::AnnAssign) && s->value && s->targets.size() == 1 &&
            s->targets[0]->kind == ExprKind::Name && find_expr(s, [&](const Expr* e) { return at_.makes(e); })) {
          parts_.models.insert(s->targets[0]->text);
          if (!at_.made) at_.made = s, at_.function = f;
        }
        look(s->body, f), look(s->orelse, f), look(s->finally, f);
        for (const auto& h : s->handlers) look(h.body, f);
      }
    };
    look(script_.module().body, nullptr);
    if (!at_.made) return false;
    // model = model.to(device), ddp = DistributedDataParallel(model, …)
    program::walk(at_.function ? at_.function->body : script_.module().body, [&](const Stmt* s) {
      if (s->kind != StmtKind::Assign || s->targets.size() != 1 || s->value->kind != ExprKind::Call) return is_plain(s);
      const Expr* callee = s->value->kids[0];
      const Expr* root = program::root_name(callee);
      const bool method = callee->kind == ExprKind::Attribute && root && parts_.models.count(root->text) &&
          (callee->text == "to" || callee->text == "cuda" || callee->text == "train" || callee->text == "float" ||
           callee->text == "double" || callee->text == "half" || callee->text == "bfloat16" || callee->text == "cpu");
      const auto& args = s->value->args;
      const bool given = !args.empty() && args[0].value->kind == ExprKind::Name && parts_.models.count(args[0].value->text);
      const bool wrap = given &&
          (last_name(callee).find("Parallel") != std::string::npos || last_name(callee) == "DDP" || last_name(callee) == "compile");
      if (s->targets[0]->kind == ExprKind::Name && (method || wrap)) parts_.models.insert(s->targets[0]->text), parts_.used.insert(s);
      // model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
      if (given && last_name(callee) == "prepare" && s->targets[0]->kind == ExprKind::Tuple && !s->targets[0]->kids.empty() &&
          s->targets[0]->kids[0]->kind == ExprKind::Name)
        parts_.models.insert(s->targets[0]->kids[0]->text), parts_.used.insert(s);
      return true;
    });
    return true;
  }

  /// The loops of a function around the model's call and backward(), outermost first.
  std::vector<const Stmt*> loops_of(const std::vector<Stmt*>& body) const {
    std::vector<const Stmt*> loops;
    program::walk(body, [&](const Stmt* s) {
      if (s->kind == StmtKind::For && find_expr(s, [&](const Expr* e) { return calls_model(e, parts_); }) && find_expr(s, is_backward))
        loops.push_back(s);
      return is_plain(s);
    });
    return loops;
  }

  bool find_loop() {
    parts_.loops = loops_of(at_.function ? at_.function->body : script_.module().body);
    if (parts_.loops.empty()) return false;
    at_.loop = parts_.loops.back();
    return true;
  }

  /// for epoch in …: train_one_epoch(model, loader, …): the function's parameters are what the call gives.
  bool find_loop_in_a_function() {
    std::vector<const Stmt*> around;
    std::function<bool(const std::vector<Stmt*>&)> look = [&](const std::vector<Stmt*>& body) {
      for (const auto* s : body) {
        if (!is_plain(s)) continue;
        if (s->kind == StmtKind::For) around.push_back(s);
        if (look(s->body) || look(s->orelse)) return true;
        if (s->kind == StmtKind::For) around.pop_back();
        const Expr* call = nullptr;
        if (s->value)
          program::walk(s->value, [&](const Expr* e) {
            if (e->kind == ExprKind::Call && e->kids[0]->kind == ExprKind::Name && script_.definition_of(e->kids[0]->text) &&
                script_.definition_of(e->kids[0]->text)->kind == StmtKind::FunctionDef)
              call = call ? call : e;
            return true;
          });
        if (!call) continue;
        const program::Function* f = script_.definition_of(call->kids[0]->text)->function;
        std::map<std::string, const Expr*> given;
        for (std::size_t i = 0; i < call->args.size(); ++i) {
          const auto& a = call->args[i];
          if (a.star || a.double_star) continue;
          if (!a.keyword.empty()) given[a.keyword] = a.value;
          else if (i < f->parameters.size()) given[f->parameters[i].name] = a.value;
        }
        const Names before = parts_.models;
        for (const auto& [name, value] : given)
          if (value->kind == ExprKind::Name && before.count(value->text)) parts_.models.insert(name);
        auto loops = loops_of(f->body);
        if (loops.empty()) {
          parts_.models = before;
          continue;
        }
        at_.inner = f, at_.inner_call = s, at_.given = given;
        parts_.loops = around;
        parts_.loops.insert(parts_.loops.end(), loops.begin(), loops.end());
        at_.loop = parts_.loops.back();
        parts_.used.insert(s);
        return true;
      }
      return false;
    };
    return look(at_.function ? at_.function->body : script_.module().body);
  }

  const TrainingScript& script_;
  TrainingParts& parts_;
  TrainingLoop& at_;
};

}  // namespace

std::string find_training_loop(const TrainingScript& script, const std::string& model_class, TrainingParts& parts, TrainingLoop& out) {
  out.model_class = model_class;
  return Finder(script, parts, out).run();
}

}  // namespace shardwright::emit
