#include "lint/regroup.h"

#include <algorithm>

#include "lint/placement.h"

namespace shardwright::lint {
namespace {

using Sizes = std::vector<std::int64_t>;

std::int64_t product(const Sizes& s) {
  std::int64_t n = 1;
  for (auto x : s) n *= x;
  return n;
}

/// The factors in order, at whole sizes.
std::vector<Factor> flat(const Placement& p, int tp) {
  std::vector<Factor> out;
  for (const auto& d : p.dims)
    for (Factor f : d) {
      if (f.shard >= 0) f.size *= tp;
      if (f.size != 1 || f.shard >= 0) out.push_back(f);
    }
  return out;
}

/// Cuts the list anew; false where sizes do not line up.
bool regroup(std::vector<Factor> fs, const Sizes& sizes, std::vector<Dim>& out) {
  std::size_t at = 0;
  for (auto s : sizes) {
    Dim d;
    std::int64_t need = s;
    while (need > 1) {
      if (at >= fs.size()) return false;
      Factor& f = fs[at];
      if (need % f.size == 0) {
        need /= f.size;
        d.push_back(f);
        ++at;
      } else if (f.size % need == 0) {
        Factor outer = f;
        outer.size = need;
        outer.made = -1;
        f.size /= need;
        if (!f.mixed) f.shard = -1;
        f.made = -1;
        d.push_back(outer);
        need = 1;
      } else {
        return false;
      }
    }
    if (d.empty()) d.push_back(Factor{1, -1, -1, false});
    out.push_back(std::move(d));
  }
  return at == fs.size();
}

bool carries(const Dim& d) {
  return std::any_of(d.begin(), d.end(), [](const Factor& f) { return f.shard >= 0; });
}

/// At local sizes; false where a share does not divide.
bool localise(std::vector<Dim>& dims, int tp) {
  for (auto& d : dims)
    for (auto& f : d)
      if (f.shard >= 0) {
        if (f.size % tp != 0) return false;
        f.size /= tp;
      }
  return true;
}

Sizes sizes_of(const std::vector<Dim>& dims) {
  Sizes out;
  for (const auto& d : dims) {
    std::int64_t n = 1;
    for (const auto& f : d) n *= f.size;
    out.push_back(n);
  }
  return out;
}

Sizes shape_of(const Placement& p, int tp) {
  Sizes out;
  for (const auto& d : p.dims) {
    std::int64_t n = 1;
    for (const auto& f : d) n *= f.shard >= 0 ? f.size * tp : f.size;
    out.push_back(n);
  }
  return out;
}

}  // namespace

struct Reshaper {
  static std::int64_t whole_size(const Propagator& p, const model::Sym* s, std::int64_t v) { return p.whole_size(s, v); }
};

Regroup regroup_view(Propagator& lint, const model::Trace& trace, const model::Op& op, const Placement& from, int tp) {
  Regroup r;
  const Sizes local = trace.tensor(op.outputs[0]).shape;
  if (op.into.size() == from.dims.size() && !from.dims.empty()) {  // told by the operation: nothing to find out from sizes
    r.dims.assign(local.size(), {});
    for (std::size_t i = 0; i < op.into.size(); ++i) {
      if (op.into[i] < 0) {
        if (carries(from.dims[i])) r.verdict = Regroup::Unknown;  // a share of size 1 squeezed away
        continue;
      }
      Dim& d = r.dims[static_cast<std::size_t>(op.into[i])];
      for (const Factor& f : from.dims[i])
        if (f.size != 1 || f.shard >= 0 || f.made >= 0) d.push_back(f);
    }
    for (Dim& d : r.dims)
      if (d.empty()) d.push_back(Factor{1, -1, -1, false});
    return r;
  }
  const auto factors = flat(from, tp);
  if (!lint.any_sharded(from)) {
    if (!regroup(factors, local, r.dims)) {
      r.dims.clear();
      for (auto n : local) r.dims.push_back({Factor{n, -1, -1, false}});
    }
    return r;
  }
  const std::int64_t all = product(shape_of(from, tp));
  // The sizes of the same view in the whole program.
  Sizes target = local;
  std::vector<const program::Expr*> exprs(local.size(), nullptr);
  std::ptrdiff_t hole = -1;
  for (const auto& a : op.size_args)
    for (std::size_t i = 0; i < a.values.size(); ++i) {
      const std::size_t d = static_cast<std::size_t>(a.dim) + i;
      if (d >= target.size()) continue;
      if (a.values[i] == -1) hole = static_cast<std::ptrdiff_t>(d);
      else target[d] = Reshaper::whole_size(lint, i < a.syms.size() ? a.syms[i] : nullptr, a.values[i]);
      if (a.values.size() == 1) exprs[d] = a.expr;
    }
  if (hole >= 0) {
    target[static_cast<std::size_t>(hole)] = 1;
    const std::int64_t rest = product(target);
    target[static_cast<std::size_t>(hole)] = rest > 0 && all % rest == 0 ? all / rest : 0;
  }
  bool stated = !op.size_args.empty() && product(target) == all;
  std::vector<Dim> dims;
  if (stated && regroup(factors, target, dims)) {
    std::vector<Dim> mine = dims;
    if (localise(mine, tp) && sizes_of(mine) == local) {
      r.dims = std::move(mine);
      return r;
    }
    // Which dimension carries the share in the whole program's view, and which one is local here?
    std::size_t outer = dims.size(), inner = dims.size();
    for (std::size_t d = dims.size(); d-- > 0;)
      if (carries(dims[d])) outer = d;
    for (std::size_t d = 0; d < dims.size(); ++d)
      if (local[d] * tp == target[d]) inner = d;
    bool mixed = false;
    for (const auto& d : dims)
      for (const auto& f : d) mixed = mixed || f.mixed;
    // The outer dimension whole, dimension `at` inside it shared.
    auto shared_inside = [&](std::size_t at) {
      int shard = -1;
      for (const auto& f : dims[outer]) shard = std::max(shard, f.shard);
      for (auto& d : dims)
        for (auto& f : d) f.shard = -1;
      dims[at] = {Factor{local[at], shard, -1, mixed}};
      r.dims = std::move(dims);
      r.verdict = mixed ? Regroup::Fine : Regroup::Contiguous;
      r.pieces = target[outer];
    };
    if (outer < inner && inner < dims.size() && local[outer] == target[outer] && target[outer] > 1 &&
        static_cast<std::ptrdiff_t>(inner) != hole) {
      std::size_t differing = 0;
      for (std::size_t d = 0; d < dims.size(); ++d) differing += local[d] != target[d];
      if (differing == 1) {
        shared_inside(inner);
        return r;
      }
    }
    if (hole >= 0 && outer < dims.size() && !mixed && target[outer] % tp == 0) {
      const std::size_t h = static_cast<std::size_t>(hole);
      if (outer == h || local[outer] != target[outer]) {
        // The -1 lies inside the share's dimension: the outer one is whole by its words.
        r.verdict = Regroup::Unknown;
        return r;
      }
      if (h > outer && local[h] * tp == target[h]) {
        shared_inside(h);
        return r;
      }
      r.verdict = Regroup::NotLocal;
      r.dim = static_cast<int>(outer);
      r.expr = exprs[outer];
      r.given = target[outer];
      r.needed = target[outer] / tp;
      r.hole = true;
      r.hole_value = local[h];
      r.hole_wanted = target[h];
      return r;
    }
    // (3, -1) over a share cut contiguously: 3 does not divide.
    if (hole >= 0 && outer < dims.size() && !mixed && static_cast<std::size_t>(hole) > outer && local[outer] == target[outer]) {
      const std::size_t h = static_cast<std::size_t>(hole);
      if (local[h] * tp == target[h]) {
        shared_inside(h);
        return r;
      }
    }
  }
  // Sizes that say nothing (flatten, numbers computed out of sight): the one dimension that fits when it is taken as the share.
  // Rather one that leaves the factors as they are, and of those one that begins with the share: where a rank has one head,
  // (sequence, head) could be read as one dimension as well.
  int best = 4;
  for (std::size_t d = 0; d < local.size(); ++d) {
    Sizes guess = local;
    guess[d] *= tp;
    if (product(guess) != all) break;
    std::vector<Dim> cut;
    if (!regroup(factors, guess, cut) || !carries(cut[d])) continue;
    std::size_t parts = 0;
    for (const auto& x : cut)
      parts += static_cast<std::size_t>(std::count_if(x.begin(), x.end(), [](const Factor& f) { return f.size != 1 || f.shard >= 0; }));
    const int rank = 2 * (parts != factors.size()) + (cut[d][0].shard < 0);
    if (rank >= best || !localise(cut, tp) || sizes_of(cut) != local) continue;
    best = rank;
    r.dims = std::move(cut);
  }
  if (best < 4) return r;
  r.verdict = Regroup::Unknown;
  return r;
}

Regroup regroup_failed(Propagator& lint, const std::vector<model::SizeArg>& sizes, int first, const Placement& from, int tp) {
  Regroup r;
  r.verdict = Regroup::Unknown;
  Sizes target, given;
  std::vector<const program::Expr*> exprs;
  std::ptrdiff_t hole = -1;
  for (const auto& a : sizes)
    for (std::size_t i = 0; i < a.values.size(); ++i) {
      if (a.values[i] == -1) hole = static_cast<std::ptrdiff_t>(target.size());
      given.push_back(a.values[i]);
      target.push_back(a.values[i] == -1 ? 1 : Reshaper::whole_size(lint, i < a.syms.size() ? a.syms[i] : nullptr, a.values[i]));
      exprs.push_back(a.values.size() == 1 ? a.expr : nullptr);
    }
  (void)first;
  const std::int64_t all = product(shape_of(from, tp)), rest = product(target);
  if (hole >= 0 && rest > 0 && all % rest == 0) target[static_cast<std::size_t>(hole)] = all / rest;
  if (product(target) != all) return r;
  std::vector<Dim> dims;
  if (!regroup(flat(from, tp), target, dims)) return r;
  for (std::size_t d = 0; d < dims.size(); ++d)
    if (carries(dims[d]) && given[d] != -1 && given[d] == target[d] && given[d] % tp == 0) {
      r.verdict = Regroup::NotLocal;
      r.dim = static_cast<int>(d);
      r.expr = exprs[d];
      r.given = given[d];
      r.needed = given[d] / tp;
      r.hole = false;
      return r;
    }
  return r;
}

}  // namespace shardwright::lint
