#include "rewrite/stage_syntax.h"

#include <algorithm>
#include <cctype>

#include "program/visit.h"

namespace shardwright::rewrite::stage {

// ---- FunctionIndex -----------------------------------------------------------------------------------------------------

FunctionIndex::FunctionIndex(const Function& f) : function(f) { block(f.body, nullptr); }

void FunctionIndex::expr(const Expr* e, const Expr* parent, const Stmt* s) {
  if (!e) return;
  exprs_[e] = {parent, s};
  if (e->kind == ExprKind::Lambda) return;
  program::for_each_child(e, [&](const Expr* k) { expr(k, e, s); });
}

void FunctionIndex::block(const Block& b, const Stmt* parent) {
  for (std::size_t i = 0; i < b.size(); ++i) {
    const Stmt* s = b[i];
    places_[s] = {parent, &b, i};
    program::for_each_expr(s, [&](const Expr* e) { expr(e, nullptr, s); });
    if (s->kind == StmtKind::FunctionDef || s->kind == StmtKind::ClassDef) continue;
    block(s->body, s);
    block(s->orelse, s);
    block(s->finally, s);
    for (const auto& h : s->handlers) block(h.body, s);
    for (const auto& c : s->cases) block(c.body, s);
  }
}

const FunctionIndex::Place* FunctionIndex::place(const Stmt* s) const {
  const auto it = places_.find(s);
  return it == places_.end() ? nullptr : &it->second;
}
const Expr* FunctionIndex::parent(const Expr* e) const {
  const auto it = exprs_.find(e);
  return it == exprs_.end() ? nullptr : it->second.first;
}
const Stmt* FunctionIndex::statement(const Expr* e) const {
  const auto it = exprs_.find(e);
  return it == exprs_.end() ? nullptr : it->second.second;
}
std::vector<const Stmt*> FunctionIndex::chain(const Stmt* s) const {
  std::vector<const Stmt*> out;
  for (; s; s = place(s) ? place(s)->parent : nullptr) out.push_back(s);
  std::reverse(out.begin(), out.end());
  return out;
}

// ---- reads and writes ----------------------------------------------------------------------------------------------------

namespace {

using Bound = std::vector<std::string>;
bool has(const Bound& b, const std::string& n) { return std::find(b.begin(), b.end(), n) != b.end(); }

void collect(const Expr* e, Bound& bound, std::vector<Read>& out, const std::function<bool(const Expr*)>& skip) {
  if (!e || (skip && skip(e))) return;
  switch (e->kind) {
    case ExprKind::Name:
      if (!has(bound, e->text)) out.push_back({e->text, e});
      return;
    case ExprKind::Lambda: {
      program::NameSet names;
      program::names_read(e, names);
      for (const auto& n : names.names())
        if (!has(bound, n)) out.push_back({n, nullptr});
      return;
    }
    case ExprKind::Walrus: collect(e->kids[1], bound, out, skip); return;
    case ExprKind::ListComp:
    case ExprKind::SetComp:
    case ExprKind::GeneratorExp:
    case ExprKind::DictComp: {
      const std::size_t before = bound.size();
      for (const auto& c : e->clauses) {
        collect(c.iterable, bound, out, skip);
        program::NameSet targets;
        program::target_names(c.target, targets);
        for (const auto& n : targets.names()) bound.push_back(n);
        for (const Expr* i : c.conditions) collect(i, bound, out, skip);
      }
      for (const Expr* k : e->kids) collect(k, bound, out, skip);
      bound.resize(before);
      return;
    }
    default: program::for_each_child(e, [&](const Expr* k) { collect(k, bound, out, skip); });
  }
}

/// Reads of an assignment target: what x.a and x[i] need.
void target_reads(const Expr* t, std::vector<Read>& out, const std::function<bool(const Expr*)>& skip) {
  if (!t) return;
  if (t->kind == ExprKind::Name) return;
  if (t->kind == ExprKind::Tuple || t->kind == ExprKind::List || t->kind == ExprKind::Starred) {
    for (const Expr* k : t->kids) target_reads(k, out, skip);
    return;
  }
  reads(t, out, skip);
}

}  // namespace

void reads(const Expr* e, std::vector<Read>& out, const std::function<bool(const Expr*)>& skip) {
  Bound bound;
  collect(e, bound, out, skip);
}

std::vector<Read> own_reads(const Stmt* s, const std::function<bool(const Expr*)>& skip) {
  std::vector<Read> out;
  if (s->kind == StmtKind::FunctionDef || s->kind == StmtKind::ClassDef) {
    program::NameSet names;
    program::names_read(s, names);
    for (const auto& n : names.names()) out.push_back({n, nullptr});
    return out;
  }
  if (s->kind != StmtKind::Delete)
    for (const Expr* t : s->targets) {
      if (s->kind == StmtKind::AugAssign) reads(t, out, skip);
      else target_reads(t, out, skip);
    }
  reads(s->value, out, skip);
  reads(s->extra, out, skip);
  for (const auto& w : s->items) {
    reads(w.value, out, skip);
    target_reads(w.target, out, skip);
  }
  for (const auto& h : s->handlers) reads(h.type, out, skip);
  for (const auto& c : s->cases) reads(c.guard, out, skip);
  return out;
}

std::vector<std::string> own_writes(const Stmt* s) {
  program::NameSet out;
  switch (s->kind) {
    case StmtKind::Assign:
    case StmtKind::For:
      for (const Expr* t : s->targets) program::target_names(t, out);
      break;
    case StmtKind::AnnAssign:
      if (s->value)
        for (const Expr* t : s->targets) program::target_names(t, out);
      break;
    case StmtKind::AugAssign:
      for (const Expr* t : s->targets) program::target_names(t, out);
      break;
    case StmtKind::With:
      for (const auto& w : s->items)
        if (w.target) program::target_names(w.target, out);
      break;
    case StmtKind::FunctionDef:
      if (s->function) out.add(s->function->name);
      break;
    case StmtKind::ClassDef:
      if (s->class_def) out.add(s->class_def->name);
      break;
    case StmtKind::Import:
    case StmtKind::ImportFrom: program::names_written(s, out); break;
    default: break;
  }
  program::for_each_expr(s, [&](const Expr* e) {
    program::walk(e, [&](const Expr* x) {
      if (x->kind == ExprKind::Walrus) program::target_names(x->kids[0], out);
      return x->kind != ExprKind::Lambda;
    });
  });
  return out.names();
}

std::vector<std::string> all_writes(const Stmt* s) {
  program::NameSet out;
  program::names_written(s, out);
  return out.names();
}

std::vector<const Expr*> in_evaluation_order(const Expr* e) {
  std::vector<const Expr*> out;
  if (e->kind == ExprKind::Conditional && e->kids.size() == 3) return {e->kids[1], e->kids[0], e->kids[2]};
  for (const Expr* k : e->kids)
    if (k) out.push_back(k);
  for (const auto& a : e->args)
    if (a.value) out.push_back(a.value);
  return out;
}

bool is_docstring(const Function& f, const Stmt* s) {
  return !f.body.empty() && f.body.front() == s && s->kind == StmtKind::Expression && s->value && s->value->kind == ExprKind::String;
}

namespace {
bool word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Calls f with the end of every whole word `name`; false as soon as f says so.
template <class F>
bool each_name(const std::string& text, const std::string& name, F f) {
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + name.size())) {
    const std::size_t end = at + name.size();
    if ((at == 0 || !word(text[at - 1])) && (end == text.size() || !word(text[end])) && !f(at, end)) return false;
  }
  return true;
}
}  // namespace

int times_named(const std::string& text, const std::string& name) {
  int n = 0;
  each_name(text, name, [&](std::size_t, std::size_t) { return ++n > 0; });
  return n;
}

bool only_holds(const std::string& text, const std::string& variable) {
  return each_name(text, variable, [&](std::size_t at, std::size_t end) {
    const std::string_view rest = std::string_view(text).substr(end);
    for (const char* use : {" = [", ".append(", ".pop("})
      if (rest.rfind(use, 0) == 0) return at == 0 || text[at - 1] != '.';
    if (rest.empty() || rest[0] != '[') return false;
    std::size_t close = 1;
    while (close < rest.size() && std::isdigit(static_cast<unsigned char>(rest[close]))) ++close;
    const std::size_t line = text.rfind('\n', at) + 1;  // npos + 1: the beginning
    const bool returned = std::string_view(text).substr(text.find_first_not_of(' ', line)).rfind("return ", 0) == 0;
    return returned && close > 1 && close < rest.size() && rest[close] == ']' &&
        (close + 1 == rest.size() || rest[close + 1] == ',' || rest[close + 1] == '\n' || rest[close + 1] == ')');
  });
}

void for_statements(const Block& b, const std::function<void(const Stmt*)>& visit) {
  program::walk(b, [&](const Stmt* s) {
    visit(s);
    return s->kind != StmtKind::FunctionDef && s->kind != StmtKind::ClassDef;
  });
}

bool simple(const Stmt* s) {
  return s->kind == StmtKind::Assign || s->kind == StmtKind::AnnAssign || s->kind == StmtKind::AugAssign ||
      s->kind == StmtKind::Expression || s->kind == StmtKind::Delete || s->kind == StmtKind::Assert;
}

bool empty_container(const Expr* call) {
  static const std::set<std::string> names{"ModuleList", "ModuleDict", "Sequential"};
  if (call->kind != ExprKind::Call || !names.count(call->kids[0]->text)) return false;
  return call->args.empty() ||
      (call->args.size() == 1 && call->args[0].value && call->args[0].value->kids.empty() &&
       (call->args[0].value->kind == ExprKind::List || call->args[0].value->kind == ExprKind::Dict));
}

bool is_unbound_call(const model::Trace& t, const Expr* call, model::FrameId from, model::FrameId to) {
  if (t.frame(to).self < 0 || t.frame(to).self != t.frame(from).self || !t.frame(from).function || call->args.empty()) return false;
  const std::string self = self_name(t.frame(from).function);
  const Expr *callee = call->kids[0], *first = call->args[0].value;
  return callee->kind == ExprKind::Attribute && (callee->kids[0]->kind == ExprKind::Name || callee->kids[0]->kind == ExprKind::Attribute) &&
      callee->kids[0]->text != self && call->args[0].keyword.empty() && first && first->kind == ExprKind::Name && first->text == self;
}

// ---- text ------------------------------------------------------------------------------------------------------------------

std::string with_edits(Range whole, std::vector<Edit> edits, const Render& render) {
  std::erase_if(edits, [&](const Edit& e) { return !whole.contains(e.range); });
  std::stable_sort(edits.begin(), edits.end(), [](const Edit& a, const Edit& b) {
    return a.range.begin != b.range.begin ? a.range.begin < b.range.begin : a.range.end > b.range.end;
  });
  if (edits.empty()) return render(whole);
  if (render.places()) {
    Render::Replacements list;
    std::uint32_t end = whole.begin;
    for (const Edit& e : edits) {
      if (e.range.begin < end) continue;  // inside an earlier, larger edit
      list.emplace_back(e.range, e.text);
      end = e.range.end;
    }
    return render(whole, list);
  }
  std::string out;
  std::uint32_t at = whole.begin;
  for (const Edit& e : edits) {
    if (e.range.begin < at) continue;  // inside an earlier, larger edit
    if (e.range.begin > at) out += render({whole.file, at, e.range.begin});
    out += e.text;
    at = e.range.end;
  }
  if (at < whole.end) out += render({whole.file, at, whole.end});
  return out;
}

Layout::Layout(const support::SourceManager& sources, const Function& f)
    : sources_(sources), function_(f), text_(&sources.file(f.def_range.file).text) {
  const std::uint32_t colon = colon_before(f.def_range.begin, f.def_range.end);
  std::uint32_t end = colon + 1;
  const std::string tail = behind(end);
  header_ = {f.def_range.file, f.def_range.begin, end + static_cast<std::uint32_t>(tail.size())};
  tabs_ = !f.body.empty() && (*text_)[line_start(f.body.front()->range.begin)] == '\t';
}

/// The colon that ends a header: the first outside of brackets, strings and comments.
std::uint32_t Layout::colon_before(std::uint32_t from, std::uint32_t limit) const {
  const std::string& t = *text_;
  int depth = 0;
  bool lambda = false;
  for (std::uint32_t i = from; i < limit; ++i) {
    const char c = t[i];
    if (c == '#') {
      while (i < limit && t[i] != '\n') ++i;
    } else if (c == '"' || c == '\'') {
      const bool triple = t.compare(i, 3, std::string(3, c)) == 0;
      const std::string close(triple ? 3 : 1, c);
      i += static_cast<std::uint32_t>(close.size());
      while (i < limit && t.compare(i, close.size(), close) != 0) i += t[i] == '\\' ? 2 : 1;
      i += static_cast<std::uint32_t>(close.size()) - 1;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth;
    } else if (c == ')' || c == ']' || c == '}') {
      --depth;
    } else if (c == 'l' && t.compare(i, 7, "lambda ") == 0) {
      lambda = true;
    } else if (c == ':' && depth == 0) {
      if (!lambda) return i;
      lambda = false;
    }
  }
  return limit;
}

std::uint32_t Layout::line_start(std::uint32_t at) const {
  while (at > 0 && (*text_)[at - 1] != '\n') --at;
  return at;
}
std::uint32_t Layout::line_end(std::uint32_t at) const {
  while (at < text_->size() && (*text_)[at] != '\n') ++at;
  return at;
}

std::size_t Layout::column(const Stmt* s) const { return s->range.begin - line_start(s->range.begin); }

std::string Layout::behind(std::uint32_t end) const {
  std::uint32_t i = end;
  while (i < text_->size() && ((*text_)[i] == ' ' || (*text_)[i] == '\t')) ++i;
  if (i >= text_->size() || (*text_)[i] != '#') return "";
  std::string s = text_->substr(end, line_end(i) - end);
  while (!s.empty() && (s.back() == '\r' || s.back() == ' ')) s.pop_back();
  return s;
}

std::string Layout::above(const Stmt* s, const Block& block, std::size_t index, const Stmt* parent) const {
  std::uint32_t from = 0;
  if (index > 0) {
    from = block[index - 1]->range.end;
  } else if (parent) {
    from = header_of(parent, block).end;
  } else {
    from = header_.end;
  }
  from = line_end(from);
  const std::uint32_t to = line_start(s->range.begin);
  if (from + 1 >= to) return "";  // the same line, or the next
  std::string out = text_->substr(from + 1, to - from - 1);
  const std::size_t col = column(s);
  std::string kept, line;
  for (const char c : out) {
    line += c;
    if (c != '\n') continue;
    const auto first = line.find_first_not_of(" \t\r\n");
    if (first == std::string::npos || (line[first] == '#' && first <= col)) kept += line;
    else kept.clear();  // an `else:`; or a comment of the block above, which goes with that (`below`)
    line.clear();
  }
  return kept;
}

std::string Layout::below(const Stmt* s) const {
  std::uint32_t at = line_end(s->range.end);
  const std::size_t col = column(s);
  std::string out, pending;
  while (at < text_->size()) {
    const std::uint32_t end = line_end(at + 1);
    const std::string line = text_->substr(at + 1, end - at - 1);
    const auto first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos) {
      pending += "\n" + line;
    } else if (line[first] == '#' && first >= col && end <= function_.def_range.end + 4096) {
      out += pending + "\n" + line;
      pending.clear();
    } else {
      break;
    }
    at = end;
  }
  return out;
}

Range Layout::header_of(const Stmt* s, const Block& body) const {
  // An else branch: its header is the `else:` before its first statement; looked for backwards from there.
  std::uint32_t from = s->range.begin;
  if (&body != &s->body && !body.empty()) {
    std::uint32_t at = body.front()->range.begin;
    if (body.size() == 1 && body.front()->kind == StmtKind::If && text_->compare(at, 4, "elif") == 0) return {s->range.file, at, at};
    while (at > from) {
      const std::uint32_t begin = line_start(at - 1);
      const auto first = text_->find_first_not_of(" \t", begin);
      if (text_->compare(first, 4, "else") == 0 || text_->compare(first, 7, "finally") == 0 || text_->compare(first, 6, "except") == 0) {
        from = static_cast<std::uint32_t>(first);
        break;
      }
      at = begin;
      if (at == 0) break;
    }
  }
  return {s->range.file, from, colon_before(from, s->range.end) + 1};
}

std::string with_tabs(const std::string& text) {
  std::string out, quote;
  bool start = true;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 3, "\"\"\"") == 0 || text.compare(i, 3, "'''") == 0) {
      const std::string q = text.substr(i, 3);
      if (quote.empty()) quote = q;
      else if (quote == q) quote.clear();
      out += q;
      i += 2;
      start = false;
      continue;
    }
    out += start && quote.empty() && text[i] == ' ' ? '\t' : text[i];
    start = text[i] == '\n' || (start && (text[i] == ' ' || text[i] == '\t'));
  }
  return out;
}

std::string shift(const std::string& text, int delta) {
  if (delta == 0) return text;
  std::string out;
  std::string quote;  // inside a triple-quoted string: its delimiter
  bool start = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (start && quote.empty()) {
      if (delta > 0) {
        if (text[i] != '\n') out.append(static_cast<std::size_t>(delta), ' ');
      } else {
        int left = -delta;
        while (left > 0 && i < text.size() && (text[i] == ' ' || text[i] == '\t')) ++i, --left;
        if (i >= text.size()) break;
      }
    }
    start = false;
    if (text.compare(i, 3, "\"\"\"") == 0 || text.compare(i, 3, "'''") == 0) {
      const std::string q = text.substr(i, 3);
      if (quote.empty()) quote = q;
      else if (quote == q) quote.clear();
      out += q;
      i += 2;
      continue;
    }
    out += text[i];
    if (text[i] == '\n') start = true;
  }
  return out;
}

}  // namespace shardwright::rewrite::stage
