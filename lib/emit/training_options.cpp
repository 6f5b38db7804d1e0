#include "emit/training_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "program/visit.h"

namespace shardwright::emit {
namespace {

using program::Expr;
using program::ExprKind;
using program::Stmt;
using program::StmtKind;

bool ends_with(const std::string& s, const std::string& end) {
  return s.size() >= end.size() && s.compare(s.size() - end.size(), end.size(), end) == 0;
}

class Options {
 public:
  Options(const TrainingScript& script, const TrainingValues& values, TrainingParts& parts, TrainingSlice& out)
      : script_(script), values_(values), parts_(parts), out_(out) {}

  void take() {
    program::walk(script_.module().body, [&](const Stmt* s) {
      const Expr* call = s->value && s->value->kind == ExprKind::Call ? s->value : nullptr;
      if (!call || (s->kind != StmtKind::Assign && s->kind != StmtKind::AnnAssign && s->kind != StmtKind::Expression)) return true;
      const std::string name = last_name(call->kids[0]);
      if (name == "clip_grad_norm_" && call->args.size() > 1) {
        clips_ = true;
        parts_.used.insert(s);
        if (!all_of_model(call->args[0].value))
          left(s->range, "`" + script_.shortened(s->range) + "`: Megatron clips the norm of all gradients");
        argument("--clip-grad", call_argument(call, "max_norm", 1), "max_norm");
        if (const Expr* p = call_argument(call, "norm_type", 2); p && script_.text(p->range) != "2" && script_.text(p->range) != "2.0")
          left(p->range, "norm_type: Megatron clips by the 2-norm");
      } else if (name == "clip_grad_value_") {
        parts_.used.insert(s);
        left(s->range, "`" + script_.shortened(s->range) + "`: Megatron clips the norm, not values");
      } else if (optimizes(s, call)) {
        optimizer(s, call, name);
      } else if (s->kind != StmtKind::Expression &&
                 (ends_with(name, "LR") || ends_with(name, "Scheduler") || name.find("LROn") == 0 || ends_with(name, "WarmRestarts") ||
                  ends_with(name, "_schedule") || (name.rfind("get_", 0) == 0 && name.find("schedule") != std::string::npos))) {
        schedule(s, call, name);
      } else if (name == "GradScaler") {
        parts_.used.insert(s);
        bind(s, parts_.scalers);
        left(s->range, "`" + script_.shortened(s->range) + "`: precision and loss scaling are Megatron's (--bf16, --fp16)");
      } else if (seeds(call) && !call->args.empty()) {
        parts_.used.insert(s);
        if (!given("--seed")) seed(call->args[0].value);
      } else if (name == "set_epoch") {
        parts_.used.insert(s);  // Megatron's samplers count epochs themselves
      }
      return true;
    });
    if (!given("--seed")) argument("--seed", seed_unknown_, "seed");
    if (!clips_) out_.arguments.emplace_back("--clip-grad", "0.0");
    if (!scheduled_) out_.arguments.emplace_back("--lr-decay-style", "constant");
    if (!optimizer_)
      out_.left.push_back("no optimizer over the model's parameters was found: give --lr, --weight-decay and --optimizer in run.sh");
    order();
    epochs();
    accumulation();
  }

 private:
  void left(const support::Range& at, const std::string& what) { out_.left.push_back(script_.line(at) + ": " + what); }
  void note(const support::Range& at, const std::string& what) { out_.notes.push_back(script_.line(at) + ": " + what); }
  bool given(const std::string& name) const {
    return std::any_of(out_.arguments.begin(), out_.arguments.end(), [&](const auto& a) { return a.first == name; });
  }
  /// torch.manual_seed(7), seed_everything(7); not a Generator's.
  static bool seeds(const Expr* call) {
    const Expr* callee = call->kids[0];
    const std::string name = last_name(callee);
    if (name == "seed_everything" || name == "set_seed") return true;
    return name == "manual_seed" &&
        (callee->kind == ExprKind::Name || (callee->kids[0]->kind == ExprKind::Name && callee->kids[0]->text == "torch"));
  }
  void seed(const Expr* e) {
    if (values_.number(e)) argument("--seed", e, "seed");
    else if (!seed_unknown_) seed_unknown_ = e;
  }
  static void bind(const Stmt* s, Names& names) {
    for (const auto& n : names_written(s)) names.insert(n);
  }

  void argument(const std::string& name, const Expr* e, const std::string& what) {
    if (!e) return;
    if (auto v = values_.number(e)) {
      out_.arguments.emplace_back(name, *v);
      out_.argument_lines[name] = script_.line(e->range) + " `" + what + "`";
    } else {
      left(e->range, what + " = `" + script_.text(e->range) + "` cannot be told from the source: give " + name + " in run.sh");
    }
  }

  /// model.parameters()
  bool all_of_model(const Expr* e) const {
    return e->kind == ExprKind::Call && e->kids[0]->kind == ExprKind::Attribute && e->kids[0]->text == "parameters" &&
        e->kids[0]->kids[0]->kind == ExprKind::Name && parts_.models.count(e->kids[0]->kids[0]->text);
  }

  /// optimizer = AdamW(model.parameters(), …), also of groups and of parts of the model.
  bool optimizes(const Stmt* s, const Expr* call) const {
    if (s->kind == StmtKind::Expression || call->args.empty()) return false;
    bool of_model = false;
    for (const auto& a : call->args)
      program::walk(a.value, [&](const Expr* e) {
        if (e->kind == ExprKind::Call && e->kids[0]->kind == ExprKind::Attribute &&
            (e->kids[0]->text == "parameters" || e->kids[0]->text == "named_parameters"))
          if (const Expr* root = program::root_name(e->kids[0]); root && parts_.models.count(root->text)) of_model = true;
        return true;
      });
    if (of_model) return call->kids[0]->kind == ExprKind::Attribute || script_.imported(last_name(call->kids[0]));
    // groups put together before
    const std::string name = last_name(call->kids[0]);
    return name.find("Adam") != std::string::npos || name == "SGD" || ends_with(name, "Optimizer");
  }

  void optimizer(const Stmt* s, const Expr* call, const std::string& name) {
    parts_.used.insert(s);
    bind(s, parts_.optimizers);
    if (optimizer_) {
      left(s->range, "`" + script_.shortened(s->range) + "`: Megatron has one optimizer");
      return;
    }
    optimizer_ = true;
    const bool sgd = name == "SGD", adam = name == "Adam" || name == "AdamW" || name == "FusedAdam";
    if (!sgd && !adam) left(s->range, "the optimizer " + name + " is not Megatron's; run.sh takes adam");
    out_.arguments.emplace_back("--optimizer", sgd ? "sgd" : "adam");
    out_.argument_lines["--optimizer"] = script_.line(s->range) + " `" + name + "`";
    for (const auto& a : call->args)
      if (a.star || a.double_star)
        left(a.range, "`" + script_.text(a.range) + "`: what the optimizer is given there cannot be told: compare the arguments of run.sh");
    const Expr* parameters = call_argument(call, "params", 0);
    if (parameters && !all_of_model(parameters))
      left(parameters->range,
           "`" + script_.shortened(parameters->range) +
               "`: the optimizer is given a choice of parameters, or groups; Megatron's gets all of the model's, with one lr");
    static const Names kUnderstood{"params",   "lr",        "betas",    "eps",   "weight_decay", "amsgrad",
                                   "momentum", "dampening", "nesterov", "fused", "foreach"};
    for (const auto& a : call->args)
      if (!a.keyword.empty() && !kUnderstood.count(a.keyword))
        left(a.range, "`" + script_.text(a.range) + "`: Megatron's optimizer has no such argument");
    const Expr* lr = call_argument(call, "lr", 1);
    if (lr) argument("--lr", lr, "lr");
    else out_.arguments.emplace_back("--lr", "0.001");
    const Expr* decay = call_argument(call, "weight_decay", sgd ? 4 : adam ? 4 : -1);
    if (decay) argument("--weight-decay", decay, "weight_decay");
    else out_.arguments.emplace_back("--weight-decay", name == "AdamW" ? "0.01" : "0.0");
    const std::string decays_by = decay ? values_.number(decay).value_or("1") : name == "AdamW" ? "0.01" : "0";
    const bool decays = std::atof(decays_by.c_str()) != 0;
    if (decays) note(s->range, "Megatron does not decay biases and other parameters of one dimension; " + name + " does");
    if (decay && decays && name == "Adam")
      left(decay->range, "Adam's weight_decay is added to the gradient; Megatron's adam decays the weights as AdamW does");
    if (sgd) {
      if (const Expr* momentum = call_argument(call, "momentum", 2)) argument("--sgd-momentum", momentum, "momentum");
      else out_.arguments.emplace_back("--sgd-momentum", "0.0");
      for (const auto& [what, at] : {std::pair("dampening", 3), std::pair("nesterov", 5)})
        if (const Expr* e = call_argument(call, what, at); e && script_.text(e->range) != "False" && script_.text(e->range) != "0")
          left(e->range, std::string(what) + " = `" + script_.text(e->range) + "`: Megatron's sgd has none");
      return;
    }
    if (const Expr* betas = call_argument(call, "betas", 2)) {
      argument_of("--adam-beta1", betas, 0);
      argument_of("--adam-beta2", betas, 1);
    } else {
      out_.arguments.emplace_back("--adam-beta2", "0.999");
    }
    if (const Expr* eps = call_argument(call, "eps", 3)) argument("--adam-eps", eps, "eps");
    if (const Expr* e = call_argument(call, "amsgrad", 5); e && script_.text(e->range) != "False")
      left(e->range, "amsgrad = `" + script_.text(e->range) + "`: Megatron's adam has none");
  }

  /// One of the two numbers of betas=(0.9, 0.95), betas=tuple(cfg["betas"]).
  void argument_of(const std::string& name, const Expr* pair, std::size_t at) {
    if ((pair->kind == ExprKind::Tuple || pair->kind == ExprKind::List) && pair->kids.size() == 2) {
      argument(name, pair->kids[at], "betas");
    } else if (auto v = values_.element(pair, at)) {
      out_.arguments.emplace_back(name, *v);
      out_.argument_lines[name] = script_.line(pair->range) + " `betas`";
    } else {
      left(pair->range, "betas = `" + script_.text(pair->range) + "` cannot be told from the source: give " + name + " in run.sh");
    }
  }

  void schedule(const Stmt* s, const Expr* call, const std::string& name) {
    parts_.used.insert(s);
    bind(s, parts_.schedulers);
    if (scheduled_) {
      left(s->range, "`" + script_.shortened(s->range) + "`: the schedule is Megatron's: see --lr-decay-style, --lr-warmup-iters");
      return;
    }
    scheduled_ = true;
    const bool cosine = name == "CosineAnnealingLR";
    out_.arguments.emplace_back("--lr-decay-style", cosine ? "cosine" : "constant");
    out_.argument_lines["--lr-decay-style"] = script_.line(s->range) + " `" + name + "`";
    if (cosine)
      if (const Expr* least = call_argument(call, "eta_min", 2)) argument("--min-lr", least, "eta_min");
    left(s->range,
         "`" + script_.shortened(s->range) + "`: the schedule is Megatron's, " +
             (cosine ? "a cosine over all steps" : "constant as it is here") +
             ": see --lr-decay-style, --lr-warmup-iters, --lr-decay-iters, --min-lr");
  }

  // ---- the loader ------------------------------------------------------------------------------------------------------------

  const Expr* value_of(const std::string& name) const {
    const Expr* found = nullptr;
    int count = 0;
    program::walk(script_.module().body, [&](const Stmt* s) {
      if (const Expr* v = value_bound(s, name)) found = v, ++count;
      return true;
    });
    return count == 1 ? found : nullptr;
  }

  static bool is_loader(const Expr* e) {
    return e && e->kind == ExprKind::Call && last_name(e->kids[0]).find("DataLoader") != std::string::npos;
  }

  /// train_loader, val_loader = build_loaders(cfg): the loader that the function of the script returns in that place.
  const Expr* returned_loader() const {
    const Expr* found = nullptr;
    if (parts_.loader->kind != ExprKind::Name) return found;
    program::walk(script_.module().body, [&](const Stmt* s) {
      if (s->kind != StmtKind::Assign || s->targets.size() != 1 || s->value->kind != ExprKind::Call ||
          s->value->kids[0]->kind != ExprKind::Name)
        return true;
      const Expr* target = s->targets[0];
      std::size_t place = 0;
      if (target->kind == ExprKind::Tuple) {
        while (place < target->kids.size() && target->kids[place]->text != parts_.loader->text) ++place;
        if (place == target->kids.size()) return true;
      } else if (target->kind != ExprKind::Name || target->text != parts_.loader->text) {
        return true;
      }
      const Stmt* f = script_.definition_of(s->value->kids[0]->text);
      if (!f || f->kind != StmtKind::FunctionDef) return true;
      program::walk(f->function->body, [&](const Stmt* inner) {
        if (inner->kind != StmtKind::Return || !inner->value) return true;
        const Expr* e = inner->value;
        if (target->kind == ExprKind::Tuple) e = e->kind == ExprKind::Tuple && place < e->kids.size() ? e->kids[place] : nullptr;
        if (e && e->kind == ExprKind::Name)
          program::walk(f->function->body, [&](const Stmt* made) {
            if (const Expr* v = value_bound(made, e->text); is_loader(v)) found = v;
            return true;
          });
        else if (is_loader(e)) found = e;
        return true;
      });
      return true;
    });
    return found;
  }

  /// The call that builds the loader of the loop; where a function makes it, the only one of the script.
  const Expr* loader_call() const {
    if (is_loader(parts_.loader)) return parts_.loader;
    if (parts_.loader->kind == ExprKind::Name)
      if (const Expr* e = value_of(parts_.loader->text); is_loader(e)) return e;
    if (const Expr* e = returned_loader()) return e;
    const Expr* only = nullptr;
    int count = 0;
    program::walk_exprs(script_.module().body, [&](const Expr* e) {
      if (is_loader(e)) only = e, ++count;
      return true;
    });
    return count == 1 ? only : nullptr;
  }

  void order() {
    const Expr* call = loader_call();
    if (!call) {
      left(parts_.loader->range,
           "`" + script_.text(parts_.loader->range) +
               "`: how it is built is not in the script: give --micro-batch-size in run.sh, and --dataloader-type single if it does not "
               "shuffle");
      return;
    }
    bool stars = false;
    for (const auto& a : call->args) stars = stars || a.star || a.double_star;
    const Expr* size = call_argument(call, "batch_size", 1);
    if (size) argument("--micro-batch-size", size, "batch_size");
    else if (stars)
      left(call->range, "`" + script_.shortened(call->range) + "`: the batch size cannot be told: give --micro-batch-size in run.sh");
    for (const char* unused : {"worker_init_fn", "generator"})
      if (const Expr* f = call_argument(call, unused))
        left(f->range, std::string(unused) + " `" + script_.shortened(f->range) + "`: Megatron's loader takes none");
    if (const Expr* f = call_argument(call, "collate_fn"))
      left(f->range, "collate_fn `" + script_.text(f->range) + "`: Megatron's loader puts samples together itself");
    if (const Expr* f = call_argument(call, "batch_sampler"))
      left(f->range,
           "batch_sampler `" + script_.text(f->range) + "`: Megatron's loader draws the batches itself: give --micro-batch-size in run.sh");
    if (const Expr* e = call_argument(call, "drop_last")) out_.drops_last = script_.text(e->range) == "True";
    enum { Shuffled, InOrder, Unknown } order = InOrder;
    support::Range at = call->range;
    const Expr* sampler = call_argument(call, "sampler");
    if (sampler && sampler->kind == ExprKind::Name) sampler = value_of(sampler->text);
    const auto literal = [&](const Expr* e, bool when_absent) {
      const std::string t = e ? script_.text(e->range) : when_absent ? "True" : "False";
      return t == "True" ? Shuffled : t == "False" ? InOrder : Unknown;
    };
    if (call_argument(call, "sampler")) {
      const std::string kind = sampler && sampler->kind == ExprKind::Call ? last_name(sampler->kids[0]) : "";
      order = kind == "DistributedSampler" ? literal(call_argument(sampler, "shuffle"), true)
          : kind == "RandomSampler"        ? Shuffled
          : kind == "SequentialSampler"    ? InOrder
                                           : Unknown;
      if (kind == "DistributedSampler")
        if (const Expr* e = call_argument(sampler, "drop_last")) out_.drops_last = script_.text(e->range) == "True";
    } else if (const Expr* e = call_argument(call, "shuffle", 2)) {
      order = literal(e, false);
      at = e->range;
    } else if (stars || call_argument(call, "batch_sampler")) {
      order = Unknown;
    }
    if (order == Unknown)
      left(at,
           "`" + script_.shortened(at) +
               "`: whether the loader shuffles cannot be told; here it does (--dataloader-type cyclic, or single)");
    out_.in_order = order == InOrder;
    if (out_.in_order) {
      out_.arguments.emplace_back("--dataloader-type", "single");
      out_.argument_lines["--dataloader-type"] = script_.line(at) + " the loader does not shuffle";
    }
    if (!out_.drops_last)
      note(call->range, "an epoch's last batch may be smaller there; here a batch goes on with the next epoch's samples");
  }

  void epochs() {
    double product = 1;
    bool told = parts_.loops.size() > 1;
    for (std::size_t i = 0; i + 1 < parts_.loops.size(); ++i) {  // for epoch in range(E)
      const Expr* r = counting_call(parts_.loops[i]);
      told = told && r;
      if (!told) break;
      std::vector<const Expr*> given;
      for (const auto& a : r->args)
        if (a.keyword.empty()) given.push_back(a.value);
      const auto begin = given.size() > 1 ? values_.number(given[0]) : std::optional<std::string>("0");
      const auto end = given.empty() ? std::nullopt : values_.number(given[given.size() > 1 ? 1 : 0]);
      const auto step = given.size() > 2 ? values_.number(given[2]) : std::optional<std::string>("1");
      told = begin && end && step && std::atof(step->c_str()) > 0;
      if (told) product *= std::max(0.0, std::ceil((std::atof(end->c_str()) - std::atof(begin->c_str())) / std::atof(step->c_str())));
    }
    if (told) out_.iterations = std::to_string(static_cast<long long>(product));
    if (out_.iterations.empty())
      left(parts_.loops.front()->range, "how many batches are trained on cannot be told: give --train-iters in run.sh");
  }

  /// if (step + 1) % N == 0: optimizer.step()
  void accumulation() {
    program::walk(parts_.loops.back()->body, [&](const Stmt* s) {
      if (s->kind != StmtKind::If || !out_.accumulate.empty()) return true;
      const Expr* step = nullptr;
      for (const auto* inner : s->body)
        if (!step)
          step = find_expr(inner, [&](const Expr* e) {
            if (e->kind != ExprKind::Call || last_name(e->kids[0]) != "step") return false;
            const Expr* root = program::root_name(e->kids[0]);
            return root && (parts_.optimizers.count(root->text) || parts_.scalers.count(root->text));
          });
      if (!step) return true;
      const Expr* modulus = nullptr;  // step % N == 0
      program::walk(s->value, [&](const Expr* e) {
        if (e->kind == ExprKind::Compare && e->kids.size() == 2 && e->ops[0] == "==" && e->kids[0]->kind == ExprKind::Binary &&
            e->kids[0]->text == "%" && e->kids[1]->kind == ExprKind::Int && e->kids[1]->integer == 0)
          modulus = e->kids[0]->kids[1];
        return true;
      });
      const auto n = modulus ? values_.number(modulus) : std::nullopt;
      if (n) {
        out_.accumulate = *n;
        parts_.used.insert(s);
        for (const auto* inner : s->body) {
          const Expr* c = inner->value && inner->value->kind == ExprKind::Call ? inner->value->kids[0] : nullptr;
          const Expr* root = c ? program::root_name(c) : nullptr;
          if (!root ||
              (!parts_.optimizers.count(root->text) && !parts_.scalers.count(root->text) && !parts_.schedulers.count(root->text) &&
               !parts_.models.count(root->text) && !parts_.used.count(inner)))
            left(inner->range, "`" + script_.shortened(inner->range) + "`");
        }
        note(s->range, "gradients of " + *n + " batches are one step: --global-batch-size");
      } else {
        left(s->range, "`" + script_.shortened(s->range) + "`: when a step is made cannot be told: give --global-batch-size in run.sh");
      }
      return true;
    });
  }

  const TrainingScript& script_;
  const TrainingValues& values_;
  TrainingParts& parts_;
  TrainingSlice& out_;
  const Expr* seed_unknown_ = nullptr;
  bool clips_ = false, scheduled_ = false, optimizer_ = false;
};

}  // namespace

void take_options(const TrainingScript& script, const TrainingValues& values, TrainingParts& parts, TrainingSlice& out) {
  Options(script, values, parts, out).take();
}

}  // namespace shardwright::emit
