#include "lint/placement.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "lint/regroup.h"

namespace shardwright::lint {

using model::Linearity;
using model::Origin;
using model::Prim;
using model::Tensor;
using support::Severity;

namespace {
std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

/// What a size is the product of, outermost first.
std::vector<const model::Sym*> factors_of(const model::Sym* s) {
  if (s->kind != model::Sym::Mul || !s->a || !s->b) return {s};
  auto out = factors_of(s->a);
  for (const auto* f : factors_of(s->b)) out.push_back(f);
  return out;
}
}  // namespace

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

bool is_nonlinear_name(const std::string& name) {
  static const std::set<std::string> names{"gelu",
                                           "relu",
                                           "silu",
                                           "sigmoid",
                                           "tanh",
                                           "softmax",
                                           "log_softmax",
                                           "layer_norm",
                                           "rms_norm",
                                           "group_norm",
                                           "exp",
                                           "log",
                                           "pow",
                                           "square",
                                           "sqrt",
                                           "rsqrt",
                                           "abs",
                                           "leaky_relu",
                                           "elu",
                                           "mish",
                                           "softplus",
                                           "hardswish",
                                           "hardsigmoid",
                                           "normalize",
                                           "cross_entropy",
                                           "mse_loss",
                                           "relu6",
                                           "selu",
                                           "logsigmoid",
                                           "batch_norm",
                                           "instance_norm",
                                           "scaled_dot_product_attention",
                                           "erf",
                                           "reciprocal",
                                           "cosine_similarity",
                                           "clamp"};
  return names.count(last_part(name)) > 0;
}

Propagator::Propagator(const support::SourceManager& sources, Found& findings, int tp) : sources_(sources), findings_(findings), tp_(tp) {}

void Propagator::begin() {
  wanted.clear();
  wants_rank = wanted_integers = false;
  wanted_input = -1;
  partial_gradient_.clear();
  confirmed_.clear();
  rng_depth_ = 0;
}

// ---- places ------------------------------------------------------------------------------------------------------------------

Placement Propagator::plain(TensorId t) const {
  Placement p;
  for (auto n : trace_->tensor(t).shape) p.dims.push_back({Factor{n, -1, -1, false}});
  return p;
}

Placement Propagator::unknown(TensorId t) const {
  Placement p = plain(t);
  p.known = false;
  return p;
}

const Placement& Propagator::place(TensorId t) {
  if (places_.size() <= index(t)) places_.resize(trace_->tensors.size() + 64);
  Placement& p = places_[index(t)];
  if (p.dims.size() != trace_->tensor(t).shape.size()) p = first(t);
  return p;
}

/// Of a tensor that no operation made.
Placement Propagator::first(TensorId t) {
  Placement p = plain(t);
  if (trace_->tensor(t).origin == Origin::Input)
    if (auto at = sharded_inputs.find(trace_->tensor(t).name); at != sharded_inputs.end())
      for (int d : at->second)
        if (index(d) < p.dims.size()) p.dims[index(d)][0].shard = new_shard({}, -1, "the input");
  return p;
}

void Propagator::set(TensorId t, Placement p) {
  place(t);
  places_[index(t)] = std::move(p);
}

void Propagator::input(TensorId t, int number, const std::set<int>& sharded) {
  Placement p = plain(t);
  for (std::size_t d = 0; d < p.dims.size(); ++d) {
    made_.emplace_back(number, static_cast<int>(d));
    p.dims[d][0].made = static_cast<int>(made_.size()) - 1;
    if (sharded.count(static_cast<int>(d))) p.dims[d][0].shard = new_shard({}, -1, "the input");
  }
  set(t, std::move(p));
}

void Propagator::received(TensorId t, Placement there) {
  if (there.dims.size() != trace_->tensor(t).shape.size()) return;
  for (Dim& d : there.dims)
    for (Factor& f : d) {
      f.made = -1;
      if (f.shard >= 0) f.shard = new_shard({}, -1, "the stage before");
    }
  there.known = there.known && there.partial < 0;
  there.partial = -1;
  there.since = -1;
  there.entered = false;
  set(t, std::move(there));
}

bool Propagator::sharded(const Placement& p, std::size_t dim) const {
  return dim < p.dims.size() && std::any_of(p.dims[dim].begin(), p.dims[dim].end(), [](const Factor& f) { return f.shard >= 0; });
}
bool Propagator::any_sharded(const Placement& p) const {
  for (std::size_t d = 0; d < p.dims.size(); ++d)
    if (sharded(p, d)) return true;
  return false;
}
std::int64_t Propagator::whole(const Placement& p, std::size_t dim) const {
  std::int64_t n = 1;
  for (const Factor& f : p.dims[dim]) n *= f.size;
  return sharded(p, dim) ? n * tp_ : n;
}
bool Propagator::sharded(TensorId t, int dim) {
  const Placement& p = place(t);
  return p.known && sharded(p, static_cast<std::size_t>(dim));
}

int Propagator::new_shard(support::Range where, ModuleId layer, std::string what) {
  shards_.push_back({where, layer, std::move(what)});
  return static_cast<int>(shards_.size()) - 1;
}

double Propagator::evaluate(const model::Sym* s, double fallback) const {
  if (!s) return fallback;
  using S = model::Sym;
  auto both = [&](auto f) {
    double a = evaluate(s->a, s->a ? s->a->value : NAN), b = evaluate(s->b, s->b ? s->b->value : NAN);
    return std::isnan(a) || std::isnan(b) ? NAN : f(a, b);
  };
  switch (s->kind) {
    case S::Const: return s->value;
    case S::Dim: {
      const std::string& name = trace_->tensor(s->tensor).name;
      if (name == eval::tp_size_name) return 1;
      if (name == eval::tp_rank_name) return 0;
      const Placement& p = const_cast<Propagator*>(this)->place(s->tensor);
      if (!p.known) return NAN;
      return s->dim >= 0 && index(s->dim) < p.dims.size() ? static_cast<double>(whole(p, index(s->dim))) : s->value;
    }
    case S::Add: return both([](double a, double b) { return a + b; });
    case S::Sub: return both([](double a, double b) { return a - b; });
    case S::Mul: return both([](double a, double b) { return a * b; });
    case S::FloorDiv: return both([](double a, double b) { return b == 0 ? NAN : std::floor(a / b); });
    case S::TrueDiv: return both([](double a, double b) { return b == 0 ? NAN : a / b; });
    case S::Mod: return both([](double a, double b) { return b == 0 ? NAN : a - b * std::floor(a / b); });
    case S::Pow: return both([](double a, double b) { return std::pow(a, b); });
    case S::Min: return both([](double a, double b) { return std::min(a, b); });
    case S::Max: return both([](double a, double b) { return std::max(a, b); });
    case S::Neg: return -evaluate(s->a, NAN);
    case S::Other: return NAN;
  }
  return NAN;
}

/// What a size given to an operation would be in the whole program; the size itself where nothing says otherwise.
std::int64_t Propagator::whole_size(const model::Sym* s, std::int64_t value) const {
  double v = evaluate(s, static_cast<double>(value));
  return std::isnan(v) ? value : static_cast<std::int64_t>(std::llround(v));
}

bool Propagator::at_rest(const Op& op) const { return op.frame < 0 || trace_->frame(op.frame).init; }

// ---- what the run tells ------------------------------------------------------------------------------------------------------

void Propagator::became(TensorId parameter, TensorId from) {
  from_[parameter] = from;
  Placement p = place(from);
  p.entered = false;
  p.partial = -1;
  if (p.dims.size() == trace_->tensor(parameter).shape.size()) set(parameter, std::move(p));
}

void Propagator::recorded(const Op& op) {
  if (places_.size() < trace_->tensors.size()) places_.resize(trace_->tensors.size() + 256);
  for (TensorId t : op.outputs) places_[index(t)] = {};  // ids are new
  if (op.name.rfind("shardwright.", 0) == 0) return region(op, op.name.substr(12));
  switch (op.prim) {
    case Prim::Create: create(op); break;
    case Prim::Reshape: reshape(op); break;
    case Prim::Split: split(op); break;
    case Prim::Concat: concat(op); break;
    case Prim::Labelled: labelled(op); break;
    case Prim::Opaque: {
      bool fine = true;
      for (const auto& o : op.inputs) {
        const Placement& p = place(o.tensor);
        fine = fine && p.known && p.partial < 0 && !any_sharded(p);
      }
      for (TensorId t : op.outputs) set(t, fine ? plain(t) : unknown(t));
      break;
    }
  }
}

/// Sizes that would be tp times as large without tensor parallelism: this rank's share, made so on purpose.
void Propagator::create(const Op& op) {
  for (TensorId t : op.outputs) {
    Placement p = plain(t);
    if (!op.inputs.empty()) {  // zeros_like and friends
      const Placement& like = place(op.inputs[0].tensor);
      if (like.dims.size() == p.dims.size() && trace_->tensor(op.inputs[0].tensor).shape == trace_->tensor(t).shape)
        p = like, p.partial = -1, p.entered = false, p.since = -1;
    }
    for (const auto& a : op.size_args)
      for (std::size_t i = 0; i < a.values.size() && i < a.syms.size(); ++i) {
        const std::size_t d = index(a.dim) + i;
        if (d >= p.dims.size() || !a.syms[i] || a.values[i] <= 0) continue;
        if (whole_size(a.syms[i], a.values[i]) != a.values[i] * tp_ || sharded(p, d)) continue;
        // batch * heads: the share is the heads'.
        p.dims[d].clear();
        std::int64_t product = 1;
        for (const model::Sym* f : factors_of(a.syms[i])) {
          const auto n = static_cast<std::int64_t>(f->value);
          p.dims[d].push_back(Factor{n, -1, -1, false});
          product *= n;
          if (whole_size(f, n) != n * tp_) continue;
          p.dims[d].back().shard = new_shard(op.site ? op.site->range : support::Range{}, -1, "made with this rank's size");
          shards_.back().size = f;
        }
        const auto shares = std::count_if(p.dims[d].begin(), p.dims[d].end(), [](const Factor& f) { return f.shard >= 0; });
        if (product != a.values[i] || shares != 1) {
          p.dims[d] = {
              Factor{a.values[i], new_shard(op.site ? op.site->range : support::Range{}, -1, "made with this rank's size"), -1, false}};
          shards_.back().size = a.syms[i];
        }
      }
    set(t, std::move(p));
  }
}

void Propagator::reshape(const Op& op) {
  const TensorId in = op.inputs[0].tensor, out = op.outputs[0];
  const Placement p = place(in);
  if (!p.known) return set(out, unknown(out));
  Placement result = plain(out);
  result.partial = p.partial;
  result.entered = p.entered;
  result.since = p.since;
  if (!at_rest(op) && !any_sharded(p)) swallowed_share(op, p);
  Regroup r = regroup_view(*this, *trace_, op, p, tp_);
  if (r.verdict == Regroup::Unknown) return set(out, unknown(out));
  result.dims = std::move(r.dims);
  if (!at_rest(op)) {
    const auto where = range_of(op);
    auto notes = origin(p);
    if (r.verdict == Regroup::Contiguous) {
      findings_.add(Severity::Warning, "SW107", where,
                    "a contiguous share of a fused dimension is taken apart as (" + std::to_string(r.pieces) +
                        ", …): rank 0 holds all of the first part and none of the last; cut each part by itself (stride=" +
                        std::to_string(r.pieces) + ", separate layers, or heads outermost)",
                    notes);
    } else if (r.verdict == Regroup::NotLocal) {
      report_size(op, r, p);
      return set(out, unknown(out));
    }
  }
  set(out, std::move(result));
}

/// SW106: a whole value under a view to sizes of one rank, whose -1 takes what is too much.
void Propagator::swallowed_share(const Op& op, const Placement& p) {
  if (p.partial >= 0 || p.dims.empty() || p.dims.back().size() != 1 || p.dims.back()[0].made >= 0 || op.outputs.empty()) return;
  std::ptrdiff_t hole = -1;
  std::int64_t local = 1, whole = 1;
  const program::Expr* expr = nullptr;
  for (const auto& a : op.size_args)
    for (std::size_t i = 0; i < a.values.size(); ++i) {
      if (a.values[i] == -1) {
        hole = a.dim + static_cast<std::ptrdiff_t>(i);
        continue;
      }
      const std::int64_t n = whole_size(i < a.syms.size() ? a.syms[i] : nullptr, a.values[i]);
      if (n != a.values[i]) expr = a.expr;
      local *= a.values[i];
      whole *= n;
    }
  if (hole < 0 || !expr || local * tp_ != whole) return;
  std::int64_t all = 1;
  const auto& shape = trace_->tensor(op.inputs[0].tensor).shape;
  for (auto n : shape) all *= n;
  // At the whole's sizes the -1 would be a dimension that is there.
  if (all % whole != 0 || std::find(shape.begin(), shape.end(), all / whole) == shape.end() || shape.back() == all / whole) return;
  std::vector<support::Note> notes;
  if (auto from = made_whole(op.inputs[0].tensor); from.valid()) notes.push_back({from, "the value is whole from here"});
  ++repairs;  // as in report_size
  findings_.add(Severity::Error, "SW106", range_of(op),
                std::string(sources_.text(expr->range)) + " is one rank's size, but the whole value " + shape_text(op.inputs[0].tensor) +
                    " arrives: the -1 becomes " + std::to_string(all / local) + " instead of " + std::to_string(all / whole) + ", silently",
                notes);
}

void Propagator::report_size(const Op& op, const Regroup& r, const Placement& p) {
  std::string given = r.expr ? std::string(sources_.text(r.expr->range)) : std::to_string(r.given);
  std::string message = given + " = " + std::to_string(r.given) + " is the whole's size, but " + name_of(op.inputs[0].tensor) +
      " holds this rank's share: " + std::to_string(r.needed) + " (" + given + " // tp) expected";
  if (r.hole) ++repairs;  // a dimension took what was too much: what comes after may well not fit
  if (r.hole)
    message += "; the -1 resolves to " + std::to_string(r.hole_value) + " instead of " + std::to_string(r.hole_wanted) + ", silently";
  findings_.add(Severity::Error, "SW106", range_of(op), message, origin(p));
}

/// SW106: pieces of one rank's size out of a whole value, or of the whole's size out of a share.
void Propagator::split_size(const Op& op, const Placement& p, std::size_t d) {
  if (!p.known || d >= p.dims.size() || p.partial >= 0) return;
  const std::int64_t n = trace_->tensor(op.inputs[0].tensor).shape[d];
  for (const auto& a : op.size_args) {
    if (a.role != model::SizeArg::SplitSize || a.values.size() != 1 || a.values[0] <= 0 || !a.expr) continue;
    const std::int64_t v = a.values[0], w = whole_size(a.syms.empty() ? nullptr : a.syms[0], v);
    const bool made = p.dims[d].size() == 1 && p.dims[d][0].made >= 0;
    const bool too_small = !sharded(p, d) && !made && w == v * tp_ && n % w == 0,
               too_large = sharded(p, d) && w == v && n % v != 0 && whole(p, d) % v == 0;
    if (!too_small && !too_large) continue;
    ++repairs;  // the number of pieces is another, and what takes them fails
    const std::string text(sources_.text(a.expr->range));
    findings_.add(Severity::Error, "SW106", range_of(op),
                  text + " = " + std::to_string(v) +
                      (too_small ? " is one rank's size, but the whole value arrives: " : " is the whole's size, but a share arrives: ") +
                      shape_text(op.inputs[0].tensor) + (too_large ? " of " + shape_text(op.inputs[0].tensor, true) : "") + ", cut into " +
                      std::to_string((n + v - 1) / v) + " pieces instead of " + std::to_string(whole(p, d) / (too_small ? w : v)),
                  origin(p));
  }
}

void Propagator::split(const Op& op) {
  const Placement p = place(op.inputs[0].tensor);
  const std::size_t d = index(op.dim);
  if (!at_rest(op)) split_size(op, p, d);
  bool unsure = !p.known || d >= p.dims.size();
  Dim piece;
  bool contiguous = false;
  if (!unsure && sharded(p, d)) {
    const Dim& f = p.dims[d];
    const bool equal = std::all_of(op.sizes.begin(), op.sizes.end(), [&](auto n) { return n == op.sizes[0]; });
    if (equal && f.size() > 1 && f[0].shard < 0 && f[0].size == static_cast<std::int64_t>(op.sizes.size()))
      piece.assign(f.begin() + 1, f.end());
    else if (f[0].shard >= 0 && f[0].mixed) piece = {Factor{0, f[0].shard, -1, true}};
    else if (f.size() == 1 && f[0].shard >= 0 && op.sizes.size() > 1) piece = {Factor{0, f[0].shard, -1, false}}, contiguous = true;
    else unsure = op.sizes.size() > 1;
  }
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    const TensorId t = op.outputs[k];
    if (unsure) {
      set(t, unknown(t));
      continue;
    }
    Placement q = p;
    const std::int64_t n = trace_->tensor(t).shape.size() > d ? trace_->tensor(t).shape[d] : 1;
    if (sharded(p, d)) {
      if (!piece.empty()) q.dims[d] = piece;
      if (q.dims[d].size() == 1) q.dims[d][0].size = n;
    } else {
      q.dims[d] = {Factor{n, -1, -1, false}};
    }
    set(t, q.dims.size() == trace_->tensor(t).shape.size() ? q : unknown(t));
  }
  if (contiguous && !at_rest(op)) {
    // Heads handled in groups are no fused weight: those pieces are joined again in order. Only what a layer made is meant.
    const TensorId from = op.inputs[0].tensor;
    const Op* by = trace_->tensor(from).producer >= 0 ? &trace_->op(trace_->tensor(from).producer) : nullptr;
    if (by && last_part(by->name) == "linear")
      findings_.add(Severity::Warning, "SW107", range_of(op),
                    "a contiguous share of a fused dimension is cut into " + std::to_string(op.sizes.size()) +
                        ": each rank's pieces are not its share of each part; cut each part by itself (stride=" +
                        std::to_string(op.sizes.size()) + " or separate layers)",
                    origin(p));
  }
}

void Propagator::concat(const Op& op) {
  const TensorId out = op.outputs[0];
  const std::size_t d = index(op.dim);
  bool known = true, cut = false, whole_part = false;
  std::size_t partials = 0;
  for (const auto& o : op.inputs) {
    const Placement& p = place(o.tensor);
    known = known && p.known && d < p.dims.size();
    partials += p.partial >= 0;
    if (!known) break;
    (sharded(p, d) ? cut : whole_part) = true;
  }
  if (!known || (partials > 0 && partials < op.inputs.size())) return set(out, unknown(out));
  Placement result = plain(out);
  for (const auto& o : op.inputs) {
    const Placement& p = place(o.tensor);
    for (std::size_t i = 0; i < result.dims.size(); ++i)
      if (i != d && (sharded(p, i) || &o == &op.inputs[0])) result.dims[i] = p.dims[i];
    result.entered = result.entered || p.entered;
    if (p.since >= 0) result.since = p.since;
    if (partials) result.partial = p.partial;
  }
  if (cut && whole_part) {
    if (!at_rest(op)) {
      std::string what;
      std::vector<support::Note> notes;
      for (const auto& o : op.inputs) {
        const Placement p = place(o.tensor);
        what += (what.empty() ? "" : " and ") + std::string(sharded(p, d) ? "a share " : "a whole ") + shape_text(o.tensor);
        if (sharded(p, d) && notes.empty()) notes = origin(p);
      }
      findings_.add(Severity::Error, "SW105", range_of(op),
                    "joined along a sharded dimension: " + what + "; gather the share first, or cut the whole one", notes);
    }
    return set(out, unknown(out));
  }
  if (cut) result.dims[d] = {Factor{trace_->tensor(out).shape[d], place(op.inputs[0].tensor).dims[d][0].shard, -1, true}};
  if (cut && result.dims[d][0].shard < 0) result.dims[d][0].shard = new_shard({}, -1, "joined shares");
  set(out, std::move(result));
}

// ---- labelled operations -----------------------------------------------------------------------------------------------------

/// A slice that takes whole parts of a dimension of which each rank holds its share part by part (the q of q, k and v).
bool Propagator::slice_of_parts(const Op& op) {
  if (op.sizes.size() != 2 || op.inputs.size() != 1) return false;
  const Placement& p = place(op.inputs[0].tensor);
  const std::size_t d = index(op.dim);
  if (!p.known || p.partial >= 0 || d >= p.dims.size() || !sharded(p, d)) return false;
  const Dim f = p.dims[d];
  const std::int64_t length = op.sizes[1] - op.sizes[0];
  Placement q = p;
  if (f[0].shard >= 0 && f[0].mixed && f.size() == 1) {
    q.dims[d] = {Factor{length, f[0].shard, -1, true}};
  } else if (f.size() > 1 && f[0].shard < 0) {
    const std::int64_t part = trace_->tensor(op.inputs[0].tensor).shape[d] / f[0].size;
    if (part < 1 || op.sizes[0] % part != 0 || length % part != 0) return false;
    if (length == part) q.dims[d].erase(q.dims[d].begin());
    else q.dims[d][0].size = length / part;
  } else {
    return false;
  }
  set(op.outputs[0], std::move(q));
  return true;
}

void Propagator::labelled(const Op& op) {
  if (slice_of_parts(op)) return;
  bool known = true;
  for (const auto& o : op.inputs) known = known && place(o.tensor).known;
  const std::string name = last_part(op.name);
  if (name == "embedding" && !at_rest(op)) lost_tail(op);
  if (name == "linear" || name == "layer_norm" || name == "rms_norm") confirm(op);
  // A linear whose weight is placed knows its result's last dimension whatever comes in: what is wrong before was reported.
  if (!known && name == "linear" && op.inputs.size() >= 2 && place(op.inputs[1].tensor).known && any_sharded(place(op.inputs[1].tensor))) {
    const Placement w = place(op.inputs[1].tensor);
    const TensorId out = op.outputs[0];
    Placement result = plain(out);
    if (sharded(w, 0)) result.dims.back() = w.dims[0], result.since = op.id;
    if (sharded(w, 1)) {
      partials_.push_back({Partial::Sum, op.id, -1});
      result.partial = static_cast<int>(partials_.size()) - 1;
    }
    return set(out, std::move(result));
  }
  if (!known) {
    for (TensorId t : op.outputs) set(t, unknown(t));
    return;
  }
  // What each label is: the sharded one of the operands' dimensions, where one is.
  std::vector<Dim> of(op.labels.size());
  std::vector<char> cut(op.labels.size(), 0), in_output(op.labels.size(), 0);
  OpId since = -1;
  bool entered = false;
  for (std::size_t k = 0; k < op.inputs.size() && k < op.in.size(); ++k) {
    const Placement& p = place(op.inputs[k].tensor);
    entered = entered || p.entered;
    if (p.since >= 0 && since < 0) since = p.since;
    for (std::size_t d = 0; d < op.in[k].size() && d < p.dims.size(); ++d) {
      const int l = op.in[k][d];
      if (l < 0) continue;
      const bool s = sharded(p, d);
      Dim& have = of[index(l)];
      if (have.empty() || (s && (!cut[index(l)] || p.dims[d].size() > have.size())) ||
          (!s && !cut[index(l)] && have.size() == 1 && have[0].made >= 0))
        have = p.dims[d];
      if (s) cut[index(l)] = 1;
    }
  }
  for (const auto& o : op.out)
    for (int l : o)
      if (l >= 0) in_output[index(l)] = 1;
  bool summed = false, maximum = false, blocked_cut = false;
  for (std::size_t l = 0; l < op.labels.size(); ++l) {
    if (!cut[l]) continue;
    if (op.labels[l].blocked) (in_output[l] ? blocked_cut : maximum) = true;
    else if (!in_output[l]) summed = true;
  }
  if (blocked_cut &&
      (name == "select" || name == "narrow" || name.find("index") != std::string::npos || name.find("getitem") != std::string::npos))
    summed = maximum = false;
  Placement base;
  base.entered = entered;
  base.since = since;
  // A loss over classes of which each rank has its share has no other meaning; a maximum over a share may be combined later.
  if (maximum && (name == "cross_entropy" || name == "nll_loss")) blocked_cut = true;
  bool ok = !blocked_cut;
  if (blocked_cut && !at_rest(op)) report_whole_needed(op);
  if (ok) ok = partial_operands(op, base);
  if (summed || maximum) {
    if (base.partial >= 0) ok = false;
    partials_.push_back({maximum ? Partial::Other : op.mean ? Partial::Mean : Partial::Sum, op.id, -1});
    base.partial = static_cast<int>(partials_.size()) - 1;
    if (summed)
      for (const auto& o : op.inputs)
        if (o.is_bias) partials_.back().bias = op.id;
  }
  for (std::size_t k = 0; k < op.outputs.size(); ++k) {
    const TensorId t = op.outputs[k];
    if (!ok) {
      set(t, unknown(t));
      continue;
    }
    Placement p = base;
    const auto& shape = trace_->tensor(t).shape;
    bool any = false;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const int l = k < op.out.size() && d < op.out[k].size() ? op.out[k][d] : -1;
      std::int64_t n = 1;
      if (l >= 0)
        for (const Factor& f : of[index(l)]) n *= f.size;
      if (l >= 0 && !of[index(l)].empty() && n == shape[d]) p.dims.push_back(of[index(l)]);
      else p.dims.push_back({Factor{shape[d], -1, -1, false}});
      any = any || sharded(p, d);
    }
    if (any && p.since < 0) p.since = op.id;
    if (!any) p.since = -1;
    set(t, std::move(p));
  }
  // A table is read at indices or a slice is taken: which part of a sharded dimension that is, is not known.
  if (ok && !at_rest(op)) gradients(op);
}

/// What operands that are partial sums make of the result; false: reported, or not to be told.
bool Propagator::partial_operands(const Op& op, Placement& out) {
  std::size_t partial = 0, others = 0;
  int which = -1;
  std::size_t first = 0;
  for (std::size_t k = 0; k < op.inputs.size(); ++k) {
    const Placement& p = place(op.inputs[k].tensor);
    if (p.partial >= 0) {
      if (which < 0) which = p.partial, first = k;
      ++partial;
    } else if (!op.inputs[k].is_bias) {
      ++others;
    }
  }
  if (partial == 0) return true;
  const std::string name = last_part(op.name);
  const Partial part = partials_[index(which)];
  auto describe = [&] {
    return part.kind == Partial::Mean ? "a mean over this rank's share"
        : part.kind == Partial::Other ? "taken over this rank's share only"
                                      : "a partial sum";
  };
  auto story = [&] {
    std::vector<support::Note> notes;
    notes.push_back({range_of(trace_->op(part.op)), "here the sum over a sharded dimension is left partial (one term a rank)"});
    return notes;
  };
  const bool cast = op.inputs.size() == 1 && op.linearity == Linearity::Nonlinear && !op.in.empty() && !op.out.empty() &&
      op.in[0] == op.out[0] &&
      (name == "to" || name == "type" || name == "half" || name == "bfloat16" || name == "float" || name == "type_as" || name == "copy_" ||
       name == "dropout");  // a dropout whose mask all ranks share is a product with it
  if (op.linearity == Linearity::Linear || cast) {
    if (others == 0 || (name == "copy_" || name == "fill_")) {
      out.partial = which;
      for (const auto& o : op.inputs)
        if (const int other = place(o.tensor).partial; other >= 0 && other != which) partials_[index(other)].into = which;
      for (const auto& o : op.inputs)
        if (o.is_bias && partials_[index(which)].bias < 0) partials_[index(which)].bias = op.id;
      return true;
    }
    if ((name == "add" || name == "sub" || name == "add_") && part.kind == Partial::Sum) {
      // A term scaled by 1 / tp is right in the sum.
      for (const auto& s : op.scalar_args)
        if (s.sym) return false;
      Partial with = part;
      if (with.bias < 0) with.bias = op.id;
      partials_[index(which)].into = static_cast<int>(partials_.size());
      partials_.push_back(with);
      out.partial = static_cast<int>(partials_.size()) - 1;
      return true;
    }
    return false;
  }
  if (op.linearity == Linearity::Bilinear || name == "div" || name == "true_divide") {
    if (partial == 1 && (op.linearity == Linearity::Bilinear || first == 0)) {
      // The mean of squares, times something, is partial as before.
      out.partial = which;
      for (const auto& o : op.inputs)
        if (o.is_bias && partials_[index(which)].bias < 0) partials_[index(which)].bias = op.id;
      return true;
    }
    if (partial == 1) return false;
    if (!at_rest(op) && part.kind == Partial::Sum)
      findings_.add(Severity::Error, "SW122", range_of(op),
                    "a product of two partial sums: the product of sums is not the sum of products; reduce first", story());
    return false;
  }
  // A number added (an epsilon): the mean of the ranks' means, or the largest of their largest, has it once, as the whole's has.
  if ((name == "add" || name == "sub" || name == "add_" || name == "sub_") && op.inputs.size() == 1) {
    out.partial = which;
    return true;
  }
  if (at_rest(op) || (!is_nonlinear_name(op.name) && part.kind == Partial::Sum)) return false;
  if (part.kind == Partial::Sum) {
    findings_.add(Severity::Error, "SW122", range_of(op),
                  name + " of a partial sum: it is not linear, so the ranks' results do not add up to the whole's; reduce first", story());
  } else if (is_nonlinear_name(op.name) || name == "sub") {
    findings_.add(Severity::Error, "SW121", range_of(op),
                  std::string("this value is ") + describe() + ", not over the whole: combine it over the tensor-parallel group first",
                  story());
  }
  return false;
}

/// A dropout on a share wants a stream of its own a rank; one on a whole value the stream that all ranks share.
void Propagator::random(TensorId x, const eval::Site& site) {
  if (!site.expr || site.frame < 0 || trace_->frame(site.frame).init) return;
  const Placement p = place(x);
  if (!p.known || p.partial >= 0) return;
  if (any_sharded(p) && rng_depth_ == 0)
    findings_.add(Severity::Warning, "SW113", site.expr->range,
                  "dropout on a sharded tensor with the generator that all ranks share: the shares get the same mask; use the "
                  "model-parallel random state (get_cuda_rng_tracker().fork())",
                  origin(p));
  if (!any_sharded(p) && rng_depth_ > 0)
    findings_.add(Severity::Warning, "SW113", site.expr->range,
                  "dropout on a value that all ranks hold, inside the model-parallel random state: the ranks drop different elements", {});
}

/// Operands that every rank holds whole and that meet shares: their gradient is this rank's part only.
void Propagator::gradients(const Op& op) {
  bool share = false, wanted_gradient = false;
  for (const auto& o : op.inputs) share = share || (any_sharded(place(o.tensor)) && place(o.tensor).known);
  for (TensorId t : op.outputs) wanted_gradient = wanted_gradient || trace_->tensor(t).requires_grad;
  if (!share || !wanted_gradient) return;
  for (const auto& o : op.inputs) {
    const Placement& p = place(o.tensor);
    const Tensor& x = trace_->tensor(o.tensor);
    if (any_sharded(p) || p.partial >= 0 || p.entered || !x.requires_grad || o.is_bias) continue;
    if (x.from_input && x.from_parameter) {
      // A layer's weight taken out of the layer leaves the layer's own collective behind.
      for (const auto& w : op.inputs)
        if (trace_->tensor(w.tensor).origin == Origin::Parameter && used_outside(w.tensor, op))
          findings_.add(Severity::Warning, "SW119", range_of(op),
                        "the weight of " + layer_name(owner_of(w.tensor)) +
                            " is used outside the layer, past its collective: the gradient of " + name_of(o.tensor) +
                            " is this rank's part only",
                        {});
      if (findings_.has("SW119", range_of(op))) continue;
      findings_.add(Severity::Warning, "SW109", range_of(op),
                    name_of(o.tensor) +
                        " is whole on every rank and meets shares here without copy_to_tensor_model_parallel_region: its gradient is this "
                        "rank's part only",
                    {});
      continue;
    }
    if (x.from_input) continue;
    // Back to the parameters.
    std::vector<TensorId> todo{o.tensor};
    std::set<TensorId> seen;
    while (!todo.empty() && seen.size() < 200) {
      const TensorId t = todo.back();
      todo.pop_back();
      if (!seen.insert(t).second) continue;
      if (trace_->tensor(t).origin == Origin::Parameter) partial_gradient_.emplace(t, op.id);
      else if (trace_->tensor(t).producer >= 0)
        for (const auto& i : trace_->op(trace_->tensor(t).producer).inputs) todo.push_back(i.tensor);
    }
  }
}

/// The module that holds a parameter.
ModuleId Propagator::owner_of(TensorId parameter) const {
  for (auto w = trace_->attr_writes.rbegin(); w != trace_->attr_writes.rend(); ++w)
    if (w->kind == model::AttrWrite::Parameter && w->value.tensor == parameter) return w->owner;
  return -1;
}

/// Is a parallel layer's parameter used by other code? (Another parallel layer that it is tied to has a collective of its own.)
bool Propagator::used_outside(TensorId parameter, const Op& op) const {
  const ModuleId owner = owner_of(parameter);
  return parallel_layer(owner) && owner != op.module && !parallel_layer(op.module);
}

/// A table with vocab // tp rows a rank and nobody who asks whether tp divides it: the last rows are no rank's.
void Propagator::lost_tail(const Op& op) {
  if (op.inputs.size() < 2) return;
  const TensorId table = op.inputs[1].tensor;
  const Placement& p = place(table);
  if (trace_->tensor(table).origin != Origin::Parameter || !sharded(p, 0) || parallel_layer(owner_of(table))) return;
  const int shard = p.dims[0][0].shard;
  const model::Sym* s = shard >= 0 ? shards_[index(shard)].size : nullptr;
  if (!s || s->kind != model::Sym::FloorDiv || !s->b || s->b->kind != model::Sym::Dim) return;
  std::function<bool(const model::Sym*)> mentions_tp = [&](const model::Sym* x) {
    return x &&
        ((x->kind == model::Sym::Dim && trace_->tensor(x->tensor).name == eval::tp_size_name) || mentions_tp(x->a) || mentions_tp(x->b));
  };
  if (mentions_tp(s->a)) return;  // padded to a multiple
  for (const auto& g : trace_->guards)
    if (mentions_tp(g.a) || mentions_tp(g.b)) return;  // asked
  findings_.add(Severity::Error, "SW112", s->b->read,
                "rows a rank by floor division, without a check that tp divides them: the last (vocabulary % tp) ids belong to no rank; "
                "pad the vocabulary to a multiple of tp, or use VocabParallelEmbedding",
                {{shards_[index(shard)].where, "the table"}, {range_of(op), "looked up here"}});
}

/// The last dimension of a layer's input is what the layer says, made up or not.
void Propagator::confirm(const Op& op) {
  const Placement& p = place(op.inputs[0].tensor);
  if (!p.dims.empty() && p.dims.back().size() == 1 && p.dims.back()[0].made >= 0) confirmed_.insert(p.dims.back()[0].made);
}

}  // namespace shardwright::lint
