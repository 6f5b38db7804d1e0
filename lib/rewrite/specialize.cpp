// How variants come about.
//
// The unit of generation is a *definition*: a top-level class or function of some module. What a definition must look like
// is decided by the frames that execute its code: a module instance owns the frames of its methods (and of closures inside
// them); a call of a free function owns its own frame. Each unit collects
//   - the verdicts of its frames (an inherited method's lie in the text of the base class),
//   - which variant each constructor call and each free-function call in it must reach,
//   - whether a pipeline stage holds the module in part.
// An object of a class that is no module's is a unit as a module is.
// Units are visited children first, equal ones share a variant, and only then are names given: a class all of whose live
// instances share one variant keeps its name.
#include "rewrite/specialize.h"

#include <algorithm>

#include "rewrite/class_tests.h"
#include "rewrite/containers.h"
#include "rewrite/variants.h"

namespace shardwright::rewrite {
namespace {

using model::Frame;
using model::Module;
using model::Trace;

struct Owner {
  ModuleId module = -1;  // instance whose class holds the code
  FrameId frame = -1;    // or the frame of the free function that holds it
  int object = -1;       // or an object that is no module
};
using Key = std::pair<int, int>;  // (0, module) | (1, frame) | (2, 0): the build expression | (3, object)

using Edit = EditKey;
Edit edit_of(const Verdict& v) { return {static_cast<int>(v.kind), v.text, v.prefix, v.suffix}; }

class Specializer {
 public:
  using Calls = std::map<Range, std::set<const void*>, RangeLess>;
  /// `named`: calls whose callee must become a class's name, for these classes, although it is a value that stands for several.
  Specializer(const Trace& t, const TpEdits& e, const StageSlicer* s, int n, const support::SourceManager& sm, const rules::Target& target,
              const Calls& named)
      : trace_(t), edits_(e), stages_(s), stage_count_(n), sources_(sm), target_(target), named_(named) {}

  static const void* definition(const Container& c) {
    return c.class_def ? static_cast<const void*>(c.class_def) : static_cast<const void*>(c.function);
  }
  /// Calls that cannot be left as they are after all: a class that they reach has got another name. Valid after run().
  Calls renamed() const {
    Calls out;
    for (const auto& [call, reached] : by_value_)
      for (const int v : reached) {
        const Variant& x = variants_[static_cast<std::size_t>(v)];
        if (variant_name(x, *x.container) != x.container->name) out[call].insert(definition(*x.container));
      }
    return out;
  }

  Specialized run() {
    index();
    std::vector<int> roots;
    for (int k = 0; k < stage_count_; ++k) roots.push_back(instance(0, k));
    std::vector<Redirect> build = redirects({2, 0}, 0, false);
    for (auto& r : build) r.by_stage.assign(1, r.variant);
    for (int k = 1; k < stage_count_; ++k)
      for (const auto& other : redirects({2, 0}, k, false))
        for (auto& r : build)
          if (r.call == other.call) r.by_stage.push_back(other.variant);
    for (auto& r : build)
      if (std::all_of(r.by_stage.begin(), r.by_stage.end(), [&](int v) { return v == r.variant; })) r.by_stage.clear();
    if (!out_.refusals.empty()) return std::move(out_);
    name();
    exact_classes();
    out_.modules_asked = tests_.module;
    if (renamed().empty()) emit(roots, build);
    return std::move(out_);
  }

 private:
  void index() {
    for (const auto& [name, value] : trace_.inputs) inputs_.push_back(name);
    verdicts_.resize(trace_.frames.size());
    sites_.resize(trace_.modules.size());
    for (const auto& m : trace_.modules)
      if (m.construct_call) sites_[static_cast<std::size_t>(m.id)] = site_of(m);
    for (const auto& v : edits_.verdicts)
      if (v.frame >= 0) verdicts_[static_cast<std::size_t>(v.frame)].push_back(&v);
    frames_of_.resize(trace_.modules.size());
    owner_.resize(trace_.frames.size());
    for (const auto& f : trace_.frames) {
      Owner o = owner_[static_cast<std::size_t>(f.id)] = find_owner(f);
      if (o.module >= 0) frames_of_[static_cast<std::size_t>(o.module)].push_back(f.id);
      if (o.frame >= 0) frames_under_[o.frame].push_back(f.id);
      if (o.object >= 0) frames_of_object_[o.object].push_back(f.id);
      if (o.frame == f.id) called_in_[key_of(user_parent(f.id))].push_back(f.id);
      if (o.frame == f.id && f.call) reached_[f.call->range].insert(container(f.function));
    }
    for (std::size_t i = 0; i < trace_.objects.size(); ++i) {
      const model::PlainObject& o = trace_.objects[i];
      if (!o.construct_call || o.construct_call->kind != program::ExprKind::Call || o.mro.empty()) continue;
      objects_in_[key_of(o.construct_frame)].push_back(static_cast<int>(i));
      reached_[o.construct_call->range].insert(containers_.find(o.mro.front()->module, o.mro.front()->range));
    }
    for (const auto& m : trace_.modules) {
      if (m.cloned_from >= 0) clones_of_[source_of(m.id)].push_back(m.id);
      else if (m.construct_call) made_in_[key_of(site(m).frame)].push_back(m.id);
      for (FrameId p = m.construct_frame; p >= 0 && m.cloned_from < 0; p = trace_.frame(p).parent)
        if (owner_[static_cast<std::size_t>(p)].frame == p) built_under_[p].push_back(m.id);
      if (!m.construct_call || m.cloned_from >= 0 || m.builtin || m.mro.empty() || m.id == 0) continue;
      const Container* original = containers_.find(m.mro.front()->module, m.mro.front()->range);
      reached_[site(m).call->range].insert(original);
      const program::Expr* callee = site(m).callee;
      if (!original || original->class_def != m.mro.front() || callee->text == original->name) continue;
      const bool in_globals = sources_.text(callee->range).find("globals()") != std::string_view::npos;
      if (std::none_of(out_.by_value.begin(), out_.by_value.end(),
                       [&](const ByValue& x) { return x.module == original->module && x.name == original->name; }))
        out_.by_value.push_back({original->module, original->name, in_globals});
    }
  }

  /// The call that a module's class is named in: its constructor's, or the class method's that calls `cls(…)`: `Block.from_config(…)`.
  struct Site {
    const program::Expr* call = nullptr;
    const program::Expr* callee = nullptr;
    FrameId frame = -1;
    const model::IterPath* iters = nullptr;
    bool partial = false;
  };
  Site site_of(const Module& m) {
    Site s{m.construct_call, m.construct_call->kids[0], m.construct_frame, &m.construct_iters, m.construct_partial};
    if (m.id == 0 || m.mro.empty()) return s;
    std::vector<FrameId> passed;
    for (Site next = s; next.frame >= 0;) {
      const Frame& f = trace_.frame(next.frame);
      const bool by_class = f.function && f.function->owner && !f.function->parameters.empty() && f.self < 0 &&
          std::any_of(f.function->decorators.begin(), f.function->decorators.end(), [](const auto* d) { return d->text == "classmethod"; });
      if (!by_class || next.callee->kind != program::ExprKind::Name || next.callee->text != f.function->parameters[0].name) break;
      const program::Expr* callee = f.call && f.call->kind == program::ExprKind::Call ? f.call->kids[0] : nullptr;
      if (!callee || callee->kind != program::ExprKind::Attribute || f.builtin || (f.parent >= 0 && trace_.frame(f.parent).builtin)) break;
      passed.push_back(f.id);
      s = next = {f.call, callee->kids[0], f.parent, &f.iters, f.via_partial};
    }
    for (FrameId f : passed) class_frames_.emplace(f, m.id);
    return s;
  }
  const Site& site(const Module& m) const { return sites_[static_cast<std::size_t>(m.id)]; }

  Key key_of(FrameId f) const {
    if (f < 0) return {2, 0};
    const Owner& o = owner_[static_cast<std::size_t>(f)];
    if (o.module >= 0) return {0, o.module};
    if (o.frame >= 0) return {1, o.frame};
    if (o.object >= 0) return {3, o.object};
    return {2, 0};
  }
  FrameId user_parent(FrameId f) const {
    FrameId p = trace_.frame(f).parent;
    while (p >= 0 && trace_.frame(p).builtin) p = trace_.frame(p).parent;
    return p;
  }
  ModuleId source_of(ModuleId m) const {
    while (trace_.module(m).cloned_from >= 0) m = trace_.module(m).cloned_from;
    return m;
  }
  const Container* container(const program::Function* f) { return f ? containers_.find(f->module, f->range) : nullptr; }

  Owner find_owner(const Frame& f) {
    if (f.builtin) return {};
    const Container* c = container(f.function);
    if (c == nullptr) return {};
    const auto has = [&](const std::vector<const program::ClassDef*>& mro) {
      return std::find(mro.begin(), mro.end(), c->class_def) != mro.end();
    };
    for (FrameId p = f.id; p >= 0; p = trace_.frame(p).parent) {
      const Frame& g = trace_.frame(p);
      if (g.builtin) continue;
      if (c->class_def) {
        const auto made = class_frames_.find(g.id);
        if (made != class_frames_.end() && has(trace_.module(made->second).mro)) return {made->second, -1};
        // A method of an instance, or a closure inside one.
        if (g.self >= 0 && has(trace_.module(g.self).mro)) return {g.self, -1};
        if (g.object >= 0 && has(trace_.objects[static_cast<std::size_t>(g.object)].mro)) return {-1, -1, g.object};
      } else if (g.function == c->function) {
        return {-1, p};
      }
    }
    return c->class_def ? Owner{} : Owner{-1, f.id};
  }

  bool partial(ModuleId m, int k) {
    if (stages_ == nullptr) return false;
    auto it = partials_.find(k);
    if (it == partials_.end()) it = partials_.emplace(k, stages_->partial_modules(k)).first;
    return std::find(it->second.begin(), it->second.end(), m) != it->second.end();
  }

  // Variant of an instance in a stage, or -1 when the original class serves.
  int instance(ModuleId m, int k) {
    const bool sliced = partial(m, k);
    const bool own_stage = sliced || m == 0;
    auto memo = std::make_pair(m, own_stage ? k : -1);
    if (auto it = instance_memo_.find(memo); it != instance_memo_.end()) return it->second;
    instance_memo_[memo] = -1;
    const Module& mod = trace_.module(m);
    if (mod.builtin || mod.mro.empty()) return -1;
    Variant v;
    v.module = m;
    v.stage = own_stage ? k : -1;
    v.sliced = sliced;
    v.container = containers_.find(mod.mro.front()->module, mod.mro.front()->range);
    if (v.container == nullptr) return -1;
    // A clone shares its source's constructor call, so the whole family must agree.
    const ModuleId source = source_of(m);
    std::vector<ModuleId> family{source};
    if (auto it = clones_of_.find(source); it != clones_of_.end()) family.insert(family.end(), it->second.begin(), it->second.end());
    std::vector<FrameId> frames;
    for (ModuleId each : family)
      frames.insert(frames.end(), frames_of_[static_cast<std::size_t>(each)].begin(), frames_of_[static_cast<std::size_t>(each)].end());
    merge(frames, v);
    for (const auto& s : edits_.init_statements)
      if (s.module == m && (!sliced || (s.parameter.empty() ? stages_->holds(k, s.of) : stages_->holds(k, s.of, s.parameter))))
        v.init.push_back(&s);
    v.redirects = redirects({0, source}, k, sliced);
    if (!v.sliced && m != 0 && v.verdicts.empty() && v.init.empty() && looks_up(v, mod)) return instance_memo_[memo] = intern(std::move(v));
    if (!v.sliced && m != 0 && v.verdicts.empty() && unchanged(v.redirects) && v.init.empty()) return -1;
    chain(mod.mro, v);
    return instance_memo_[memo] = intern(std::move(v));
  }

  /// The definitions that the variant's text is in: the class and its bases, but for those above the last one that is edited.
  void chain(const std::vector<const program::ClassDef*>& mro, Variant& v) {
    for (const auto* c : mro)
      if (const Container* b = containers_.find(c->module, c->range); b && std::find(v.chain.begin(), v.chain.end(), b) == v.chain.end())
        v.chain.push_back(b);
    while (v.chain.size() > 1 && !touches(v, *v.chain.back())) v.chain.pop_back();
  }

  /// Is all that changes a class which is looked up in a registry by a name that the caller writes? Then the name is changed.
  bool looks_up(Variant& v, const Module& mod) const {
    if (target_.registries.empty() || mod.construct_call == nullptr || mod.construct_partial || mod.init_frame < 0 ||
        site(mod).call != mod.construct_call)
      return false;
    const Redirect* only = nullptr;
    for (const auto& r : v.redirects) {
      if (r.variant < 0 && r.exceptions.empty()) continue;
      if (only || !r.exceptions.empty() || r.partial || variants_[static_cast<std::size_t>(r.variant)].stage >= 0) return false;
      only = &r;
    }
    if (!only) return false;
    // However the class is found (`REGISTRY[style](…)`, import_module and getattr): the caller writes a key of a registry whose
    // entry is that class.
    const Container& child = *variants_[static_cast<std::size_t>(only->variant)].container;
    const program::Expr* callee = only->callee;
    if (callee->kind == program::ExprKind::Name && callee->text == child.name) return false;
    const auto& parameters = trace_.frame(mod.init_frame).function->parameters;
    for (std::size_t i = 1; i < parameters.size(); ++i) {
      const program::Expr* name = argument_for(mod.construct_call, parameters[i].name, i - 1);
      if (!name || name->kind != program::ExprKind::String || !registry_has(v.container->module, name->text, child)) continue;
      v.registered = only->variant;
      v.style = parameters[i].name;
      v.style_position = i - 1;
      v.redirects.clear();
      v.chain = {v.container};
      return true;
    }
    return false;
  }
  static bool unchanged(const std::vector<Redirect>& list) {
    return std::all_of(list.begin(), list.end(), [](const Redirect& r) { return r.variant < 0 && r.exceptions.empty(); });
  }

  bool touches(const Variant& v, const Container& c) const {
    if (v.sliced && c.class_def)
      for (const auto* s : c.class_def->body)
        if (s->kind == program::StmtKind::FunctionDef &&
            stages_->method(v.stage, v.module, s->function, [&](Range r) { return std::string(sources_.text(r)); }))
          return true;
    for (const auto* w : v.verdicts)
      if (c.range.contains(w->range)) return true;
    for (const auto& r : v.redirects)
      if (c.range.contains(r.call->range) && (r.variant >= 0 || !r.exceptions.empty())) return true;
    return false;
  }

  /// Do two variants want the same text of a class that both are derived from?
  static bool same_text(const Variant& a, const Variant& b, const Container& c) {
    const auto edits = [&](const Variant& v) {
      std::set<std::tuple<std::uint32_t, std::uint32_t, Edit>> out;
      for (const auto* w : v.verdicts)
        if (c.range.contains(w->range)) out.insert({w->range.begin, w->range.end, edit_of(*w)});
      return out;
    };
    const auto made = [&](const Variant& v) {
      std::set<std::tuple<std::uint32_t, int, std::map<int, int>>> out;
      for (const auto& r : v.redirects)
        if (c.range.contains(r.call->range) && (r.variant >= 0 || !r.exceptions.empty()))
          out.insert({r.call->range.begin, r.variant, r.exceptions});
      return out;
    };
    const auto added = [&](const Variant& v) {
      std::vector<std::string> out;
      for (const auto* s : v.init) out.push_back(s->text);
      return out;
    };
    return edits(a) == edits(b) && made(a) == made(b) && added(a) == added(b);
  }

  int free_function(FrameId f, int k, bool stage_specific) {
    auto memo = std::make_pair(f, stages_ ? k : -1);  // it may make what the stage holds in part
    if (auto it = frame_memo_.find(memo); it != frame_memo_.end()) return it->second;
    frame_memo_[memo] = -1;
    Variant v;
    v.frame = f;
    v.container = container(trace_.frame(f).function);
    if (v.container == nullptr) return -1;
    v.chain = {v.container};
    merge(frames_under_[f], v);
    v.redirects = redirects({1, f}, k, stage_specific);
    if (v.verdicts.empty() && unchanged(v.redirects)) return -1;
    for (const auto& r : v.redirects)
      if (r.variant >= 0 && variants_[static_cast<std::size_t>(r.variant)].stage >= 0) v.stage = k;
    return frame_memo_[memo] = intern(std::move(v));
  }

  // Variant of an object that is no module; -1: the original class serves.
  int object(int o, int k) {
    if (auto it = object_memo_.find(o); it != object_memo_.end()) return it->second;
    object_memo_[o] = -1;
    const model::PlainObject& plain = trace_.objects[static_cast<std::size_t>(o)];
    Variant v;
    v.container = containers_.find(plain.mro.front()->module, plain.mro.front()->range);
    if (v.container == nullptr) return -1;
    merge(frames_of_object_[o], v);
    v.redirects = redirects({3, o}, k, false);
    if (v.verdicts.empty() && unchanged(v.redirects)) return -1;
    const auto* root = trace_.module(0).construct_call;
    if (key_of(plain.construct_frame) == Key{2, 0} && (!root || !root->range.contains(plain.construct_call->range)))
      refuse_call(frames_of_object_[o], plain.construct_call->range,
                  "an object whose class needs edits is made once for all, where the module is imported");
    chain(plain.mro, v);
    return object_memo_[o] = intern(std::move(v));
  }

  // The verdicts of several frames of one unit; places about which they disagree are refused.
  void merge(const std::vector<FrameId>& frames, Variant& v) {
    std::map<Range, const Verdict*, RangeLess> first;
    for (FrameId f : frames) {
      std::map<Range, std::vector<const Verdict*>, RangeLess> mine;
      for (const Verdict* w : verdicts_[static_cast<std::size_t>(f)]) mine[w->range].push_back(w);
      for (auto& [range, list] : mine) {
        std::set<Edit> edits;
        for (const Verdict* w : list)
          if (w->kind != Verdict::Keep) edits.insert(edit_of(*w));
        auto [it, fresh] = v.places.try_emplace(range, edits);
        if (fresh) {
          first[range] = list.front();
          std::set<Edit> seen;
          for (const Verdict* w : list)
            if (w->kind != Verdict::Keep && seen.insert(edit_of(*w)).second) v.verdicts.push_back(w);
        } else if (it->second != edits) {
          int axis = first[range]->axis;
          for (const Verdict* w : list) axis = std::max(axis, w->axis);
          out_.refusals.push_back(
              {axis,
               range,
               "this place needs two different forms in calls of one object (" + first[range]->why + " / " + list.front()->why + ")",
               {},
               true});
        }
      }
    }
  }

  std::vector<Redirect> redirects(const Key& key, int k, bool stage_specific) {
    struct Hit {
      int variant;
      const model::IterPath* iters;
    };
    struct Place {
      const program::Expr* call;
      const program::Expr* callee;
      bool partial = false;
      std::vector<Hit> hits;
    };
    std::map<Range, Place, RangeLess> sites;
    auto add = [&](const program::Expr* call, const program::Expr* callee, bool via_partial, int variant, const model::IterPath& iters) {
      auto& s = sites[call->range];
      s.call = call;
      s.callee = callee;
      s.partial = s.partial || via_partial;
      s.hits.push_back({variant, &iters});
    };
    if (auto it = made_in_.find(key); it != made_in_.end())
      for (ModuleId c : it->second) {
        if (stage_specific && stages_ && !holds_family(k, c)) continue;
        const Module& m = trace_.module(c);
        if (m.builtin || m.mro.empty()) continue;
        int v = instance(c, k);
        if (c == 0) continue;  // the root's own construction is STAGES[stage]
        if (auto cl = clones_of_.find(c); cl != clones_of_.end())
          for (ModuleId each : cl->second) {
            if (stage_specific && stages_ && !stages_->holds(k, each)) continue;
            v = std::max(v, instance(each, k));
          }
        const Site& at = site(m);
        add(at.call, at.callee, at.partial, v, *at.iters);
      }
    if (auto it = objects_in_.find(key); it != objects_in_.end())
      for (int o : it->second) {
        const model::PlainObject& p = trace_.objects[static_cast<std::size_t>(o)];
        add(p.construct_call, p.construct_call->kids[0], p.construct_partial, object(o, k), p.construct_iters);
      }
    if (auto it = called_in_.find(key); it != called_in_.end())
      for (FrameId f : it->second) {
        const Frame& g = trace_.frame(f);
        if (stage_specific && stages_ && builds_for_others(f, k)) continue;
        int v = free_function(f, k, stage_specific);
        if (g.call == nullptr || g.call->kind != program::ExprKind::Call || (g.parent >= 0 && trace_.frame(g.parent).builtin)) {
          if (v >= 0) refuse_frame(f, "a function that needs edits is called out of sight of the source");
          continue;
        }
        add(g.call, g.call->kids[0], g.via_partial, v, g.iters);
      }
    std::vector<Redirect> out;
    for (auto& [range, s] : sites) {
      leave_to_value(range, s.partial, s.hits);
      std::map<int, int> count;
      for (const auto& h : s.hits) ++count[h.variant];
      Redirect r;
      r.call = s.call;
      r.callee = s.callee;
      r.partial = s.partial;
      r.variant = std::max_element(count.begin(), count.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
      if (count.size() > 1) {
        // A loop around the call whose iteration decides: the innermost such.
        for (std::size_t level = 0; level < s.hits.front().iters->size() && r.loop == nullptr; ++level) {
          const auto& it = s.hits.front().iters->rbegin()[static_cast<std::ptrdiff_t>(level)];
          std::map<int, int> by_index;
          const bool decides = std::all_of(s.hits.begin(), s.hits.end(), [&](const Hit& h) {
            auto same =
                std::find_if(h.iters->begin(), h.iters->end(), [&](const auto& x) { return x.loop == it.loop && x.clause == it.clause; });
            return same != h.iters->end() && by_index.emplace(same->index, h.variant).first->second == h.variant;
          });
          if (!decides) continue;
          r.loop = it.loop;
          r.clause = it.clause;
          for (auto [index, variant] : by_index)
            if (variant != r.variant) r.exceptions[index] = variant;
        }
        if (r.loop == nullptr) {
          // Cut elsewhere they may be of one class.
          std::vector<ModuleId> sliced;
          for (auto [variant, n] : count)
            if (variant >= 0 && variants_[static_cast<std::size_t>(variant)].sliced)
              sliced.push_back(variants_[static_cast<std::size_t>(variant)].module);
          if (!sliced.empty()) {
            out_.refusals.push_back({-1, range, "one constructor call makes objects that need different classes", std::move(sliced)});
            continue;
          }
          // Without what the fewer of them need, they can be of one class.
          std::set<int> axes;
          for (auto [variant, n] : count)
            if (variant != r.variant) axes_of(variant, axes);
          if (axes.empty()) axes_of(r.variant, axes);
          if (axes.empty()) axes.insert(-1);
          for (int axis : axes)
            out_.refusals.push_back({axis, range, "one constructor call makes objects that need different classes", {}, true});
          continue;
        }
      }
      out.push_back(std::move(r));
    }
    return out;
  }
  /// `REGISTRY[kind](…)` that makes objects of several classes stays as it is: it finds the edited classes under their old names.
  template <class Hits>
  void leave_to_value(const Range& call, bool partial, Hits& hits) {
    const auto reached = reached_.find(call);
    if (reached == reached_.end() || reached->second.size() < 2 || reached->second.count(nullptr)) return;
    if (partial || target_.in_place) return;
    const auto named = named_.find(call);
    for (auto& h : hits) {
      if (h.variant < 0) continue;
      const Variant& v = variants_[static_cast<std::size_t>(h.variant)];
      if (v.stage >= 0 || v.registered >= 0 || (named != named_.end() && named->second.count(definition(*v.container)))) continue;
      by_value_[call].insert(h.variant);
      h.variant = -1;
    }
  }
  /// Does a function build modules, none of which the stage holds? Then any variant of it serves.
  bool builds_for_others(FrameId f, int k) const {
    const auto it = built_under_.find(f);
    return it != built_under_.end() &&
        std::none_of(it->second.begin(), it->second.end(), [&](ModuleId m) { return trace_.module(m).parent < 0 || holds_family(k, m); });
  }
  bool holds_family(int k, ModuleId c) const {
    if (stages_->holds(k, c)) return true;
    if (auto it = clones_of_.find(c); it != clones_of_.end())
      for (ModuleId each : it->second)
        if (stages_->holds(k, each)) return true;
    return false;
  }

  void refuse_frame(FrameId f, std::string why) {
    refuse_call({f}, trace_.frame(f).call ? trace_.frame(f).call->range : Range{}, std::move(why));
  }
  void refuse_call(const std::vector<FrameId>& frames, const Range& call, std::string why) {
    int axis = -1;
    for (FrameId f : frames)
      for (const Verdict* v : verdicts_[static_cast<std::size_t>(f)]) axis = std::max(axis, v->axis);
    out_.refusals.push_back({axis, call, std::move(why)});
  }
  /// The axes that a variant, and whatever its constructor makes, was edited for.
  void axes_of(int variant, std::set<int>& out) const {
    if (variant < 0) return;
    const Variant& v = variants_[static_cast<std::size_t>(variant)];
    for (const auto* w : v.verdicts)
      if (w->axis >= 0) out.insert(w->axis);
    for (const auto& r : v.redirects) {
      axes_of(r.variant, out);
      for (auto [index, other] : r.exceptions) axes_of(other, out);
    }
  }

  /// Can one text serve both? They must not contradict each other at any place or constructor call that both ran.
  static bool compatible(const Variant& a, const Variant& b) {
    if (a.container != b.container || a.stage != b.stage || a.sliced || b.sliced || a.init.size() != b.init.size() ||
        a.registered != b.registered)
      return false;
    for (std::size_t i = 0; i < a.init.size(); ++i)
      if (a.init[i]->text != b.init[i]->text) return false;
    for (const auto& [range, edits] : a.places)
      if (auto it = b.places.find(range); it != b.places.end() && it->second != edits) return false;
    for (const auto& r : a.redirects)
      for (const auto& q : b.redirects)
        if (r.call == q.call && (r.variant != q.variant || r.exceptions != q.exceptions || r.partial != q.partial)) return false;
    return true;
  }

  int intern(Variant v) {
    for (auto& known : variants_) {
      if (!compatible(known, v)) continue;
      for (const auto* w : v.verdicts) {
        const bool there = std::any_of(known.verdicts.begin(), known.verdicts.end(),
                                       [&](const Verdict* o) { return o->range == w->range && edit_of(*o) == edit_of(*w); });
        if (!there) known.verdicts.push_back(w);
      }
      known.places.insert(v.places.begin(), v.places.end());
      for (auto& r : v.redirects)
        if (std::none_of(known.redirects.begin(), known.redirects.end(), [&](const Redirect& o) { return o.call == r.call; }))
          known.redirects.push_back(std::move(r));
      if (v.chain.size() > known.chain.size()) known.chain = std::move(v.chain);
      return known.id;
    }
    v.id = static_cast<int>(variants_.size());
    v.target = &target_;
    variants_.push_back(std::move(v));
    return variants_.back().id;
  }

  void name() {
    std::map<const Container*, std::vector<int>> by_class;
    for (const auto& v : variants_)
      if (v.stage < 0 && v.registered < 0) by_class[v.container].push_back(v.id);
    // A class keeps its name when every live instance of it is of one variant.
    std::set<const Container*> plain;
    for (const auto& m : trace_.modules) {
      if (m.builtin || m.mro.empty()) continue;
      bool edited = false;
      for (const auto& [key, v] : instance_memo_)
        if (key.first == m.id && v >= 0) edited = true;
      for (const auto* c : m.mro)  // what it is derived from, too
        if (!edited) plain.insert(containers_.find(c->module, c->range));
    }
    for (std::size_t i = 0; i < trace_.objects.size(); ++i) {
      const auto it = object_memo_.find(static_cast<int>(i));
      const auto& mro = trace_.objects[i].mro;
      for (const auto* c : mro)
        if (it == object_memo_.end() || it->second < 0) plain.insert(containers_.find(c->module, c->range));
    }
    for (const auto& f : trace_.frames) {
      if (owner_[static_cast<std::size_t>(f.id)].frame != f.id) continue;
      bool edited = false;
      for (const auto& [key, v] : frame_memo_)
        if (key.first == f.id && v >= 0) edited = true;
      if (!edited) plain.insert(container(f.function));
    }
    std::map<std::pair<const Container*, std::string>, const Variant*> taken;
    // Bases are printed with what is derived from them, under names of their own where another text has theirs.
    const auto free = [&](const Variant& v, const std::string& suffix) {
      return std::all_of(v.chain.begin(), v.chain.end(), [&](const Container* c) {
        if (suffix.empty() && !target_.in_place && plain.count(c) && touches(v, *c)) return false;
        const auto other = taken.find({c, suffix});
        return other == taken.end() || (c != v.container && c != other->second->container && same_text(v, *other->second, *c));
      });
    };
    for (auto& [c, list] : by_class) {
      const std::string base = target_.in_place ? "" : c->class_def ? "Parallel" : "_parallel";
      const bool alone = list.size() == 1 && (!plain.count(c) || target_.in_place);
      for (std::size_t i = 0; i < list.size(); ++i) {
        Variant& v = variants_[static_cast<std::size_t>(list[i])];
        v.suffix = alone ? "" : base + (i ? std::to_string(i + 1) : "");
        for (std::size_t n = alone ? 0 : i + 1; !free(v, v.suffix); ++n) v.suffix = base + (n ? std::to_string(n + 1) : "");
        for (const Container* each : v.chain) taken.try_emplace({each, v.suffix}, &v);
      }
    }
    std::map<std::pair<std::string, int>, int> staged;  // by name: classes of several modules meet in one stage file
    for (auto& v : variants_)
      if (v.stage >= 0) {
        int n = staged[{v.container->name, v.stage}]++;
        v.suffix = "_stage" + std::to_string(v.stage) + (n ? "_" + std::to_string(n + 1) : "");
      }
  }

  /// A class that the program compares with must not get another name.
  void exact_classes() {
    for (const auto& v : variants_) {
      if (v.suffix.empty() || !v.container->class_def || !tests_.exact.count(v.container->name) || tests_.asked.count(v.container->name))
        continue;
      std::set<int> axes;
      for (const auto* w : v.verdicts) axes.insert(w->axis);
      Refusal r{
          axes.empty() ? -1 : *axes.rbegin(), v.container->range,
          "the program compares types with the class " + v.container->name + ", which would be another one here (isinstance would do)"};
      if (v.sliced) r.sliced.push_back(v.module);
      out_.refusals.push_back(std::move(r));
    }
  }

  void emit(const std::vector<int>& roots, const std::vector<Redirect>& build) {
    std::map<std::pair<int, const Container*>, int> made;
    std::map<std::pair<const Container*, std::string>, int> by_text;
    // Depth first from the roots: what a text refers to is printed before it.
    auto make = [&](auto&& self, int variant, const Container* c) -> int {
      if (auto it = made.find({variant, c}); it != made.end()) return it->second;
      made[{variant, c}] = -1;
      const Variant& v = variants_[static_cast<std::size_t>(variant)];
      const bool is_asked = c->class_def && tests_.asked.count(c->name);
      Printed p = print_definition(v, *c, variants_, trace_, stages_, sources_, inputs_, is_asked, tests_.module && c->class_def);
      if (!p.error.empty()) {
        std::set<int> axes;
        for (const auto* w : v.verdicts) axes.insert(w->axis);
        if (axes.empty())
          for (const auto& r : v.redirects)
            for (auto [index, other] : r.exceptions) axes_of(other, axes);
        out_.refusals.push_back({axes.empty() ? -1 : *axes.rbegin(), c->range, p.error});
      }
      Definition d;
      d.name = variant_name(v, *c);
      d.origin = c->module;
      d.original = c->name;
      d.range = c->range;
      d.text = std::move(p.text);
      d.runtime = std::move(p.runtime);
      d.plain_imports = std::move(p.plain_imports);
      d.why = std::move(p.why);
      for (const program::Expr* e : c->class_def ? c->class_def->decorators : c->function->decorators)
        if (trace_.entering.count(e)) d.entering.emplace_back(sources_.text(e->range));
      d.stage = v.stage;
      d.asked = is_asked;
      for (auto& [name, ref] : p.refs) {
        if (ref == variant) {  // a base of the same variant
          const Container* base = base_named(v, *c, name);
          if (base) d.refs[name] = self(self, variant, base);
          continue;
        }
        d.refs[name] = self(self, ref, variants_[static_cast<std::size_t>(ref)].container);
      }
      auto key = std::make_pair(c, d.name + "\n" + d.text);
      if (auto it = by_text.find(key); it != by_text.end()) return made[{variant, c}] = it->second;
      int id = static_cast<int>(out_.definitions.size());
      out_.definitions.push_back(std::move(d));
      by_text[key] = id;
      return made[{variant, c}] = id;
    };
    for (int r : roots) out_.stage_roots.push_back(r < 0 ? -1 : make(make, r, variants_[static_cast<std::size_t>(r)].container));
    for (const auto& [call, reached] : by_value_)
      for (const int v : reached) make(make, v, variants_[static_cast<std::size_t>(v)].container);
    const Module& root = trace_.module(0);
    const auto print = [&](const Range& range, BuildText& into) {
      Printed p = print_expression(range, build, variants_, sources_);
      into.text = std::move(p.text);
      for (auto& [name, ref] : p.refs) into.refs[name] = make(make, ref, variants_[static_cast<std::size_t>(ref)].container);
    };
    if (root.construct_call) print(root.construct_call->range, out_.build);
    if (FrameId f = root.construct_frame; f >= 0) {
      while (trace_.frame(f).parent >= 0) f = trace_.frame(f).parent;
      if (const auto* call = trace_.frame(f).call) {
        const auto& file = sources_.file(call->range.file);
        print({call->range.file, 0, static_cast<std::uint32_t>(file.text.size())}, out_.factory);
      }
    }
    for (const auto& v : variants_)
      if (v.registered >= 0)
        if (auto it = made.find({v.registered, variants_[static_cast<std::size_t>(v.registered)].container}); it != made.end())
          out_.looked_up.emplace_back(v.container->module, it->second);
  }
  static const Container* base_named(const Variant& v, const Container& c, const std::string& name) {
    bool after = false;
    for (const auto* b : v.chain) {
      if (after && variant_name(v, *b) == name) return b;
      if (b == &c) after = true;
    }
    return nullptr;
  }

  const Trace& trace_;
  const ClassTests tests_ = class_tests(trace_);
  const TpEdits& edits_;
  const StageSlicer* stages_;
  int stage_count_;
  const support::SourceManager& sources_;
  const rules::Target& target_;
  const Calls& named_;
  std::map<Range, std::set<int>, RangeLess> by_value_;  ///< calls that leave_to_value() left as they are → variants they reach
  Containers containers_;
  std::vector<std::string> inputs_;  // names of forward's arguments
  std::vector<std::vector<const Verdict*>> verdicts_;
  std::vector<Owner> owner_;
  std::vector<Site> sites_;                   ///< by module
  std::map<FrameId, ModuleId> class_frames_;  ///< class methods that call `cls(…)` → what they make
  std::vector<std::vector<FrameId>> frames_of_;
  std::map<FrameId, std::vector<FrameId>> frames_under_;
  std::map<int, std::vector<FrameId>> frames_of_object_;
  std::map<Key, std::vector<int>> objects_in_;  ///< made there
  std::map<int, int> object_memo_;
  std::map<Key, std::vector<ModuleId>> made_in_;
  std::map<Key, std::vector<FrameId>> called_in_;
  std::map<FrameId, std::vector<ModuleId>> built_under_;            ///< of free functions
  std::map<Range, std::set<const Container*>, RangeLess> reached_;  ///< call → the classes and functions that its callee was
  std::map<ModuleId, std::vector<ModuleId>> clones_of_;
  std::map<int, std::vector<ModuleId>> partials_;
  std::map<std::pair<ModuleId, int>, int> instance_memo_;
  std::map<std::pair<FrameId, int>, int> frame_memo_;
  std::vector<Variant> variants_;
  Specialized out_;
};

}  // namespace

std::string variant_name(const Variant& v, const Container& c) {
  // Beside the original, every shared definition has a name of its own; in a package of copies it keeps the original's.
  if (v.target && v.target->in_place && v.stage < 0)
    return (c.class_def ? v.target->class_name(c.name) : c.name + "_" + v.target->file_word) + v.suffix;
  return c.name + v.suffix;
}

const program::Expr* argument_for(const program::Expr* call, const std::string& parameter, std::size_t position) {
  for (std::size_t i = 0; i < call->args.size(); ++i) {
    const auto& a = call->args[i];
    if (a.keyword == parameter) return a.value;
    if (a.star && i <= position) return nullptr;
    if (a.keyword.empty() && !a.double_star && i == position) return a.value;
  }
  return nullptr;
}

Specialized specialize(const Trace& trace, const TpEdits& edits, const StageSlicer* stages, int stage_count,
                       const support::SourceManager& sources, const rules::Target* target) {
  static const rules::Target ours;
  Specializer::Calls named;
  for (;;) {
    Specializer s(trace, edits, stages, stage_count, sources, target ? *target : ours, named);
    Specialized out = s.run();
    const auto renamed = s.renamed();
    if (renamed.empty() || !out.refusals.empty()) return out;
    for (const auto& [call, classes] : renamed) named[call].insert(classes.begin(), classes.end());
  }
}

}  // namespace shardwright::rewrite
