#include "pipeline/position.h"

#include <algorithm>

namespace shardwright::pipeline {
namespace {

using model::Frame;
using model::Trace;
using program::Expr;
using program::Stmt;

bool find_in(const std::vector<Stmt*>& body, const Stmt* s, const std::string& prefix, std::string& out);

bool find_under(const Stmt* outer, const Stmt* s, const std::string& here, std::string& out) {
  if (find_in(outer->body, s, here + ".", out) || find_in(outer->orelse, s, here + "e", out) || find_in(outer->finally, s, here + "f", out))
    return true;
  for (std::size_t h = 0; h < outer->handlers.size(); ++h)
    if (find_in(outer->handlers[h].body, s, here + "h" + std::to_string(h) + ".", out)) return true;
  for (std::size_t c = 0; c < outer->cases.size(); ++c)
    if (find_in(outer->cases[c].body, s, here + "c" + std::to_string(c) + ".", out)) return true;
  return false;
}

bool find_in(const std::vector<Stmt*>& body, const Stmt* s, const std::string& prefix, std::string& out) {
  for (std::size_t i = 0; i < body.size(); ++i) {
    const std::string here = prefix + std::to_string(i);
    if (body[i] == s) {
      out = here;
      return true;
    }
    if (body[i]->range.contains(s->range) && find_under(body[i], s, here, out)) return true;
  }
  return false;
}

void calls_in(const Expr* e, std::vector<const Expr*>& out) {
  if (!e) return;
  if (e->kind == program::ExprKind::Call) out.push_back(e);
  for (const Expr* k : e->kids) calls_in(k, out);
  for (const auto& a : e->args) calls_in(a.value, out);
  for (const auto& c : e->clauses) {
    calls_in(c.iterable, out);
    for (const Expr* k : c.conditions) calls_in(k, out);
  }
}

int index_of_call(const Stmt* s, const Expr* call) {
  std::vector<const Expr*> calls;
  for (const Expr* t : s->targets) calls_in(t, calls);
  calls_in(s->value, calls);
  calls_in(s->extra, calls);
  for (const auto& w : s->items) calls_in(w.value, calls);
  std::stable_sort(calls.begin(), calls.end(), [](const Expr* a, const Expr* b) { return a->range.begin < b->range.begin; });
  const auto it = std::find(calls.begin(), calls.end(), call);
  return it == calls.end() ? -1 : static_cast<int>(it - calls.begin());
}

std::string owner(const Trace& t, const Frame& f) {
  std::string name = f.function ? f.function->name : "?";
  if (f.self < 0) return name;
  const auto& m = t.module(f.self);
  return m.fqn.empty() ? (name == "forward" ? "forward" : "." + name) : m.fqn + "." + name;
}

std::string place(const support::SourceManager& sm, const support::Range& r) {
  if (!r.valid() || static_cast<std::size_t>(r.file) >= sm.size()) return "";
  const auto& file = sm.file(r.file);
  const auto slash = file.path.find_last_of('/');
  return " (" + (slash == std::string::npos ? file.path : file.path.substr(slash + 1)) + ":" +
      std::to_string(sm.position(r.file, r.begin).line) + ")";
}

std::string first_line(const support::SourceManager& sm, const support::Range& r) {
  if (!r.valid() || static_cast<std::size_t>(r.file) >= sm.size()) return "a statement";
  std::string s(sm.text(r));
  s = s.substr(0, s.find('\n'));
  if (s.size() > 60) s = s.substr(0, 57) + "...";
  return "`" + s + "`";
}

}  // namespace

std::string describe(const Trace& t, const support::SourceManager& sm, const Cut& c) {
  const Level* last = c.path.empty() ? nullptr : &c.path.back();
  const Stmt* stmt = last && last->step >= 0 ? t.step(last->step).stmt : nullptr;
  support::Range where = stmt ? stmt->range : support::Range{};
  if (c.before_call) where = c.before_call->range;
  if (c.after_call) where = c.after_call->range;
  // The module call that ended last before the cut and did not contain more than it: called by the innermost frame, or by the
  // container that is cut.
  const model::ModuleCall* done = nullptr;
  const bool container = c.kind == CutKind::BetweenChildren || c.kind == CutKind::InsideBuiltin;
  for (const auto& call : t.calls) {
    if (call.begin < t.forward_begin || call.end > c.clock || call.caller < 0) continue;
    const bool here = container ? t.module(call.module).parent == c.sequential : last && call.caller == last->frame;
    if (!here) continue;
    if (last && !container && call.begin < t.frame(last->frame).begin) continue;
    if (!done || call.end >= done->end) done = &call;
  }
  // An operation between that call and the cut: "after" would be a lie.
  bool exact = done != nullptr;
  if (done)
    for (const auto& op : t.ops)
      if (op.clock > done->end && op.clock < c.clock && (op.flops > 0)) exact = false;
  const std::string in = last && t.frame(last->frame).self >= 0 ? t.module(t.frame(last->frame).self).fqn : "";
  if (exact && done->module >= 0) {
    const std::string& fqn = t.module(done->module).fqn;
    return "after " + (fqn.empty() ? t.module(done->module).type : fqn) + place(sm, where);
  }
  std::string s = in.empty() ? "" : "in " + in + ", ";
  if (c.after_call) return s + "after " + first_line(sm, where) + place(sm, where);
  return s + "before " + first_line(sm, where) + place(sm, where);
}

std::vector<std::string> key_of(const Trace& t, const Cut& c) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < c.path.size(); ++i) {
    const Level& l = c.path[i];
    const Frame& f = t.frame(l.frame);
    std::string s = owner(t, f) + "@";
    const Stmt* stmt = l.step >= 0 ? t.step(l.step).stmt : nullptr;
    std::string index = "?";
    if (stmt && f.function) find_in(f.function->body, stmt, "", index);
    s += index;
    const auto& iters = l.step >= 0 ? t.step(l.step).iters : model::IterPath{};
    if (!iters.empty()) {
      s += "[";
      for (std::size_t k = 0; k < iters.size(); ++k) s += (k ? "," : "") + std::to_string(iters[k].index);
      s += "]";
    }
    if (i + 1 == c.path.size() && stmt) {
      if (c.before_call) s += "<" + std::to_string(index_of_call(stmt, c.before_call));
      if (c.after_call) s += ">" + std::to_string(index_of_call(stmt, c.after_call));
      // A call inside a comprehension runs many times: which time.
      if ((c.before_call || c.after_call) && c.callee >= 0 && !t.frame(c.callee).iters.empty() &&
          t.frame(c.callee).iters.size() > iters.size()) {
        s += "[";
        const auto& more = t.frame(c.callee).iters;
        for (std::size_t k = iters.size(); k < more.size(); ++k) s += (k > iters.size() ? "," : "") + std::to_string(more[k].index);
        s += "]";
      }
    }
    out.push_back(s);
  }
  if (c.sequential >= 0) out.push_back(t.module(c.sequential).fqn + "/" + std::to_string(c.child_index));
  return out;
}

}  // namespace shardwright::pipeline
