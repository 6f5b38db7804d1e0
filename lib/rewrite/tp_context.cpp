#include "rewrite/tp_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace shardwright::rewrite::tp {

namespace {

using sharding::Term;

bool carries(const Term& t, int axis) {
  if (t.axis == axis && t.segments.empty()) return true;
  for (const auto& s : t.segments)
    for (const auto& k : s)
      if (carries(k, axis)) return true;
  return false;
}

std::int64_t size_of(const std::vector<Term>& product) {
  std::int64_t n = 1;
  for (const auto& t : product) n *= t.size;
  return n;
}

/// outer × axis × inner of a product whose terms are leaves; false when the axis is inside a concatenation or occurs twice.
bool split_at(const std::vector<Term>& product, int axis, std::int64_t& outer, std::int64_t& size, std::int64_t& inner) {
  bool found = false;
  outer = inner = size = 1;
  for (const auto& t : product) {
    if (!t.segments.empty() && carries(t, axis)) return false;
    if (t.segments.empty() && t.axis == axis) {
      if (found) return false;
      found = true;
      size = t.size;
    } else {
      (found ? inner : outer) *= t.size;
    }
  }
  return found;
}

}  // namespace

std::string Layout::factors() const { return outer == 1 ? "None" : std::to_string(outer); }

std::string Layout::segment_list() const {
  std::string s;
  for (const auto& g : segments) {
    if (!s.empty()) s += ", ";
    s += g.outer == 1 ? std::to_string(g.rows) : fmt::format("({}, {})", g.rows, g.outer);
  }
  return "[" + s + "]";
}

std::string Layout::keywords(bool with_dim) const {
  std::string s = with_dim ? fmt::format(", dim={}", dim) : "";
  if (!segments.empty()) return s + ", segments=" + segment_list();
  return outer == 1 ? s : s + ", factors=" + factors();
}

std::string Layout::as_value() const {
  if (!segments.empty()) return fmt::format("{{'dim': {}, 'segments': {}}}", dim, segment_list());
  return fmt::format("({}, {})", dim, factors());
}

std::string Layout::as_sizes() const { return outer == 1 ? fmt::format(", {}", dim) : fmt::format(", {}, ({}, 0)", dim, outer); }

std::int64_t Context::local_size(TensorId t, int dim) const {
  auto shape = result.local_shape(trace, t);
  return dim >= 0 && static_cast<std::size_t>(dim) < shape.size() ? shape[static_cast<std::size_t>(dim)] : 1;
}

Layout Context::layout(TensorId t) const { return layout(t, result.sharded_dim(t), axis_of(t)); }

Layout Context::layout(TensorId t, int dim, int axis) const {
  Layout l;
  l.axis_id = axis;
  l.dim = dim;
  if (l.axis_id < 0 || l.dim < 0 || static_cast<std::size_t>(t) >= result.tensors.size()) return l;
  const auto& dims = result.tensors[static_cast<std::size_t>(t)];
  if (static_cast<std::size_t>(l.dim) >= dims.size()) return l;
  const auto& product = dims[static_cast<std::size_t>(l.dim)];
  if (split_at(product, l.axis_id, l.outer, l.axis, l.inner)) return l;
  // The axis is inside a concatenation. Factors beside it may only be ones.
  const Term* cat = nullptr;
  for (const auto& term : product) {
    if (carries(term, l.axis_id)) {
      if (cat) l.expressible = false;
      cat = &term;
    } else if (term.size != 1) {
      l.expressible = false;
    }
  }
  if (!cat || !l.expressible) {
    l.expressible = false;
    return l;
  }
  for (const auto& s : cat->segments) {
    Layout::Segment g;
    g.rows = size_of(s);
    for (const auto& k : s) g.carries = g.carries || carries(k, l.axis_id);
    // A part without the axis would have to stay whole beside cut ones.
    if (!g.carries || !split_at(s, l.axis_id, g.outer, g.axis, g.inner)) l.expressible = false;
    l.segments.push_back(g);
  }
  // Equal segments are an outer factor: [q | k | v] is (3, heads, width).
  bool alike = l.expressible && !l.segments.empty();
  for (const auto& g : l.segments) {
    const auto& f = l.segments.front();
    alike = alike && g.carries && g.outer == f.outer && g.axis == f.axis && g.inner == f.inner;
  }
  // (a, H, d) pieces one after the other are (n·a, H, d) only when they are cut alike, which `alike` says.
  if (alike) {
    l.outer = static_cast<std::int64_t>(l.segments.size()) * l.segments.front().outer;
    l.axis = l.segments.front().axis;
    l.inner = l.segments.front().inner;
    l.segments.clear();
  }
  return l;
}

namespace {

/// Value of a Sym whose sizes of tensors are what `size` says. `again`: a computation that is not known by its operator is only
/// the same when nothing in it changes.
template <class Size, class Settled>
std::optional<double> value_of(const Sym* s, const Size& size, const Settled& settled, bool again) {
  if (!s) return std::nullopt;
  if (auto v = settled(s)) return v;
  auto of = [&](const Sym* k) { return value_of(k, size, settled, again); };
  auto binary = [&](auto f) -> std::optional<double> {
    auto a = of(s->a), b = of(s->b);
    if (!a || !b) return std::nullopt;
    return f(*a, *b);
  };
  switch (s->kind) {
    case Sym::Const: return s->value;
    case Sym::Dim: return size(s->tensor, s->dim);
    case Sym::Add: return binary([](double a, double b) { return a + b; });
    case Sym::Sub: return binary([](double a, double b) { return a - b; });
    case Sym::Mul: return binary([](double a, double b) { return a * b; });
    case Sym::TrueDiv: return binary([](double a, double b) { return a / b; });
    case Sym::FloorDiv: return binary([](double a, double b) { return std::floor(a / b); });
    case Sym::Mod: return binary([](double a, double b) { return a - std::floor(a / b) * b; });
    case Sym::Pow: return binary([](double a, double b) { return std::pow(a, b); });
    case Sym::Min: return binary([](double a, double b) { return std::min(a, b); });
    case Sym::Max: return binary([](double a, double b) { return std::max(a, b); });
    case Sym::Neg: {
      auto a = of(s->a);
      return a ? std::optional<double>(-*a) : std::nullopt;
    }
    case Sym::Other: break;
  }
  if (!again) return std::nullopt;
  for (const Sym* k : {s->a, s->b}) {
    if (!k) continue;
    auto v = of(k);
    if (!v || *v != k->value) return std::nullopt;
  }
  return s->value;
}

double dimension(const std::vector<std::int64_t>& shape, int dim) {
  return dim >= 0 && static_cast<std::size_t>(dim) < shape.size() ? static_cast<double>(shape[static_cast<std::size_t>(dim)]) : 1;
}

}  // namespace

std::optional<double> Context::local(const Sym* s) const {
  return value_of(
      s, [&](TensorId t, int dim) { return dimension(result.local_shape(trace, t), dim); },
      [&](const Sym* k) { return settled.count(k) ? std::optional<double>(k->value) : std::nullopt; }, true);
}

std::optional<double> Context::full_there(const Sym* s) const {
  if (!other) return std::nullopt;
  return value_of(
      s, [&](TensorId t, int dim) { return dimension(other->tensor(t).shape, dim); }, [](const Sym*) { return std::optional<double>(); },
      false);
}

std::optional<double> Context::local_there(const Sym* s) const {
  if (!other) return std::nullopt;
  return value_of(
      s, [&](TensorId t, int dim) { return dimension(result.local_shape(*other, t), dim); },
      [&](const Sym* k) { return settled.count(k) ? full_there(k) : std::nullopt; }, false);
}

int Context::axis_in(const Sym* s) const {
  if (!s) return -1;
  if (s->kind == Sym::Dim) return result.sharded_dim(s->tensor) == s->dim ? axis_of(s->tensor) : -1;
  int a = axis_in(s->a);
  return a >= 0 ? a : axis_in(s->b);
}

std::string Context::axis_name(int axis) const {
  if (axis < 0 || static_cast<std::size_t>(axis) >= result.axes.size()) return "a size";
  const auto& a = result.axes[static_cast<std::size_t>(axis)];
  std::string of = a.parameters.empty() ? "" : " of " + trace.tensor(a.parameters.front()).name;
  return fmt::format("the axis of size {}{}", a.size, of);
}

bool Context::editable(FrameId frame, const Expr* e) const {
  if (frame < 0 || !e) return false;
  const auto& f = trace.frame(frame);
  return !f.builtin && f.function && f.function->range.contains(e->range) && index.info(e);
}

bool Context::untyped(const model::Module& m) const {
  if (m.parent < 0 || !m.construct_call) return false;
  const std::string& type = trace.module(m.parent).type;
  const ExprInfo* info = index.info(m.construct_call);
  return type.size() >= 10 && type.compare(type.size() - 10, 10, "Sequential") == 0 && info && info->parent &&
      info->parent->kind == ExprKind::Call;
}

bool Context::decide(const Expr* at, Purpose purpose, Verdict v) {
  Key key{v.frame, v.range.file, v.range.begin, v.range.end, purpose};
  const auto* info = index.info(at);
  auto [it, fresh] = decisions_.try_emplace(key, Decision{v, info ? info->stmt : nullptr});
  if (fresh) return true;
  const auto& old = it->second.verdict;
  if (old && old->kind == v.kind && old->text == v.text && old->prefix == v.prefix && old->suffix == v.suffix) return true;
  refuse(v.axis, v.range,
         fmt::format("this place is executed several times in one call and {} needs different text each time ({} / {})", axis_name(v.axis),
                     v.why, old ? old->why : "unchanged"));
  return false;
}

bool Context::keep(FrameId frame, const Expr* at, Range range, Purpose purpose) {
  const auto* info = index.info(at);
  auto [it, fresh] =
      decisions_.try_emplace(Key{frame, range.file, range.begin, range.end, purpose}, Decision{std::nullopt, info ? info->stmt : nullptr});
  if (fresh || !it->second.verdict) return true;
  refuse(it->second.verdict->axis, range,
         fmt::format("this place is executed several times in one call and only some times {} is split there",
                     axis_name(it->second.verdict->axis)));
  return false;
}

void Context::refuse(int axis, Range where, std::string message) {
  for (const auto& r : out.refusals)
    if (r.axis == axis && r.where == where && r.message == message) return;
  refused_.insert(axis);
  out.refusals.push_back({axis, where, std::move(message)});
}

bool Context::wrap(FrameId frame, const Expr* e, Purpose purpose, std::string prefix, std::string suffix, std::vector<std::string> imports,
                   int axis, std::string why) {
  Verdict v;
  v.kind = Verdict::Wrap;
  v.frame = frame;
  v.range = e->outer;
  v.prefix = std::move(prefix);
  v.suffix = std::move(suffix);
  v.imports = std::move(imports);
  v.axis = axis;
  v.why = std::move(why);
  return decide(e, purpose, std::move(v));
}

bool Context::hand_over(FrameId frame, const Expr* call, const std::string& function, int axis, std::string why) {
  const Expr* callee = call->kids[0];
  const auto& file = sources.file(call->range.file);
  auto paren = file.text.find('(', callee->outer.end);
  if (paren == std::string::npos || paren >= call->range.end) return false;
  Verdict v;
  v.kind = Verdict::Wrap;
  v.frame = frame;
  v.range = callee->outer;
  v.prefix = function + "(";
  v.imports = {function};
  v.axis = axis;
  v.why = why;
  bool ok = decide(call, Purpose::Callee, v);
  Verdict comma;
  comma.kind = Verdict::Replace;
  comma.frame = frame;
  comma.range = {call->range.file, callee->outer.end, static_cast<std::uint32_t>(paren + 1)};
  comma.text = ", ";
  comma.axis = axis;
  comma.why = std::move(why);
  return decide(call, Purpose::Callee, std::move(comma)) && ok;
}

void Context::finish() {
  struct Place {
    const Stmt* stmt = nullptr;
    std::vector<std::pair<Purpose, const Verdict*>> edits;
  };
  std::map<std::tuple<FrameId, support::FileId, std::uint32_t, std::uint32_t>, Place> places;
  std::map<std::tuple<const Function*, support::FileId, std::uint32_t, std::uint32_t>, const Stmt*> edited;
  for (const auto& [key, d] : decisions_) {
    if (!d.verdict || d.verdict->kind == Verdict::Keep) continue;
    auto& p = places[{key.frame, key.file, key.begin, key.end}];
    p.stmt = d.stmt;
    p.edits.emplace_back(key.purpose, &*d.verdict);
    edited[{trace.frame(key.frame).function, key.file, key.begin, key.end}] = d.stmt;
  }
  for (auto& [where, p] : places) {
    // Wraps of one range, and a replacement of it, become one verdict; inner purposes first (the map's order).
    std::optional<Verdict> merged;
    for (const auto& [purpose, v] : p.edits) {
      bool joins = v->kind == Verdict::Wrap || v->kind == Verdict::Replace;
      if (!joins) {
        out.verdicts.push_back(*v);
        continue;
      }
      if (!merged) {
        merged = *v;
        continue;
      }
      if (merged->kind == Verdict::Replace) {
        merged->text = v->prefix + merged->text + v->suffix;
      } else {
        merged->prefix = v->prefix + merged->prefix;
        merged->suffix += v->suffix;
      }
      merged->imports.insert(merged->imports.end(), v->imports.begin(), v->imports.end());
      if (!v->why.empty()) merged->why += (merged->why.empty() ? "" : "; ") + v->why;
    }
    if (merged) out.verdicts.push_back(*merged);
  }
  // Frames that ran an edited place without an edit of their own.
  for (const auto& [where, stmt] : edited) {
    const auto& [function, file, begin, end] = where;
    for (FrameId f : index.frames_of(function)) {
      if (trace.frame(f).builtin || places.count({f, file, begin, end}) || !index.executed(f, stmt)) continue;
      Verdict v;
      v.frame = f;
      v.range = {file, begin, end};
      out.verdicts.push_back(v);
    }
  }
  out.verdicts.insert(out.verdicts.end(), parameters_.begin(), parameters_.end());
  std::stable_sort(out.verdicts.begin(), out.verdicts.end(), [](const Verdict& a, const Verdict& b) {
    return std::tuple(a.frame, a.range.file, a.range.begin, b.range.end) < std::tuple(b.frame, b.range.file, b.range.begin, a.range.end);
  });
}

bool binds_looser_than_product(const Expr* e) {
  if (!(e->outer == e->range)) return false;  // has parentheses already
  switch (e->kind) {
    case ExprKind::Conditional:
    case ExprKind::BoolOp:
    case ExprKind::Compare:
    case ExprKind::Lambda:
    case ExprKind::Walrus:
    case ExprKind::Starred:
    case ExprKind::Await:
    case ExprKind::Yield:
    case ExprKind::YieldFrom: return true;
    case ExprKind::Unary: return e->text == "not";
    case ExprKind::Binary:
      return e->text == "+" || e->text == "-" || e->text == "<<" || e->text == ">>" || e->text == "&" || e->text == "|" || e->text == "^";
    default: return false;
  }
}

}  // namespace shardwright::rewrite::tp
