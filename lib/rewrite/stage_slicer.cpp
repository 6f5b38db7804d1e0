// StageSlicer: a partition's stages, analysed from the last to the first, and the text of what each holds in part.
#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "rewrite/rewrite.h"
#include "rewrite/stage_forward.h"
#include "rewrite/stage_init.h"
#include "rewrite/stage_slice.h"
#include "rewrite/stage_use.h"

namespace shardwright::rewrite {

using namespace stage;

struct StageSlicer::Impl {
  Impl(const model::Trace& t, const support::SourceManager& s) : context(t, s) {}
  Context context;
  std::vector<CutView> views;
  std::vector<StageSlice> stages;
  std::vector<std::pair<TensorId, std::vector<int>>> tied;  ///< of the partition
  std::unique_ptr<Use> use;
  mutable std::map<std::pair<int, ModuleId>, std::unique_ptr<InitSlice>> inits;

  const CutView* lo(int k) const { return k > 0 ? &views[static_cast<std::size_t>(k) - 1] : nullptr; }
  const CutView* hi(int k) const { return k < static_cast<int>(views.size()) ? &views[static_cast<std::size_t>(k)] : nullptr; }
  bool has(int k) const { return k >= 0 && k < static_cast<int>(stages.size()); }

  const InitSlice& init(int k, ModuleId m) const {
    auto& p = inits[{k, m}];
    if (!p) p = std::make_unique<InitSlice>(context, *use, k, m);
    return *p;
  }

  /// Does an operation of the stage read the tensor?
  bool reads(const StageSlice& s, TensorId t) const {
    const auto [first, last] = context.facts.ops_between(s.from, s.to);
    for (std::size_t o = first; o < last; ++o)
      for (const auto& in : context.trace.ops[o].inputs)
        if (in.tensor == t) return true;
    return false;
  }

  /// What the stage's forward names twice only, where it unpacks and where it returns; or puts into a list and returns from there,
  /// doing nothing with that list but putting in, taking out and returning.
  std::vector<std::pair<int, int>> passes(int k, const FrameSlice& root) const {
    std::vector<std::pair<int, int>> out;
    if (!lo(k) || !hi(k)) return out;
    Uses uses;
    const std::string text = method_text(
        context, root, lo(k), hi(k), [&](Range r) { return context.text(r); }, uses);
    const auto received = lo(k)->carried(0), returned = hi(k)->carried(0);
    for (std::size_t i = 0; i < received.size(); ++i)
      for (std::size_t j = 0; j < returned.size(); ++j)
        if (received[i].tensor == returned[j].tensor && times_named(text, received[i].name) == 2 &&
            (received[i].name == returned[j].produce ||
             (only_holds(text, returned[j].base) && !reads(stages[static_cast<std::size_t>(k)], received[i].tensor))))
          out.emplace_back(static_cast<int>(i), static_cast<int>(j));
    return out;
  }

  std::string place(const pipeline::Cut& cut) const {
    if (cut.path.empty() || cut.path.back().step < 0) return "the cut";
    return "the cut at " + context.sources.describe(context.trace.step(cut.path.back().step).stmt->range);
  }

  /// Does something that a decorator put around a method do more than hand it on? (model::fold_wrappers took away those that do not.)
  bool wrapped(const model::Frame& method) const {
    FrameId p = method.parent;
    while (p >= 0 && context.trace.frame(p).builtin) p = context.trace.frame(p).parent;
    if (p < 0) return false;
    const auto& caller = context.trace.frame(p);
    return caller.self < 0 && caller.function && !caller.function->owner;
  }

  std::string no_start(const model::Exit& e) const {
    const std::string where = context.sources.describe(e.where);
    switch (e.kind) {
      case model::Exit::Gradient: return "forward differentiates at " + where + " what it computed before: the graph may not be divided";
      case model::Exit::Mode: return "gradients are switched off at " + where + " and on again behind the cut";
      default: break;
    }
    return "data decides at " + where + " whether what follows runs (`" +
        (e.kind == model::Exit::Break          ? "break"
             : e.kind == model::Exit::Continue ? "continue"
                                               : "return") +
        "`), and the next stage would not know";
  }

  /// A module that is held in part must come from a constructor call of its own; a method that is divided must not run a
  /// second time in the same stage; what is set on modules during forward stays where it is.
  std::string check(const StageSlice& s, const CutView& v) const {
    const auto& t = context.trace;
    for (const Boundary& b : v.levels) {
      const auto& f = t.frame(b.frame);
      for (const Expr* d : f.function ? f.function->decorators : std::vector<Expr*>{})
        if (t.wrapping.count(d) && wrapped(f))
          return "`" + f.function->name + "` runs inside the decorator `" + std::string(context.sources.text(d->range)) +
              "`, which would run for each part";
      for (ModuleId m = f.self; m >= 0; m = t.module(m).parent) {
        const auto& mod = t.module(m);
        if (mod.builtin) continue;
        const auto name = [](const model::Module& x) { return x.fqn.empty() ? "the model" : "`" + x.fqn + "`"; };
        if (mod.cloned_from >= 0) return name(mod) + " is a copy of another module and has no constructor call of its own";
        for (const auto& other : t.modules)
          if (other.cloned_from == m) {
            // A copy that is no part of the model (a teacher's, an average's) has no name.
            return name(mod) + " is copied by `deepcopy` " + (other.fqn.empty() ? "to another model" : "to " + name(other)) +
                ", and the copy shares its constructor call: build the two by a call each";
          }
        if (m != 0 && !mod.construct_call) return name(mod) + " is made out of sight of the source";
      }
      for (const auto& other : t.frames)
        if (other.id != f.id && other.self == f.self && other.function == f.function && !other.init && other.begin >= t.forward_begin &&
            other.begin < s.to && other.end > s.from) {
          const std::string who = t.module(f.self).fqn.empty() ? f.function->name : t.module(f.self).fqn + "." + f.function->name;
          if (s.frames.count(f.id)) return "`" + who + "` runs more than once in one stage, in part and as a whole";
        }
    }
    if (auto shared = memory(s, v); !shared.empty()) return shared;
    for (const auto& state : t.states) {
      if ((state.changed < s.from) == (state.read < s.from)) continue;
      const bool before = state.changed < s.from;
      return "`" + state.name + "`, changed in forward " + (before ? "before" : "behind") + " the cut (" +
          context.sources.describe(state.where) + "), is read " + (before ? "after it" : "before it by the next call");
    }
    for (const auto& e : t.exits)
      if (e.at < s.from && (s.from < e.until || e.until == 0) && (e.until == 0 || e.until > t.forward_begin)) return no_start(e);
    // self.x = … in forward, read by code behind the cut.
    for (const auto& w : t.attr_writes) {
      if (w.clock < t.forward_begin || w.clock >= s.from || w.owner < 0) continue;
      if (w.frame >= 0 && t.frame(w.frame).builtin) continue;
      if (w.value.kind == Binding::None) continue;
      for (const auto& [id, f] : s.frames) {
        if (t.frame(id).self != w.owner || !f.lo) continue;
        std::vector<StageSlice> one;
        for (const auto& p : f.pieces) {
          if (p.kind == Piece::Prefix || !p.stmt) continue;
          bool read = false;
          program_reads(p, w.name, read);
          if (read)
            return "attribute `" + w.name + "`, set in forward before the cut (" +
                context.sources.describe(w.value_expr ? w.value_expr->range : Range{}) + "), is read after it";
        }
      }
    }
    return "";
  }
  /// Two names of one memory behind the cut would be two tensors there: what is written to one is not seen in the other.
  std::string memory(const StageSlice& s, const CutView& v) const {
    const auto& t = context.trace;
    auto root = [&](TensorId x) {
      for (auto at = t.shares.find(x); at != t.shares.end(); at = t.shares.find(x)) x = at->second;
      return x;
    };
    auto written = [&](TensorId memory, bool before) {
      return std::any_of(t.overwrites.begin(), t.overwrites.end(),
                         [&](const auto& w) { return (w.first < s.from) == before && root(w.second) == memory; });
    };
    std::map<TensorId, std::string> sent;
    for (const Slot& slot : v.carried(0)) {
      auto [at, fresh] = sent.emplace(root(slot.tensor), slot.name);
      if (!fresh && written(at->first, false))
        return "`" + at->second + "` and `" + slot.name + "` use the same memory and are written in place behind the cut";
    }
    // Names of one frame: `residual = x` made again behind the cut is the same memory, but `x += y` has become `x = x + y` there.
    for (const auto& [id, f] : s.frames) {
      if (!f.lo) continue;
      std::map<TensorId, std::string> held;
      std::set<std::string> names;
      for (const auto& [name, version] : f.provided.top) names.insert(name);
      for (const Stmt* kept : f.provided.keep)
        for (const auto& name : all_writes(kept)) names.insert(name);
      for (const auto& name : names) {
        const int write = context.facts.version(id, name, s.from);
        if (write < 0 || t.var_writes[static_cast<std::size_t>(write)].value.kind != Binding::Tensor) continue;
        auto [at, fresh] = held.emplace(root(t.var_writes[static_cast<std::size_t>(write)].value.tensor), name);
        if (!fresh && written(at->first, false))
          return "`" + at->second + "` and `" + name + "` use the same memory and are written in place behind the cut";
      }
    }
    const auto outer = s.frames.find(v.levels[0].frame);
    if (outer == s.frames.end() || !outer->second.lo) return "";
    for (const auto& name : outer->second.provided.inputs)
      for (const auto& [given, binding] : t.inputs) {
        if (given != name) continue;
        for (TensorId x : model::tensors_of(binding)) {
          if (written(root(x), true)) return "input `" + name + "` is written in place before the cut and read after it";
          if (sent.count(root(x)) && written(root(x), false))
            return "`" + sent[root(x)] + "` and input `" + name + "` use the same memory and are written in place behind the cut";
        }
      }
    return "";
  }
  static void program_reads(const Piece& p, const std::string& attr, bool& read);
};

}  // namespace shardwright::rewrite

#include "program/visit.h"

namespace shardwright::rewrite {

void StageSlicer::Impl::program_reads(const Piece& p, const std::string& attr, bool& read) {
  auto look = [&](const Expr* e) {
    program::walk(e, [&](const Expr* x) {
      read |= x->kind == ExprKind::Attribute && x->text == attr && x->kids[0]->kind == ExprKind::Name && x->kids[0]->text == "self";
      return true;
    });
  };
  if (p.kind == Piece::Loop || p.kind == Piece::If || p.kind == Piece::With) {
    for (const auto& k : p.body)
      if (k.stmt) program_reads(k, attr, read);
    return;
  }
  program::walk_exprs(Block{const_cast<Stmt*>(p.stmt)}, [&](const Expr* e) {
    look(e);
    return false;
  });
}

StageSlicer::StageSlicer(const model::Trace& t, const support::SourceManager& s, const model::Trace* other)
    : impl_(std::make_unique<Impl>(t, s)) {
  impl_->context.facts.dims.compare_with(other);
}
StageSlicer::~StageSlicer() = default;

void StageSlicer::send_contiguous() { impl_->context.contiguous = true; }
void StageSlicer::build_whole(std::set<int> stages) { impl_->context.built_whole = std::move(stages); }

std::string StageSlicer::refuses(const pipeline::Cut& cut) const {
  std::string error;
  CutView v = view(impl_->context, cut, error);
  if (!error.empty()) return error;
  const StageSlice after = analyse(impl_->context, 1, &v, nullptr);
  if (!after.error.empty()) return after.error;
  const StageSlice before = analyse(impl_->context, 0, nullptr, &v);
  if (!before.error.empty()) return before.error;
  if (v.carried(0).empty()) return "nothing crosses it";
  if (auto e = impl_->check(after, v); !e.empty()) return e;
  return impl_->check(before, v);
}

std::string StageSlicer::set_partition(const pipeline::Partition& p, int* refused) {
  auto refuse = [&](int cut, const std::string& why) {
    if (refused) *refused = cut;
    return impl_->place(p.cuts[static_cast<std::size_t>(cut)]) + ": " + why;
  };
  impl_->views.clear();
  impl_->stages.clear();
  impl_->inits.clear();
  impl_->use.reset();
  const int n = static_cast<int>(p.cuts.size()) + 1;
  for (const auto& cut : p.cuts) {
    std::string error;
    impl_->views.push_back(view(impl_->context, cut, error));
    if (!error.empty()) return refuse(static_cast<int>(impl_->views.size()) - 1, error);
  }
  impl_->stages.resize(static_cast<std::size_t>(n));
  for (int k = n; k-- > 0;) {
    CutView* lo = k > 0 ? &impl_->views[static_cast<std::size_t>(k) - 1] : nullptr;
    CutView* hi = k + 1 < n ? &impl_->views[static_cast<std::size_t>(k)] : nullptr;
    auto& s = impl_->stages[static_cast<std::size_t>(k)];
    s = analyse(impl_->context, k, lo, hi);
    if (!s.error.empty()) return refuse(lo ? k - 1 : k, s.error);
    for (const CutView* v : {lo, hi})
      if (v)
        if (auto e = impl_->check(s, *v); !e.empty()) return refuse(v == lo ? k - 1 : k, e);
  }
  impl_->use = std::make_unique<Use>(impl_->context, impl_->stages);
  impl_->tied = p.tied;
  // A stage leaves constructors out; one that counts on its class would leave the others another number.
  const auto& t = impl_->context.trace;
  for (int k = 0; k < n && !t.constructors.empty(); ++k)
    for (const auto& m : t.modules) {
      if (m.init_frame < 0 || holds(k, m.id)) continue;
      const auto& f = t.frame(m.init_frame);
      for (const auto& c : t.constructors)
        if (c.changed >= f.begin && c.changed <= f.end)
          return refuse(std::min(k, n - 2),
                        "the constructor of `" + m.fqn + "` changes `" + c.name + "` (" + impl_->context.sources.describe(c.where) +
                            "), so no stage can do without it");
    }
  return "";
}

std::vector<ModuleId> StageSlicer::partial_modules(int k) const {
  return impl_->use && impl_->has(k) ? impl_->use->partial(k) : std::vector<ModuleId>{};
}

bool StageSlicer::holds(int k, ModuleId m) const { return !impl_->use || (impl_->has(k) && impl_->use->holds(k, m)); }

bool StageSlicer::holds(int k, ModuleId m, const std::string& parameter) const {
  if (!holds(k, m) || !impl_->use) return holds(k, m);
  const auto partly = partial_modules(k);
  return std::find(partly.begin(), partly.end(), m) == partly.end() || impl_->use->holds(k, Named{m, parameter});
}

StageInterface StageSlicer::interface(int k) const {
  StageInterface out;
  if (!impl_->has(k)) return out;
  if (const CutView* v = impl_->lo(k))
    for (const Slot& s : v->carried(0)) out.receives.push_back(s.tensor);
  if (const CutView* v = impl_->hi(k))
    for (const Slot& s : v->carried(0)) out.returns.push_back(s.tensor);
  if (k == 0) {
    for (const auto& [name, value] : impl_->context.trace.inputs) out.needs_inputs.push_back(name);
  } else {
    const auto& f = impl_->stages[static_cast<std::size_t>(k)].frames;
    const auto it = f.find(impl_->views[static_cast<std::size_t>(k) - 1].levels[0].frame);
    if (it != f.end()) {
      out.needs_inputs = it->second.provided.inputs;
      out.passes = impl_->passes(k, it->second);
    }
  }
  for (const auto& [t, stages] : impl_->tied)
    if (std::find(stages.begin(), stages.end(), k) != stages.end()) out.tied.push_back(t);
  return out;
}

std::optional<std::string> StageSlicer::method(int k, ModuleId m, const program::Function* f, const Render& render) const {
  if (!impl_->has(k) || !impl_->use) return std::nullopt;
  Uses uses;
  for (const auto& [id, slice] : impl_->stages[static_cast<std::size_t>(k)].frames) {
    const auto& frame = impl_->context.trace.frame(id);
    if (frame.self == m && frame.function == f) return method_text(impl_->context, slice, impl_->lo(k), impl_->hi(k), render, uses);
  }
  return impl_->init(k, m).text(f, render, uses);
}

std::string StageSlicer::loop_counter(int k, ModuleId m, const void* loop) const {
  return impl_->has(k) && impl_->use ? impl_->init(k, m).counter(loop) : "";
}

std::vector<std::string> StageSlicer::extra_imports(int k, ModuleId m) const {
  std::vector<std::string> out;
  if (!impl_->has(k) || !impl_->use) return out;
  Uses uses;
  const Render plain = [&](Range r) { return impl_->context.text(r); };
  std::vector<const program::Function*> seen;
  for (const auto& [id, slice] : impl_->stages[static_cast<std::size_t>(k)].frames)
    if (impl_->context.trace.frame(id).self == m) method_text(impl_->context, slice, impl_->lo(k), impl_->hi(k), plain, uses);
  for (const auto& f : impl_->context.trace.frames)
    if (f.init && f.self == m && f.function && std::find(seen.begin(), seen.end(), f.function) == seen.end()) {
      seen.push_back(f.function);
      impl_->init(k, m).text(f.function, plain, uses);
    }
  if (uses.islice) out.push_back("from itertools import islice");
  if (uses.absent) out.push_back("Absent");
  if (uses.drop_unused) out.push_back("drop_unused");
  if (uses.attributes_only) out.push_back("attributes_only");
  return out;
}

}  // namespace shardwright::rewrite
