#include "pipeline/liveness.h"

#include <algorithm>
#include <limits>

namespace shardwright::pipeline {
namespace {

using model::Op;
using model::Origin;
using model::Prim;
using model::Tensor;

constexpr Clock kForever = std::numeric_limits<Clock>::max();
// Where recomputing and sending are compared: how many operations a device does in the time in which a byte crosses between
// two of them. A rough figure (some 500 TFLOP/s beside some 50 GB/s gives 10 000); only its order of magnitude matters.
constexpr double kFlopsPerByte = 1000;
constexpr std::size_t kLongestChain = 24;  // parameters or inputs that one recomputed tensor may be made from

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

void merge(std::vector<TensorId>& into, const std::vector<TensorId>& from) {
  for (TensorId t : from)
    if (std::find(into.begin(), into.end(), t) == into.end()) into.push_back(t);
}

bool ends_with(const std::string& s, std::string_view tail) {
  return s.size() >= tail.size() && s.compare(s.size() - tail.size(), tail.size(), tail) == 0;
}

}  // namespace

double cost_of(const model::Trace& trace, const Op& op) {
  for (TensorId t : op.outputs) {
    const Tensor& x = trace.tensor(t);
    if (x.from_input || x.from_parameter) return op.flops;
  }
  return 0;
}

Liveness::Liveness(const model::Trace& t, const Options& o) : trace_(t), options_(o) {
  readers_.resize(t.tensors.size());
  for (const Op& op : t.ops)
    for (const model::Operand& in : op.inputs)
      if (in.tensor >= 0) readers_[at(in.tensor)].push_back(op.id);
  is_output_.assign(t.tensors.size(), 0);
  for (TensorId x : model::tensors_of(t.output)) is_output_[at(x)] = 1;
  classify();
  lives();

  std::vector<char> seen(t.tensors.size(), 0);
  cumulative_.push_back(0);
  for (const Op& op : t.ops) {
    if (op.clock < t.forward_begin) continue;
    const bool flows = std::any_of(op.outputs.begin(), op.outputs.end(), [&](TensorId x) {
      return t.tensor(x).from_input || t.tensor(x).from_parameter || reach_[at(x)] == Reach::Flow;
    });
    if (!flows) continue;
    double cost = cost_of(t, op);
    if (options_.parameter_weight > 0)
      for (const model::Operand& in : op.inputs)
        if (in.tensor >= 0 && t.tensor(in.tensor).origin == Origin::Parameter && !seen[at(in.tensor)]) {
          seen[at(in.tensor)] = 1;
          cost += options_.parameter_weight * static_cast<double>(bytes(in.tensor));
        }
    if (options_.activation_weight > 0)
      for (TensorId x : op.outputs)
        if (t.tensor(x).requires_grad) cost += options_.activation_weight * static_cast<double>(bytes(x));
    flow_ops_.push_back(op.id);
    flow_clocks_.push_back(op.clock);
    cumulative_.push_back(cumulative_.back() + cost);
  }
}

std::int64_t Liveness::bytes(TensorId t) const { return model::numel(trace_.tensor(t)) * model::bytes_of(trace_.tensor(t).dtype); }

Clock Liveness::born(TensorId t) const {
  const OpId p = trace_.tensor(t).producer;
  return p < 0 ? -1 : trace_.op(p).clock;
}

int Liveness::place_of(Clock c) const {
  return static_cast<int>(std::lower_bound(flow_clocks_.begin(), flow_clocks_.end(), c) - flow_clocks_.begin());
}

/// Element-wise or a movement of elements, drawing nothing: may be done twice.
bool Liveness::cheap(const Op& op) const {
  if (op.prim == Prim::Opaque || !op.random.empty()) return false;
  if (op.prim == Prim::Labelled)
    for (std::size_t l = 0; l < op.labels.size(); ++l) {
      bool in_output = false;
      for (const auto& dims : op.out) in_output |= std::find(dims.begin(), dims.end(), static_cast<int>(l)) != dims.end();
      if (!in_output && op.labels[l].size > 1 && !op.labels[l].blocked) return false;  // contracted
    }
  double elements = 0;
  for (TensorId t : op.outputs) elements += static_cast<double>(model::numel(trace_.tensor(t)));
  for (const auto& in : op.inputs)
    if (in.tensor >= 0) elements += static_cast<double>(model::numel(trace_.tensor(in.tensor)));
  return op.flops <= 4 * elements;
}

void Liveness::classify() {
  reach_.assign(trace_.tensors.size(), Reach::Given);
  chain_flops_.assign(trace_.tensors.size(), 0);
  chain_from_.resize(trace_.tensors.size());
  for (const Tensor& x : trace_.tensors)
    if (x.origin == Origin::Input) {
      reach_[at(x.id)] = Reach::Input;
      chain_from_[at(x.id)] = {x.id};
    }
  for (const Op& op : trace_.ops) {
    if (op.clock < trace_.forward_begin) continue;
    bool flow = !op.random.empty(), input = false, parameters = false;
    double flops = op.flops;
    std::vector<TensorId> from;
    for (const auto& in : op.inputs) {
      if (in.tensor < 0) continue;
      const Tensor& x = trace_.tensor(in.tensor);
      switch (reach_[at(in.tensor)]) {
        case Reach::Flow: flow = true; break;
        case Reach::Input: input = true; break;
        case Reach::Parameters: parameters = true; break;
        case Reach::Given:
          if (x.from_parameter || x.origin == Origin::Parameter) {
            parameters = true;
            merge(from, {x.id});
          }
          break;
        case Reach::Constant: break;
      }
      flops += chain_flops_[at(in.tensor)];
      merge(from, chain_from_[at(in.tensor)]);
    }
    flow |= input && (parameters || !cheap(op));
    flow |= from.size() > kLongestChain;
    for (TensorId t : op.outputs) {
      if (flow) {
        reach_[at(t)] = Reach::Flow;
        continue;
      }
      reach_[at(t)] = input ? Reach::Input : parameters ? Reach::Parameters : Reach::Constant;
      chain_flops_[at(t)] = flops;
      chain_from_[at(t)] = from;
    }
  }
  // When is a parameter first needed for anything but a chain on parameters alone? Before a cut: the earlier stage holds it anyhow.
  first_read_.assign(trace_.tensors.size(), kForever);
  for (const Op& op : trace_.ops) {
    if (op.clock < trace_.forward_begin || op.outputs.empty()) continue;
    for (const auto& in : op.inputs) {
      if (in.tensor < 0) continue;
      const bool chain = reach_[at(op.outputs[0])] == Reach::Parameters;
      if (chain) continue;
      first_read_[at(in.tensor)] = std::min(first_read_[at(in.tensor)], op.clock);
      for (TensorId p : chain_from_[at(in.tensor)]) first_read_[at(p)] = std::min(first_read_[at(p)], op.clock);
    }
  }
}

void Liveness::lives() {
  for (const Tensor& x : trace_.tensors) {
    const bool input = x.origin == Origin::Input;
    const Clock born = input ? trace_.forward_begin : this->born(x.id);
    if (born < trace_.forward_begin) continue;  // made by __init__: an attribute
    Clock last = is_output_[at(x.id)] ? kForever : -1;
    for (OpId r : readers_[at(x.id)]) last = std::max(last, trace_.op(r).clock);
    if (last > born) lives_.push_back({x.id, born, last});
  }
  std::stable_sort(lives_.begin(), lives_.end(), [](const Life& a, const Life& b) { return a.born < b.born; });
}

void Liveness::sweep_to(Clock c) {
  while (next_life_ < lives_.size() && lives_[next_life_].born < c) {
    active_.insert({lives_[next_life_].last, next_life_});
    ++next_life_;
  }
  while (!active_.empty() && active_.begin()->first < c) active_.erase(active_.begin());
}

/// Sending a tensor made from parameters alone, or making it again? Sending costs its bytes; making it again costs its
/// FLOPs and, where the earlier stage needs the same parameters, a tied copy whose gradient is summed.
bool Liveness::keep_parameters(TensorId t, Clock c, Recompute& how) const {
  double tied = 0;
  for (TensorId p : chain_from_[at(t)]) {
    if (trace_.tensor(p).origin == Origin::Result) return false;  // an attribute made from parameters by __init__
    if (first_read_[at(p)] < c && trace_.tensor(p).origin == Origin::Parameter) tied += static_cast<double>(bytes(p));
  }
  if (tied > 0 && !options_.copy_parameters) return false;
  how = {t, Recompute::Parameters, chain_from_[at(t)]};
  return tied + chain_flops_[at(t)] / kFlopsPerByte <= static_cast<double>(bytes(t));
}

/// The tensor whose elements `t` shows in another shape, order or part; -1 when `t` was computed.
TensorId Liveness::view_of(TensorId t) const {
  const OpId p = trace_.tensor(t).producer;
  if (p < 0) return -1;
  const Op& op = trace_.op(p);
  TensorId source = -1;
  for (const auto& in : op.inputs)
    if (in.tensor >= 0) {
      if (source >= 0) return -1;
      source = in.tensor;
    }
  if (source < 0 || reach_[at(source)] != Reach::Flow || !op.random.empty() || trace_.tensor(source).dtype != trace_.tensor(t).dtype)
    return -1;
  if (op.prim == Prim::Reshape || op.prim == Prim::Split) return source;
  if (op.prim != Prim::Labelled || op.linearity != model::Linearity::Linear) return -1;
  if (ends_with(op.name, "__getitem__") || ends_with(op.name, ".contiguous") || ends_with(op.name, ".narrow") ||
      ends_with(op.name, ".select"))
    return source;
  if (op.in.size() != 1 || op.out.size() != 1 || op.in[0] == op.out[0]) return -1;
  std::vector<int> a = op.in[0], b = op.out[0];
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b ? source : -1;  // the same labels in another order: a permutation
}

void Liveness::finish(Cut& c) const {
  // In the order in which later operations read them; outputs that only pass through come last.
  auto first_use = [&](TensorId t) {
    Clock u = kForever;
    for (OpId r : readers_[at(t)])
      if (trace_.op(r).clock >= c.clock) u = std::min(u, trace_.op(r).clock);
    for (const Recompute& r : c.recompute)
      if (r.why == Recompute::View && r.from[0] == t)
        for (OpId reader : readers_[at(r.tensor)])
          if (trace_.op(reader).clock >= c.clock) u = std::min(u, trace_.op(reader).clock);
    return u;
  };
  std::vector<std::pair<Clock, TensorId>> order;
  for (TensorId t : c.live) order.push_back({first_use(t), t});
  std::sort(order.begin(), order.end());
  c.live.clear();
  c.bytes = 0;
  c.varying = 0;
  for (const auto& [use, t] : order) {
    (void)use;
    c.live.push_back(t);
    c.bytes += bytes(t);
    if (at(t) < options_.varying.size() && options_.varying[at(t)]) ++c.varying;
  }
  std::sort(c.inputs_needed.begin(), c.inputs_needed.end());
  std::sort(c.recompute.begin(), c.recompute.end(), [](const Recompute& a, const Recompute& b) { return a.tensor < b.tensor; });
}

bool Liveness::fill(Cut& c, Cut& merged) {
  sweep_to(c.clock);
  c.live.clear();
  c.inputs_needed.clear();
  c.recompute.clear();
  for (const auto& [last, i] : active_) {
    (void)last;
    const TensorId t = lives_[i].tensor;
    Recompute how;
    switch (reach_[at(t)]) {
      case Reach::Given: break;
      case Reach::Constant: c.recompute.push_back({t, Recompute::Constant, {}}); break;
      case Reach::Input:
        if (trace_.tensor(t).origin != Origin::Input) c.recompute.push_back({t, Recompute::Input, chain_from_[at(t)]});
        merge(c.inputs_needed, chain_from_[at(t)]);
        break;
      case Reach::Parameters:
        if (keep_parameters(t, c.clock, how)) c.recompute.push_back(how);
        else c.live.push_back(t);
        break;
      case Reach::Flow: c.live.push_back(t); break;
    }
  }
  // Views of one tensor: send that tensor when it costs no more bytes and fewer tensors cross.
  merged = c;
  bool any = false;
  for (bool again = true; again && merged.live.size() > 1;) {
    again = false;
    std::vector<std::pair<TensorId, std::vector<TensorId>>> groups;  // possible source → the live tensors under it, nearest sources first
    for (TensorId t : merged.live)
      for (TensorId s = t; s >= 0; s = view_of(s)) {
        auto g = std::find_if(groups.begin(), groups.end(), [&](const auto& x) { return x.first == s; });
        if (g == groups.end()) groups.push_back({s, {t}});
        else g->second.push_back(t);
      }
    for (const auto& [source, under] : groups) {
      if (under.size() < 2) continue;
      std::int64_t sum = 0;
      for (TensorId t : under) sum += bytes(t);
      if (bytes(source) > sum) continue;
      for (TensorId t : under) {
        merged.live.erase(std::find(merged.live.begin(), merged.live.end(), t));
        if (t != source) merged.recompute.push_back({t, Recompute::View, {source}});
        for (Recompute& r : merged.recompute)
          if (r.why == Recompute::View && r.from[0] == t) r.from[0] = source;
      }
      merged.live.push_back(source);
      again = any = true;
      break;
    }
  }
  finish(c);
  if (any) finish(merged);
  return any;
}

std::vector<OpId> Liveness::needed(const Cut* begin, const Cut* end) const {
  std::vector<char> received(trace_.tensors.size(), 0), mark(trace_.ops.size(), 0);
  if (begin)
    for (TensorId t : begin->live) received[at(t)] = 1;
  const Clock lo = begin ? begin->clock : trace_.forward_begin, hi = end ? end->clock : kForever;
  std::vector<TensorId> work;
  if (end) work = end->live;
  else work = model::tensors_of(trace_.output);
  // Operations whose results nobody reads stay where they are.
  for (const Op& op : trace_.ops)
    if (op.clock >= lo && op.clock < hi && op.clock >= trace_.forward_begin &&
        std::all_of(op.outputs.begin(), op.outputs.end(), [&](TensorId t) { return readers_[at(t)].empty() && !is_output_[at(t)]; }))
      work.insert(work.end(), op.outputs.begin(), op.outputs.end());
  std::vector<OpId> out;
  while (!work.empty()) {
    const TensorId t = work.back();
    work.pop_back();
    if (t < 0 || received[at(t)]) continue;
    const OpId p = trace_.tensor(t).producer;
    if (p < 0 || mark[at(p)] || trace_.op(p).clock < trace_.forward_begin) continue;
    mark[at(p)] = 1;
    out.push_back(p);
    for (const auto& in : trace_.op(p).inputs) work.push_back(in.tensor);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace shardwright::pipeline
