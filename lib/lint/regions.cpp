// What the collectives and layers of rules/parallel do to placements (operations named "shardwright.<kind>"), and marks on parameters.
#include <algorithm>
#include <cstdio>

#include "lint/placement.h"

namespace shardwright::lint {

using support::Severity;

namespace {
std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
}  // namespace

/// Was this value made whole by a collective already, with only linear operations since?
bool Propagator::reduced_before(TensorId t, int depth) const {
  if (depth > 12 || trace_->tensor(t).producer < 0) return false;
  const Op& op = trace_->op(trace_->tensor(t).producer);
  if (op.name == "shardwright.reduce_from" || op.name == "shardwright.gather" || op.name == "shardwright.raw_reduce") return true;
  if (op.linearity != model::Linearity::Linear || op.inputs.empty() || op.name.rfind("shardwright.", 0) == 0) return false;
  return reduced_before(op.inputs[0].tensor, depth + 1);
}

/// Was this value put together by a gather or a sum, with nothing but operations on its single elements since?
bool Propagator::gathered_before(TensorId t) const {
  for (int i = 0; i < 12 && trace_->tensor(t).producer >= 0; ++i) {
    const Op& op = trace_->op(trace_->tensor(t).producer);
    if (op.name == "shardwright.reduce_from" || op.name == "shardwright.gather" || op.name == "shardwright.raw_reduce") return true;
    if (op.inputs.size() != 1 || op.prim != model::Prim::Labelled || op.in[0] != op.out[0]) return reduced_before(t, i);
    t = op.inputs[0].tensor;
  }
  return false;
}

void Propagator::region(const Op& op, const std::string& kind) {
  const TensorId in = op.inputs[0].tensor, out = op.outputs[0];
  const Placement p = place(in);
  Placement q = plain(out);
  const auto& shape = trace_->tensor(out).shape;
  const bool rest = at_rest(op);
  std::size_t changed = shape.size();
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] != trace_->tensor(in).shape[d]) changed = d;
  if (kind == "assumed" || kind == "sequence_gather" || kind == "sequence_scatter" || kind == "reduce_scatter")
    return set(out, unknown(out));
  if (kind == "copy_to") {
    q = p;
    q.entered = true;
    return set(out, q);
  }
  // Megatron's backward flattens three dimensions into two and nothing else.
  if ((kind == "column_input" || kind == "row_input" || kind == "scatter") && !rest && !ranks_guessed && shape.size() > 3 &&
      parallel_layer(op.module) && trace_->module(op.module).type.find("megatron") != std::string::npos)
    findings_.add(Severity::Error, "SW118", range_of(op),
                  layer_name(op.module) + " gets " + std::to_string(shape.size()) + " dimensions: " + shape_text(in) +
                      "; its forward runs, its backward takes 2 or 3 only; flatten before and restore after",
                  {});
  if (kind == "column_input") {
    const std::size_t last = shape.empty() ? 0 : shape.size() - 1;
    if (p.known && sharded(p, last) && p.partial < 0 && !rest) {
      findings_.add(Severity::Error, "SW105", range_of(op),
                    layer_name(op.module) + " takes the whole value, a share arrives: " + shape_text(in) + " of " + shape_text(in, true) +
                        "; gather it before, or use a row layer",
                    origin(p));
      return set(out, unknown(out));
    }
    if (p.known && p.partial >= 0 && !rest) {
      findings_.add(Severity::Error, "SW122", range_of(op), layer_name(op.module) + " gets a partial sum; reduce it before",
                    {{range_of(trace_->op(partials_[index(p.partial)].op)), "here the sum is left partial"}});
      return set(out, unknown(out));
    }
    return set(out, p);
  }
  if (kind == "vocab") {
    partials_.push_back({Partial::Sum, op.id, -1});
    q.partial = static_cast<int>(partials_.size()) - 1;
    return set(out, q);
  }
  if (kind == "loss") return set(out, q);
  if (kind == "raw_gathered") {
    if (!rest && p.known && trace_->tensor(in).requires_grad) {
      const std::string what = any_sharded(p) ? "the gradient does not reach the shares" : "no gradient passes here";
      findings_.add(Severity::Error, "SW120", range_of(op),
                    "torch.distributed.all_gather is not recorded by autograd: " + what +
                        "; use gather_from_tensor_model_parallel_region (or gather_output=True on the layer)",
                    origin(p));
    }
    return set(out, unknown(out));
  }
  if (kind == "raw_maximum") {
    if (p.known && p.partial >= 0) return set(out, q);
    return set(out, p);
  }
  if (kind == "reduce_from" || kind == "raw_reduce") {
    if (!p.known) return set(out, kind == "reduce_from" ? q : unknown(out));
    if (p.partial >= 0) {
      partials_[index(p.partial)].reduced = true;
      const Partial& part = partials_[index(p.partial)];
      if (part.bias >= 0 && !rest) {
        const Op& add = trace_->op(part.bias);
        findings_.add(Severity::Error, "SW110", range_of(add),
                      "a whole term is added to a partial sum before the ranks are summed: the result holds it " + std::to_string(tp_) +
                          " times (tp = " + std::to_string(tp_) + "); add it after the sum",
                      {{range_of(op), "summed over the ranks here"}, {range_of(trace_->op(part.op)), "left partial here"}});
      }
      q.dims = p.dims;
      return set(out, q);
    }
    if (any_sharded(p)) return set(out, unknown(out));
    if (!rest && reduced_before(in, 0))
      findings_.add(Severity::Error, "SW115", range_of(op),
                    "this value is whole on every rank already: summing it again multiplies it by tp (" + std::to_string(tp_) + ")", {});
    q.dims = p.dims;
    return set(out, q);
  }
  if (kind == "gather") {
    if (!p.known) return set(out, q);
    const std::size_t d = changed < shape.size() ? changed : shape.size() - 1;
    if (!sharded(p, d)) {
      if (!rest && p.partial < 0 && gathered_before(in)) {
        ++repairs;  // what does not fit from here on is this fault's doing
        findings_.add(Severity::Error, "SW115", range_of(op),
                      "this value is whole on every rank already: gathering it repeats it " + std::to_string(tp_) + " times", {});
      }
      return set(out, unknown(out));
    }
    for (std::size_t i = 0; i < q.dims.size(); ++i)
      if (i != d) q.dims[i] = p.dims[i];
    q.entered = false;
    return set(out, q);
  }
  if (kind == "scatter" || kind == "row_input") {
    std::size_t d = changed < shape.size() ? changed : shape.empty() ? 0 : shape.size() - 1;
    for (std::size_t i = 0; i < q.dims.size(); ++i) q.dims[i] = p.dims[i];
    if (shape.empty()) return set(out, q);
    if (changed == shape.size())  // no change of size: which dimension was it?
      for (std::size_t i = 0; i < shape.size(); ++i)
        if (sharded(p, i)) d = i;
    if (rest) {
      if (changed < shape.size())
        q.dims[d] = {Factor{shape[d], new_shard(op.site ? op.site->range : support::Range{}, -1, "cut here"), -1, false}};
      return set(out, q);
    }
    const bool layer = parallel_layer(op.module);
    if (kind == "row_input" && changed < shape.size() && p.known && p.partial < 0) {
      const bool raw = p.dims[d].size() == 1 && p.dims[d][0].made >= 0;
      if (raw) {
        want(in, d, shape[d], true);
      } else {
        std::string text;
        auto where = argument(op.module, "input_is_parallel", &text);
        std::optional<support::Fix> fix;
        if (where.valid() && text == "True") fix = support::Fix{"safe", {{where, "False"}}};
        std::vector<support::Note> notes{{range_of(op), "called here with " + shape_text(in)}};
        if (auto from = made_whole(in); from.valid()) notes.push_back({from, "the value is whole from here"});
        findings_.add(Severity::Error, "SW101", where.valid() ? where : range_of(op),
                      layer_name(op.module) + " has input_is_parallel=True, but a whole value arrives: full " +
                          std::to_string(trace_->tensor(in).shape[d]) + " in the last dimension, " + std::to_string(shape[d]) +
                          " (/tp) expected; keep the column layer's output sharded (gather_output=False) or use input_is_parallel=False",
                      notes, fix);
      }
    } else if (kind == "scatter" && layer && changed == shape.size() && p.known && sharded(p, shape.size() - 1)) {
      std::string text;
      auto where = argument(op.module, "input_is_parallel", &text);
      std::optional<support::Fix> fix;
      if (where.valid() && text == "False") fix = support::Fix{"safe", {{where, "True"}}};
      auto notes = origin(p);
      notes.insert(notes.begin(), {range_of(op), "called here with " + shape_text(in) + " of " + shape_text(in, true)});
      findings_.add(Severity::Error, "SW102", where.valid() ? where : range_of(op),
                    layer_name(op.module) + " cuts its input (input_is_parallel=False), but a share arrives already: " + shape_text(in) +
                        "; use input_is_parallel=True",
                    notes, fix);
    }
    if (!p.known) q = plain(out);
    if (!sharded(q, d) || changed < shape.size())
      q.dims[d] = {Factor{shape[d], new_shard(range_of(op), op.module, kind == "scatter" ? "cut here" : "the layer's input"), -1, false}};
    q.partial = -1;
    q.since = op.id;
    return set(out, q);
  }
  set(out, p);
}

/// The collective or layer that made a value whole, followed back through what keeps it whole.
support::Range Propagator::made_whole(TensorId t) const {
  for (int i = 0; i < 32 && trace_->tensor(t).producer >= 0; ++i) {
    const Op& op = trace_->op(trace_->tensor(t).producer);
    if (op.name == "shardwright.gather" || op.name == "shardwright.reduce_from") {
      std::string text;
      auto at = argument(op.module, "gather_output", &text);
      return at.valid() ? at : range_of(op);
    }
    if (op.inputs.empty()) break;
    if (last_part(op.name) == "linear") return range_of(op);
    t = op.inputs[0].tensor;
  }
  return {};
}

// ---- marks --------------------------------------------------------------------------------------------------------------------

void Propagator::marked(TensorId t, const std::string& name) {
  int dim = 0;
  long long outer = 1;
  if (std::sscanf(name.c_str(), "layout %d %lld", &dim, &outer) == 2) return laid_out(t, dim, outer);
  marks_[t].insert(name.substr(0, name.find(' ')));
  // What Megatron writes on a share, written by hand.
  if (std::sscanf(name.c_str(), "partition_dim %d", &dim) == 1) {
    partition_[t] = dim;
    laid_out(t, dim, 1);
  } else if (const auto at = partition_.find(t);
             at != partition_.end() && std::sscanf(name.c_str(), "partition_stride %lld", &outer) == 1) {
    laid_out(t, at->second, outer);
  }
}

/// `t` is marked as this rank's share along `dim`, cut by itself in each of `outer` parts (0: in parts of several sizes).
void Propagator::laid_out(TensorId t, int dim, long long outer) {
  Placement p = place(t);
  const int rank = static_cast<int>(p.dims.size());
  if (rank == 0) return;
  dim = (dim % rank + rank) % rank;
  Dim& d = p.dims[index(dim)];
  if (d.size() != 1) return;
  if (d[0].shard < 0) {
    const auto cut = cut_in_constructor(t, index(dim));
    if (!cut) return;
    d[0].shard = new_shard(cut->site ? cut->site->range : support::Range{}, -1, "marked as this rank's share");
    if (cut->parts > 1) outer = 0;
  }
  if (outer <= 0) d[0].mixed = true;
  else if (outer > 1 && d[0].size % outer == 0) d = {Factor{outer, -1, -1, false}, Factor{d[0].size / outer, d[0].shard, -1, false}};
  set(t, std::move(p));
}

/// Is `t` one of tp equal parts of something whole, by slicing along `dim` (w.chunk(tp)[rank], narrow, unflatten and select)? How the
/// rank's number gets into the index is not asked: the mark says that it does.
std::optional<Propagator::Cut> Propagator::cut_in_constructor(TensorId t, std::size_t dim) const {
  const std::vector<std::int64_t> part = trace_->tensor(t).shape;
  Cut out;
  if (const auto from = from_.find(t); from != from_.end()) t = from->second;
  for (int i = 0; i < 32; ++i) {
    std::vector<std::int64_t> whole = trace_->tensor(t).shape;
    if (whole.size() == part.size() && whole[dim] == part[dim] * tp_) {
      whole[dim] = part[dim];
      if (whole == part) return out;
    }
    if (trace_->tensor(t).producer < 0) break;
    const Op& op = trace_->op(trace_->tensor(t).producer);
    if (op.inputs.empty() || !at_rest(op)) break;
    if (op.prim == model::Prim::Concat) out.parts = std::max(out.parts, op.inputs.size());
    if (!out.site) out.site = op.site;
    t = op.inputs[0].tensor;
  }
  return std::nullopt;
}

}  // namespace shardwright::lint
