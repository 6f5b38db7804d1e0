// How a stage gets, at its beginning, the values that its part of the frames needs. See stage_slice.h.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "program/visit.h"
#include "rewrite/stage_slice.h"

namespace shardwright::rewrite::stage {

namespace {

/// The expression that a call passes for a parameter of the called frame.
struct ArgumentAt {
  const Expr* expr = nullptr;
  std::string keyword;
  bool unclear = false;   ///< star arguments
  bool variadic = false;  ///< the parameter is *args or **kwargs
};

ArgumentAt argument(const Trace& t, FrameId f, const std::string& param) {
  ArgumentAt a;
  const Function& fn = *t.frame(f).function;
  const Expr* call = t.frame(f).call;
  std::size_t n = fn.parameters.size();
  for (std::size_t i = 0; i < fn.parameters.size(); ++i)
    if (fn.parameters[i].name == param) n = i;
  if (n == fn.parameters.size() || !call) return a;
  if (fn.parameters[n].kind == program::Parameter::VarArgs || fn.parameters[n].kind == program::Parameter::VarKeywords) {
    a.variadic = true;
    return a;
  }
  std::size_t at = 1;  // self
  for (const auto& arg : call->args) {
    if (arg.double_star) a.unclear = true;
    if (arg.star) { a.unclear = true; at = 1000; continue; }
    if (!arg.keyword.empty()) {
      if (arg.keyword == param) return {arg.value, param};
      continue;
    }
    if (at == n) return {arg.value, ""};
    ++at;
  }
  return a;
}

bool is_iterator(const Binding& b) {
  if (b.kind != Binding::Other) return false;
  for (const char* s : {"iter", "generator", "zip", "enumerate", "map", "filter", "reversed"})
    if (b.text.find(s) != std::string::npos && b.text.rfind("unknown", 0) != 0) return true;
  return false;
}

bool metadata_method(const std::string& m) {
  return m == "size" || m == "dim" || m == "ndimension" || m == "new_zeros" || m == "new_ones" || m == "new_full" || m == "new_empty" || m == "new_tensor";
}
bool metadata_attribute(const std::string& m) { return m == "shape" || m == "device" || m == "dtype" || m == "ndim" || m == "is_cuda" || metadata_method(m); }

std::string singular(const std::string& s) {
  if (s.size() > 2 && s.back() == 's' && s[s.size() - 2] != 's') return s.substr(0, s.size() - 1);
  return s;
}

class Resolver {
 public:
  Resolver(const Context& c, StageSlice& stage, CutView& lo, CutView* hi) : c_(c), stage_(stage), lo_(lo), hi_(hi), clock_(lo.cut.clock) {
    for (const auto& r : lo.cut.recompute) recompute_.insert(r.tensor);
    state_.resize(lo.levels.size());
  }

  void run(const std::function<std::set<std::string>(FrameId)>& live_out) {
    const std::size_t n = lo_.levels.size();
    live_.resize(n);
    for (auto& b : lo_.levels) {
      b.own.clear();
      b.inner_names.clear();
      b.passed.clear();
      b.kept_defaults.clear();
    }
    for (std::size_t l = n; l-- > 0;) {
      const FrameSlice& f = stage_.frames.at(lo_.levels[l].frame);
      live_[l] = live_in(c_, f.frame, f.pieces, live_out(f.frame), stage_.from, stage_.to, f.lo, f.hi);
      if (n - 1 > l && lo_.levels[l].through_container) {}
    }
    for (std::size_t l = n; l-- > 0;) tensors(l);
    for (std::size_t l = n; l-- > 0;) others(l);
    for (std::size_t l = n; l-- > 0;) headers(l, stage_.frames.at(lo_.levels[l].frame).pieces);
    if (!error_.empty()) {
      stage_.error = error_;
      return;
    }
    finish();
  }

 private:
  using State = std::vector<Provided>;

  const Boundary& at(std::size_t l) const { return lo_.levels[l]; }
  FrameId frame(std::size_t l) const { return lo_.levels[l].frame; }
  const model::VarWrite& write(int w) const { return c_.trace.var_writes[static_cast<std::size_t>(w)]; }
  int current(std::size_t l, const std::string& name) const { return c_.facts.version(frame(l), name, clock_); }
  bool is_self(std::size_t l, const std::string& name) const {
    const auto& p = c_.trace.frame(frame(l)).function->parameters;
    return !p.empty() && p[0].name == name;
  }
  void fail(const std::string& why) {
    if (error_.empty()) error_ = why;
  }

  std::vector<std::string> ordered(std::size_t l) const {
    std::vector<std::pair<Clock, std::string>> v;
    for (const auto& n : live_[l]) {
      const int w = current(l, n);
      const auto it = c_.facts.frame(frame(l)).by_name.find(n);
      v.emplace_back(w < 0 ? clock_ : write(it->second.front()).clock, n);
    }
    std::sort(v.begin(), v.end());
    std::vector<std::string> out;
    for (auto& x : v) out.push_back(x.second);
    return out;
  }

  // ---- what crosses --------------------------------------------------------------------------------------------------

  void tensors(std::size_t l) {
    const Boundary& b = at(l);
    for (const Temp& t : b.temps) {
      const auto v = c_.facts.value(b.frame, c_.index(b.frame), t.expr, b.step);
      if (!v) return fail("the value of `" + c_.text(t.expr->range) + "` cannot be followed");
      if (!carry_value(l, t.name, t.name, *v)) return;
      state_[l].top[t.name] = -2;  // no version of a variable
    }
    if (!b.value_name.empty()) {
      std::optional<Binding> v;
      if (b.at == At::AfterCall) v = c_.facts.value(b.frame, c_.index(b.frame), b.call, b.step);
      if (b.at == At::Container) v = between_children();
      if (!v) return fail("the value of `" + c_.text(b.call->range) + "` at the cut cannot be followed");
      if (!carry_value(l, b.value_name, b.value_name, *v)) return;
      state_[l].top[b.value_name] = -2;
    }
    for (const auto& name : ordered(l)) {
      const int w = current(l, name);
      if (w < 0 || is_self(l, name) || state_[l].top.count(name)) continue;
      if (is_temp(l, name)) continue;
      const auto v = c_.facts.contents(frame(l), c_.index(frame(l)), name, clock_);
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

  bool is_temp(std::size_t l, const std::string& name) const {
    const Boundary& b = at(l);
    if (name == b.value_name) return true;
    for (const Temp& t : b.temps)
      if (t.name == name) return true;
    return false;
  }

  /// The value that flows between the two children of a container.
  std::optional<Binding> between_children() const {
    for (const auto& call : c_.trace.calls)
      if (call.begin >= clock_ && call.caller >= 0 && c_.trace.frame(call.caller).builtin && !call.arguments.empty() &&
          c_.trace.frame(call.caller).begin < clock_)
        return call.arguments[0];
    return std::nullopt;
  }

  void carry(std::size_t l, const std::string& name, int w, const Binding& v) {
    if (state_[l].by_statement.count(w)) return;
    if (c_.facts.at_entry(w)) {
      if (l == 0) {
        input(name, w);
        return;
      }
      const Boundary& outer = at(l - 1);
      const ArgumentAt a = argument(c_.trace, frame(l), name);
      if (!outer.through_container && a.expr && a.expr->kind == ExprKind::Name && !is_temp(l - 1, a.expr->text)) {
        const int ow = current(l - 1, a.expr->text);
        if (ow >= 0) {
          const auto ov = c_.facts.contents(frame(l - 1), c_.index(frame(l - 1)), a.expr->text, clock_);
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
          again &= recompute_.count(o) != 0 || !c_.facts.flows(o);
          listed = true;
        }
      const bool alias = step.stmt->kind == StmtKind::Assign && step.stmt->value->kind == ExprKind::Name;
      if (again && (alias || listed) && attempt([&] { return by_statement(l, w, true, true); })) return;
    }
    if (carry_value(l, name, name, v)) state_[l].top[name] = w;
  }

  /// Puts a variable's tensors among what crosses; containers are taken apart and built again.
  bool carry_value(std::size_t l, const std::string& name, const std::string& produce, const Binding& v) {
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

  std::optional<std::string> rebuild(std::size_t l, const std::string& base, const std::string& stem, const std::string& produce, const Binding& v, int& n) {
    switch (v.kind) {
      case Binding::Tensor: {
        if (!c_.facts.used_after(v.tensor, clock_)) return "None";
        for (const Slot& s : state_[l].own)
          if (s.tensor == v.tensor) return s.name;
        std::string wish = stem;
        if (wish == base || !is_identifier(wish)) wish = base;
        std::set<std::string> taken;
        for (const Slot& s : state_[l].own) taken.insert(s.name);
        std::string name = fresh_name(c_, frame(l), is_identifier(stem) && stem != base ? (v_in_sequence_ ? stem + std::to_string(n) : stem) : "h", taken);
        ++n;
        state_[l].own.push_back({name, produce, base, v.tensor});
        return name;
      }
      case Binding::Sequence: {
        if (v.text != "tuple" && v.text != "list") return std::nullopt;
        std::vector<std::string> items;
        for (std::size_t i = 0; i < v.items.size(); ++i) {
          const bool before = v_in_sequence_;
          v_in_sequence_ = true;
          auto x = rebuild(l, base, stem, fmt::format("{}[{}]", produce, i), v.items[i].second, n);
          v_in_sequence_ = before;
          if (!x) return std::nullopt;
          items.push_back(*x);
        }
        if (v.text == "list") return fmt::format("[{}]", fmt::join(items, ", "));
        return fmt::format("({}{})", fmt::join(items, ", "), items.size() == 1 ? "," : "");
      }
      case Binding::Mapping: {
        std::vector<std::string> items;
        for (const auto& [key, x] : v.items) {
          auto y = rebuild(l, base, is_identifier(key) ? base + "_" + key : stem, fmt::format("{}[{}]", produce, python_string(key)), x, n);
          if (!y) return std::nullopt;
          items.push_back(python_string(key) + ": " + *y);
        }
        return fmt::format("{{{}}}", fmt::join(items, ", "));
      }
      case Binding::Object: return object(l, base, produce, v, n);
      default: return plain(l, v);
    }
  }

  std::optional<std::string> object(std::size_t l, const std::string& base, const std::string& produce, const Binding& v, int& n) {
    const std::string cls = v.text.substr(v.text.rfind('.') + 1);
    const Function* fn = c_.trace.frame(frame(l)).function;
    const program::ClassDef* def = nullptr;
    const program::Module* mod = fn->module ? fn->module : (fn->owner ? fn->owner->module : nullptr);
    bool named = false;
    if (mod)
      for (const Stmt* s : mod->body) {
        for (const auto& w : all_writes(s)) named |= w == cls;
        if (s->kind == StmtKind::ClassDef && s->class_def->name == cls) def = s->class_def;
      }
    if (!named) {
      fail("variable `" + base + "` holds an object of class `" + cls + "`, whose name is not known in " + fn->name);
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
        const bool positional = direct && i + 1 < init->parameters.size() && init->parameters[i + 1].name == v.items[i].first && init->parameters[i + 1].kind == program::Parameter::Positional;
        args.push_back(positional ? fields[i] : v.items[i].first + "=" + fields[i]);
      }
      return fmt::format("{}({})", cls, fmt::join(args, ", "));
    }
    // Otherwise without its constructor; only as a whole variable.
    if (produce != base) return std::nullopt;
    for (std::size_t i = 0; i < fields.size(); ++i) fields_.emplace_back("." + base + "." + v.items[i].first, fields[i]);
    return fmt::format("{}.__new__({})", cls, cls);
  }

  /// Plain values inside containers, and sizes.
  std::optional<std::string> plain(std::size_t l, const Binding& v) {
    if (v.sym && !c_.facts.dims.constant(v.sym)) {
      if (auto t = size_text(l, v.sym)) return t;
      if (!c_.facts.dims.fixed(v.sym)) return std::nullopt;
    }
    return literal(v);
  }

  // ---- sizes ---------------------------------------------------------------------------------------------------------

  struct AtHand { std::string name; TensorId tensor; };
  /// Tensors that the frame holds under a name after unpacking.
  std::vector<AtHand> at_hand(std::size_t l) const {
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
  std::set<std::string> names_at(std::size_t l) const {
    std::set<std::string> out(live_[l]);
    for (const auto& [n, w] : state_[l].top) out.insert(n);
    return out;
  }

  std::optional<std::string> dim_text(std::size_t l, TensorId t, int d) const {
    if (t < 0 || d < 0) return std::nullopt;
    for (const AtHand& h : at_hand(l)) {
      const auto& shape = c_.trace.tensor(h.tensor).shape;
      for (int k = 0; k < static_cast<int>(shape.size()); ++k)
        if (c_.facts.dims.same(t, d, h.tensor, k)) return fmt::format("{}.shape[{}]", h.name, k);
    }
    return poly_text(l, c_.facts.dims.poly(t, d));
  }

  /// A size by what it has to do with the sizes of tensors at hand: the same, a constant more, a constant times as much.
  std::optional<std::string> poly_text(std::size_t l, const Dims::Poly& want) const {
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
      if (ratio > 1 && ratio == static_cast<double>(static_cast<std::int64_t>(ratio))) return fmt::format("{} // {}", x, static_cast<std::int64_t>(ratio));
      const double up = 1 / ratio;
      if (up > 1 && up == static_cast<double>(static_cast<std::int64_t>(up))) return fmt::format("{} * {}", x, static_cast<std::int64_t>(up));
      return std::nullopt;
    });
  }

  std::optional<std::string> size_text(std::size_t l, const Sym* s) const {
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

  /// `x.shape[1]`, `x.device` … of a tensor that is not at hand, written with one that is. nullopt: the whole value is needed.
  std::optional<Edit> metadata(std::size_t l, const Expr* name, TensorId t) const {
    const FunctionIndex& index = c_.index(frame(l));
    const Expr* a = index.parent(name);
    if (!a || a->kind != ExprKind::Attribute || !metadata_attribute(a->text)) return std::nullopt;
    const auto& shape = c_.trace.tensor(t).shape;
    auto same_shape = [&](TensorId o) {
      const auto& s = c_.trace.tensor(o).shape;
      if (s.size() != shape.size()) return false;
      for (int d = 0; d < static_cast<int>(s.size()); ++d)
        if (!c_.facts.dims.equal(t, d, o, d) && !(c_.facts.dims.constant(t, d) && c_.facts.dims.constant(o, d) && s[static_cast<std::size_t>(d)] == shape[static_cast<std::size_t>(d)])) return false;
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
    std::stable_sort(hands.begin(), hands.end(), [&](const AtHand& x, const AtHand& y) { return (x.name == name->text) > (y.name == name->text); });
    if (access && dim) {
      std::int64_t d = *dim < 0 ? *dim + static_cast<std::int64_t>(shape.size()) : *dim;
      if (d < 0 || d >= static_cast<std::int64_t>(shape.size())) return std::nullopt;
      for (const AtHand& h : hands) {
        const auto& s = c_.trace.tensor(h.tensor).shape;
        const std::int64_t k = *dim < 0 ? *dim + static_cast<std::int64_t>(s.size()) : *dim;
        if (k >= 0 && k < static_cast<std::int64_t>(s.size()) && c_.facts.dims.equal(t, static_cast<int>(d), h.tensor, static_cast<int>(k))) return Edit{name->range, h.name};
      }
      if (auto text = dim_text(l, t, static_cast<int>(d))) return Edit{access->range, text->find(' ') == std::string::npos ? *text : "(" + *text + ")"};
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

  // ---- what is computed again ------------------------------------------------------------------------------------------

  template <class F> bool attempt(F f) {
    State saved = state_;
    const auto intervals = stage_.recomputed;
    if (f()) return true;
    state_ = std::move(saved);
    stage_.recomputed = intervals;
    return false;
  }

  void input(const std::string& name, int w) {
    auto& v = state_[0].inputs;
    if (std::find(v.begin(), v.end(), name) == v.end()) v.push_back(name);
    state_[0].top[name] = w;
  }

  /// Makes version `w` of a variable available at level l under its name. `more_inputs`: inputs of forward may be read for it
  /// that nothing else reads.
  bool provide(std::size_t l, int w, bool more_inputs) {
    const std::string& name = write(w).name;
    if (is_self(l, name) && c_.facts.at_entry(w)) return true;
    const auto held = state_[l].top.find(name);
    if (held != state_[l].top.end()) {
      if (held->second == w || (held->second == -1 && w == current(l, name))) return true;
      return false;
    }
    if (state_[l].by_statement.count(w)) return true;
    if (depth_ > 60) return false;
    struct Depth { int& d; explicit Depth(int& x) : d(x) { ++d; } ~Depth() { --d; } } depth(depth_);
    const Binding& v = write(w).value;
    if (is_iterator(v)) return false;
    if (c_.facts.at_entry(w)) {
      if (l == 0) {
        if (c_.facts.flows(v) && !more_inputs) return false;
        input(name, w);
        return true;
      }
      if (attempt([&] { return pass(l, name, w, more_inputs); })) return true;
    }
    if (c_.facts.flows(v)) return false;
    if (!c_.facts.at_entry(w) && attempt([&] { return by_statement(l, w, more_inputs, false); })) return true;
    return false;
  }

  /// Gives the inner frame's parameter its original argument.
  bool pass(std::size_t l, const std::string& name, int w, bool more_inputs) {
    const ArgumentAt a = argument(c_.trace, frame(l), name);
    if (a.variadic) return false;
    if (!a.expr) {
      if (a.unclear) return false;
      state_[l].defaults.push_back(name);
      state_[l].top[name] = w;
      return true;
    }
    if (at(l - 1).through_container) return false;
    const FrameId outer = frame(l - 1);
    if (c_.facts.calls_inside(outer, at(l - 1).step, a.expr)) {
      // Allowed when it makes nothing that flows.
      const auto v = c_.facts.value(outer, c_.index(outer), a.expr, at(l - 1).step);
      if (!v || c_.facts.flows(*v)) return false;
    }
    std::vector<Read> names;
    reads(a.expr, names);
    for (const auto& r : names) {
      if (is_temp(l - 1, r.name)) continue;
      const int ow = current(l - 1, r.name);
      if (ow < 0) {
        // A loop target is bound by the header that is written again.
        continue;
      }
      if (header_target(l - 1, r.name)) continue;
      if (!provide(l - 1, ow, more_inputs)) return false;
    }
    state_[l].passed.push_back({name, a.expr, a.keyword});
    state_[l].top[name] = w;
    return true;
  }

  /// Bound by a loop around the boundary whose header is written again.
  bool header_target(std::size_t l, const std::string& name) const {
    const Boundary& b = at(l);
    const int w = current(l, name);
    for (std::size_t i = 0; i + 1 < b.chain.size(); ++i) {
      if (b.chain[i]->kind != StmtKind::For && b.chain[i]->kind != StmtKind::With) continue;
      const auto targets = own_writes(b.chain[i]);
      if (std::find(targets.begin(), targets.end(), name) == targets.end()) continue;
      return w >= 0 && write(w).step >= 0 && c_.trace.step(write(w).step).stmt == b.chain[i];
    }
    return false;
  }

  /// Keeps the statement that made version `w`, with what it needs.
  bool by_statement(std::size_t l, int w, bool more_inputs, bool flows_allowed) {
    const model::VarWrite& vw = write(w);
    if (vw.step < 0) return false;
    const auto& step = c_.trace.step(vw.step);
    const Boundary& b = at(l);
    const FunctionIndex& index = c_.index(frame(l));
    const auto chain = index.chain(step.stmt);
    // The part of its ancestors that the boundary shares, in the same iteration.
    std::size_t shared = 0;
    while (shared < chain.size() && shared + 1 < b.chain.size() && chain[shared] == b.chain[shared]) {
      if (chain[shared]->kind == StmtKind::For) {
        int i = 0;
        for (const auto& it : step.iters)
          if (it.loop == chain[shared]) i = it.index;
        if (i != b.iteration[shared]) return false;
      }
      ++shared;
    }
    if (shared == chain.size()) return false;  // a target of a header around the boundary
    const auto* place = index.place(chain[shared]);
    const auto* here = index.place(b.chain[shared]);
    if (!place || !here || place->block != here->block || place->index > here->index) return false;
    if (place->index == here->index) return false;
    // Conditions on the way are kept with the statement; another compound statement is kept as a whole.
    const Stmt* unit = step.stmt;
    std::size_t unit_at = chain.size() - 1;
    for (std::size_t i = shared; i + 1 < chain.size(); ++i)
      if (chain[i]->kind != StmtKind::If) {
        unit = chain[i];
        unit_at = i;
        break;
      }
    const StepId unit_step = unit == step.stmt ? vw.step : c_.facts.step_at(frame(l), unit, step.begin, step.end);
    if (unit_step < 0) return false;
    const auto& us = c_.trace.step(unit_step);
    if (!flows_allowed && !c_.facts.repeatable(us.begin, us.end)) return false;
    // Everything it reads, as it was then.
    std::vector<Read> need;
    if (unit == step.stmt && unit->body.empty()) {
      need = own_reads(unit);
    } else {
      if (unit->kind == StmtKind::FunctionDef || unit->kind == StmtKind::ClassDef) {
        need = own_reads(unit);
      } else {
        const std::vector<Piece> p{{.kind = Piece::Whole, .stmt = unit}};
        for (const auto& n : live_in(c_, frame(l), p, {}, us.begin, us.end, nullptr, nullptr)) need.push_back({n, nullptr});
      }
    }
    state_[l].keep.insert(unit);
    state_[l].by_statement.insert(w);
    if (unit == step.stmt && unit->kind == StmtKind::AugAssign) need.push_back({vw.name, nullptr});
    for (const auto& r : need)
      if (!read(l, unit, r, us.begin, more_inputs)) return false;
    // What else it binds must not be held by something else.
    for (const int other : c_.facts.frame(frame(l)).writes) {
      const auto& ow = write(other);
      if (ow.clock < us.begin || ow.clock >= us.end || other == w) continue;
      if (state_[l].top.count(ow.name) && !is_self(l, ow.name)) return false;
      state_[l].by_statement.insert(other);
    }
    if (state_[l].top.count(vw.name)) return false;
    stage_.recomputed.emplace_back(us.begin, us.end);
    for (std::size_t i = unit_at; i-- > shared;) {
      const Stmt* s = chain[i];
      if (s->kind != StmtKind::If) continue;
      const StepId is = c_.facts.step_at(frame(l), s, step.begin, step.end);
      if (is < 0) return false;
      state_[l].keep.insert(s);
      for (const auto& r : own_reads(s))
        if (!read(l, s, r, c_.trace.step(is).begin, more_inputs)) return false;
      // The branches that were not taken define the variable as well: kept, with what can be had.
      const Stmt* into = chain[i + 1];
      std::function<void(const Block&)> others_of = [&](const Block& blk) {
        for (const Stmt* k : blk) {
          if (k == into) continue;
          const auto wr = all_writes(k);
          if (std::find(wr.begin(), wr.end(), vw.name) == wr.end()) continue;
          state_[l].keep.insert(k);
          if (k->body.empty())
            for (const auto& r : own_reads(k)) attempt([&] { return read(l, k, r, c_.trace.step(is).begin, false); });
          if (k->kind == StmtKind::If) {
            for (const auto& r : own_reads(k)) attempt([&] { return read(l, k, r, c_.trace.step(is).begin, false); });
            others_of(k->body);
            others_of(k->orelse);
          }
        }
      };
      const Block* taken = index.place(into)->block;
      for (const Block* blk : {static_cast<const Block*>(&s->body), static_cast<const Block*>(&s->orelse)})
        if (blk != taken) others_of(*blk);
    }
    return true;
  }

  /// Keeps the statement that made version `w` in front of the unpacking, where the inputs' names still hold the inputs.
  bool early(std::size_t l, int w) {
    if (l != 0 || write(w).step < 0) return false;
    if (state_[0].by_statement.count(w)) return true;
    const auto& step = c_.trace.step(write(w).step);
    const Stmt* s = step.stmt;
    if (!s->body.empty() || (s->kind != StmtKind::Assign && s->kind != StmtKind::AnnAssign)) return false;
    const auto* place = c_.index(frame(0)).place(s);
    if (!place || place->parent || !at(0).chain.front() || place->index >= c_.index(frame(0)).place(at(0).chain.front())->index) return false;
    if (!c_.facts.repeatable(step.begin, step.end)) return false;
    for (const auto& r : own_reads(s)) {
      const int rw = c_.facts.version(frame(0), r.name, step.begin);
      if (rw < 0 || is_self(0, r.name)) continue;
      if (c_.facts.at_entry(rw)) {
        auto& v = state_[0].inputs;
        if (std::find(v.begin(), v.end(), r.name) == v.end()) v.push_back(r.name);
        continue;
      }
      if (!early(0, rw)) return false;
    }
    auto& e = state_[0].early;
    if (std::find(e.begin(), e.end(), s) == e.end()) e.push_back(s);
    for (const int other : c_.facts.frame(frame(0)).writes)
      if (write(other).clock >= step.begin && write(other).clock < step.end) state_[0].by_statement.insert(other);
    stage_.recomputed.emplace_back(step.begin, step.end);
    return true;
  }

  bool read(std::size_t l, const Stmt* unit, const Read& r, Clock when, bool more_inputs) {
    const int w = c_.facts.version(frame(l), r.name, when);
    if (w < 0 || is_self(l, r.name)) return true;
    if (header_target(l, r.name)) return true;
    if (provide(l, w, more_inputs)) return true;
    const auto kind = write(w).value.kind;
    if (w == current(l, r.name) && (kind == Binding::Int || kind == Binding::Float || kind == Binding::Bool) && depth_ < 40) {
      struct Depth { int& d; explicit Depth(int& x) : d(x) { ++d; } ~Depth() { --d; } } depth(depth_);
      if (scalar(l, r.name, w)) return true;
    }
    // Tensors that cross under this very version are provided; others only by what is asked of them.
    if (write(w).value.kind == Binding::Tensor && r.expr)
      if (auto e = metadata(l, r.expr, write(w).value.tensor)) {
        if (e->text != c_.text(e->range)) state_[l].edits[unit].push_back(*e);
        return true;
      }
    return false;
  }

  void others(std::size_t l) {
    if (!error_.empty()) return;
    for (const auto& name : ordered(l)) {
      const int w = current(l, name);
      if (w < 0 || is_self(l, name) || is_temp(l, name)) continue;
      if (header_target(l, name)) continue;
      if (state_[l].top.count(name)) continue;
      if (!scalar(l, name, w)) {
        const auto v = write(w).value;
        std::string made;
        if (write(w).step >= 0) {
          const Range r = c_.trace.step(write(w).step).stmt->range;
          std::string line = c_.text(r);
          line = line.substr(0, line.find('\n'));
          if (line.size() > 60) line = line.substr(0, 57) + "...";
          made = " (made by `" + line + "`, " + c_.sources.describe(r) + ")";
        }
        fail("variable `" + name + "`" + made + " can neither be sent nor computed again");
        return;
      }
    }
  }

  bool scalar(std::size_t l, const std::string& name, int w) {
    if (attempt([&] { return provide(l, w, false); })) return true;
    const auto v = c_.facts.contents(frame(l), c_.index(frame(l)), name, clock_);
    if (!v) return attempt([&] { return provide(l, w, true); });
    // A kept statement that binds the name again would come after the line.
    for (const int k : state_[l].by_statement)
      if (write(k).name == name) return false;
    auto line = [&](const std::string& text) {
      state_[l].lines.emplace_back(name, text);
      state_[l].top[name] = w;
      return true;
    };
    const bool number = v->kind == Binding::Int || v->kind == Binding::Float || v->kind == Binding::Bool;
    if (number && v->sym && !c_.facts.dims.constant(v->sym)) {
      if (const auto t = size_text(l, v->sym)) return line(*t);
      if (attempt([&] { return provide(l, w, true); }) || attempt([&] { return early(l, w); })) return true;
      // Independent of the batch, but made of something that is gone: as it was when the model was converted.
      if (c_.facts.dims.fixed(v->sym))
        if (const auto t = literal(*v)) return line(*t);
      return false;
    }
    if (const auto t = literal(*v)) {
      // A value that an input decides is read from the input rather than frozen.
      if (attempt([&] { return provide(l, w, true); })) return true;
      return line(*t);
    }
    if (v->kind == Binding::Sequence || v->kind == Binding::Mapping) {
      if (!c_.facts.flows(*v)) {
        std::function<std::optional<std::string>(const Binding&)> text = [&](const Binding& b) -> std::optional<std::string> {
          if (b.kind != Binding::Sequence) return plain(l, b);
          if (b.text != "tuple" && b.text != "list") return std::nullopt;
          std::vector<std::string> items;
          for (const auto& x : b.items) {
            auto t = text(x.second);
            if (!t) return std::nullopt;
            items.push_back(*t);
          }
          if (b.text == "list") return fmt::format("[{}]", fmt::join(items, ", "));
          return fmt::format("({}{})", fmt::join(items, ", "), items.size() == 1 ? "," : "");
        };
        if (const auto t = text(*v)) return line(*t);
      }
    }
    if (attempt([&] { return provide(l, w, true); })) return true;
    // A constant tensor that cannot be made again here: sent.
    if (v->kind == Binding::Tensor && c_.trace.tensor(v->tensor).origin == model::Origin::Result && carry_value(l, name, name, *v)) {
      state_[l].top[name] = w;
      return true;
    }
    return false;
  }

  // ---- headers around the boundary -------------------------------------------------------------------------------------

  void headers(std::size_t l, std::vector<Piece>& pieces) {
    for (Piece& p : pieces) {
      if (!error_.empty()) return;
      if (p.on_path && p.stmt) {
        const StepId s = c_.facts.step_at(frame(l), p.stmt, 0, clock_);
        const Clock when = s >= 0 ? last_entry(l, p.stmt) : clock_;
        if (p.kind == Piece::If) {
          if (p.header)
            p.header = attempt([&] {
              for (const auto& r : own_reads(p.stmt))
                if (!header_read(l, p.stmt, r, when)) return false;
              return true;
            });
        } else {
          for (const auto& r : own_reads(p.stmt))
            if (!header_read(l, p.stmt, r, when)) {
              fail("`" + r.name + "`, which the loop or block at " + c_.sources.describe(p.stmt->range) + " reads when it is entered, has changed since");
              return;
            }
        }
      }
      headers(l, p.body);
    }
  }
  Clock last_entry(std::size_t l, const Stmt* s) const {
    Clock when = clock_;
    const auto it = c_.facts.frame(frame(l)).by_stmt.find(s);
    if (it != c_.facts.frame(frame(l)).by_stmt.end())
      for (const StepId i : it->second)
        if (c_.trace.step(i).begin < clock_) when = c_.trace.step(i).begin;
    return when;
  }
  bool header_read(std::size_t l, const Stmt* s, const Read& r, Clock when) {
    const int w = c_.facts.version(frame(l), r.name, when);
    if (w < 0 || is_self(l, r.name)) return true;
    if (header_target(l, r.name) && current(l, r.name) == w) return true;
    if (w == current(l, r.name)) {
      if (state_[l].top.count(r.name) || state_[l].by_statement.count(w)) return true;
      const auto v = c_.facts.contents(frame(l), c_.index(frame(l)), r.name, clock_);
      if (v && c_.facts.flows(*v)) return false;
      return scalar(l, r.name, w);
    }
    if (read(l, s, r, when, false)) return true;
    return false;
  }

  // ---- the result --------------------------------------------------------------------------------------------------------

  /// May a name of the inner frame be used in this one?
  bool name_free(std::size_t l, const std::string& name) const {
    if (state_[l].top.count(name) || live_[l].count(name)) return false;
    if (is_self(l, name)) return false;
    const Boundary& b = at(l);
    for (std::size_t i = 0; i + 1 < b.chain.size(); ++i) {
      const auto targets = own_writes(b.chain[i]);
      if (std::find(targets.begin(), targets.end(), name) != targets.end()) return false;
      if (std::find_if(targets.begin(), targets.end(), [&](const auto& x) { return x == name; }) != targets.end()) return false;
    }
    for (const Stmt* s : state_[l].keep) {
      const auto wr = all_writes(s);
      if (std::find(wr.begin(), wr.end(), name) != wr.end()) return false;
    }
    // A global that the function reads under this name.
    const Function& f = *c_.trace.frame(frame(l)).function;
    if (std::find(f.locals.begin(), f.locals.end(), name) == f.locals.end()) {
      program::NameSet used;
      program::names_read(f.body, used);
      if (used.contains(name)) return false;
    }
    return !is_temp(l, name);
  }

  void finish() {
    const std::size_t n = lo_.levels.size();
    for (std::size_t l = n; l-- > 0;) {
      Boundary& b = lo_.levels[l];
      b.own = state_[l].own;
      if (l + 1 < n) {
        b.passed = state_[l + 1].passed;
        b.kept_defaults = state_[l + 1].defaults;
        std::set<std::string> taken;
        for (const Slot& s : b.own) taken.insert(s.name);
        for (const Slot& s : lo_.carried(l + 1)) {
          std::string name = s.name;
          if (!name_free(l, name) || taken.count(name)) {
            std::set<std::string> t = taken;
            for (const auto& [k, v] : state_[l].top) t.insert(k);
            name = fresh_name(c_, b.frame, "h", t);
          }
          taken.insert(name);
          b.inner_names.push_back(name);
        }
      }
      FrameSlice& f = stage_.frames.at(b.frame);
      f.provided = state_[l];
      // In the order of the parameters.
      const Function& fn = *c_.trace.frame(b.frame).function;
      if (l == 0) {
        std::vector<std::string> sorted;
        for (const auto& p : fn.parameters)
          if (std::find(f.provided.inputs.begin(), f.provided.inputs.end(), p.name) != f.provided.inputs.end()) sorted.push_back(p.name);
        f.provided.inputs = sorted;
      }
    }
    if (n > 1 && lo_.levels[n - 2].through_container)
      for (std::size_t l = 1; l < n; ++l)
        if (lo_.levels[l - 1].through_container && !state_[l].passed.empty()) stage_.error = "arguments cannot be handed through the container";
  }

  const Context& c_;
  StageSlice& stage_;
  CutView& lo_;
  CutView* hi_;
  Clock clock_;
  std::set<TensorId> recompute_;
  State state_;
  std::vector<std::set<std::string>> live_;
  std::string error_;
  int depth_ = 0;
  bool v_in_sequence_ = false;
  std::vector<std::pair<std::string, std::string>> fields_;
};

}  // namespace

namespace {

/// Takes out pieces that come to nothing: the cut lies before a call, and nothing of the statement is needed before it.
void prune(std::vector<Piece>& pieces, const Boundary& hi) {
  std::erase_if(pieces, [&](Piece& p) {
    switch (p.kind) {
      case Piece::Near: return hi.temps.empty() && (hi.at == At::BeforeCall || (hi.at == At::Inner && hi.inner_names.empty()));
      case Piece::Loop: case Piece::With:
        if (p.body.empty()) return false;
        prune(p.body, hi);
        return p.body.empty();
      case Piece::If:
        prune(p.body, hi);
        return p.body.empty() && !p.guard_other;
      default: return false;
    }
  });
}

}  // namespace

StageSlice analyse(const Context& c, int stage, CutView* lo, CutView* hi) {
  StageSlice s;
  s.stage = stage;
  s.from = lo ? lo->cut.clock : c.trace.forward_begin;
  s.to = hi ? hi->cut.clock : std::numeric_limits<Clock>::max();
  for (CutView* v : {lo, hi}) {
    if (!v) continue;
    for (Boundary& b : v->levels) {
      b.cut = &v->cut;
      // An inner frame of which nothing is needed does not begin before the cut.
      if (v == hi && b.level > 0 && hi->carried(static_cast<std::size_t>(b.level)).empty() && !s.frames.count(b.frame)) break;
      FrameSlice& f = s.frames[b.frame];
      f.frame = b.frame;
      (v == lo ? f.lo : f.hi) = &b;
    }
  }
  for (auto& [id, f] : s.frames) {
    f.pieces = pieces(c, id, f.lo, f.hi, s.error);
    if (!s.error.empty()) return s;
    if (f.hi) prune(f.pieces, *f.hi);
  }
  if (lo) {
    auto live_out = [&](FrameId id) {
      std::set<std::string> out;
      const FrameSlice& f = s.frames.at(id);
      if (f.hi)
        for (const Slot& x : f.hi->own) out.insert(x.base);
      return out;
    };
    Resolver(c, s, *lo, hi).run(live_out);
  }
  return s;
}

}  // namespace shardwright::rewrite::stage
