// What crosses a cut: tensors, and containers and sizes made of them. See stage_provide.h.
#include <fmt/format.h>

#include <algorithm>

#include "program/visit.h"
#include "python/identifiers.h"
#include "rewrite/stage_provide.h"

namespace shardwright::rewrite::stage {

namespace {

bool metadata_method(const std::string& m) {
  return m == "size" || m == "dim" || m == "ndimension" || m == "new_zeros" || m == "new_ones" || m == "new_full" || m == "new_empty" ||
      m == "new_tensor";
}
bool metadata_attribute(const std::string& m) {
  return m == "shape" || m == "device" || m == "dtype" || m == "ndim" || m == "is_cuda" || metadata_method(m);
}

std::string singular(const std::string& s) {
  if (s.size() > 2 && s.back() == 's' && s[s.size() - 2] != 's') return s.substr(0, s.size() - 1);
  return s;
}

}  // namespace

void Resolver::tensors(std::size_t l) {
  const Boundary& b = at(l);
  for (const Temp& t : b.temps) {
    const auto v = c_.facts.value(b.frame, t.expr, b.step);
    if (!v) return fail("the value of `" + c_.text(t.expr->range) + "` cannot be followed");
    if (!carry_value(l, t.name, t.name, *v)) return;
    state_[l].top[t.name] = -2;  // no version of a variable
  }
  if (!b.value_name.empty()) {
    std::optional<Binding> v;
    if (b.at == At::AfterCall) v = c_.facts.value(b.frame, b.call, b.step);
    if (b.at == At::Container) v = between_children();
    if (!v) return fail("the value of `" + c_.text(b.call->range) + "` at the cut cannot be followed");
    if (!carry_value(l, b.value_name, b.value_name, *v)) return;
    state_[l].top[b.value_name] = -2;
  }
  // What is made again comes last: it may ask what crosses for sizes.
  std::vector<std::string> names = ordered(l);
  std::stable_partition(names.begin(), names.end(), [&](const std::string& name) {
    const auto v = c_.facts.contents(frame(l), name, clock_);
    const auto tensors = v ? model::tensors_of(*v) : std::vector<TensorId>{};
    return tensors.empty() || std::any_of(tensors.begin(), tensors.end(), [&](TensorId t) { return recompute_.count(t) == 0; });
  });
  for (const auto& name : names) {
    const int w = current(l, name);
    if (w < 0 || is_self(l, name) || state_[l].top.count(name)) continue;
    if (is_temp(l, name)) continue;
    const auto v = c_.facts.contents(frame(l), name, clock_);
    if (!v) {
      fail("what variable `" + name + "` holds at the cut cannot be followed");
      return;
    }
    if (is_iterator(*v)) {
      fail("variable `" + name + "` holds an iterator, which cannot be sent");
      return;
    }
    if (!c_.facts.flows(*v)) continue;
    carry(l, name, w, *v);
    if (!error_.empty()) return;
  }
}

bool Resolver::is_temp(std::size_t l, const std::string& name) const {
  const Boundary& b = at(l);
  if (name == b.value_name) return true;
  for (const Temp& t : b.temps)
    if (t.name == name) return true;
  return false;
}

std::optional<Binding> Resolver::between_children() const {
  for (const auto& call : c_.trace.calls)
    if (call.begin >= clock_ && call.caller >= 0 && c_.trace.frame(call.caller).builtin && !call.arguments.empty() &&
        c_.trace.frame(call.caller).begin < clock_)
      return call.arguments[0];
  return std::nullopt;
}

void Resolver::carry(std::size_t l, const std::string& name, int w, const Binding& v) {
  if (state_[l].by_statement.count(w)) return;
  if (c_.facts.at_entry(w)) {
    if (l == 0 && changed_input(name, w)) {
      if (carry_value(l, name, name, v)) state_[l].top[name] = w;
      return;
    }
    if (l == 0) {
      input(name, w);
      return;
    }
    const Boundary& outer = at(l - 1);
    const ArgumentAt a = argument(c_.trace, frame(l), name);
    if (!outer.through_container && a.expr && a.expr->kind == ExprKind::Name && !is_temp(l - 1, a.expr->text)) {
      const int ow = current(l - 1, a.expr->text);
      if (ow >= 0) {
        const auto ov = c_.facts.contents(frame(l - 1), a.expr->text, clock_);
        if (ov && !state_[l - 1].top.count(a.expr->text)) carry(l - 1, a.expr->text, ow, *ov);
        if (!error_.empty()) return;
        state_[l].passed.push_back({name, a.expr, a.keyword});
        state_[l].top[name] = w;
        return;
      }
    }
  }
  // y = x, or something the partition found cheap to compute again.
  if (write(w).step >= 0) {
    const auto& step = c_.trace.step(write(w).step);
    bool again = step.stmt->kind == StmtKind::Assign;
    bool listed = false;
    const auto [a, b] = c_.facts.ops_between(step.begin, step.end);
    for (std::size_t i = a; i < b; ++i)
      for (const TensorId o : c_.trace.ops[i].outputs) {
        // A part of what is made again, `mask.float()` of `mask.float().unsqueeze(-1)`, is gone at the cut, so the partition does not list
        // it.
        again &= recompute_.count(o) != 0 || !c_.facts.flows(o) || !c_.facts.used_after(o, step.end);
        listed = true;
      }
    const bool alias = step.stmt->kind == StmtKind::Assign && step.stmt->value->kind == ExprKind::Name;
    if (again && (alias || listed) &&
        (attempt([&] { return by_statement(l, w, true, true); }) || attempt([&] { return early(l, w, true); })))
      return;
  }
  if (carry_value(l, name, name, v)) state_[l].top[name] = w;
}

bool Resolver::carry_value(std::size_t l, const std::string& name, const std::string& produce, const Binding& v) {
  if (v.kind == Binding::Tensor) {
    for (const Slot& s : state_[l].own)
      if (s.tensor == v.tensor) {
        state_[l].lines.emplace_back(name, s.name);
        state_[l].top[name] = -1;
        return true;
      }
    state_[l].own.push_back({name, produce, name, v.tensor});
    if (!state_[l].top.count(name)) state_[l].top[name] = -1;
    return true;
  }
  int n = 0;
  const auto text = rebuild(l, name, singular(name), produce, v, n);
  if (!text) {
    if (error_.empty()) fail("variable `" + name + "` holds " + (v.text.empty() ? "a value" : "`" + v.text + "`") + " that cannot be sent");
    return false;
  }
  state_[l].lines.emplace_back(name, *text);
  for (auto& x : fields_) state_[l].lines.push_back(std::move(x));
  fields_.clear();
  state_[l].top[name] = -1;
  return true;
}

std::optional<std::string> Resolver::rebuild(std::size_t l, const std::string& base, const std::string& stem, const std::string& produce,
                                             const Binding& v, int& n) {
  switch (v.kind) {
    case Binding::Tensor: {
      if (!c_.facts.used_after(v.tensor, clock_)) return "None";
      for (const Slot& s : state_[l].own)
        if (s.tensor == v.tensor) return s.name;
      std::string wish = stem;
      if (wish == base || !python::is_identifier(wish)) wish = base;
      std::set<std::string> taken;
      for (const Slot& s : state_[l].own) taken.insert(s.name);
      std::string name = fresh_name(
          c_, frame(l), python::is_identifier(stem) && stem != base ? (v_in_sequence_ ? stem + std::to_string(n) : stem) : "h", taken);
      ++n;
      state_[l].own.push_back({name, produce, base, v.tensor});
      return name;
    }
    case Binding::Sequence: {
      const bool named = v.text != "tuple" && v.text != "list";
      const std::string cls = v.text.substr(v.text.rfind('.') + 1);
      if (named && !names_class(l, cls)) {
        fail("variable `" + base + "` holds a named tuple of class `" + cls + "`, whose name is not known in " +
             c_.trace.frame(frame(l)).function->name);
        return std::nullopt;
      }
      std::vector<std::string> items;
      for (std::size_t i = 0; i < v.items.size(); ++i) {
        const bool before = v_in_sequence_;
        v_in_sequence_ = true;
        auto x = rebuild(l, base, stem, fmt::format("{}[{}]", produce, i), v.items[i].second, n);
        v_in_sequence_ = before;
        if (!x) return std::nullopt;
        items.push_back(*x);
      }
      if (named) return fmt::format("{}({})", cls, fmt::join(items, ", "));
      if (v.text == "list") return fmt::format("[{}]", fmt::join(items, ", "));
      return fmt::format("({}{})", fmt::join(items, ", "), items.size() == 1 ? "," : "");
    }
    case Binding::Mapping: {
      std::vector<std::string> items;
      // A class of the user's that is a dict as well is made by its constructor, as dataclasses are.
      const bool plain_dict = v.text == "dict" || v.text == "OrderedDict";
      if (!plain_dict && (!names_class(l, v.text) || !v.keys.empty())) {
        fail("variable `" + base + "` holds a " + v.text + ", which cannot be made again in " + c_.trace.frame(frame(l)).function->name);
        return std::nullopt;
      }
      for (std::size_t i = 0; i < v.items.size(); ++i) {
        const auto& [key, x] = v.items[i];
        const std::string written = v.keys.empty() ? python_string(key) : v.keys[i];
        if (written.empty()) return std::nullopt;
        auto y = rebuild(l, base, python::is_identifier(key) ? base + "_" + key : stem, fmt::format("{}[{}]", produce, written), x, n);
        if (!y) return std::nullopt;
        items.push_back(plain_dict ? written + ": " + *y : key + "=" + *y);
      }
      return plain_dict ? fmt::format("{{{}}}", fmt::join(items, ", ")) : fmt::format("{}({})", v.text, fmt::join(items, ", "));
    }
    case Binding::Object: return object(l, base, produce, v, n);
    default: return plain(l, v);
  }
}

bool Resolver::names_class(std::size_t l, const std::string& cls, const program::ClassDef** def) const {
  const Function* fn = c_.trace.frame(frame(l)).function;
  const program::Module* mod = fn->module ? fn->module : (fn->owner ? fn->owner->module : nullptr);
  bool named = false;
  if (mod)
    for (const Stmt* s : mod->body) {
      for (const auto& w : all_writes(s)) named |= w == cls;
      if (def && s->kind == StmtKind::ClassDef && s->class_def->name == cls) *def = s->class_def;
    }
  return named;
}

std::optional<std::string> Resolver::object(std::size_t l, const std::string& base, const std::string& produce, const Binding& v, int& n) {
  const std::string cls = v.text.substr(v.text.rfind('.') + 1);
  const program::ClassDef* def = nullptr;
  if (!names_class(l, cls, &def)) {
    fail("variable `" + base + "` holds an object of class `" + cls + "`, whose name is not known in " +
         c_.trace.frame(frame(l)).function->name);
    return std::nullopt;
  }
  std::vector<std::string> fields;
  for (const auto& [attr, x] : v.items) {
    const bool before = v_in_sequence_;
    v_in_sequence_ = false;
    auto y = rebuild(l, base, base + "_" + attr, produce + "." + attr, x, n);
    v_in_sequence_ = before;
    if (!y) {
      error_ = "variable `" + base + "` holds an object of class `" + cls + "` whose field `" + attr + "` cannot be sent";
      return std::nullopt;
    }
    fields.push_back(*y);
  }
  // The constructor does nothing but store its arguments under their own names?
  const Function* init = nullptr;
  if (def)
    for (const Stmt* s : def->body)
      if (s->kind == StmtKind::FunctionDef && s->function->name == "__init__") init = s->function;
  bool direct = init && init->parameters.size() == v.items.size() + 1;
  if (direct)
    for (const Stmt* s : init->body) {
      if (is_docstring(*init, s)) continue;
      direct &= s->kind == StmtKind::Assign && s->targets.size() == 1;
      if (!direct) break;
      auto pair = [&](const Expr* t, const Expr* x) {
        return t->kind == ExprKind::Attribute && t->kids[0]->kind == ExprKind::Name && x->kind == ExprKind::Name && t->text == x->text;
      };
      const Expr *t = s->targets[0], *x = s->value;
      if (t->kind == ExprKind::Tuple && x->kind == ExprKind::Tuple && t->kids.size() == x->kids.size()) {
        for (std::size_t i = 0; i < t->kids.size(); ++i) direct &= pair(t->kids[i], x->kids[i]);
      } else {
        direct &= pair(t, x);
      }
    }
  bool dataclass = false;
  if (def && !init && def->bases.empty())
    for (const Expr* d : def->decorators) {
      const auto p = program::dotted_path(d->kind == ExprKind::Call ? d->kids[0] : d);
      dataclass |= p && (*p == "dataclass" || *p == "dataclasses.dataclass");
    }
  if (dataclass)
    for (const Stmt* s : def->body) dataclass &= s->kind != StmtKind::FunctionDef || s->function->name != "__post_init__";
  if (direct || dataclass) {
    std::vector<std::string> args;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const bool positional = direct && i + 1 < init->parameters.size() && init->parameters[i + 1].name == v.items[i].first &&
          init->parameters[i + 1].kind == program::Parameter::Positional;
      args.push_back(positional ? fields[i] : v.items[i].first + "=" + fields[i]);
    }
    return fmt::format("{}({})", cls, fmt::join(args, ", "));
  }
  // Otherwise without its constructor; only as a whole variable.
  if (produce != base) return std::nullopt;
  for (std::size_t i = 0; i < fields.size(); ++i) fields_.emplace_back("." + base + "." + v.items[i].first, fields[i]);
  return fmt::format("{}.__new__({})", cls, cls);
}

std::optional<std::string> Resolver::plain(std::size_t l, const Binding& v) {
  if (v.sym && !c_.facts.dims.constant(v.sym)) {
    if (auto t = size_text(l, v.sym)) return t;
    if (!c_.facts.dims.fixed(v.sym)) return std::nullopt;
  }
  return literal(v);
}

std::vector<Resolver::AtHand> Resolver::at_hand(std::size_t l) const {
  std::vector<AtHand> out;
  if (l + 1 < lo_.levels.size()) {
    // What the inner frame carries has names of its own here; they are given in finish(). The level's own come first.
    for (const Slot& s : state_[l].own) out.push_back({s.name, s.tensor});
    std::set<std::string> mine = names_at(l);
    for (std::size_t k = l + 1; k < lo_.levels.size(); ++k)
      for (const Slot& s : state_[k].own)
        if (!mine.count(s.name) && name_free(l, s.name)) out.push_back({s.name, s.tensor});
  } else {
    for (const Slot& s : state_[l].own) out.push_back({s.name, s.tensor});
  }
  for (const auto& [name, w] : state_[l].top)
    if (w >= 0 && write(w).value.kind == Binding::Tensor) out.push_back({name, write(w).value.tensor});
  return out;
}

std::set<std::string> Resolver::names_at(std::size_t l) const {
  std::set<std::string> out(live_[l]);
  for (const auto& [n, w] : state_[l].top) out.insert(n);
  return out;
}

std::optional<std::string> Resolver::dim_text(std::size_t l, TensorId t, int d) const {
  if (t < 0 || d < 0) return std::nullopt;
  for (const AtHand& h : at_hand(l)) {
    const auto& shape = c_.trace.tensor(h.tensor).shape;
    for (int k = 0; k < static_cast<int>(shape.size()); ++k)
      if (c_.facts.dims.same(t, d, h.tensor, k)) return fmt::format("{}.shape[{}]", h.name, k);
  }
  return poly_text(l, c_.facts.dims.poly(t, d));
}

std::optional<std::string> Resolver::poly_text(std::size_t l, const Dims::Poly& want) const {
  const auto hands = at_hand(l);
  auto each = [&](auto f) -> std::optional<std::string> {
    for (const AtHand& h : hands)
      for (int k = 0; k < static_cast<int>(c_.trace.tensor(h.tensor).shape.size()); ++k) {
        const auto& have = c_.facts.dims.poly(h.tensor, k);
        if (Dims::constant(have)) continue;
        if (auto t = f(fmt::format("{}.shape[{}]", h.name, k), have)) return t;
      }
    return std::nullopt;
  };
  if (auto t = each([&](const std::string& x, const Dims::Poly& have) { return have == want ? std::optional(x) : std::nullopt; })) return t;
  if (auto t = each([&](const std::string& x, const Dims::Poly& have) -> std::optional<std::string> {
        Dims::Poly diff = want;
        for (const auto& [k, v] : have)
          if ((diff[k] -= v) == 0) diff.erase(k);
        if (!Dims::constant(diff) || diff.empty()) return std::nullopt;
        const double d = diff.begin()->second;
        return fmt::format("{} {} {}", x, d < 0 ? "-" : "+", static_cast<std::int64_t>(d < 0 ? -d : d));
      }))
    return t;
  return each([&](const std::string& x, const Dims::Poly& have) -> std::optional<std::string> {
    if (have.size() != want.size()) return std::nullopt;
    double ratio = 0;
    for (const auto& [k, v] : have) {
      const auto w = want.find(k);
      if (w == want.end() || (ratio != 0 && v / w->second != ratio)) return std::nullopt;
      ratio = v / w->second;
    }
    if (ratio > 1 && ratio == static_cast<double>(static_cast<std::int64_t>(ratio)))
      return fmt::format("{} // {}", x, static_cast<std::int64_t>(ratio));
    const double up = 1 / ratio;
    if (up > 1 && up == static_cast<double>(static_cast<std::int64_t>(up))) return fmt::format("{} * {}", x, static_cast<std::int64_t>(up));
    return std::nullopt;
  });
}

std::optional<std::string> Resolver::size_text(std::size_t l, const Sym* s) const {
  if (c_.facts.dims.constant(s) || s->kind == Sym::Const) {
    const auto i = static_cast<std::int64_t>(s->value);
    return static_cast<double>(i) == s->value ? std::to_string(i) : fmt::format("{}", s->value);
  }
  if (s->kind == Sym::Dim) return dim_text(l, s->tensor, s->dim);
  if (auto t = poly_text(l, c_.facts.dims.poly(s))) return t;
  if (s->kind == Sym::Other || !s->a) return std::nullopt;
  const auto a = size_text(l, s->a);
  if (!a) return std::nullopt;
  auto wrap = [](const std::string& x) { return x.find(' ') == std::string::npos ? x : "(" + x + ")"; };
  if (s->kind == Sym::Neg) return "-" + wrap(*a);
  if (!s->b) return std::nullopt;
  const auto b = size_text(l, s->b);
  if (!b) return std::nullopt;
  switch (s->kind) {
    case Sym::Add: return wrap(*a) + " + " + wrap(*b);
    case Sym::Sub: return wrap(*a) + " - " + wrap(*b);
    case Sym::Mul: return wrap(*a) + " * " + wrap(*b);
    case Sym::FloorDiv: return wrap(*a) + " // " + wrap(*b);
    case Sym::TrueDiv: return wrap(*a) + " / " + wrap(*b);
    case Sym::Mod: return wrap(*a) + " % " + wrap(*b);
    case Sym::Pow: return wrap(*a) + " ** " + wrap(*b);
    case Sym::Min: return "min(" + *a + ", " + *b + ")";
    case Sym::Max: return "max(" + *a + ", " + *b + ")";
    default: return std::nullopt;
  }
}

std::optional<Edit> Resolver::metadata(std::size_t l, const Expr* name, TensorId t) const {
  const FunctionIndex& index = c_.index(frame(l));
  const Expr* a = index.parent(name);
  if (!a || a->kind != ExprKind::Attribute || !metadata_attribute(a->text)) return std::nullopt;
  const auto& shape = c_.trace.tensor(t).shape;
  auto same_shape = [&](TensorId o) {
    const auto& s = c_.trace.tensor(o).shape;
    if (s.size() != shape.size()) return false;
    for (int d = 0; d < static_cast<int>(s.size()); ++d)
      if (!c_.facts.dims.equal(t, d, o, d) &&
          !(c_.facts.dims.constant(t, d) && c_.facts.dims.constant(o, d) &&
            s[static_cast<std::size_t>(d)] == shape[static_cast<std::size_t>(d)]))
        return false;
    return true;
  };
  const Expr* up = index.parent(a);
  const Expr* access = nullptr;  // x.shape[i] or x.size(i)
  std::optional<std::int64_t> dim;
  auto integer = [](const Expr* e) -> std::optional<std::int64_t> {
    if (e->kind == ExprKind::Int) return e->integer;
    if (e->kind == ExprKind::Unary && e->text == "-" && e->kids[0]->kind == ExprKind::Int) return -e->kids[0]->integer;
    return std::nullopt;
  };
  if (a->text == "shape" && up && up->kind == ExprKind::Subscript && up->kids[0] == a) {
    dim = integer(up->kids[1]);
    access = up;
  }
  if (a->text == "size" && up && up->kind == ExprKind::Call && up->kids[0] == a && up->args.size() == 1) {
    dim = integer(up->args[0].value);
    access = up;
  }
  auto hands = at_hand(l);
  std::stable_sort(hands.begin(), hands.end(),
                   [&](const AtHand& x, const AtHand& y) { return (x.name == name->text) > (y.name == name->text); });
  if (access && dim) {
    std::int64_t d = *dim < 0 ? *dim + static_cast<std::int64_t>(shape.size()) : *dim;
    if (d < 0 || d >= static_cast<std::int64_t>(shape.size())) return std::nullopt;
    for (const AtHand& h : hands) {
      const auto& s = c_.trace.tensor(h.tensor).shape;
      const std::int64_t k = *dim < 0 ? *dim + static_cast<std::int64_t>(s.size()) : *dim;
      if (k >= 0 && k < static_cast<std::int64_t>(s.size()) && c_.facts.dims.equal(t, static_cast<int>(d), h.tensor, static_cast<int>(k)))
        return Edit{name->range, h.name};
    }
    if (auto text = dim_text(l, t, static_cast<int>(d)))
      return Edit{access->range, text->find(' ') == std::string::npos ? *text : "(" + *text + ")"};
    if (c_.facts.dims.constant(t, static_cast<int>(d))) return Edit{access->range, std::to_string(shape[static_cast<std::size_t>(d)])};
    return std::nullopt;
  }
  for (const AtHand& h : hands) {
    if (a->text == "device" || a->text == "is_cuda") return Edit{name->range, h.name};
    if (a->text == "ndim" || a->text == "dim" || a->text == "ndimension") {
      if (c_.trace.tensor(h.tensor).shape.size() == shape.size()) return Edit{name->range, h.name};
      continue;
    }
    const bool dtype = c_.trace.tensor(h.tensor).dtype == c_.trace.tensor(t).dtype;
    if (a->text == "shape" || a->text == "size") {
      if (same_shape(h.tensor)) return Edit{name->range, h.name};
    } else if (dtype) {
      return Edit{name->range, h.name};
    }
  }
  return std::nullopt;
}

/// `self.mask_for(x)` where the function asks x for its device, type and some sizes only: another tensor that has the same will do.
std::optional<Edit> Resolver::stand_in(std::size_t l, const Expr* name, TensorId t, Clock when) const {
  const Expr* call = c_.index(frame(l)).parent(name);
  if (!call || call->kind != ExprKind::Call) return std::nullopt;
  const model::Frame* callee = nullptr;
  for (const FrameId f : c_.facts.frame(frame(l)).callees) {
    const auto& x = c_.trace.frame(f);
    if (x.call == call && !x.builtin && x.begin >= when && (!callee || x.begin < callee->begin)) callee = &x;
  }
  if (!callee || !callee->function) return std::nullopt;
  const auto& parameters = callee->function->parameters;
  std::size_t place = callee->self >= 0 || (!parameters.empty() && parameters[0].name == "self") ? 1 : 0;
  std::string parameter;
  for (const auto& a : call->args) {
    if (a.star || a.double_star) return std::nullopt;
    if (a.value == name) parameter = !a.keyword.empty() ? a.keyword : place < parameters.size() ? parameters[place].name : "";
    place += a.keyword.empty();
  }
  if (parameter.empty()) return std::nullopt;
  const FunctionIndex& inside = c_.index(callee->id);
  const int rank = static_cast<int>(c_.trace.tensor(t).shape.size());
  std::set<int> dims;
  bool plain = true;
  program::walk(callee->function->body, [&](const Stmt* s) {
    const auto written = own_writes(s);
    plain = plain && std::find(written.begin(), written.end(), parameter) == written.end();
    return plain;
  });
  program::walk_exprs(callee->function->body, [&](const Expr* e) {
    if (e->kind != ExprKind::Name || e->text != parameter) return plain;
    const Expr* a = inside.parent(e);
    if (!a || a->kind != ExprKind::Attribute) return plain = false;
    if (a->text == "device" || a->text == "dtype" || a->text == "is_cuda") return true;
    const Expr* up = inside.parent(a);
    const Expr* at = a->text == "shape" && up && up->kind == ExprKind::Subscript && up->kids[0] == a        ? up->kids[1]
        : a->text == "size" && up && up->kind == ExprKind::Call && up->kids[0] == a && up->args.size() == 1 ? up->args[0].value
                                                                                                            : nullptr;
    if (!at || at->kind != ExprKind::Int || at->integer < 0 || at->integer >= rank) return plain = false;
    dims.insert(static_cast<int>(at->integer));
    return true;
  });
  if (!plain) return std::nullopt;
  for (const AtHand& h : at_hand(l)) {
    const auto& other = c_.trace.tensor(h.tensor);
    const bool same = other.dtype == c_.trace.tensor(t).dtype && std::all_of(dims.begin(), dims.end(), [&](int d) {
                        return d < static_cast<int>(other.shape.size()) && c_.facts.dims.equal(t, d, h.tensor, d);
                      });
    if (same) return Edit{name->range, h.name};
  }
  return std::nullopt;
}

}  // namespace shardwright::rewrite::stage
