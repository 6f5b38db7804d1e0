// Size expressions, scalars and guards: what they evaluate to when sharded dimensions are local, and what they must be.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "rewrite/tp_context.h"

namespace shardwright::rewrite::tp {

namespace {

enum class Fit { Keep, Divide, Multiply, Bad };

class Sizes {
 public:
  Sizes(Context& ctx, Layers& layers, const std::vector<Need>& needs) : ctx_(ctx), layers_(layers) {
    for (const auto& n : needs)
      if (n.c.kind == Conversion::Slice && n.c.on_output) sliced_[n.c.op] = &n;
  }

  void run() {
    quotients();
    for (const auto& op : ctx_.trace.ops) {
      if (op.frame < 0 || ctx_.trace.frame(op.frame).init || layers_.absorbing(op) >= 0) continue;
      for (const auto& a : op.size_args) size(op, a);
      for (const auto& s : op.scalar_args) scalar(op, s);
    }
    for (const auto& g : ctx_.trace.guards) guard(g);
    for (const auto& m : ctx_.trace.modules) constructor(m);
  }

 private:
  Fit fit(std::int64_t value, const Sym* sym, std::int64_t need) const {
    if (value == -1 && !sym) return Fit::Keep;
    double have = static_cast<double>(value);
    if (sym) {
      auto v = ctx_.local(sym);
      if (!v) return Fit::Bad;
      have = *v;
    }
    double n = static_cast<double>(need);
    const Fit f = have == n ? Fit::Keep : have == n * ctx_.tp ? Fit::Divide : have * ctx_.tp == n ? Fit::Multiply : Fit::Bad;
    return holds_there(f, sym, n / static_cast<double>(value)) ? f : Fit::Bad;
  }

  /// Whether what is written for a value (`share` of it on each rank) is right at the other batch size, too: a quotient of a local
  /// size can be the right number by chance.
  bool holds_there(Fit f, const Sym* sym, double share) const {
    const auto local = ctx_.local_there(sym), full = ctx_.full_there(sym);
    if (!local || !full) return true;
    const double written = f == Fit::Divide ? std::floor(*local / ctx_.tp) : f == Fit::Multiply ? *local * ctx_.tp : *local;
    return std::abs(written - *full * share) < 1e-9 * std::max(1.0, std::abs(written));
  }

  /// n // heads where n is local and heads is a number: n // (heads // tp) is the whole quotient whatever n is; (n // heads) * tp
  /// is it only where heads divides n.
  bool divides(const Sym* sym) const {
    if (!sym || sym->kind != Sym::FloorDiv || !sym->a || !sym->b || ctx_.axis_in(sym->a) < 0 || ctx_.axis_in(sym->b) >= 0) return false;
    const auto a = ctx_.local(sym->a), b = ctx_.local(sym->b);
    if (!a || !b || *b != sym->b->value || std::fmod(*b, ctx_.tp) != 0) return false;
    return std::floor(*a / (*b / ctx_.tp)) == sym->value && std::floor(*a / *b) != sym->value;
  }

  bool divide_divisor(FrameId frame, const Expr* e, const Sym* sym) {
    if (e->kind != ExprKind::Binary || e->text != "//" || !ctx_.editable(frame, e)) return false;
    const Expr* divisor = e->kids[1];
    const bool parens = binds_looser_than_product(divisor);
    return ctx_.wrap(frame, divisor, Purpose::Size, parens ? "((" : "(", std::string(parens ? ")" : "") + " // tp_size())", {"tp_size"},
                     ctx_.axis_in(sym->a), "the divisor of a local size");
  }

  /// `batch = n // heads`: written so that batch is the full size.
  void quotients() {
    std::set<const Sym*> bounds;  // half = n // 2 bounds a piece of what is local
    for (const auto& op : ctx_.trace.ops)
      for (const auto& a : op.size_args)
        if (a.role == model::SizeArg::PieceStart || a.role == model::SizeArg::PieceStop) bounds.insert(a.syms.begin(), a.syms.end());
    for (const auto& w : ctx_.trace.var_writes) {
      if (w.frame < 0 || w.step < 0 || ctx_.trace.frame(w.frame).init) continue;
      const Stmt* st = ctx_.trace.step(w.step).stmt;
      if (!st || st->kind != StmtKind::Assign || st->targets.size() != 1 || st->targets[0]->kind != ExprKind::Name || !st->value) continue;
      const auto settle = [&](const Expr* e, const Sym* sym) {
        if (!bounds.count(sym) && divides(sym) && divide_divisor(w.frame, e, sym)) ctx_.settled.insert(sym);
      };
      settle(st->value, w.value.sym);
      // `shape = x.size()[:-1] + (heads, x.size(-1) // heads)`
      const auto [literal, from] = literal_part(st->value, w.value.items.size());
      for (std::size_t i = 0; literal && i < literal->kids.size(); ++i) settle(literal->kids[i], w.value.items[from + i].second.sym);
    }
  }

  /// The literal in a sequence of `n` elements that is one, or a sum with one; and which element it begins with.
  static std::pair<const Expr*, std::size_t> literal_part(const Expr* e, std::size_t n) {
    const auto plain = [n](const Expr* k) {
      return (k->kind == ExprKind::Tuple || k->kind == ExprKind::List) && k->kids.size() <= n &&
          std::none_of(k->kids.begin(), k->kids.end(), [](const Expr* x) { return x->kind == ExprKind::Starred; });
    };
    if (plain(e) && e->kids.size() == n) return {e, 0};
    if (e->kind != ExprKind::Binary || e->text != "+" || e->kids.size() != 2) return {nullptr, 0};
    if (plain(e->kids[1])) return {e->kids[1], n - e->kids[1]->kids.size()};
    if (plain(e->kids[0])) return {e->kids[0], 0};
    return {nullptr, 0};
  }

  int axis_near(const Op& op, const std::vector<const Sym*>& syms) const {
    for (TensorId t : op.outputs)
      if (ctx_.axis_of(t) >= 0) return ctx_.axis_of(t);
    for (const Sym* s : syms)
      if (int a = ctx_.axis_in(s); a >= 0) return a;
    for (const auto& i : op.inputs)
      if (ctx_.axis_of(i.tensor) >= 0) return ctx_.axis_of(i.tensor);
    return -1;
  }

  /// The frame whose function holds the expression: the operation's, or the one that built the module (sizes given to a constructor).
  FrameId frame_of(const Op& op, const Expr* e) const {
    if (ctx_.editable(op.frame, e)) return op.frame;
    for (ModuleId m = op.module; m >= 0; m = ctx_.trace.module(m).parent) {
      const auto& mod = ctx_.made(m);
      if (mod.construct_call && mod.construct_call->range.contains(e->range) && ctx_.editable(mod.construct_frame, e))
        return mod.construct_frame;
    }
    return -1;
  }

  void bad(const Op& op, const Expr* e, int axis, std::int64_t value, std::int64_t need) {
    ctx_.refuse(axis,
                e             ? e->range
                    : op.site ? op.site->range
                              : Range{},
                fmt::format("the size {} here has to become {} on each rank and cannot be written so", value, need));
  }

  void apply(const Op& op, const Expr* e, Fit f, const Sym* sym, int axis, std::int64_t value, std::int64_t need) {
    FrameId frame = frame_of(op, e);
    if (f == Fit::Keep) {
      if (frame >= 0) ctx_.keep(frame, e, e->outer, Purpose::Size);
      return;
    }
    if (frame >= 0 && divides(sym) && static_cast<double>(need) == sym->value && divide_divisor(frame, e, sym)) return;
    if (f == Fit::Bad || frame < 0) return bad(op, e, axis, value, need);
    bool parens = binds_looser_than_product(e);
    ctx_.wrap(frame, e, Purpose::Size, parens ? "(" : "",
              std::string(parens ? ")" : "") + (f == Fit::Divide ? " // tp_size()" : " * tp_size()"), {"tp_size"}, axis,
              fmt::format("{} is {} on each rank", value, need));
  }

  /// Sizes of dimensions `first`… given by one expression.
  void shape(const Op& op, const Expr* e, const std::vector<std::int64_t>& values, const std::vector<const Sym*>& syms,
             const std::vector<std::int64_t>& needed, std::size_t from, std::size_t count, bool split) {
    std::vector<Fit> fits;
    int off = 0;
    for (std::size_t i = from; i < from + count; ++i) {
      fits.push_back(fit(values[i], syms[i], needed[i]));
      off += fits.back() != Fit::Keep;
    }
    std::vector<const Sym*> part(syms.begin() + static_cast<std::ptrdiff_t>(from),
                                 syms.begin() + static_cast<std::ptrdiff_t>(from + count));
    int ax = axis_near(op, part);
    if (!e) {
      if (off && !(op.module >= 0 && layers_.of(op.module).form != LayerPlan::None)) bad(op, e, ax, values[from], needed[from]);
      return;
    }
    if (e->kind == ExprKind::Starred) e = e->kids[0];
    if (e->kind == ExprKind::Tuple || e->kind == ExprKind::List) {
      // Element by element; one starred element takes what the others leave.
      std::size_t stars = 0;
      for (const Expr* k : e->kids) stars += k->kind == ExprKind::Starred;
      std::size_t plain = e->kids.size() - stars;
      if (stars <= 1 && plain <= count && (stars == 1 || plain == count)) {
        std::size_t at = from;
        for (const Expr* k : e->kids) {
          if (k->kind == ExprKind::Starred) {
            shape(op, k, values, syms, needed, at, count - plain, split);
            at += count - plain;
          } else {
            apply(op, k, fits[at - from], syms[at], ax, values[at], needed[at]);
            ++at;
          }
        }
        return;
      }
    }
    if (e->kind == ExprKind::Binary && e->text == "+" && e->kids.size() == 2) {
      auto literal = [](const Expr* k) {
        bool tuple = k->kind == ExprKind::Tuple || k->kind == ExprKind::List;
        return tuple && std::none_of(k->kids.begin(), k->kids.end(), [](const Expr* x) { return x->kind == ExprKind::Starred; });
      };
      const Expr* l = e->kids[0];
      const Expr* r = e->kids[1];
      std::size_t n = literal(r) ? r->kids.size() : literal(l) ? l->kids.size() : count + 1;
      if (n <= count) {
        std::size_t left = literal(r) ? count - n : n;
        shape(op, l, values, syms, needed, from, left, split);
        shape(op, r, values, syms, needed, from + left, count - left, split);
        return;
      }
    }
    FrameId frame = frame_of(op, e);
    if (!off) {
      if (frame >= 0) ctx_.keep(frame, e, e->outer, Purpose::Size);
      return;
    }
    std::size_t first = 0;
    while (fits[first] == Fit::Keep) ++first;
    bool all_divide = std::all_of(fits.begin(), fits.end(), [](Fit f) { return f == Fit::Divide; });
    if (frame < 0 || fits[first] != Fit::Divide || (split ? !all_divide : off != 1))
      return bad(op, e, ax, values[from + first], needed[from + first]);
    std::string why = fmt::format("{} is {} on each rank", values[from + first], needed[from + first]);
    if (split) ctx_.wrap(frame, e, Purpose::Size, "[size // tp_size() for size in ", "]", {"tp_size"}, ax, why);
    else ctx_.wrap(frame, e, Purpose::Size, "local_sizes(", fmt::format(", {})", first), {"local_sizes"}, ax, why);
  }

  /// x.view(*shape, -1): the size came out of the starred argument.
  bool starred(const Op& op, const model::SizeArg& a, Fit f, int axis, std::int64_t need) {
    if (!op.site || op.site->kind != ExprKind::Call || !ctx_.index.direct(op) || f != Fit::Divide) return false;
    const Expr* star = nullptr;
    for (const auto& arg : op.site->args)
      if (arg.star) {
        if (star) return false;
        star = arg.value;
      }
    if (!star) return false;
    if (star->kind == ExprKind::Starred) star = star->kids[0];
    int first = -1;
    for (const auto& other : op.size_args)
      if (!other.expr && (first < 0 || other.dim < first)) first = other.dim;
    if (!ctx_.editable(op.frame, star) || a.dim < first) return false;
    return ctx_.wrap(op.frame, star, Purpose::Size, "local_sizes(", fmt::format(", {})", a.dim - first), {"local_sizes"}, axis,
                     fmt::format("{} is {} on each rank", a.values[0], need));
  }

  /// A size given to the constructor of a built-in layer (nn.Unflatten(1, (heads, width)), Rearrange('…', h=heads)): its
  /// expression there. Told by the values: the argument must be the only one that has them.
  const Expr* constructor_expr(const Op& op, const model::SizeArg& a) const {
    if (op.module < 0 || ctx_.index.direct(op) || a.values.empty()) return nullptr;
    const auto& m = ctx_.made(op.module);
    if (!m.builtin || !ctx_.editable(m.construct_frame, m.construct_call)) return nullptr;
    std::vector<std::int64_t> all;
    std::size_t position = 0;
    for (const auto& other : op.size_args) {
      if (&other == &a) position = all.size();
      all.insert(all.end(), other.values.begin(), other.values.end());
    }
    std::vector<const Expr*> found;
    for (std::size_t i = 0; i < m.ctor_args.size(); ++i) {
      const auto& value = m.ctor_args[i].second;
      const Expr* e = i < m.ctor_exprs.size() ? m.ctor_exprs[i] : nullptr;
      bool one = a.values.size() == 1;
      if (one && value.kind == Binding::Int && value.integer == a.values[0] && e) found.push_back(e);
      if (value.kind == Binding::Sequence && value.items.size() == all.size() && e) {
        bool same = true;
        for (std::size_t k = 0; k < all.size(); ++k)
          same = same && value.items[k].second.kind == Binding::Int && value.items[k].second.integer == all[k];
        bool written = (e->kind == ExprKind::Tuple || e->kind == ExprKind::List) && e->kids.size() == all.size();
        if (same && !one && a.values.size() == all.size()) found.push_back(e);
        else if (same && written && e->kids[position]->kind != ExprKind::Starred) found.push_back(e->kids[position]);
      }
      if (one && value.kind == Binding::Mapping)
        for (const auto& [name, item] : value.items)
          if (item.kind == Binding::Int && item.integer == a.values[0])
            for (const auto& arg : m.construct_call->args)
              if (arg.keyword == name) found.push_back(arg.value);
    }
    return found.size() == 1 && ctx_.editable(m.construct_frame, found[0]) ? found[0] : nullptr;
  }

  /// A group norm whose parameters are cut: shard_module divides its number of groups, too.
  bool groups_follow(const Op& op) const {
    if (op.module < 0 || !ctx_.made(op.module).builtin || ctx_.index.direct(op) || op.name != "torch.nn.functional.group_norm")
      return false;
    const auto& params = ctx_.trace.module(op.module).params;
    return std::any_of(params.begin(), params.end(), [&](const auto& p) { return p.tensor >= 0 && ctx_.axis_of(p.tensor) >= 0; });
  }

  void size(const Op& op, const model::SizeArg& given) {
    if (op.outputs.empty()) return;
    model::SizeArg a = given;
    if (!a.expr && groups_follow(op)) return;
    if (!a.expr) a.expr = constructor_expr(op, given);
    TensorId out = op.outputs[0];
    const auto& full = ctx_.trace.tensor(out).shape;
    std::vector<std::int64_t> local = ctx_.result.local_shape(ctx_.trace, out);
    // A created tensor that is sliced afterwards is created whole; one whose values are all alike at the local size instead.
    if (auto it = sliced_.find(op.id); it != sliced_.end() && !it->second->c.fill) local = full;
    auto syms = a.syms;
    syms.resize(a.values.size(), nullptr);
    std::vector<std::int64_t> needed;
    using Role = model::SizeArg;
    switch (a.role) {
      case Role::Dim:
      case Role::Shape:
      case Role::Factor: {
        // Lengths that only name dimensions of the operand (nothing is decomposed by them) are its sizes.
        bool of_operand = a.role == Role::Factor && op.prim != model::Prim::Reshape && !op.inputs.empty() &&
            full.size() <= ctx_.trace.tensor(op.inputs[0].tensor).shape.size();
        const auto& whole = of_operand ? ctx_.trace.tensor(op.inputs[0].tensor).shape : full;
        if (of_operand) local = ctx_.result.local_shape(ctx_.trace, op.inputs[0].tensor);
        for (std::size_t i = 0; i < a.values.size(); ++i) {
          auto d = static_cast<std::size_t>(a.dim) + i;
          // A number that is not the dimension's size (how often something is repeated) stays as it is.
          bool is_size = d < local.size() && (a.values[i] == whole[d] || a.values[i] == -1);
          needed.push_back(is_size ? local[d] : a.values[i]);
        }
        break;
      }
      case Role::SplitSize: {
        // Pieces given one by one say which piece they are; a common size is that of the first.
        auto piece = op.size_args.size() > 1 && static_cast<std::size_t>(a.dim) < op.outputs.size() ? static_cast<std::size_t>(a.dim) : 0;
        needed.push_back(ctx_.local_size(op.outputs[piece], op.dim));
        break;
      }
      case Role::SplitSizes:
        for (std::size_t i = 0; i < a.values.size(); ++i)
          needed.push_back(i < op.outputs.size() ? ctx_.local_size(op.outputs[i], op.dim) : a.values[i]);
        break;
      case Role::PieceStart:
      case Role::PieceStop: {
        const auto end = static_cast<std::size_t>(a.dim) + (a.role == Role::PieceStop ? 1 : 0);
        std::int64_t at = 0;
        for (std::size_t k = 0; k < end && k < op.outputs.size(); ++k) at += ctx_.local_size(op.outputs[k], op.dim);
        if (!a.values.empty() && a.values[0] < 0) at -= ctx_.local_size(op.inputs[0].tensor, op.dim);
        needed.push_back(at);
        break;
      }
    }
    if (a.values.empty()) return;
    bool several = a.role == Role::Shape || a.role == Role::SplitSizes;
    if (several) return shape(op, a.expr, a.values, syms, needed, 0, a.values.size(), a.role == Role::SplitSizes);
    Fit f = fit(a.values[0], syms[0], needed[0]);
    int ax = axis_near(op, syms);
    if (a.expr) apply(op, a.expr, f, syms[0], ax, a.values[0], needed[0]);
    else if (f != Fit::Keep && starred(op, a, f, ax, needed[0])) return;
    else if (f != Fit::Keep && !(op.module >= 0 && layers_.of(op.module).form != LayerPlan::None))
      bad(op, nullptr, ax, a.values[0], needed[0]);
  }

  struct Edit {
    const Expr* at;
    Range range;
  };

  /// Dimensions in a value that are local where the full size is meant.
  void local_dims(const Sym* s, std::vector<const Sym*>& out) const {
    if (!s) return;
    if (s->kind == Sym::Dim && static_cast<double>(ctx_.local_size(s->tensor, s->dim)) != s->value) out.push_back(s);
    local_dims(s->a, out);
    local_dims(s->b, out);
  }

  static bool same_dim(const Sym* a, const Sym* b) {
    return a && b && a->kind == Sym::Dim && b->kind == Sym::Dim && a->tensor == b->tensor && a->dim == b->dim;
  }

  bool mentions(const Sym* s, const Sym* dim) const { return s && (same_dim(s, dim) || mentions(s->a, dim) || mentions(s->b, dim)); }

  bool sets_a_size(FrameId frame, const std::string& name) const {
    for (const auto& op : ctx_.trace.ops) {
      if (op.frame != frame) continue;
      for (const auto& a : op.size_args) {
        bool found = false;
        if (a.expr) names(a.expr, [&](const Expr* n) { found = found || n->text == name; });
        if (found) return true;
      }
    }
    return false;
  }

  template <class F>
  static void names(const Expr* e, F f) {
    if (!e) return;
    if (e->kind == ExprKind::Name) f(e);
    for (const Expr* k : e->kids) names(k, f);
    for (const auto& a : e->args) names(a.value, f);
  }

  /// The expression in `e` whose value is the size: x.size(1) itself, or the subscript of x.shape that takes this dimension.
  const Expr* size_read(const Expr* e, const Sym* dim) const {
    if (!e) return nullptr;
    if (e->kind == ExprKind::Subscript && e->kids[0]->range == dim->read) {
      const Expr* i = e->kids[1];
      auto rank = static_cast<std::int64_t>(ctx_.trace.tensor(dim->tensor).shape.size());
      bool negative = i->kind == ExprKind::Unary && i->text == "-" && i->kids[0]->kind == ExprKind::Int;
      if (i->kind != ExprKind::Int && !negative) return nullptr;
      std::int64_t at = negative ? rank - i->kids[0]->integer : i->integer;
      return (at < 0 ? at + rank : at) == dim->dim ? e : nullptr;
    }
    // `q.shape` alone is all sizes; a call with the dimension is one.
    if (e->range == dim->read) return e->kind == ExprKind::Call && !e->args.empty() ? e : nullptr;
    for (const Expr* k : e->kids)
      if (k && k->range.contains(dim->read)) return size_read(k, dim);
    for (const auto& a : e->args)
      if (a.value && a.value->range.contains(dim->read)) return size_read(a.value, dim);
    return nullptr;
  }

  /// Where `* tp_size()` has to be written so that `e` has its full value again: at the reads of local sizes in it, at the
  /// variables that hold them, or in the assignments of the variables that were computed from them. False: no such places.
  bool full_reads(FrameId frame, const Expr* e, const Sym* s, model::Clock clock, std::vector<Edit>& edits, int depth = 0) const {
    std::vector<const Sym*> dims;
    local_dims(s, dims);
    if (dims.empty()) return true;
    if (depth > 8 || !ctx_.editable(frame, e)) return false;
    for (const Sym* d : dims) {
      if (static_cast<double>(ctx_.local_size(d->tensor, d->dim)) * ctx_.tp != d->value) return false;
      if (e->range.contains(d->read)) {
        const Expr* read = size_read(e, d);
        if (!read) return false;
        edits.push_back({read, read->outer});
        continue;
      }
      bool found = false, ok = true;
      names(e, [&](const Expr* n) {
        const auto* w = ctx_.index.variable(frame, n->text, clock);
        if (!ok || !w || !mentions(w->value.sym, d)) return;
        found = true;
        if (same_dim(w->value.sym, d)) {
          edits.push_back({n, n->outer});
          return;
        }
        // Computed from it: the place is in the variable's assignment, if nothing else takes it for a local size.
        const Stmt* st = w->step >= 0 ? ctx_.trace.step(w->step).stmt : nullptr;
        bool assigned =
            st && st->kind == StmtKind::Assign && st->targets.size() == 1 && st->targets[0]->kind == ExprKind::Name && st->value;
        ok = assigned && !sets_a_size(frame, n->text) && full_reads(frame, st->value, w->value.sym, w->clock, edits, depth + 1);
      });
      if (!found || !ok) return false;
    }
    return true;
  }

  void scalar(const Op& op, const model::ScalarArg& a) {
    if (!a.sym) return;
    auto have = ctx_.local(a.sym);
    FrameId frame = a.expr ? frame_of(op, a.expr) : -1;
    if (have && *have == a.value && holds_there(Fit::Keep, a.sym, 1)) {
      if (frame >= 0) ctx_.keep(frame, a.expr, a.expr->outer, Purpose::Size);
      return;
    }
    int axis = ctx_.axis_in(a.sym);
    if (frame >= 0 && have && *have * ctx_.tp == a.value && holds_there(Fit::Multiply, a.sym, 1)) {
      bool parens = binds_looser_than_product(a.expr);
      ctx_.wrap(frame, a.expr, Purpose::Size, parens ? "((" : "(", std::string(parens ? ")" : "") + " * tp_size())", {"tp_size"}, axis,
                "a value computed from the full size");
      return;
    }
    std::vector<Edit> edits;
    if (frame >= 0 && full_reads(frame, a.expr, a.sym, op.clock, edits)) {
      for (const auto& e : edits) {
        Verdict v;
        v.kind = Verdict::Wrap;
        v.frame = frame;
        v.range = e.range;
        v.prefix = "(";
        v.suffix = " * tp_size())";
        v.imports = {"tp_size"};
        v.axis = axis;
        v.why = "a value computed from the full size";
        ctx_.decide(e.at, Purpose::Size, v);
      }
      return;
    }
    ctx_.refuse(axis,
                a.expr        ? a.expr->range
                    : op.site ? op.site->range
                              : Range{},
                fmt::format("a number computed from the size of {} enters the computation and would be another one on each rank",
                            ctx_.axis_name(axis)));
  }

  static std::optional<bool> decide(const std::string& op, double a, double b) {
    if (op == "==" || op == "is") return a == b;
    if (op == "!=" || op == "is not") return a != b;
    if (op == "<") return a < b;
    if (op == "<=") return a <= b;
    if (op == ">") return a > b;
    if (op == ">=") return a >= b;
    if (op == "bool" || op == "truth") return a != 0;
    if (op == "not") return a == 0;
    return std::nullopt;
  }

  /// x.size() != (b, heads, n, n): the tuple's element for the dimension that is local becomes local.
  bool whole_shape(const model::Guard& g, const Expr* compare, FrameId frame, int axis) {
    if (compare->kids.size() != 2 || !ctx_.editable(frame, compare)) return false;
    for (int side = 0; side < 2; ++side) {
      const Sym* dim = side ? g.b : g.a;
      const Expr* tuple = compare->kids[side ? 0 : 1];
      if (!dim || dim->kind != Sym::Dim || (tuple->kind != ExprKind::Tuple && tuple->kind != ExprKind::List)) continue;
      if (tuple->kids.size() != ctx_.trace.tensor(dim->tensor).shape.size()) continue;
      const Expr* e = tuple->kids[static_cast<std::size_t>(dim->dim)];
      auto other = side ? g.a : g.b;
      double value = side ? g.a_value : g.b_value;
      if (other && ctx_.local(other) != value) continue;
      if (e->kind == ExprKind::Starred || static_cast<double>(ctx_.local_size(dim->tensor, dim->dim)) * ctx_.tp != value) continue;
      bool parens = binds_looser_than_product(e);
      return ctx_.wrap(frame, e, Purpose::Size, parens ? "(" : "", std::string(parens ? ")" : "") + " // tp_size()", {"tp_size"}, axis,
                       "compared with a local size");
    }
    return false;
  }

  void guard(const model::Guard& g) {
    auto a = g.a ? ctx_.local(g.a) : std::optional<double>(g.a_value);
    auto b = g.b ? ctx_.local(g.b) : std::optional<double>(g.b_value);
    if (a && b && *a == g.a_value && *b == g.b_value) return;
    FrameId frame = ctx_.index.frame_at(g.clock);
    if (frame < 0 || ctx_.trace.frame(frame).builtin) return;  // layers of ours are replaced or see what they saw
    if (a && b) {
      auto now = decide(g.op, *a, *b);
      if (now && *now == g.taken) return;
    }
    int axis = ctx_.axis_in(g.a) >= 0 ? ctx_.axis_in(g.a) : ctx_.axis_in(g.b);
    const Expr* compare = ctx_.index.compare_at(g.range);
    auto inside = ctx_.index.compares_in(g.range);  // the place may be the whole statement
    if (!compare && inside.size() == 1) compare = inside[0];
    for (const Expr* c : inside)
      if (whole_shape(g, c, frame, axis)) return;
    if (compare && compare->kids.size() == 2 && ctx_.editable(frame, compare)) {
      // The comparison is about full sizes: say so on the side that is local.
      bool possible = true;
      for (int side = 0; side < 2; ++side) {
        const auto& v = side ? b : a;
        double value = side ? g.b_value : g.a_value;
        possible = possible && v && (*v == value || *v * ctx_.tp == value);
      }
      if (possible) {
        for (int side = 0; side < 2; ++side) {
          const Expr* k = compare->kids[static_cast<std::size_t>(side)];
          if ((side ? *b : *a) == (side ? g.b_value : g.a_value)) continue;
          bool parens = binds_looser_than_product(k);
          ctx_.wrap(frame, k, Purpose::Size, parens ? "(" : "", std::string(parens ? ")" : "") + " * tp_size()", {"tp_size"}, axis,
                    "the comparison is about the full size");
        }
        return;
      }
    }
    ctx_.refuse(axis, g.range,
                fmt::format("this decision depends on the size of {} and would go the other way on each rank", ctx_.axis_name(axis)));
  }

  /// Sizes read from cut parameters and given to constructors of built-in layers have to be the full ones.
  void constructor(const model::Module& m) {
    if (!m.builtin) return;
    for (std::size_t i = 0; i < m.ctor_args.size(); ++i) {
      const auto& value = m.ctor_args[i].second;
      if (!value.sym) continue;
      auto have = ctx_.local(value.sym);
      double full = value.kind == Binding::Float ? value.number : static_cast<double>(value.integer);
      if (have && *have == full) continue;
      int axis = ctx_.axis_in(value.sym);
      const Expr* e = i < m.ctor_exprs.size() ? m.ctor_exprs[i] : nullptr;
      if (e && ctx_.editable(m.construct_frame, e) && have && *have * ctx_.tp == full) {
        bool parens = binds_looser_than_product(e);
        ctx_.wrap(m.construct_frame, e, Purpose::Size, parens ? "(" : "", std::string(parens ? ")" : "") + " * tp_size()", {"tp_size"},
                  axis, "constructors take full sizes");
      } else {
        ctx_.refuse(axis, e ? e->range : Range{}, fmt::format("{} is built with a size read from a parameter that is cut", m.fqn));
      }
    }
  }

  Context& ctx_;
  Layers& layers_;
  std::map<OpId, const Need*> sliced_;
};

}  // namespace

void emit_sizes(Context& ctx, Layers& layers, const std::vector<Need>& needs) { Sizes(ctx, layers, needs).run(); }

}  // namespace shardwright::rewrite::tp
