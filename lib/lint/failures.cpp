// Operations whose sizes do not fit: sizes of made-up inputs are corrected, sizes of one rank that met the whole's are reported, and the
// run goes on as if the share had been gathered.
#include <algorithm>
#include <cstdlib>

#include "lint/placement.h"
#include "lint/regroup.h"
#include "program/visit.h"

namespace shardwright::lint {

using support::Severity;

namespace {
std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

bool is_view(const std::string& name) {
  return name == "view" || name == "reshape" || name == "unflatten" || name == "view_as" || name == "reshape_as";
}
bool takes_sizes(const std::string& name) {
  return is_view(name) || name == "expand" || name == "split" || name == "split_with_sizes" || name == "broadcast_to";
}
}  // namespace

/// Does the class read the attributes in this size nowhere else but in its constructor?
bool Propagator::read_once(const eval::Failure& f, const program::Expr* size) const {
  const auto* function = f.site.frame >= 0 ? trace_->frame(f.site.frame).function : nullptr;
  if (!function || !function->owner) return true;
  bool once = true;
  program::walk(size, [&](const program::Expr* e) {
    if (e->kind != program::ExprKind::Attribute) return true;
    std::size_t reads = 0;
    for (const auto* s : function->owner->body)
      if (s->kind == program::StmtKind::FunctionDef && s->function->name != "__init__")
        program::walk_exprs(s->function->body, [&](const program::Expr* x) {
          reads += x->kind == program::ExprKind::Attribute && x->text == e->text && x->kids[0]->kind == program::ExprKind::Name &&
              x->kids[0]->text == "self";
          return true;
        });
    once = once && reads <= 1;
    return true;
  });
  return once;
}

/// A whole value under a view to sizes of one rank: at the whole's sizes the view would fit.
bool Propagator::whole_meets_local(const eval::Failure& f, TensorId x) const {
  const Placement& p = const_cast<Propagator*>(this)->place(x);
  if (!p.known || p.dims.empty() || p.partial >= 0 || p.dims.back().size() != 1 || p.dims.back()[0].made >= 0) return false;
  std::int64_t all = 1, local = 1, whole = 1;
  for (auto n : trace_->tensor(x).shape) all *= n;
  for (const auto& a : f.sizes)
    for (std::size_t i = 0; i < a.values.size(); ++i) {
      if (a.values[i] == -1) return false;
      local *= a.values[i];
      whole *= whole_size(i < a.syms.size() ? a.syms[i] : nullptr, a.values[i]);
    }
  return whole == all && local * tp_ == all;
}

bool Propagator::want(TensorId t, std::size_t dim, std::int64_t size, bool share) {
  const Placement& p = place(t);
  if (dim >= p.dims.size() || p.dims[dim].size() != 1 || p.dims[dim][0].made < 0 || size <= 0 || confirmed_.count(p.dims[dim][0].made))
    return false;
  const auto [input, d] = made_[index(p.dims[dim][0].made)];
  wanted.push_back({input, d, size, share});
  return true;
}

/// A table viewed as (n, n, …) with n the size of an input: n is what makes the table fit.
bool Propagator::unfold(const eval::Failure& f) {
  const auto& shape = trace_->tensor(f.operands[0].tensor).shape;
  std::int64_t all = 1, rest = 1;
  for (auto n : shape) all *= n;
  bool hole = false;
  int copies = 0;
  TensorId from = -1;
  int dim = -1;
  for (const auto& a : f.sizes)
    for (std::size_t i = 0; i < a.values.size(); ++i) {
      const model::Sym* s = i < a.syms.size() ? a.syms[i] : nullptr;
      if (a.values[i] == -1) {
        hole = true;
      } else if (s && s->kind == model::Sym::Dim && s->tensor >= 0 && index(s->dim) < place(s->tensor).dims.size() &&
                 place(s->tensor).dims[index(s->dim)].size() == 1 && place(s->tensor).dims[index(s->dim)][0].made >= 0) {
        if (from >= 0 && (from != s->tensor || dim != s->dim)) return false;
        from = s->tensor;
        dim = s->dim;
        ++copies;
      } else {
        rest *= a.values[i];
      }
    }
  if (copies == 0 || rest <= 0) return false;
  if (hole && shape.size() > 1) all /= shape.back();
  for (std::int64_t n = 1; n <= 4096; ++n) {
    std::int64_t product = rest;
    for (int k = 0; k < copies; ++k) product *= n;
    if (product > all) break;
    if (product == all) return want(from, index(dim), n, false);
  }
  return false;
}

/// Does an input whose sizes were made up only have the wrong one? Then it is asked for and the run is started again.
bool Propagator::refine(const eval::Failure& f) {
  const std::string name = last_part(f.name);
  if (f.operands.empty()) return false;
  auto shape = [&](TensorId t) { return trace_->tensor(t).shape; };
  auto is_made = [&](TensorId t) {
    for (const auto& d : place(t).dims)
      if (d.size() == 1 && d[0].made >= 0) return made_[index(d[0].made)].first;
    return -1;
  };
  const TensorId x = f.operands[0].tensor;
  if (is_view(name) && place(x).known && any_sharded(place(x)) &&
      regroup_failed(*this, f.sizes, 0, place(x), tp_).verdict == Regroup::NotLocal)
    return false;
  const std::size_t rank = shape(x).size();
  auto operand = [&](const char* param, std::size_t position) -> TensorId {
    for (const auto& o : f.operands)
      if (o.param == param) return o.tensor;
    return position < f.operands.size() ? f.operands[position].tensor : -1;
  };
  if (name == "linear") {
    const TensorId w = operand("weight", 1);
    if (w < 0 || shape(w).size() != 2 || rank == 0 || shape(x).back() == shape(w)[1]) return false;
    return want(x, rank - 1, shape(w)[1], sharded(place(w), 1));
  }
  if (name == "layer_norm" || name == "rms_norm") {
    auto at = f.message.find("normalized_shape=[");
    if (at == std::string::npos || rank == 0) return false;
    const std::string list = f.message.substr(at + 18, f.message.find(']', at) - at - 18);
    auto comma = list.rfind(',');
    return want(x, rank - 1, std::atoll(list.c_str() + (comma == std::string::npos ? 0 : comma + 1)), false);
  }
  if (name.rfind("conv", 0) == 0 || name.rfind("max_pool", 0) == 0 || name.rfind("avg_pool", 0) == 0) {
    if (auto at = f.message.find("expected input to have "); at != std::string::npos)
      return want(x, 1, std::atoll(f.message.c_str() + at + 23), false);
    if (f.message.find("Expected ") != std::string::npos && is_made(x) >= 0 && name.size() > 1 &&
        std::isdigit(static_cast<unsigned char>(name[name.size() - 2]))) {
      wanted_input = is_made(x);
      wanted_rank = static_cast<std::size_t>(name[name.size() - 2] - '0') + 2;
      wants_rank = true;
      return true;
    }
    return false;
  }
  if (is_view(name) && whole_meets_local(f, x)) return false;
  if (is_view(name) || name == "unflatten") {
    std::vector<std::int64_t> target;
    for (const auto& a : f.sizes) target.insert(target.end(), a.values.begin(), a.values.end());
    std::int64_t n = 1;
    for (auto v : target) {
      if (v == -1) return is_made(x) < 0 && unfold(f);
      n *= v;
    }
    for (std::size_t d = rank; d-- > 0;) {
      const Placement& p = place(x);
      if (p.dims[d].size() != 1 || p.dims[d][0].made < 0) continue;
      std::int64_t rest = 1;
      for (std::size_t i = 0; i < rank; ++i)
        if (i != d && name != "unflatten") rest *= shape(x)[i];
      if (rest > 0 && n % rest == 0 && n / rest > 1 && n / rest != shape(x)[d]) return want(x, d, n / rest, false);
    }
    if (is_made(x) < 0 && unfold(f)) return true;
    // The first dimension is the batch on both sides: another one makes up for the rest.
    if (name != "unflatten" && rank > 2 && !target.empty() && target[0] > 0 && target[0] != shape(x)[0])
      for (std::size_t d = rank - 1; d-- > 1;) {
        std::int64_t rest = target[0];
        for (std::size_t i = 1; i < rank; ++i)
          if (i != d) rest *= shape(x)[i];
        if (rest > 0 && n % rest == 0 && want(x, 0, target[0], false)) return want(x, d, n / rest, false);
      }
    return false;
  }
  // Broadcasting and products: the other operand says.
  for (std::size_t a = 0; a < f.operands.size(); ++a)
    for (std::size_t b = 0; b < f.operands.size(); ++b) {
      if (a == b) continue;
      const TensorId s = f.operands[a].tensor, t = f.operands[b].tensor;
      const auto ss = shape(s), ts = shape(t);
      if (name == "matmul" || name == "bmm" || name == "mm") {
        if (a == 0 && b == 1 && !ss.empty() && ts.size() >= 2 && ss.back() != ts[ts.size() - 2]) {
          if (want(s, ss.size() - 1, ts[ts.size() - 2], sharded(place(t), ts.size() - 2))) return true;
          if (want(t, ts.size() - 2, ss.back(), sharded(place(s), ss.size() - 1))) return true;
        }
        continue;
      }
      for (std::size_t i = 1; i <= std::min(ss.size(), ts.size()); ++i) {
        const auto m = ss[ss.size() - i], n = ts[ts.size() - i];
        if (m != n && m != 1 && n != 1 && want(s, ss.size() - i, n, sharded(place(t), ts.size() - i))) return true;
      }
    }
  return false;
}

std::map<TensorId, std::vector<std::int64_t>> Propagator::repair(const eval::Failure& f) {
  if (refine(f)) return {};
  std::map<TensorId, std::vector<std::int64_t>> out;
  for (const auto& o : f.operands) {
    const Placement& p = place(o.tensor);
    if (!any_sharded(p)) continue;
    std::vector<std::int64_t> s;
    for (std::size_t d = 0; d < p.dims.size(); ++d) s.push_back(whole(p, d));
    out[o.tensor] = std::move(s);
  }
  // The other way round: the whole arrives where sizes are one rank's.
  if (out.empty() && is_view(last_part(f.name)) && !f.operands.empty() && whole_meets_local(f, f.operands[0].tensor)) {
    std::vector<std::int64_t> s = trace_->tensor(f.operands[0].tensor).shape;
    if (s.back() % tp_ == 0) {
      s.back() /= tp_;
      out[f.operands[0].tensor] = std::move(s);
    }
  }
  return out;
}

void Propagator::repaired(const eval::Failure& f, const std::vector<TensorId>&) {
  ++repairs;
  report_failure(f);
}

void Propagator::report_failure(const eval::Failure& f) {
  if (f.site.frame < 0 || trace_->frame(f.site.frame).init || !f.site.expr) return;
  const std::string name = last_part(f.name);
  TensorId share = -1, full = -1;
  for (const auto& o : f.operands) {
    const Placement& p = place(o.tensor);
    if (!p.known) return;
    if (any_sharded(p)) {
      // The activation rather than a weight.
      if (share < 0 || trace_->tensor(share).origin == model::Origin::Parameter) share = o.tensor;
    } else if (full < 0) {
      full = o.tensor;
    }
  }
  const support::Range where = f.site.expr->range;
  if (share < 0 && full >= 0 && is_view(name)) {
    std::vector<support::Note> notes;
    if (auto from = made_whole(full); from.valid()) notes.push_back({from, "the value is whole from here"});
    findings_.add(Severity::Error, "SW106", where,
                  "these are one rank's sizes, but the whole value " + shape_text(full) + " arrives: its last dimension is " +
                      std::to_string(tp_) +
                      " times what they make; keep it sharded (gather_output=False, a column layer), or use the whole's sizes",
                  notes);
    return;
  }
  if (share < 0) return;
  const Placement p = place(share);
  auto notes = origin(p);
  if (takes_sizes(name)) {
    Regroup r = is_view(name) ? regroup_failed(*this, f.sizes, 0, p, tp_) : Regroup{};
    if (is_view(name) && r.verdict != Regroup::NotLocal) return;
    if (!is_view(name)) {
      for (const auto& a : f.sizes)
        for (std::size_t i = 0; i < a.values.size(); ++i)
          for (std::size_t d = 0; d < p.dims.size(); ++d)
            if (sharded(p, d) && a.values[i] == whole(p, d) && r.given == 0)
              r.given = a.values[i], r.needed = a.values[i] / tp_, r.expr = a.values.size() == 1 ? a.expr : nullptr;
    }
    const std::string given = r.expr ? std::string(sources_.text(r.expr->range))
        : r.given                    ? std::to_string(r.given)
                                     : "a size given to " + name;
    std::string message = given + (r.given ? " = " + std::to_string(r.given) : "") +
        " is the whole's size, but a share arrives: " + shape_text(share) + " of " + shape_text(share, true) + "; " +
        (r.needed ? std::to_string(r.needed) + " (" + given + " // tp) expected" : "sizes of one rank are expected");
    std::optional<support::Fix> fix;
    bool minus = false;
    for (const auto& a : f.sizes) minus = minus || std::find(a.values.begin(), a.values.end(), -1) != a.values.end();
    // An attribute that is read elsewhere too is wrong there as well: where it is set, then, not here.
    if (is_view(name) && r.expr && !minus) fix = support::Fix{read_once(f, r.expr) ? "safe" : "review", {{r.expr->outer, "-1"}}};
    findings_.add(Severity::Error, "SW106", where, message, notes, fix);
    return;
  }
  const std::string shapes = shape_text(share) + " of " + shape_text(share, true);
  if (name == "linear" || name.rfind("conv", 0) == 0) {
    const auto* module = f.module >= 0 ? &trace_->module(f.module) : nullptr;
    if (module && module->builtin && !parallel_layer(f.module) && module->construct_call) {
      notes.insert(notes.begin(), {where, "a share arrives here: " + shapes});
      findings_.add(Severity::Error, "SW111", module->construct_call->range,
                    layer_name(f.module) + " is whole on every rank, but its input is a share: " + shapes +
                        "; use a row layer with input_is_parallel=True (its sum makes the output whole), or gather the input",
                    notes);
    } else {
      findings_.add(Severity::Error, "SW105", where, "a share meets a whole weight: " + shapes + "; use a row layer, or gather it", notes);
    }
    return;
  }
  if (name == "layer_norm" || name == "rms_norm" || name == "group_norm" || name == "batch_norm") {
    findings_.add(Severity::Error, "SW105", where,
                  "a norm over the whole width gets a share: " + shapes +
                      "; its statistics need the whole (gather, norm, scatter; or all-reduce the sum of squares and cut the weight)",
                  notes);
    return;
  }
  if (full < 0) {
    findings_.add(Severity::Error, "SW106", where, "sizes of this rank's shares do not fit in " + name + ": " + shapes, notes);
    return;
  }
  // A table, slopes or a scale that __init__ made, against a value that the layers made.
  const model::Tensor& x = trace_->tensor(full);
  if (!x.from_input) {
    findings_.add(Severity::Error, "SW108", where,
                  name_of(full) + " " + shape_text(full) + " is held whole, but meets a share: " + shapes +
                      "; hold this rank's part of it (and mark it tensor parallel)",
                  notes);
    return;
  }
  findings_.add(
      Severity::Error, "SW105", where,
      "a share " + shapes + " meets the whole value " + name_of(full) + " " + shape_text(full) + "; gather it (or use a row layer) first",
      notes);
}

}  // namespace shardwright::lint
