#include "driver/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "cxx/load.h"
#include "driver/directives.h"
#include "eval/imports.h"
#include "model/shape.h"
#include "program/visit.h"
#include "rewrite/stage_counts.h"
#include "rules/target.h"
#include "support/files.h"

namespace shardwright::driver {
namespace {

namespace fs = std::filesystem;

std::string place(const support::SourceManager& sm, const support::Range& r) {
  return r.valid() ? sm.describe(r) : std::string("<unknown>");
}

/// Statements that are decided by `self.training`, in what forward ran of the user's modules: the other side was not looked at.
std::vector<support::Range> training_branches(const model::Trace& t, const support::SourceManager& sm) {
  std::vector<support::Range> out;
  std::set<const program::Function*> seen;
  for (const auto& f : t.frames) {
    if (f.begin < t.forward_begin || f.builtin || !f.function || f.self < 0 ||
        sm.file(f.function->range.file).module.starts_with("torch.") || !seen.insert(f.function).second)
      continue;
    program::walk(f.function->body, [&](const program::Stmt* s) {
      bool decides = false;
      if (s->kind == program::StmtKind::If && s->value)
        program::walk(s->value, [&](const program::Expr* e) {
          decides = decides || (e->kind == program::ExprKind::Attribute && e->text == "training");
          return true;
        });
      if (decides) out.push_back(s->value->range);
      return true;
    });
  }
  return out;
}

/// Leaves an axis out of the next round. False: it is left out already.
bool give_up(const sharding::Axis& a, const std::string& why, const model::Trace& t, sharding::Options& options) {
  if (!a.key.empty()) return options.given_up.emplace(a.key, why).second;
  for (auto p : a.parameters) options.kept_whole.emplace_back(t.tensor(p).name, why);
  return !a.parameters.empty();
}

/// Where no cut may be.
struct CutLimits {
  std::set<std::pair<model::Clock, pipeline::CutKind>> banned;
  std::set<const program::Expr*> whole;  ///< constructor calls: nor inside of what they make
  std::vector<support::Note> why;
};

/// A stage cannot be written beside the others as it is cut: the next attempt is not cut inside the modules that a refusal names,
/// nor at these places again. False: there is no such refusal.
bool cut_elsewhere(const std::vector<rewrite::Refusal>& refusals, const model::Trace& t, const pipeline::Partition& now,
                   CutLimits& limits) {
  bool any = false;
  for (const auto& r : refusals) {
    if (r.axis >= 0) continue;
    const bool before = any;
    for (const auto& cut : now.cuts) {
      bool inside = false;
      for (const auto& level : cut.path) {
        const model::ModuleId m = t.frame(level.frame).self;
        if (std::find(r.sliced.begin(), r.sliced.end(), m) == r.sliced.end() || m < 0 || !t.module(m).construct_call) continue;
        any = limits.whole.insert(t.module(m).construct_call).second || any;
        inside = true;
      }
      if (!inside) any = limits.banned.emplace(cut.clock, cut.kind).second || any;
    }
    if (any && !before && limits.why.empty()) limits.why.push_back({r.where, r.message});
  }
  return any;
}

/// The chosen axes of what the constructor call at `where` makes; of the whole model where there are none.
std::vector<int> axes_made_at(support::Range where, const model::Trace& t, const sharding::Result& r) {
  std::vector<int> made, all;
  for (std::size_t i = 0; i < r.axes.size(); ++i) {
    if (!r.axes[i].chosen) continue;
    all.push_back(static_cast<int>(i));
    bool here = false;
    for (const auto& m : t.modules)
      for (model::ModuleId up = m.id; up >= 0 && !here; up = t.module(up).parent) {
        const auto* call = t.module(up).construct_call;
        if (!call || !where.contains(call->range)) continue;
        for (const auto& p : m.params)
          here = here || std::find(r.axes[i].parameters.begin(), r.axes[i].parameters.end(), p.tensor) != r.axes[i].parameters.end();
      }
    if (here) made.push_back(static_cast<int>(i));
  }
  return made.empty() ? all : made;
}

/// What crosses the cuts is what the text hands on, in the order of its tuples: some that could be computed again are sent after all.
void take_over_sends(const model::Trace& t, const rewrite::StageSlicer& slicer, pipeline::Partition& partition) {
  for (std::size_t k = 0; k < partition.cuts.size(); ++k) {
    auto& cut = partition.cuts[k];
    cut.live = slicer.interface(static_cast<int>(k)).returns;
    cut.bytes = 0;
    for (const model::TensorId x : cut.live) {
      cut.bytes += model::numel(t.tensor(x)) * model::bytes_of(t.tensor(x).dtype);
      std::erase_if(cut.recompute, [&](const auto& r) { return r.tensor == x; });
    }
  }
}

struct Expressible {
  const rewrite::StageSlicer* slicer;
  std::map<std::string, int> refused;
  std::set<std::pair<model::Clock, pipeline::CutKind>> banned;  // fine alone, but not beside the others
  std::set<const program::Expr*> whole;                         // constructor calls of modules that no cut may lie in
  std::set<model::FrameId> left;                                // calls in which many places were tried
};

bool can_emit(const model::Trace& t, const pipeline::Cut& c, void* data) {
  auto* e = static_cast<Expressible*>(data);
  if (e->banned.count({c.clock, c.kind})) return false;
  for (const auto& level : c.path) {
    if (e->left.count(level.frame)) return false;
    const model::ModuleId m = t.frame(level.frame).self;
    if (m < 0 || !e->whole.count(t.module(m).construct_call)) continue;
    ++e->refused["it lies inside `" + t.module(m).fqn + "`, whose constructor call makes other objects, too"];
    return false;
  }
  std::string why = e->slicer->refuses(c);
  if (!why.empty()) ++e->refused[why];
  return why.empty();
}

/// A target whose trainer sums gradients over the first and the last stage only: why these stages cannot do, "" when they can.
/// `cut` is the one to move.
std::string unsummed(const model::Trace& t, const pipeline::Partition& p, const rules::Target* target, int& cut) {
  if (!target || target->stage_tied.empty()) return "";
  const int last = static_cast<int>(p.cuts.size());
  for (const auto& [tensor, stages] : p.tied) {
    if (stages.size() == 2 && stages.front() == 0 && stages.back() == last) continue;
    std::string list;
    for (int k : stages) list += (list.empty() ? "" : k == stages.back() ? " and " : ", ") + std::to_string(k);
    cut = stages.back() != last ? stages.back() : stages.front() != 0 ? stages.front() - 1 : stages[1] - 1;
    return "parameter " + t.tensor(tensor).name + " is used in stages " + list + ", and target '" + target->name +
        "' sums gradients over the first and the last stage only (--pp 2 or --target runtime can do it)";
  }
  return "";
}

/// A target whose schedule waits for a gradient of every tensor that it sent: which of these gets none, "" when all do.
std::string unanswered(const model::Trace& t, const rewrite::StageSlicer& slicer, int stages, const rules::Target* target, int& cut) {
  for (int k = 0; target && target->plain_sends && k + 1 < stages; ++k)
    for (model::TensorId id : slicer.interface(k).returns) {
      const model::Tensor& x = t.tensor(id);
      if (x.requires_grad && x.from_parameter && model::is_floating(x.dtype)) continue;
      cut = k;
      return "a tensor that gets no gradient (" + model::shape_text(x.shape) + " " + std::string(model::short_name(x.dtype)) +
          ") would be sent, and the schedule of target '" + target->name + "' waits for one";
    }
  return "";
}

constexpr double kPoorBalance = 1.5;  ///< slowest stage over the mean from which wider cuts are looked at
constexpr double kWorthWhile = 0.8;   ///< of that, what wider cuts must come to
constexpr int kWidest = 16;           ///< tensors that may cross where nothing else will do, and where a plan says so

/// Chooses cuts that the slicer can write, alone and together. Returns why there are none.
std::string cuts_of_width(const model::Trace& t, pipeline::Options po, rewrite::StageSlicer& slicer, const rules::Target* target,
                          const CutLimits& limits, pipeline::Partition& out, std::vector<std::pair<std::string, int>>& refused) {
  Expressible expressible{&slicer, {}, limits.banned, limits.whole};
  po.can_emit = can_emit;
  po.can_emit_data = &expressible;
  std::string why;
  constexpr int kTries = 50, kSingly = 12;
  for (int i = 0; i < kTries; ++i) {
    out = pipeline::partition(t, po);
    if (!out.error.empty()) break;
    int cut = -1;
    why = unsummed(t, out, target, cut);
    if (why.empty()) why = slicer.set_partition(out, &cut);
    if (why.empty()) why = unanswered(t, slicer, po.stages, target, cut);
    if (why.empty()) break;
    ++expressible.refused[why];
    const auto& c = out.cuts[static_cast<std::size_t>(cut)];
    expressible.banned.insert({c.clock, c.kind});
    // A value that cannot cross mostly lives as long as the call that it was given to: further out it may be made again.
    if (i >= kSingly && c.path.size() > 1) expressible.left.insert(c.path.back().frame);
  }
  refused.assign(expressible.refused.begin(), expressible.refused.end());
  std::sort(refused.begin(), refused.end(), [](const auto& x, const auto& y) { return x.second > y.second; });
  return why;
}

/// The same; where few tensors cross nowhere, or only where one stage has nearly all the work, more may cross.
std::string choose_cuts(const model::Trace& t, pipeline::Options po, rewrite::StageSlicer& slicer, const rules::Target* target,
                        const CutLimits& limits, pipeline::Partition& out, std::vector<std::pair<std::string, int>>& refused) {
  std::string why = cuts_of_width(t, po, slicer, target, limits, out, refused);
  const auto poor = [&] { return !out.error.empty() || !why.empty() || out.slowest_over_mean > kPoorBalance; };
  bool again = false;
  for (const int wider : {6, kWidest}) {
    if (!poor()) break;
    again = true;
    po.max_tensors = wider;
    pipeline::Partition other;
    std::vector<std::pair<std::string, int>> other_refused;
    std::string other_why = cuts_of_width(t, po, slicer, target, limits, other, other_refused);
    const bool works = other.error.empty() && other_why.empty(), worked = out.error.empty() && why.empty();
    if (!worked || (works && other.slowest_over_mean < kWorthWhile * out.slowest_over_mean))
      out = std::move(other), why = std::move(other_why), refused = std::move(other_refused);
  }
  if (again && out.error.empty() && why.empty()) why = slicer.set_partition(out);  // the slicer holds the last one that was tried
  return why;
}

}  // namespace

std::function<bool(const program::Module&)> copied_modules(const JobFile& file, const support::SourceManager& sm) {
  if (!file.by_path) return [](const program::Module&) { return false; };
  std::string dir = fs::weakly_canonical(file.entry_dir).string() + "/";
  return [dir, &sm](const program::Module& m) {
    if (m.file < 0) return false;
    std::error_code ec;
    std::string p = fs::weakly_canonical(sm.file(m.file).path, ec).string();
    return p.rfind(dir, 0) == 0 && p.find("/site-packages/") == std::string::npos;
  };
}

support::Expected<plan::Plan> read_plan(const PlanRequest& want, support::SourceManager& sm) {
  auto text = support::read_file(want.plan_file);
  if (!text) return text.error();
  return plan::from_yaml(*text, want.plan_file, sm);
}

support::Expected<std::unique_ptr<Analysis>> trace_model(const ModelRequest& request, support::SourceManager& sm,
                                                         const Progress& progress) {
  auto a = std::make_unique<Analysis>();
  auto file = load_job(request, sm);
  if (!file) return file.error();
  a->file = *file;
  auto rules = rules::Database::load(sm, request.rules);
  if (!rules) return rules.error();
  a->rules = *rules;
  progress("reading the model");
  if (!a->file.cxx_file.empty())
    if (auto read = read_cxx(request, a->file, sm); !read) return read.error();
  eval::Options options;
  options.max_steps = request.max_steps;
  options.rules = a->rules;
  options.syntax = a->syntax = std::make_shared<python::Syntax>(sm);
  options.rules_dirs = request.rules;
  if (a->file.cxx) options.programs = {a->file.cxx->module};
  auto traced = eval::trace(a->file.job, options, sm);
  if (!traced) return traced.error();
  a->traced = std::move(*traced);
  return a;
}

namespace {
/// Is the class made by a call rather than by its module?
bool inside_function(const program::ClassDef& c) {
  if (!c.module) return false;
  bool inside = false;
  program::walk(c.module->body, [&](const program::Stmt* s) {
    if (s->kind == program::StmtKind::FunctionDef && s->function->range.contains(c.range)) inside = true;
    return s->kind != program::StmtKind::FunctionDef;
  });
  return inside;
}
}  // namespace

support::Expected<std::unique_ptr<Analysis>> analyse(const ModelRequest& request, const PlanRequest& want, support::SourceManager& sm,
                                                     const Progress& progress) {
  auto made = trace_model(request, sm, progress);
  if (!made) return made;
  Analysis& a = **made;
  PlanRequest mine = want;
  if (a.file.cxx && !mine.target) {
    auto target = rules::load_target("libtorch", sm);
    if (!target) return target.error();
    a.target = std::make_unique<rules::Target>(*target);
    mine.target = a.target.get();
  }
  if (want.grid.pp < 1 || want.grid.tp < 1 || want.grid.dp < 1)
    return support::failure("--tp, --pp and --dp must be at least 1", {}, "usage");
  if (!want.device.empty() && !a.rules->device(want.device)) {
    std::string known;
    for (const auto& name : a.rules->device_names()) known += (known.empty() ? "" : ", ") + name;
    return support::failure("there is no device '" + want.device + "'; there are: " + known + " (--rules DIR adds others: `- {device: …}`)",
                            {}, "usage");
  }

  // The same model at another batch size: an axis counts only when both agree. Models whose batch is fixed by their
  // constructor cannot run at another one; then the plan holds for this size, and says so.
  progress("reading it again at other sizes");
  eval::Options options;
  options.max_steps = request.max_steps;
  options.rules = a.rules;
  options.syntax = a.syntax;
  options.rules_dirs = request.rules;
  if (a.file.cxx) options.programs = {a.file.cxx->module};
  std::string first;  // what the first of them said
  const auto sizes = eval::at_other_sizes(a.file.job);
  for (const eval::Job& job : sizes) {
    auto other = eval::trace(job, options, sm);
    if (other) {
      a.other = std::move(*other);
      break;
    }
    if (first.empty()) first = other.error().message;
  }
  if (!a.other)
    a.warnings.push_back({support::Severity::Warning,
                          "batch",
                          {},
                          sizes.size() > 1 ? "the model does not run at other sizes where a ? allows them (" + first +
                                  "): the plan is proven for these sizes only; take the ? away behind sizes that cannot change"
                                           : "the model does not run at another batch size (" + first +
                                  "): the plan is proven for this size only; a ? behind the sizes that may change (x=f32[2?,8]) says "
                                  "which they are",
                          {},
                          {}});
  if (const auto hooks = eval::hooks(a.traced->trace); !hooks.empty())
    return support::failure(
        "a hook on a layer's forward is registered here: what it does with the values is not followed, so nothing can be "
        "promised about them. Call what it does in forward instead",
        hooks.front(), "input");
  for (auto& n : eval::not_followed(*a.traced))
    a.warnings.push_back({support::Severity::Warning, "analysis", n.range, std::move(n.message), {}, {}});
  for (const auto& p : a.traced->trace.patches)
    if (p.inside)
      a.warnings.push_back({support::Severity::Warning,
                            "patch",
                            p.stmt->range,
                            p.what + " is replaced inside of a function or a block: the generated package does not do so by itself",
                            {},
                            {}});
  if (!a.file.cxx)
    for (auto& w : directives(a.traced->trace, sm).unknown) a.warnings.push_back(std::move(w));
  if (!a.file.job.train)
    if (const auto branches = training_branches(a.traced->trace, sm); !branches.empty())
      a.warnings.push_back({support::Severity::Warning,
                            "training",
                            branches.front(),
                            fmt::format("`training` decides here{}, and only what runs in evaluation was analysed and will be compared: "
                                        "--set mode=train (or `mode: train` in the job file) does so for training",
                                        branches.size() > 1 ? fmt::format(" and at {} more places", branches.size() - 1) : ""),
                            {},
                            {}});

  if (auto* root = a.traced->trace.module(0).class_def; root && inside_function(*root))
    return support::failure(
        "the class " + root->name +
            " is defined inside of a function: no stage can be derived from it. Move it to the top level of its file, with what "
            "the function gave it as arguments of its constructor",
        root->def_range, "input");

  if (auto planned = plan_again(a, request, mine, sm, progress); !planned) return planned.error();
  return made;
}

support::Expected<bool> plan_again(Analysis& a, const ModelRequest& request, const PlanRequest& want, support::SourceManager& sm,
                                   const Progress& progress) {
  const model::Trace& t = a.traced->trace;
  const model::Trace* other = a.other ? &a.other->trace : nullptr;  // the model at another batch size
  std::vector<plan::Fallback> given_up;                             // axes that generation could not express
  std::vector<std::vector<model::TensorId>> whole;                  // beside it: the parameters that carry them
  a.refused_cuts.clear();
  std::set<int> built_whole = want.built_whole;
  if (want.grid.pp > 1 && rewrite::counts_what_was_built(t).valid())
    for (int k = 0; k < want.grid.pp; ++k) built_whole.insert(k);
  sharding::Options so;
  so.tp = want.grid.tp;
  for (const auto& name : want.whole) so.kept_whole.emplace_back(name, "the source generated with it split did not pass its own check");
  const Directives said_in_source = a.file.cxx ? Directives{} : directives(t, sm);
  for (const auto& name : said_in_source.whole) so.kept_whole.emplace_back(name, "a comment in the source says so");
  so.objective = want.objective;
  if (const auto* d = want.device.empty() ? nullptr : a.rules->device(want.device))
    so.profile = {d->flops, d->link_bandwidth, d->link_latency};
  for (const auto& e : t.exits)
    if (e.kind == model::Exit::Gradient && want.grid.tp > 1) {
      for (const auto& x : t.tensors)
        if (x.origin == model::Origin::Parameter)
          so.kept_whole.emplace_back(
              x.name,
              "forward differentiates (" + place(sm, e.where) + "): second derivatives do not pass through tensor-parallel regions");
      break;
    }
  for (const auto* l : a.rules->layers())
    if (!l->replace_with.empty()) so.copy_arguments.insert(l->name);
  plan::Plan pins;
  bool have_pins = false;
  auto unfit = [&](support::Diagnostic d) {
    d.message = want.plan_file + " does not fit this source: " + d.message + ". Make it again with `shardwright plan … -o " +
        want.plan_file + "`, or leave --plan out";
    return d;
  };
  if (!want.plan_file.empty()) {
    auto p = read_plan(want, sm);
    if (!p) return p.error();
    pins = *p;
    have_pins = true;
    if (const int stages = pins.grid.pp * pins.grid.virtual_stages; stages != want.grid.pp)
      return support::failure(fmt::format("{} has {} stage{}, {} are asked for: leave --pp and --virtual-stages out, or make the plan "
                                          "again with `shardwright plan … -o {}`",
                                          want.plan_file, stages, stages == 1 ? "" : "s", want.grid.pp, want.plan_file),
                              {}, "plan");
    pins.grid.tp = want.grid.tp;  // whether the axes are divisible by it is looked at below
    for (auto& name : plan::kept_whole(pins)) so.keep_replicated.push_back(name);
  }

  const CutLimits no_limits{want.no_cut, said_in_source.uncut, {}};
  CutLimits limits = no_limits;
  int cut_tries = 0;
  int copies = 0;  // 1: what is made of parameters alone is copied, to see whether that helps; 2: decided
  for (int round = 0;; ++round) {
    progress("choosing what to split");
    if (have_pins && round == 0) a.sharding = sharding::place(t, so, plan::split_axes(pins));
    else a.sharding = sharding::analyse(t, so, other);
    if (have_pins && round == 0)
      if (auto ok = plan::fits(pins, t, a.sharding); !ok) return unfit(ok.error());
    a.edits = rewrite::tp_edits(t, a.sharding, sm, *a.rules, want.target, other);

    std::vector<rewrite::Refusal> refusals = a.edits.refusals;
    if (refusals.empty()) {
      progress("cutting into stages");
      pipeline::Options po;
      po.stages = want.grid.pp;
      if (po.stages > 1 && !have_pins)
        for (const auto& here : said_in_source.cuts) po.required.insert(po.required.end(), here.clocks.begin(), here.clocks.end());
      po.copy_parameters = po.stages == 2 || !want.target || want.target->stage_tied.empty();
      std::string why;
      a.slicer.reset();
      if (want.grid.pp > 1 && !a.file.cxx) {  // stages of models in C++ are planned, not written
        a.slicer = std::make_unique<rewrite::StageSlicer>(t, sm, other);
        if (want.target && want.target->plain_sends) a.slicer->send_contiguous();
        a.slicer->build_whole(built_whole);
        for (auto s : a.sharding.states) po.varying.push_back(s == sharding::State::V || s == sharding::State::P);
        if (have_pins) {
          po.max_tensors = kWidest;
          auto cuts = plan::cuts_of(pins, t, po);
          if (!cuts) return unfit(cuts.error());
          a.partition = pipeline::partition_at(t, po, *cuts);
          int cut = -1;
          why = unsummed(t, a.partition, want.target, cut);
          if (why.empty()) why = a.slicer->set_partition(a.partition);
          if (why.empty()) why = unanswered(t, *a.slicer, po.stages, want.target, cut);
        } else {
          why = choose_cuts(t, po, *a.slicer, want.target, limits, a.partition, a.refused_cuts);
        }
      } else {
        a.partition = pipeline::partition(t, po);
      }
      if (!a.partition.error.empty()) {
        support::Diagnostic d = support::failure(a.partition.error, {}, "stages");
        if (!po.required.empty()) {
          d.range = said_in_source.cuts.front().comment;
          d.message = fmt::format("`cut-here`: {} (the comment{} in the source ask{} for {} cut{}; --pp says {} stages)", d.message,
                                  said_in_source.cuts.size() == 1 ? "" : "s", said_in_source.cuts.size() == 1 ? "s" : "",
                                  po.required.size(), po.required.size() == 1 ? "" : "s", po.stages);
        }
        for (std::size_t i = 0; i < a.refused_cuts.size() && i < 3; ++i)
          d.notes.push_back(
              {{},
               fmt::format("{} place{}: {}", a.refused_cuts[i].second, a.refused_cuts[i].second == 1 ? "" : "s", a.refused_cuts[i].first)});
        d.notes.insert(d.notes.end(), limits.why.begin(), limits.why.end());
        for (auto& n : eval::missing_imports(t)) d.notes.push_back(std::move(n));
        for (auto& n : eval::not_followed(*a.traced)) d.notes.push_back(std::move(n));
        return d;
      }
      if (!why.empty()) return support::failure("the stages cannot be written: " + why, {}, "stages");
      if (a.slicer) take_over_sends(t, *a.slicer, a.partition);
      progress("deriving the edits");
      if (a.file.cxx) {
        if (want.target && want.target->typed) {
          a.typed = rewrite::typed_text(t, a.sharding, a.edits, sm, *a.rules, *want.target);
          refusals = a.typed.refusals;
          if (!refusals.empty() &&
              want.target->share_copies) {  // self- and cross-attention by one class: the same text when every reader copies
            auto apart = std::make_unique<rules::Target>(*want.target);
            apart->share_copies = false;
            auto edits = rewrite::tp_edits(t, a.sharding, sm, *a.rules, apart.get(), other);
            auto typed = edits.refusals.empty() ? rewrite::typed_text(t, a.sharding, edits, sm, *a.rules, *apart) : rewrite::TypedText{};
            if (edits.refusals.empty() && typed.refusals.empty()) a.edits = std::move(edits), a.typed = std::move(typed), refusals.clear();
          }
        }
        if (refusals.empty()) break;
      } else {
        a.specialized = rewrite::specialize(t, a.edits, a.slicer.get(), want.grid.pp, sm, want.target);
        refusals = a.specialized.refusals;
      }
    }
    // Layers of one call can differ in this alone: what goes into the first is made of parameters, what goes into the others of the input.
    const bool differ = std::any_of(refusals.begin(), refusals.end(), [](const auto& r) { return r.differ; });
    if (copies == 0 && differ) {
      copies = 1;
      so.leave_partial = false;
      continue;
    }
    if (copies == 1) {
      copies = 2;
      so.leave_partial = differ;  // it was not that
      if (differ) continue;
    }
    if (refusals.empty()) break;
    // Another cut costs nothing, so it comes first; where an axis is to blame, too, not for long.
    const bool by_axis = std::any_of(refusals.begin(), refusals.end(), [](const auto& r) { return r.axis >= 0; });
    if (a.slicer && !have_pins && cut_tries++ < (by_axis ? 8 : 40) && cut_elsewhere(refusals, t, a.partition, limits)) continue;
    bool progress_made = false;
    // No other cut does, and no axis is to blame: what is built there is not split then.
    if (std::all_of(refusals.begin(), refusals.end(), [](const auto& r) { return r.axis < 0; }) && !have_pins)
      for (std::size_t i = 0, n = refusals.size(); i < n; ++i)
        for (const int axis : axes_made_at(refusals[i].where, t, a.sharding)) {
          refusals.push_back(refusals[i]);
          refusals.back().axis = axis;
        }
    for (const auto& r : refusals) {
      plan::Fallback fallback{"", place(sm, r.where), r.message};
      if (r.axis < 0) continue;
      const auto& axis = a.sharding.axes[static_cast<std::size_t>(r.axis)];
      progress_made =
          give_up(axis, fmt::format("what it needs cannot be written: {} ({})", r.message, fallback.where), t, so) || progress_made;
      const auto same = std::find_if(given_up.begin(), given_up.end(),
                                     [&](const plan::Fallback& f) { return f.where == fallback.where && f.reason == fallback.reason; });
      auto& names = same == given_up.end() ? whole.emplace_back() : whole[static_cast<std::size_t>(same - given_up.begin())];
      if (same == given_up.end()) given_up.push_back(std::move(fallback));
      for (auto p : axis.parameters)
        if (std::find(names.begin(), names.end(), p) == names.end()) names.push_back(p);
    }
    if (progress_made) limits = no_limits, cut_tries = 0;
    if (!progress_made || round > 80) {
      std::vector<support::Note> notes;
      for (const auto& r : refusals)
        if (std::none_of(notes.begin(), notes.end(), [&](const auto& n) { return n.range == r.where && n.message == r.message; }))
          notes.push_back({r.where, r.message});
      support::Diagnostic d = support::failure("the parallel source cannot be written for this grid", refusals.front().where, "generate");
      d.notes = std::move(notes);
      return d;
    }
  }

  for (std::size_t i = 0; i < a.edits.copies.size(); ++i) a.sharding.conversions[i].copies = a.edits.copies[i];

  plan::Inputs pi;
  pi.trace = &t;
  pi.sources = &sm;
  pi.placement = &a.sharding;
  pi.partition = &a.partition;
  if (a.slicer)
    for (int k = 0; k < want.grid.pp; ++k) {
      const rewrite::StageInterface face = a.slicer->interface(k);
      pi.passes.emplace_back();
      for (const auto& [from, to] : face.passes) pi.passes.back().push_back(face.receives[static_cast<std::size_t>(from)]);
    }
  pi.model = request.spec;
  pi.objective = want.objective;
  pi.device = want.device;
  pi.grid.tp = want.grid.tp;
  pi.grid.pp = want.grid.ranks();
  pi.grid.virtual_stages = want.grid.virtual_stages;
  pi.grid.dp = want.grid.dp;
  pi.grid.micro_batches = want.micro_batches > 0 ? want.micro_batches : std::max(1, want.grid.pp);
  pi.grid.schedule = want.schedule;
  for (const auto& r : a.edits.roles) pi.roles.push_back({r.module, r.role, r.generated_class, r.reason});
  pi.pins = have_pins ? &pins : nullptr;
  a.plan = plan::make(pi);
  if (have_pins)
    for (const auto& unread : plan::roles_unread(pins, a.plan, t))
      a.warnings.push_back({support::Severity::Warning, "plan", {}, want.plan_file + ": " + unread, {}, {}});
  for (std::size_t i = 0; i < given_up.size(); ++i) {
    auto& names = whole[i];
    names.erase(
        std::remove_if(names.begin(), names.end(), [&](model::TensorId p) { return a.sharding.axis_of[static_cast<std::size_t>(p)] >= 0; }),
        names.end());  // split another way
    std::string first;
    for (std::size_t k = 0; k < names.size() && k < 3; ++k) first += (k ? ", " : "") + t.tensor(names[k]).name;
    if (!names.empty())
      given_up[i].reason = fmt::format("{}{}: whole on every rank, because {}", first,
                                       names.size() > 3 ? fmt::format(" and {} more", names.size() - 3) : "", given_up[i].reason);
  }
  a.plan.fallbacks.insert(a.plan.fallbacks.end(), given_up.begin(), given_up.end());
  return true;
}

}  // namespace shardwright::driver
