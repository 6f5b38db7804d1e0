#include "rewrite/stage_forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>

#include "program/visit.h"

namespace shardwright::rewrite::stage {

namespace {

class Writer {
 public:
  Writer(const Context& c, const FrameSlice& f, const CutView* lo_view, const CutView* hi_view, const RenderText& render, Uses& uses)
      : c_(c),
        f_(f),
        fn_(*c.trace.frame(f.frame).function),
        index_(c.index(f.frame)),
        layout_(c.layout(&fn_)),
        lo_view_(lo_view),
        hi_view_(hi_view),
        render_(render),
        uses_(uses) {}

  std::string run() {
    std::string head = f_.lo ? signature() : with_edits(layout_.header(), {}, render_);
    indent_ = fn_.body.empty() ? 8 : column(fn_.body.front());
    if (f_.lo) unpack();
    const std::size_t begin = out_.size();
    pieces(f_.pieces, 0);
    if (f_.lo) copies_made_before(begin);
    if (f_.hi) finish();
    // No blank line directly below the signature.
    while (!out_.empty() && out_.front() == '\n') out_.erase(0, 1);
    while (!out_.empty() && (out_.back() == '\n' || out_.back() == ' ')) out_.pop_back();
    if (out_.empty()) out_ = std::string(indent_, ' ') + "pass";
    return layout_.as_indented(head + "\n" + out_);
  }

 private:
  // ---- layout ----------------------------------------------------------------------------------------------------------

  std::size_t column(const Stmt* s) const {
    const std::string& t = layout_.text();
    std::uint32_t at = s->range.begin;
    while (at > 0 && t[at - 1] != '\n') --at;
    std::uint32_t first = at;
    while (t[first] == ' ' || t[first] == '\t') ++first;
    if (first == s->range.begin) return first - at;
    const auto* p = index_.place(s);
    if (p && p->index > 0) return column(p->block->front());
    return first - at + layout_.step();
  }

  void line(std::size_t col, const std::string& text) { out_ += std::string(col, ' ') + text + "\n"; }
  void own_line(const std::string& text) { line(indent_, text); }

  void comments(const Stmt* s, int delta) {
    const auto* p = index_.place(s);
    if (!p) return;
    std::string a = layout_.above(s, *p->block, p->index, p->parent);
    if (a.empty()) return;
    // Every line is shifted, the first too.
    out_ += shift("\n" + a, delta).substr(1);
  }

  /// A statement's text at its place plus delta, with comments around it.
  void statement(const Stmt* s, int delta, const std::string& text) {
    comments(s, delta);
    const auto* p = index_.place(s);
    out_ +=
        std::string(static_cast<std::size_t>(static_cast<int>(column(s)) + delta), ' ') + shift(text, delta) + layout_.behind(s->range.end);
    if (p && p->index + 1 == p->block->size()) out_ += shift(layout_.below(s), delta);
    out_ += "\n";
  }

  std::vector<Edit> edits_of(const Stmt* s) const {
    const auto it = f_.provided.edits.find(s);
    std::vector<Edit> e = it == f_.provided.edits.end() ? std::vector<Edit>{} : it->second;
    in_place(s, e);
    return e;
  }

  /// `x += y` on a tensor that was received becomes `x = x + y`: a received tensor may need a gradient and must not be changed.
  void in_place(const Stmt* s, std::vector<Edit>& edits) const {
    if (!f_.lo) return;
    program::walk(Block{const_cast<Stmt*>(s)}, [&](const Stmt* k) {
      if (k->kind == StmtKind::FunctionDef || k->kind == StmtKind::ClassDef) return false;
      if (k->kind != StmtKind::AugAssign || k->targets[0]->kind != ExprKind::Name) return true;
      const std::string& name = k->targets[0]->text;
      const int now = c_.facts.version(f_.frame, name, f_.lo->cut->clock);
      if (now < 0 || c_.trace.var_writes[static_cast<std::size_t>(now)].value.kind != Binding::Tensor) return true;
      const auto runs = c_.facts.frame(f_.frame).by_stmt.find(k);
      if (runs == c_.facts.frame(f_.frame).by_stmt.end()) return true;
      bool received = false;
      for (const StepId i : runs->second)
        received |= c_.trace.step(i).end > f_.lo->cut->clock && c_.facts.version(f_.frame, name, c_.trace.step(i).begin) == now;
      if (!received) return true;
      std::string op = k->op;
      if (!op.empty() && op.back() == '=') op.pop_back();
      const Expr* v = k->value;
      const bool wrap = v->outer == v->range &&
          (v->kind == ExprKind::Binary || v->kind == ExprKind::BoolOp || v->kind == ExprKind::Compare || v->kind == ExprKind::Conditional ||
           v->kind == ExprKind::Lambda || v->kind == ExprKind::Tuple);
      edits.push_back({{k->range.file, k->targets[0]->range.end, v->outer.begin}, " = " + name + " " + op + " " + (wrap ? "(" : "")});
      if (wrap) edits.push_back({{k->range.file, v->range.end, v->range.end}, ")"});
      return true;
    });
  }

  // ---- statements that other edits put before one of the original's ------------------------------------------------------

  /// `x_tp = copy…(x)` before a statement; empty when there is none. `x = …(x)` belongs to its statement and is not meant.
  std::string copy_before(const Stmt* s) const {
    std::string text = render_(Range{s->range.file, s->range.begin, s->range.begin});
    text.erase(std::min(text.size(), text.find_last_not_of(" \n\t") + 1));
    const auto eq = text.find(" = ");
    if (eq == std::string::npos || names_in(text.substr(eq), text.substr(0, eq))) return "";
    return text;
  }

  static bool names_in(std::string_view text, std::string_view name) {
    auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1))
      if ((at == 0 || (!word(text[at - 1]) && text[at - 1] != '.')) && (at + name.size() == text.size() || !word(text[at + name.size()])))
        return true;
    return false;
  }

  /// What follows reads a copy whose statement lies before this slice: made again, of the original that crossed.
  void copies_made_before(std::size_t begin) {
    std::string again;
    program::walk(fn_.body, [&](const Stmt* s) {
      if (s->kind == StmtKind::FunctionDef || s->kind == StmtKind::ClassDef) return false;
      const std::string text = copy_before(s);
      if (text.empty() || text.find('\n') != std::string::npos || again.find(text) != std::string::npos) return true;
      const std::string_view here = std::string_view(out_).substr(begin);
      if (names_in(here, text.substr(0, text.find(" = "))) && here.find(text) == std::string_view::npos)
        again += std::string(indent_, ' ') + text + "\n";
      return true;
    });
    out_.insert(begin, again);
  }

  std::string expr(const Expr* e, const std::vector<Edit>& edits = {}) const { return with_edits(e->range, edits, render_); }

  // ---- signature, beginning and end --------------------------------------------------------------------------------------

  std::vector<Slot> received() const { return f_.lo ? lo_view_->carried(static_cast<std::size_t>(f_.lo->level)) : std::vector<Slot>{}; }

  const program::Parameter* parameter(const std::string& name) const {
    for (const auto& p : fn_.parameters)
      if (p.name == name) return &p;
    return nullptr;
  }

  bool packed() const {
    return f_.lo && f_.lo->level > 0 && lo_view_->levels[static_cast<std::size_t>(f_.lo->level) - 1].through_container &&
        received().size() > 1;
  }

  std::string signature() const {
    std::vector<std::string> params{self_name(&fn_)};
    if (f_.lo->level == 0) {
      for (const auto& name : f_.provided.inputs) {
        const auto* p = parameter(name);
        std::string text = name;
        if (p && p->kind == program::Parameter::VarArgs) text = "*" + name;
        else if (p && p->kind == program::Parameter::VarKeywords) text = "**" + name;
        else if (p && p->default_value) text = render_(p->range);
        else if (p && p->annotation) text += ": " + render_(p->annotation->range) + " = None";
        else text += "=None";
        params.push_back(text);
      }
    } else {
      if (packed()) params.push_back(packed_name());
      else
        for (const Slot& s : received()) params.push_back(s.name);
      for (const auto& p : passed_params()) params.push_back(p);
      for (const auto& p : fn_.parameters)
        if (std::find(f_.provided.defaults.begin(), f_.provided.defaults.end(), p.name) != f_.provided.defaults.end())
          params.push_back(render_(p.range));
    }
    // A decorator's function may add arguments that this part does not read.
    const bool wrapped =
        std::any_of(fn_.decorators.begin(), fn_.decorators.end(), [&](const Expr* d) { return c_.trace.wrapping.count(d) > 0; });
    if (wrapped && params.back().compare(0, 2, "**") != 0) params.push_back("**" + fresh_name(c_, f_.frame, "unread"));
    return fmt::format("def {}({}):", fn_.name, fmt::join(params, ", "));
  }
  std::string packed_name() const { return fresh_name(c_, f_.frame, "inputs"); }
  std::vector<std::string> passed_params() const {
    std::vector<std::string> out;
    for (const auto& p : fn_.parameters)
      for (const auto& x : f_.provided.passed)
        if (x.param == p.name) out.push_back(p.name);
    return out;
  }

  void unpack() {
    for (const Stmt* s : f_.provided.early) statement(s, 0, with_edits(s->range, {}, render_));
    std::vector<std::string> names;
    for (const Slot& s : received()) names.push_back(s.name);
    if (f_.lo->level == 0 && !names.empty()) {
      const std::string self = fn_.parameters[0].name;
      own_line("assert " + self + ".input_tensor is not None");
      own_line(names.size() == 1 ? "(" + names[0] + ",) = " + self + ".input_tensor"
                                 : fmt::format("{} = {}.input_tensor", fmt::join(names, ", "), self));
    } else if (packed()) {
      own_line(fmt::format("{} = {}", fmt::join(names, ", "), packed_name()));
    }
    for (const auto& [name, text] : f_.provided.lines) {
      if (name == text) continue;
      own_line((name[0] == '.' ? name.substr(1) : name) + " = " + text);
    }
  }

  void finish() {
    std::vector<std::string> v;
    const std::vector<Slot> got = received();
    for (const Slot& s : hi_view_->carried(static_cast<std::size_t>(f_.hi->level))) {
      const bool made_here = std::none_of(got.begin(), got.end(), [&](const Slot& x) { return x.tensor == s.tensor; });
      v.push_back(s.produce + (c_.contiguous && f_.hi->level == 0 && made_here ? ".contiguous()" : ""));
    }
    if (v.size() == 1 && f_.hi->level == 0) own_line("return (" + v[0] + ",)");
    else if (!v.empty()) own_line(fmt::format("return {}", fmt::join(v, ", ")));
  }

  // ---- pieces ------------------------------------------------------------------------------------------------------------

  void pieces(const std::vector<Piece>& ps, int delta) {
    for (const Piece& p : ps) piece(p, delta);
  }

  void body_or_pass(const std::vector<Piece>& ps, int delta, std::size_t col) {
    const std::size_t before = out_.size();
    pieces(ps, delta);
    if (out_.find_first_not_of(" \n", before) == std::string::npos) {
      out_.resize(before);
      line(col, "pass");
    }
  }

  void piece(const Piece& p, int delta) {
    switch (p.kind) {
      case Piece::Prefix:
        for (std::size_t i = 0; i < p.upto; ++i) kept((*p.block)[i], delta);
        return;
      case Piece::Whole:
        if (f_.lo && (is_docstring(fn_, p.stmt) || drops(p.stmt))) return;
        statement(p.stmt, delta, without_elif(with_edits(p.stmt->range, edits_of(p.stmt), render_)));
        return;
      case Piece::Far: far(p.stmt, delta, true); return;
      case Piece::Near: near(p.stmt, delta, {}); return;
      case Piece::FarNear: far(p.stmt, delta, false); return;
      case Piece::Loop: loop(p, delta); return;
      case Piece::If: branch(p, delta); return;
      case Piece::With: {
        const int col = static_cast<int>(column(p.stmt));
        comments(p.stmt, delta);
        const Range head = layout_.header_of(p.stmt, p.stmt->body);
        line(static_cast<std::size_t>(col + delta), shift(with_edits(head, edits_of(p.stmt), render_), delta) + layout_.behind(head.end));
        body_or_pass(p.body, delta, static_cast<std::size_t>(col + delta) + layout_.step());
        return;
      }
    }
  }

  /// An `elif` that stands on its own.
  static std::string without_elif(std::string text) { return text.rfind("elif ", 0) == 0 ? text.substr(2) : text; }

  /// `del x` of something that this stage does not have.
  bool drops(const Stmt* s) const {
    if (s->kind != StmtKind::Delete) return false;
    for (const Expr* t : s->targets) {
      if (t->kind != ExprKind::Name) return false;
      if (f_.provided.top.count(t->text)) continue;
      // Written in this stage before?
      const int w = c_.facts.version(f_.frame, t->text, std::numeric_limits<Clock>::max());
      if (w >= 0 && c_.trace.var_writes[static_cast<std::size_t>(w)].clock >= f_.lo->cut->clock) continue;
      return true;
    }
    return false;
  }

  /// A statement before the boundary, when it is kept; conditions with what is kept inside them.
  void kept(const Stmt* s, int delta) {
    const auto& keep = f_.provided.keep;
    if (s->kind != StmtKind::If) {
      if (keep.count(s)) statement(s, delta, with_edits(s->range, edits_of(s), render_));
      return;
    }
    auto any = [&](auto&& self, const Block& b) -> bool {
      return std::any_of(b.begin(), b.end(), [&](const Stmt* k) {
        return keep.count(k) || (k->kind == StmtKind::If && (self(self, k->body) || self(self, k->orelse)));
      });
    };
    auto all = [&](auto&& self, const Block& b) -> bool {
      return std::all_of(b.begin(), b.end(), [&](const Stmt* k) {
        return k->kind == StmtKind::If ? self(self, k->body) && self(self, k->orelse) : keep.count(k) != 0;
      });
    };
    if (!any(any, s->body) && !any(any, s->orelse)) return;
    if (all(all, s->body) && all(all, s->orelse)) {
      std::vector<Edit> e = edits_of(s);
      program::walk(Block{const_cast<Stmt*>(s)}, [&](const Stmt* k) {
        if (k != s) {
          const auto it = f_.provided.edits.find(k);
          if (it != f_.provided.edits.end()) e.insert(e.end(), it->second.begin(), it->second.end());
        }
        return true;
      });
      statement(s, delta, with_edits(s->range, e, render_));
      return;
    }
    const int col = static_cast<int>(column(s)) + delta;
    comments(s, delta);
    const Range head = layout_.header_of(s, s->body);
    line(static_cast<std::size_t>(col), shift(with_edits(head, edits_of(s), render_), delta) + layout_.behind(head.end));
    branch_of(s->body, delta, col);
    if (!any(any, s->orelse)) return;
    const bool elif =
        s->orelse.size() == 1 && s->orelse[0]->kind == StmtKind::If && layout_.text().compare(s->orelse[0]->range.begin, 4, "elif") == 0;
    if (elif) {
      kept(s->orelse[0], delta);
    } else {
      line(static_cast<std::size_t>(col), "else:");
      branch_of(s->orelse, delta, col);
    }
  }
  void branch_of(const Block& b, int delta, int col) {
    const std::size_t before = out_.size();
    for (const Stmt* k : b) kept(k, delta);
    if (out_.size() == before) line(static_cast<std::size_t>(col) + layout_.step(), "pass");
  }

  // ---- a statement that is divided -------------------------------------------------------------------------------------

  /// A call's text taken apart: what other edits put around it (a conversion of its result), and the call itself. Around a call
  /// that two stages share, it belongs to the stage that finishes the call.
  struct Around {
    std::string prefix, call, suffix;
  };
  Around around(const Expr* call, const std::vector<Edit>& e) const {
    const std::string full = expr(call, e), callee = with_edits(call->kids[0]->outer, e, render_);
    const std::size_t at = full.find(callee + "(");
    if (at == std::string::npos) return {"", full, ""};
    int depth = 0;
    char quote = 0;
    for (std::size_t i = at + callee.size(); i < full.size(); ++i) {
      const char c = full[i];
      if (quote) {
        if (c == '\\') ++i;
        else if (c == quote) quote = 0;
      } else if (c == '"' || c == '\'') {
        quote = c;
      } else if (c == '(' || c == '[' || c == '{') {
        ++depth;
      } else if ((c == ')' || c == ']' || c == '}') && --depth == 0) {
        return {full.substr(0, at), full.substr(at, i + 1 - at), full.substr(i + 1)};
      }
    }
    return {"", full, ""};
  }

  /// Edits of the statement behind the first boundary: temporaries for what was computed before it, the call with the inner
  /// frame's live variables.
  std::vector<Edit> far_edits(const Stmt* s) const {
    std::vector<Edit> e = edits_of(s);
    const Boundary& b = *f_.lo;
    for (const Temp& t : b.temps) e.push_back({t.expr->outer, t.name});
    if (b.at == At::AfterCall) e.push_back({b.call->outer, b.value_name});
    if (b.at == At::Container) e.push_back({b.call->args[0].value->range, b.value_name});
    if (b.at == At::Inner) {
      std::vector<std::string> args;
      const auto inner = b.inner_names;
      if (b.through_container && inner.size() > 1) args.push_back(fmt::format("({})", fmt::join(inner, ", ")));
      else args = inner;
      bool keyword = false;
      const Function& callee = *c_.trace.frame(b.inner).function;
      for (const auto& p : callee.parameters)
        for (const Passed& x : b.passed) {
          if (x.param != p.name) continue;
          keyword |= !x.keyword.empty();
          args.push_back((keyword ? x.param + "=" : "") + with_edits(x.expr->outer, e, render_));
        }
      if (is_unbound_call(c_.trace, b.call, b.frame, b.inner)) args.insert(args.begin(), self_name(c_.trace.frame(b.frame).function));
      // The arguments between the parentheses.
      const Range all{b.call->range.file, b.call->kids[0]->outer.end, b.call->range.end};
      std::erase_if(e, [&](const Edit& x) { return all.contains(x.range); });
      e.push_back({all, fmt::format("({})", fmt::join(args, ", "))});
    }
    return e;
  }

  void far(const Stmt* s, int delta, bool whole) {
    if (!whole) {
      near(s, delta, far_edits(s));
      return;
    }
    if (f_.lo->at == At::AfterCall && f_.lo->value_is_target) return;
    std::string text = with_edits(s->range, far_edits(s), render_);
    // The copy's readers all ran before the cut: its original may not have crossed.
    if (const std::string copy = copy_before(s); !copy.empty() && text.rfind(copy, 0) == 0)
      if (const std::string rest = text.substr(text.find_first_not_of(" \n\t", copy.size()));
          !names_in(rest, copy.substr(0, copy.find(" = "))))
        text = rest;
    statement(s, delta, text);
  }

  void near(const Stmt* s, int delta, const std::vector<Edit>& done) {
    const std::size_t col = static_cast<std::size_t>(static_cast<int>(column(s)) + delta);
    comments(s, delta);
    const std::size_t begin = out_.size();
    near_text(s, delta, done, col);
    const std::string copy = copy_before(s);
    if (!copy.empty() && names_in(std::string_view(out_).substr(begin), copy.substr(0, copy.find(" = "))))
      out_.insert(begin, std::string(col, ' ') + shift(copy, delta) + "\n");
  }

  void near_text(const Stmt* s, int delta, const std::vector<Edit>& done, std::size_t col) {
    const Boundary& b = *f_.hi;
    std::vector<Edit> e = done;
    for (const Temp& t : b.temps) {
      line(col, t.name + " = " + shift(expr(t.expr, e), delta));
      e.push_back({t.expr->outer, t.name});
    }
    if (b.at == At::BeforeCall) return;
    const std::string call = shift(b.at == At::Inner ? around(b.call, e).call : expr(b.call, e), delta);
    if (b.at == At::Inner) {
      if (b.inner_names.empty()) return;
      line(col, fmt::format("{} = {}", fmt::join(b.inner_names, ", "), call) + layout_.behind(s->range.end));
    } else {
      line(col, b.value_name + " = " + call + layout_.behind(s->range.end));
    }
  }

  // ---- compound statements ---------------------------------------------------------------------------------------------

  void loop(const Piece& p, int delta) {
    const int col = static_cast<int>(column(p.stmt)) + delta;
    comments(p.stmt, delta);
    const Range head = layout_.header_of(p.stmt, p.stmt->body);
    std::vector<Edit> e = edits_of(p.stmt);
    std::erase_if(e, [&](const Edit& x) { return !head.contains(x.range); });
    if (p.sliced && (p.from != 0 || p.to >= 0)) {
      uses_.islice = true;
      std::string it = with_edits(p.stmt->value->range, e, render_);
      if (p.stmt->value->kind == ExprKind::Tuple && it[0] != '(') it = "(" + it + ")";
      std::string range = p.from == 0 ? std::to_string(p.to)
          : p.to < 0                  ? fmt::format("{}, None", p.from)
                                      : fmt::format("{}, {}", p.from, p.to);
      std::erase_if(e, [&](const Edit& x) { return p.stmt->value->outer.contains(x.range); });
      e.push_back({p.stmt->value->outer, "islice(" + it + ", " + range + ")"});
    }
    line(static_cast<std::size_t>(col), shift(with_edits(head, e, render_), delta) + layout_.behind(head.end));
    body_or_pass(p.body, delta, static_cast<std::size_t>(col) + layout_.step());
    if (p.to < 0 && !p.stmt->orelse.empty()) {
      line(static_cast<std::size_t>(col), "else:");
      for (const Stmt* k : p.stmt->orelse) statement(k, delta, with_edits(k->range, edits_of(k), render_));
    }
  }

  void branch(const Piece& p, int delta) {
    const Stmt* s = p.stmt;
    const int col = static_cast<int>(column(s));
    const auto at = static_cast<std::size_t>(col + delta);
    const Block& block = p.in_orelse ? s->orelse : s->body;
    const int flat = block.empty() ? delta : col + delta - static_cast<int>(column(block.front()));
    auto condition = [&] { return shift(with_edits(s->value->range, edits_of(s), render_), delta); };
    if (p.in_orelse && p.guard_other) {
      comments(s, delta);
      line(at, "if " + condition() + ":");
      line(at + layout_.step(), "raise NotImplementedError(\"this stage was made for calls in which this condition is false\")");
    }
    if (p.in_orelse || !p.header) {
      pieces(p.body, flat);
      return;
    }
    comments(s, delta);
    const Range head = layout_.header_of(s, s->body);
    std::string text = with_edits(head, edits_of(s), render_);
    if (text.rfind("elif", 0) == 0) text = text.substr(2);
    line(at, shift(text, delta) + layout_.behind(head.end));
    body_or_pass(p.body, delta, at + layout_.step());
    if (p.guard_other) {
      line(at, "else:");
      line(at + layout_.step(), "raise NotImplementedError(\"this stage was made for calls in which the condition above is true\")");
    }
  }

  const Context& c_;
  const FrameSlice& f_;
  const Function& fn_;
  const FunctionIndex& index_;
  const Layout& layout_;
  const CutView *lo_view_, *hi_view_;
  const RenderText& render_;
  Uses& uses_;
  std::size_t indent_ = 8;
  std::string out_;
};

}  // namespace

std::string method_text(const Context& c, const FrameSlice& f, const CutView* lo_view, const CutView* hi_view, const RenderText& render,
                        Uses& uses) {
  return Writer(c, f, lo_view, hi_view, render, uses).run();
}

}  // namespace shardwright::rewrite::stage
