#include <algorithm>

#include "python/lower.h"
#include "tree_sitter_python_symbols.h"

namespace shardwright::python {

using program::Argument;
using program::ExprKind;
using program::Parameter;
using program::StmtKind;

namespace {

// Where a compound statement ends: at its last statement, not at the dedent behind it.
std::uint32_t end_of(const std::vector<program::Stmt*>& body, std::uint32_t otherwise) {
  return body.empty() ? otherwise : body.back()->range.end;
}

}  // namespace

program::Stmt* Lowering::make_stmt(StmtKind kind, TSNode node, std::vector<Stmt*>& out) {
  Stmt* s = arena_.stmt(kind, range(node));
  out.push_back(s);
  return s;
}

void Lowering::block(TSNode node, std::vector<Stmt*>& out) {
  const Children c(*this, node);
  for (std::size_t i = 0; i < c.size(); ++i)
    if (ts_node_is_named(c[i].node)) stmt(c[i].node, out);
}

void Lowering::stmt(TSNode node, std::vector<Stmt*>& out) {
  if (too_deep(node)) {
    make_stmt(StmtKind::Opaque, node, out)->text = ts_node_type(node);
    return;
  }
  const Depth deeper(depth_);
  switch (ts_node_symbol(node)) {
    case ts::sym_expression_statement: expression_statement(node, out); return;
    case ts::sym_return_statement: {
      const Children c(*this, node);
      Stmt* s = make_stmt(StmtKind::Return, node, out);
      if (c.size() > 1) s->value = expr(c[1].node);
      return;
    }
    case ts::sym_if_statement: if_statement(node, out); return;
    case ts::sym_for_statement: for_statement(node, out); return;
    case ts::sym_while_statement: while_statement(node, out); return;
    case ts::sym_with_statement: with_statement(node, out); return;
    case ts::sym_try_statement: try_statement(node, out); return;
    case ts::sym_match_statement: match_statement(node, out); return;
    case ts::sym_function_definition:
    case ts::sym_class_definition: definition(node, node, {}, out); return;
    case ts::sym_decorated_definition: decorated(node, out); return;
    case ts::sym_import_statement: {
      const Children c(*this, node);
      import_names(c, make_stmt(StmtKind::Import, node, out));
      return;
    }
    case ts::sym_import_from_statement: import_from(node, out, false); return;
    case ts::sym_future_import_statement: import_from(node, out, true); return;
    case ts::sym_raise_statement: {
      const Children c(*this, node);
      Stmt* s = make_stmt(StmtKind::Raise, node, out);
      const TSNode cause = c.field(ts::field_cause);
      for (std::size_t i = 1; i < c.size(); ++i) {
        if (!ts_node_is_named(c[i].node) || c[i].field == ts::field_cause) continue;
        s->value = expr(c[i].node);
        break;
      }
      if (!ts_node_is_null(cause)) s->extra = expr(cause);
      return;
    }
    case ts::sym_assert_statement: {
      const Children c(*this, node);
      Stmt* s = make_stmt(StmtKind::Assert, node, out);
      for (std::size_t i = 1; i < c.size(); ++i) {
        if (!ts_node_is_named(c[i].node)) continue;
        (s->value ? s->extra : s->value) = expr(c[i].node);
      }
      if (!s->value) s->value = expr(TSNode{});
      return;
    }
    case ts::sym_delete_statement: {
      const Children c(*this, node);
      Stmt* s = make_stmt(StmtKind::Delete, node, out);
      for (std::size_t i = 1; i < c.size(); ++i) {
        if (c[i].symbol == ts::sym_expression_list) {
          const Children list(*this, c[i].node);
          for (std::size_t k = 0; k < list.size(); ++k)
            if (ts_node_is_named(list[k].node)) s->targets.push_back(expr(list[k].node));
        } else if (ts_node_is_named(c[i].node)) {
          s->targets.push_back(expr(c[i].node));
        }
      }
      for (const Expr* t : s->targets) bind_target(t);
      return;
    }
    case ts::sym_global_statement: {
      Stmt* s = make_stmt(StmtKind::Global, node, out);
      names_of(node, s);
      return;
    }
    case ts::sym_nonlocal_statement: {
      Stmt* s = make_stmt(StmtKind::Nonlocal, node, out);
      names_of(node, s);
      return;
    }
    case ts::sym_pass_statement: make_stmt(StmtKind::Pass, node, out); return;
    case ts::sym_break_statement: make_stmt(StmtKind::Break, node, out); return;
    case ts::sym_continue_statement: make_stmt(StmtKind::Continue, node, out); return;
    case ts::sym_type_alias_statement: {
      const Children c(*this, node);
      Stmt* s = make_stmt(StmtKind::TypeAlias, node, out);
      const TSNode left = c.field(ts::field_left);
      if (!ts_node_is_null(left)) {
        const std::string_view whole = text(left);
        bind(whole.substr(0, whole.find_first_of(" \t[")));
        s->text = whole.substr(0, whole.find_first_of(" \t["));
      }
      return;
    }
    case ts::sym_print_statement:
    case ts::sym_exec_statement:
      syntax_error(range(node), "this is a Python 2 statement: parentheses are missing");
      make_stmt(StmtKind::Opaque, node, out)->text = ts_node_type(node);
      return;
    default: {
      // After a syntax error expressions may stand where statements do.
      Stmt* s = make_stmt(StmtKind::Opaque, node, out);
      s->text = ts_node_type(node);
      return;
    }
  }
}

void Lowering::expression_statement(TSNode node, std::vector<Stmt*>& out) {
  const Children c(*this, node);
  if (c.size() == 0) {
    make_stmt(StmtKind::Opaque, node, out)->text = ts_node_type(node);
    return;
  }
  if (c.size() == 1) {
    switch (c[0].symbol) {
      case ts::sym_assignment: assignment(c[0].node, out, node); return;
      case ts::sym_augmented_assignment: {
        const Children a(*this, c[0].node);
        Stmt* s = make_stmt(StmtKind::AugAssign, node, out);
        s->targets.push_back(expr(a.field(ts::field_left)));
        bind_target(s->targets[0]);
        const TSNode op = a.field(ts::field_operator);
        if (!ts_node_is_null(op)) s->op = text(op).substr(0, text(op).size() - 1);
        s->value = expr(a.field(ts::field_right));
        return;
      }
      default: make_stmt(StmtKind::Expression, node, out)->value = expr(c[0].node); return;
    }
  }
  Stmt* s = make_stmt(StmtKind::Expression, node, out);
  std::vector<Expr*> items;
  for (std::size_t i = 0; i < c.size(); ++i)
    if (ts_node_is_named(c[i].node)) items.push_back(expr(c[i].node));
  s->value = comma_list(items, s->range.begin, s->range.end);
}

// a = b = value comes nested: a = (b = value).
void Lowering::assignment(TSNode node, std::vector<Stmt*>& out, TSNode whole) {
  Stmt* s = make_stmt(StmtKind::Assign, whole, out);
  TSNode at = node;
  while (true) {
    const Children c(*this, at);
    s->targets.push_back(expr(c.field(ts::field_left)));
    bind_target(s->targets.back());
    const TSNode annotation = c.field(ts::field_type);
    const TSNode right = c.field(ts::field_right);
    if (!ts_node_is_null(annotation)) {
      s->kind = StmtKind::AnnAssign;
      s->annotation = expr(annotation);
    }
    if (!ts_node_is_null(right) && ts_node_symbol(right) == ts::sym_assignment) {
      at = right;
      continue;
    }
    if (!ts_node_is_null(right)) s->value = expr(right);
    else if (s->kind == StmtKind::Assign) s->value = expr(TSNode{});
    return;
  }
}

void Lowering::names_of(TSNode node, Stmt* s) {
  const Children c(*this, node);
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].symbol != ts::sym_identifier) continue;
    s->names.emplace_back(text(c[i].node));
    scopes_.back().excluded.insert(text(c[i].node));
  }
}

void Lowering::import_names(const Children& c, Stmt* s) {
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].field != ts::field_name) continue;
    program::ImportName name;
    if (c[i].symbol == ts::sym_aliased_import) {
      const Children a(*this, c[i].node);
      const TSNode of = a.field(ts::field_name), as = a.field(ts::field_alias);
      if (!ts_node_is_null(of)) name.name = dotted_text(of);
      if (!ts_node_is_null(as)) {
        name.asname = text(as);
        bind(text(as));
      }
    } else if (c[i].symbol == ts::sym_dotted_name) {
      name.name = dotted_text(c[i].node);
      const std::string_view written = text(c[i].node);
      bind(written.substr(0, written.find_first_of(". \t\\")));
    } else {
      continue;
    }
    name.range = range(c[i].node);
    s->imports.push_back(std::move(name));
  }
}

void Lowering::import_from(TSNode node, std::vector<Stmt*>& out, bool future) {
  const Children c(*this, node);
  Stmt* s = make_stmt(StmtKind::ImportFrom, node, out);
  if (future) s->module = "__future__";
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].field == ts::field_module_name) {
      const std::string whole = dotted_text(c[i].node);
      const std::size_t dots = std::min(whole.find_first_not_of('.'), whole.size());
      s->level = static_cast<int>(dots);
      s->module = whole.substr(dots);
    } else if (c[i].symbol == ts::sym_wildcard_import) {
      program::ImportName star;
      star.name = "*";
      star.range = range(c[i].node);
      s->imports.push_back(std::move(star));
    }
  }
  import_names(c, s);
}

void Lowering::if_statement(TSNode node, std::vector<Stmt*>& out) {
  const Children c(*this, node);
  Stmt* head = make_stmt(StmtKind::If, node, out);
  std::vector<Stmt*> chain{head};
  head->value = expr(c.field(ts::field_condition));
  const TSNode body = c.field(ts::field_consequence);
  if (!ts_node_is_null(body)) block(body, head->body);
  std::uint32_t end = end_of(head->body, head->range.end);
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].symbol == ts::sym_elif_clause) {
      const Children e(*this, c[i].node);
      Stmt* s = make_stmt(StmtKind::If, c[i].node, chain.back()->orelse);
      s->value = expr(e.field(ts::field_condition));
      const TSNode then = e.field(ts::field_consequence);
      if (!ts_node_is_null(then)) block(then, s->body);
      chain.push_back(s);
      end = end_of(s->body, s->range.end);
    } else if (c[i].symbol == ts::sym_else_clause) {
      const Children e(*this, c[i].node);
      const TSNode otherwise = e.field(ts::field_body);
      if (!ts_node_is_null(otherwise)) block(otherwise, chain.back()->orelse);
      end = end_of(chain.back()->orelse, ts_node_end_byte(c[i].node));
    }
  }
  for (Stmt* s : chain) s->range.end = end;
}

void Lowering::for_statement(TSNode node, std::vector<Stmt*>& out) {
  const Children c(*this, node);
  Stmt* s = make_stmt(StmtKind::For, node, out);
  if (c.size() > 0 && c[0].symbol == ts::anon_sym_async) s->text = "async";
  s->targets.push_back(expr(c.field(ts::field_left)));
  bind_target(s->targets[0]);
  s->value = expr(c.field(ts::field_right));
  const TSNode body = c.field(ts::field_body);
  if (!ts_node_is_null(body)) block(body, s->body);
  s->range.end = end_of(s->body, s->range.end);
  const TSNode otherwise = c.field(ts::field_alternative);
  if (!ts_node_is_null(otherwise)) {
    const Children e(*this, otherwise);
    const TSNode b = e.field(ts::field_body);
    if (!ts_node_is_null(b)) block(b, s->orelse);
    s->range.end = end_of(s->orelse, ts_node_end_byte(otherwise));
  }
}

void Lowering::while_statement(TSNode node, std::vector<Stmt*>& out) {
  const Children c(*this, node);
  Stmt* s = make_stmt(StmtKind::While, node, out);
  s->value = expr(c.field(ts::field_condition));
  const TSNode body = c.field(ts::field_body);
  if (!ts_node_is_null(body)) block(body, s->body);
  s->range.end = end_of(s->body, s->range.end);
  const TSNode otherwise = c.field(ts::field_alternative);
  if (!ts_node_is_null(otherwise)) {
    const Children e(*this, otherwise);
    const TSNode b = e.field(ts::field_body);
    if (!ts_node_is_null(b)) block(b, s->orelse);
    s->range.end = end_of(s->orelse, ts_node_end_byte(otherwise));
  }
}

void Lowering::handler(TSNode node, Stmt* s) {
  const Children c(*this, node);
  program::Handler h;
  h.range = range(node);
  std::vector<Expr*> types;
  TSNode body{}, alias = c.field(ts::field_alias);
  bool named = false;
  for (std::size_t i = 1; i < c.size(); ++i) {
    const Child child = c[i];
    if (child.symbol == ts::anon_sym_STAR) s->text = "*";
    else if (child.symbol == ts::anon_sym_as) named = true;
    else if (child.symbol == ts::sym_block) body = child.node;
    else if (child.symbol == ts::sym_as_pattern) {
      const Children a(*this, child.node);
      if (a.size() > 0) types.push_back(expr(a[0].node));
      alias = a.field(ts::field_alias);
      named = true;
    } else if (ts_node_is_named(child.node) && child.field != ts::field_alias) {
      types.push_back(expr(child.node));
    }
  }
  if (!ts_node_is_null(alias) && named) {
    h.name = text(alias);
    bind(text(alias));
  } else if (types.size() > 1 || !ts_node_is_null(alias)) {
    syntax_error(range(node), "several exception types must be parenthesized");
  }
  if (!types.empty()) h.type = types[0];
  if (!ts_node_is_null(body)) block(body, h.body);
  h.range.end = end_of(h.body, h.range.end);
  s->handlers.push_back(std::move(h));
}

void Lowering::try_statement(TSNode node, std::vector<Stmt*>& out) {
  const Children c(*this, node);
  Stmt* s = make_stmt(StmtKind::Try, node, out);
  const TSNode body = c.field(ts::field_body);
  if (!ts_node_is_null(body)) block(body, s->body);
  s->range.end = end_of(s->body, s->range.end);
  for (std::size_t i = 0; i < c.size(); ++i) {
    const Child child = c[i];
    if (child.symbol == ts::sym_except_clause) {
      handler(child.node, s);
      s->range.end = s->handlers.back().range.end;
    } else if (child.symbol == ts::sym_else_clause) {
      const Children e(*this, child.node);
      const TSNode b = e.field(ts::field_body);
      if (!ts_node_is_null(b)) block(b, s->orelse);
      s->range.end = end_of(s->orelse, ts_node_end_byte(child.node));
    } else if (child.symbol == ts::sym_finally_clause) {
      const Children e(*this, child.node);
      for (std::size_t k = 0; k < e.size(); ++k)
        if (e[k].symbol == ts::sym_block) block(e[k].node, s->finally);
      s->range.end = end_of(s->finally, ts_node_end_byte(child.node));
    }
  }
}

void Lowering::with_item(TSNode node, Stmt* s) {
  program::WithItem item;
  if (ts_node_symbol(node) == ts::sym_with_item) {
    const Children c(*this, node);
    const TSNode value = c.field(ts::field_value);
    if (ts_node_is_null(value)) return;
    with_item(value, s);
    return;
  }
  if (ts_node_symbol(node) == ts::sym_as_pattern) {
    const Children c(*this, node);
    item.value = expr(c.size() > 0 ? c[0].node : TSNode{});
    const TSNode alias = c.field(ts::field_alias);
    if (!ts_node_is_null(alias)) {
      item.target = expr(alias);
      bind_target(item.target);
    }
  } else {
    item.value = expr(node);
  }
  s->items.push_back(item);
}

void Lowering::with_statement(TSNode node, std::vector<Stmt*>& out) {
  const Children c(*this, node);
  Stmt* s = make_stmt(StmtKind::With, node, out);
  if (c.size() > 0 && c[0].symbol == ts::anon_sym_async) s->text = "async";
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].symbol != ts::sym_with_clause) continue;
    const Children clause(*this, c[i].node);
    for (std::size_t k = 0; k < clause.size(); ++k) {
      if (clause[k].symbol != ts::sym_with_item) continue;
      // `with (a as b, c as d):` may come as one item that is a tuple of as-patterns; `with (a, b):` is two items all the same.
      const Children item(*this, clause[k].node);
      const TSNode value = item.field(ts::field_value);
      const bool alone = clause.size() == 1 && !ts_node_is_null(value);
      if (alone && ts_node_symbol(value) == ts::sym_tuple && ts_node_named_child_count(value) > 0) {
        const Children list(*this, value);
        for (std::size_t m = 0; m < list.size(); ++m)
          if (ts_node_is_named(list[m].node)) with_item(list[m].node, s);
      } else if (alone && ts_node_symbol(value) == ts::sym_parenthesized_expression) {
        const Children inner(*this, value);
        bool as = false;
        for (std::size_t m = 0; m < inner.size(); ++m)
          if (inner[m].symbol == ts::sym_as_pattern) {
            with_item(inner[m].node, s);
            as = true;
          }
        if (!as) with_item(value, s);
      } else {
        with_item(clause[k].node, s);
      }
    }
  }
  const TSNode body = c.field(ts::field_body);
  if (!ts_node_is_null(body)) block(body, s->body);
  s->range.end = end_of(s->body, s->range.end);
}

void Lowering::match_statement(TSNode node, std::vector<Stmt*>& out) {
  const Children c(*this, node);
  Stmt* s = make_stmt(StmtKind::Match, node, out);
  std::vector<Expr*> subjects;
  bool comma = false;
  std::uint32_t end = 0;
  TSNode body{};
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].field == ts::field_subject && c[i].symbol != ts::anon_sym_COMMA) {
      subjects.push_back(expr(c[i].node));
      end = subjects.back()->outer.end;
    } else if (c[i].symbol == ts::anon_sym_COMMA) {
      comma = true;
      end = ts_node_end_byte(c[i].node);
    } else if (c[i].symbol == ts::sym_block) {
      body = c[i].node;
    }
  }
  if (subjects.empty()) s->value = expr(TSNode{});
  else s->value = subjects.size() == 1 && !comma ? subjects[0] : comma_list(subjects, subjects[0]->outer.begin, end);
  const Children clauses(*this, body);
  for (std::size_t i = 0; i < clauses.size(); ++i) {
    if (clauses[i].symbol != ts::sym_case_clause) continue;
    const Children k(*this, clauses[i].node);
    program::MatchCase m;
    m.range = range(clauses[i].node);
    std::vector<Expr*> patterns;
    bool several = false;
    std::uint32_t last = 0;
    for (std::size_t j = 0; j < k.size(); ++j) {
      const Child child = k[j];
      if (child.symbol == ts::sym_case_pattern) {
        patterns.push_back(pattern(child.node));
        last = patterns.back()->outer.end;
      } else if (child.symbol == ts::anon_sym_COMMA) {
        several = true;
        last = ts_node_end_byte(child.node);
      } else if (child.symbol == ts::sym_if_clause) {
        const Children guard(*this, child.node);
        if (guard.size() > 1) m.guard = expr(guard[1].node);
      } else if (child.symbol == ts::sym_block) {
        block(child.node, m.body);
      }
    }
    if (patterns.empty()) m.pattern = expr(TSNode{});
    else m.pattern = patterns.size() == 1 && !several ? patterns[0] : comma_list(patterns, patterns[0]->outer.begin, last);
    m.range.end = end_of(m.body, m.range.end);
    s->range.end = m.range.end;
    s->cases.push_back(std::move(m));
  }
  if (s->cases.empty()) syntax_error(s->range, "expected an indented 'case' after 'match'");
}

void Lowering::decorated(TSNode node, std::vector<Stmt*>& out) {
  const Children c(*this, node);
  std::vector<Expr*> decorators;
  TSNode inner{};
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].symbol == ts::sym_decorator) {
      const Children d(*this, c[i].node);
      if (d.size() > 1) decorators.push_back(expr(d[1].node));
    } else if (c[i].field == ts::field_definition) {
      inner = c[i].node;
    }
  }
  if (ts_node_is_null(inner)) {
    make_stmt(StmtKind::Opaque, node, out)->text = ts_node_type(node);
    return;
  }
  definition(inner, node, std::move(decorators), out);
}

void Lowering::definition(TSNode node, TSNode whole, std::vector<Expr*> decorators, std::vector<Stmt*>& out) {
  if (ts_node_symbol(node) == ts::sym_class_definition) class_definition(node, whole, std::move(decorators), out);
  else function_definition(node, whole, std::move(decorators), out);
}

void Lowering::function_definition(TSNode node, TSNode whole, std::vector<Expr*> decorators, std::vector<Stmt*>& out) {
  const Children c(*this, node);
  Stmt* s = make_stmt(StmtKind::FunctionDef, whole, out);
  program::Function* f = arena_.function();
  s->function = f;
  const TSNode name = c.field(ts::field_name);
  if (!ts_node_is_null(name)) {
    f->name = text(name);
    bind(text(name));
  }
  f->decorators = std::move(decorators);
  f->owner = scopes_.back().class_def;
  f->is_async = c.size() > 0 && c[0].symbol == ts::anon_sym_async;
  const TSNode result = c.field(ts::field_return_type);
  if (!ts_node_is_null(result)) f->returns = expr(result);
  parameters(c.field(ts::field_parameters), f);
  if (const LeftOut* body = outline_ ? outline_->of(ts_node_start_byte(node)) : nullptr) {
    s->range.end = body->last;
    f->range = s->range;
    f->def_range = {source_.id, body->def, body->last};
    f->body_range = {source_.id, body->last, body->last};
    f->module = &module_;
    read_later(f, *body);
    return;
  }
  push_function(f);
  const TSNode body = c.field(ts::field_body);
  if (!ts_node_is_null(body)) block(body, f->body.fill());
  s->range.end = end_of(f->body, s->range.end);
  f->range = s->range;
  f->def_range = range(node);
  f->def_range.end = s->range.end;
  f->body_range = Range{source_.id, f->body.empty() ? s->range.end : f->body.front()->range.begin, s->range.end};
  pop_function();
}

void Lowering::class_definition(TSNode node, TSNode whole, std::vector<Expr*> decorators, std::vector<Stmt*>& out) {
  const Children c(*this, node);
  Stmt* s = make_stmt(StmtKind::ClassDef, whole, out);
  program::ClassDef* k = arena_.class_def();
  s->class_def = k;
  k->module = &module_;
  const TSNode name = c.field(ts::field_name);
  if (!ts_node_is_null(name)) {
    k->name = text(name);
    bind(text(name));
  }
  k->decorators = std::move(decorators);
  arguments(c.field(ts::field_superclasses), k->bases);
  scopes_.emplace_back();
  scopes_.back().class_def = k;
  const TSNode body = c.field(ts::field_body);
  if (!ts_node_is_null(body)) block(body, k->body);
  scopes_.pop_back();
  s->range.end = end_of(k->body, s->range.end);
  k->range = s->range;
  k->def_range = range(node);
  k->def_range.end = s->range.end;
}

void Lowering::parameters(TSNode node, program::Function* f) {
  const Children c(*this, node);
  bool keyword_only = false;
  for (std::size_t i = 0; i < c.size(); ++i) {
    const Child child = c[i];
    if (child.symbol == ts::sym_keyword_separator) {
      keyword_only = true;
      continue;
    }
    if (child.symbol == ts::sym_positional_separator) {
      for (Parameter& p : f->parameters)
        if (p.kind == Parameter::Positional) p.kind = Parameter::PositionalOnly;
      continue;
    }
    if (!ts_node_is_named(child.node)) continue;
    Parameter p;
    p.range = range(child.node);
    p.kind = keyword_only ? Parameter::KeywordOnly : Parameter::Positional;
    TSNode name = child.node;
    if (child.symbol == ts::sym_default_parameter || child.symbol == ts::sym_typed_default_parameter ||
        child.symbol == ts::sym_typed_parameter) {
      const Children parts(*this, child.node);
      const TSNode type = parts.field(ts::field_type), value = parts.field(ts::field_value);
      if (!ts_node_is_null(type)) p.annotation = expr(type);
      if (!ts_node_is_null(value)) p.default_value = expr(value);
      name = child.symbol == ts::sym_typed_parameter ? (parts.size() > 0 ? parts[0].node : TSNode{}) : parts.field(ts::field_name);
    }
    if (ts_node_is_null(name)) continue;
    const std::uint16_t symbol = ts_node_symbol(name);
    if (symbol == ts::sym_list_splat_pattern || symbol == ts::sym_dictionary_splat_pattern || symbol == ts::sym_list_splat ||
        symbol == ts::sym_dictionary_splat) {
      p.kind = symbol == ts::sym_list_splat_pattern || symbol == ts::sym_list_splat ? Parameter::VarArgs : Parameter::VarKeywords;
      if (p.kind == Parameter::VarArgs) keyword_only = true;
      const Children star(*this, name);
      if (star.size() > 1) name = star[star.size() - 1].node;
    }
    if (symbol == ts::sym_tuple_pattern) syntax_error(range(name), "tuple parameters are Python 2");
    p.name = text(name);
    f->parameters.push_back(std::move(p));
  }
}

}  // namespace shardwright::python
