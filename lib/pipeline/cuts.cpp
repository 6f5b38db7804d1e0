// Where the forward can be cut: between two executed statements of user code at any depth, around calls inside an
// expression, between two children of a built-in container. Here the places are listed and their live tensors filled in;
// which of them are used is decided in partition.cpp.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "pipeline/liveness.h"
#include "pipeline/search.h"

namespace shardwright::pipeline {
namespace {

using model::Frame;
using model::ModuleCall;
using model::ModuleId;
using model::Step;
using model::Trace;
using program::StmtKind;

class Enumerate {
 public:
  explicit Enumerate(const Trace& t) : trace_(t) {}

  std::vector<Cut> all() {
    find_torn();
    steps();
    for (const ModuleCall& c : trace_.calls)
      if (c.caller >= 0 && user(c.caller)) around(c.caller, c.step, c.call, c.callee, c.begin, c.end);
    for (const Frame& f : trace_.frames)
      if (f.parent >= 0 && user(f.id) && user(f.parent) && f.call) around(f.parent, f.step, f.call, f.id, f.begin, f.end);
    children();
    std::stable_sort(cuts_.begin(), cuts_.end(), [](const Cut& a, const Cut& b) { return a.clock < b.clock; });
    return std::move(cuts_);
  }

 private:
  bool user(FrameId f) const { return !trace_.frame(f).builtin && !trace_.frame(f).init; }

  /// Levels from the root's forward down to `frame`; built-in frames between are skipped over. False when the frame was not
  /// reached by plain calls from the root's forward, or runs interleaved with its caller (a generator).
  bool path(FrameId frame, StepId step, std::vector<Level>& out) const {
    out.clear();
    const program::Expr* call = nullptr;
    for (int guard = 0; guard < 1000; ++guard) {
      if (!trace_.frame(frame).builtin) out.push_back({frame, step, call});
      if (trace_.frame(frame).function && trace_.frame(frame).function->is_generator) return false;
      if (frame == trace_.root_frame) {
        std::reverse(out.begin(), out.end());
        return true;
      }
      const Frame& f = trace_.frame(frame);
      if (f.parent < 0) return false;
      call = f.call;
      step = f.step;
      frame = f.parent;
    }
    return false;
  }

  /// Statements whose two branches both ran (an unknown condition): their inside has no single "before".
  void find_torn() {
    for (const Step& s : trace_.steps) {
      if (!s.stmt || s.begin < trace_.forward_begin || s.stmt->kind != StmtKind::If || s.stmt->body.empty() || s.stmt->orelse.empty())
        continue;
      bool body = false, orelse = false;
      for (StepId k = s.id + 1; k < s.end_step; ++k) {
        body |= trace_.step(k).frame == s.frame && trace_.step(k).stmt == s.stmt->body.front();
        orelse |= trace_.step(k).frame == s.frame && trace_.step(k).stmt == s.stmt->orelse.front();
      }
      if (body && orelse) torn_.push_back({s.begin, s.end});
    }
    std::sort(torn_.begin(), torn_.end());
  }
  bool torn(Clock c) const {
    for (const auto& [a, b] : torn_)
      if (a < c && c < b) return true;
    return false;
  }

  void add(Cut c) {
    c.depth = static_cast<int>(c.path.size());
    if (!torn(c.clock)) cuts_.push_back(std::move(c));
  }

  void steps() {
    // The iteration that ran last, by frame and depth of nesting: a statement after an inner loop does not begin an iteration.
    std::unordered_map<FrameId, std::vector<model::IterPath>> previous;
    for (const Step& s : trace_.steps) {
      if (s.begin < trace_.forward_begin || !s.stmt || s.frame < 0 || !user(s.frame)) continue;
      auto& last = previous[s.frame];
      if (last.size() <= s.iters.size()) last.resize(s.iters.size() + 1);
      const bool starts = s.iters.empty() || !(last[s.iters.size()] == s.iters);
      last[s.iters.size()] = s.iters;
      if (s.stmt->kind == StmtKind::FunctionDef || s.stmt->kind == StmtKind::ClassDef) continue;
      Cut c;
      c.clock = s.begin;
      c.between_iterations = starts;
      if (path(s.frame, s.id, c.path)) add(std::move(c));
    }
  }

  void around(FrameId frame, StepId step, const program::Expr* call, FrameId callee, Clock begin, Clock end) {
    if (!call || step < 0 || begin < trace_.forward_begin || end <= begin) return;
    Cut c;
    if (!path(frame, step, c.path)) return;
    if (!seen_.insert(begin).second) return;
    c.callee = callee;
    c.clock = begin;
    c.kind = CutKind::BeforeCall;
    c.before_call = call;
    add(c);
    c.clock = end;
    c.kind = CutKind::AfterCall;
    c.before_call = nullptr;
    c.after_call = call;
    add(std::move(c));
  }

  bool is_sequential(FrameId f) const {
    const Frame& frame = trace_.frame(f);
    if (frame.function && frame.function->owner) return frame.function->owner->name == "Sequential";
    return frame.self >= 0 && trace_.module(frame.self).type == "torch.nn.Sequential";
  }

  void children() {
    std::unordered_map<FrameId, const ModuleCall*> previous;
    std::vector<const ModuleCall*> calls;
    for (const ModuleCall& c : trace_.calls)
      if (c.begin >= trace_.forward_begin && c.caller >= 0 && trace_.frame(c.caller).builtin && !trace_.frame(c.caller).init)
        calls.push_back(&c);
    std::stable_sort(calls.begin(), calls.end(), [](const ModuleCall* a, const ModuleCall* b) { return a->begin < b->begin; });
    for (const ModuleCall* call : calls) {
      if (!previous[call->caller]) {
        previous[call->caller] = call;
        continue;
      }
      const ModuleId parent = trace_.module(call->module).parent;
      Cut c;
      c.clock = call->begin;
      c.kind = is_sequential(call->caller) ? CutKind::BetweenChildren : CutKind::InsideBuiltin;
      c.sequential = parent;
      if (c.kind == CutKind::BetweenChildren) c.sequential = trace_.frame(call->caller).self;
      if (c.sequential < 0) continue;
      const auto& kids = trace_.module(c.sequential).children;
      for (std::size_t i = 0; i < kids.size(); ++i)
        if (kids[i].second == call->module) c.child_index = static_cast<int>(i);
      if (c.kind == CutKind::BetweenChildren && trace_.module(call->module).parent != c.sequential) {
        // A module that stands in several containers, or twice in one: its place is the number of calls before it.
        int n = 0;
        for (const ModuleCall* other : calls)
          if (other->caller == call->caller && other->begin < call->begin) ++n;
        c.child_index = n;
      }
      c.between_iterations = true;
      if (path(call->caller, call->step, c.path)) add(std::move(c));
    }
  }

  const Trace& trace_;
  std::vector<Cut> cuts_;
  std::vector<std::pair<Clock, Clock>> torn_;
  std::unordered_set<Clock> seen_;
};

/// Smaller is what a person would rather do at one place.
std::array<double, 7> taste(const Cut& c) {
  return {static_cast<double>(c.varying),
          static_cast<double>(c.depth),
          c.kind == CutKind::BeforeCall || c.kind == CutKind::AfterCall ? 1.0 : 0.0,
          c.between_iterations ? 0.0 : 1.0,
          static_cast<double>(c.live.size()),
          static_cast<double>(c.bytes),
          static_cast<double>(c.recompute.size())};
}

}  // namespace

std::array<double, 7> penalty_of(const Cut& c) { return taste(c); }

std::vector<std::vector<Cut>> places(const Trace& trace, const Options& options, Liveness& live) {
  std::vector<std::vector<Cut>> out;
  std::vector<Cut> cuts = Enumerate(trace).all();
  std::vector<Cut> here;
  int place = -1;
  auto flush = [&] {
    std::stable_sort(here.begin(), here.end(), [](const Cut& a, const Cut& b) { return taste(a) < taste(b); });
    if (!here.empty()) out.push_back(std::move(here));
    here.clear();
  };
  for (Cut& c : cuts) {
    const int p = live.place_of(c.clock);
    if (p == 0 || p == live.places() - 1) continue;  // nothing before it, or nothing after it
    if (p != place) flush();
    place = p;
    c.cost_before = live.cost_before(p);
    Cut merged;
    const bool has_merged = live.fill(c, merged);
    for (Cut* v : {&c, &merged}) {
      if (v == &merged && !has_merged) continue;
      if (v->live.empty() || static_cast<int>(v->live.size()) > options.max_tensors) continue;
      here.push_back(std::move(*v));
    }
  }
  flush();
  return out;
}

std::vector<Cut> legal_cuts(const Trace& trace, const Options& options) {
  Liveness live(trace, options);
  std::vector<Cut> out;
  for (auto& place : places(trace, options, live))
    for (Cut& c : place)
      if (!options.can_emit || options.can_emit(trace, c, options.can_emit_data)) out.push_back(std::move(c));
  std::stable_sort(out.begin(), out.end(), [](const Cut& a, const Cut& b) { return a.clock < b.clock; });
  return out;
}

}  // namespace shardwright::pipeline
