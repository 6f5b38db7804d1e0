#include <algorithm>

#include "python/literals.h"
#include "python/lower.h"
#include "tree_sitter_python_symbols.h"

namespace shardwright::python {

using program::Argument;
using program::Clause;
using program::ExprKind;

program::Expr* Lowering::expr(TSNode node) {
  if (ts_node_is_null(node)) {
    // Only after a syntax error, which is reported.
    Expr* e = arena_.expr(ExprKind::Opaque, Range{source_.id, 0, 0});
    e->text = "missing";
    return e;
  }
  if (too_deep(node)) return opaque(node);
  const Depth deeper(depth_);
  switch (ts_node_symbol(node)) {
    case ts::sym_identifier:
    case ts::alias_sym_as_pattern_target: {
      if (ts_node_symbol(node) == ts::alias_sym_as_pattern_target && ts_node_named_child_count(node) > 0)
        return expr(ts_node_named_child(node, 0));
      return leaf(ExprKind::Name, node);
    }
    case ts::sym_none: return make(ExprKind::None, node);
    case ts::sym_true: return make(ExprKind::True, node);
    case ts::sym_false: return make(ExprKind::False, node);
    case ts::sym_ellipsis: return make(ExprKind::Ellipsis, node);
    case ts::sym_integer:
    case ts::sym_float: {
      Expr* e = make(ExprKind::Int, node);
      decode_number(text(node), *e);
      return e;
    }
    case ts::sym_string: return string(node);
    case ts::sym_concatenated_string: return concatenated(node);
    case ts::sym_attribute: return hoist_star(attribute(node));
    case ts::sym_subscript: return hoist_star(subscript(node));
    case ts::sym_slice: return slice(node);
    case ts::sym_call: return hoist_star(call(node));
    case ts::sym_unary_operator:
    case ts::sym_not_operator: return unary(node);
    case ts::sym_binary_operator: return hoist_star(binary(node));
    case ts::sym_boolean_operator: return hoist_star(bool_op(node));
    case ts::sym_comparison_operator: return hoist_star(compare(node));
    case ts::sym_conditional_expression: return hoist_star(conditional(node));
    case ts::sym_tuple_pattern: {
      // `(x) = 1`: parentheses without a comma make no tuple.
      const Children c(*this, node);
      bool comma = false;
      for (std::size_t i = 0; i < c.size(); ++i) comma = comma || c[i].symbol == ts::anon_sym_COMMA;
      return c.size() == 3 && !comma ? parenthesized(node) : sequence(ExprKind::Tuple, node);
    }
    case ts::sym_tuple:
    case ts::sym_pattern_list:
    case ts::sym_expression_list: return sequence(ExprKind::Tuple, node);
    case ts::sym_list:
    case ts::sym_list_pattern: return sequence(ExprKind::List, node);
    case ts::sym_set: return sequence(ExprKind::Set, node);
    case ts::sym_dictionary: return dictionary(node);
    case ts::sym_list_comprehension: return comprehension(ExprKind::ListComp, node);
    case ts::sym_set_comprehension: return comprehension(ExprKind::SetComp, node);
    case ts::sym_generator_expression: return comprehension(ExprKind::GeneratorExp, node);
    case ts::sym_dictionary_comprehension: return comprehension(ExprKind::DictComp, node);
    case ts::sym_parenthesized_expression:
    case ts::sym_parenthesized_list_splat: return parenthesized(node);
    case ts::sym_list_splat:
    case ts::sym_list_splat_pattern:
    case ts::sym_splat_type: return prefix_operator(ExprKind::Starred, node);
    case ts::sym_await: return prefix_operator(ExprKind::Await, node);
    case ts::sym_named_expression: return walrus(node);
    case ts::sym_yield: return yield(node);
    case ts::sym_lambda: return lambda(node);
    case ts::sym_type: {
      const Children c(*this, node);
      return c.size() == 1 ? expr(c[0].node) : opaque(node);
    }
    case ts::sym_generic_type: return generic_type(node);
    case ts::sym_union_type: return union_type(node);
    case ts::sym_member_type: return member_type(node);
    case ts::sym_constrained_type: return slice(node);
    case ts::sym_dotted_name: return dotted(node);
    default: return opaque(node);
  }
}

program::Expr* Lowering::opaque(TSNode node) {
  Expr* e = make(ExprKind::Opaque, node);
  e->text = ts_node_type(node);
  return e;
}

program::Expr* Lowering::leaf(ExprKind kind, TSNode node) {
  Expr* e = make(kind, node);
  e->text = text(node);
  if (e->text == "async" || e->text == "await") syntax_error(e->range, "'" + e->text + "' is a keyword");  // names in Python 2 only
  return e;
}

program::Expr* Lowering::parenthesized(TSNode node) {
  const Children c(*this, node);
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].symbol == ts::anon_sym_LPAREN || c[i].symbol == ts::anon_sym_RPAREN) continue;
    Expr* e = expr(c[i].node);
    e->outer = range(node);
    return e;
  }
  return opaque(node);
}

// The grammar reads `*a.b()`, `*a or b`, `*x if c else y` as operations on `*a`: the star belongs outside.
program::Expr* Lowering::hoist_star(Expr* e) {
  if (e->kids.empty() || !e->kids[0]) return e;
  Expr* star = e->kids[0];
  if (star->kind != ExprKind::Starred || !(star->outer == star->range) || star->kids.empty()) return e;
  e->kids[0] = star->kids[0];
  e->range.begin = star->kids[0]->outer.begin;
  e->outer = e->range;
  star->kids[0] = e;
  star->range.end = e->range.end;
  star->outer = star->range;
  return star;
}

program::Expr* Lowering::attribute(TSNode node) {
  const Children c(*this, node);
  Expr* e = make(ExprKind::Attribute, node);
  e->kids.push_back(expr(c.field(ts::field_object)));
  const TSNode name = c.field(ts::field_attribute);
  if (!ts_node_is_null(name)) e->text = text(name);
  return e;
}

// Several expressions separated by commas are a Tuple without parentheses; one without a comma is itself.
program::Expr* Lowering::comma_list(const std::vector<Expr*>& items, std::uint32_t begin, std::uint32_t end) {
  Expr* e = arena_.expr(ExprKind::Tuple, Range{source_.id, begin, end});
  e->kids = items;
  return e;
}

program::Expr* Lowering::subscript(TSNode node) {
  const Children c(*this, node);
  Expr* e = make(ExprKind::Subscript, node);
  e->kids.push_back(expr(c.field(ts::field_value)));
  std::vector<Expr*> indices;
  std::uint32_t end = 0;
  bool comma = false;
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].field == ts::field_subscript && c[i].symbol != ts::anon_sym_COMMA) {
      indices.push_back(expr(c[i].node));
      end = indices.back()->outer.end;
    } else if (c[i].symbol == ts::anon_sym_COMMA) {
      comma = true;
      end = ts_node_end_byte(c[i].node);
    }
  }
  if (indices.size() == 1 && !comma && indices[0]->kind != ExprKind::Starred) e->kids.push_back(indices[0]);
  else if (!indices.empty()) e->kids.push_back(comma_list(indices, indices[0]->outer.begin, end));
  else e->kids.push_back(expr(TSNode{}));
  return e;
}

program::Expr* Lowering::slice(TSNode node) {
  const Children c(*this, node);
  Expr* e = make(ExprKind::Slice, node);
  e->kids.assign(3, nullptr);
  std::size_t part = 0;
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].symbol == ts::anon_sym_COLON) part = std::min<std::size_t>(part + 1, 2);
    else e->kids[part] = expr(c[i].node);
  }
  return e;
}

void Lowering::arguments(TSNode node, std::vector<Argument>& out) {
  const Children c(*this, node);
  for (std::size_t i = 0; i < c.size(); ++i) {
    const Child child = c[i];
    switch (child.symbol) {
      case ts::anon_sym_LPAREN:
      case ts::anon_sym_RPAREN:
      case ts::anon_sym_COMMA: continue;
      case ts::sym_keyword_argument: {
        const Children k(*this, child.node);
        Argument a;
        a.range = range(child.node);
        const TSNode name = k.field(ts::field_name);
        if (!ts_node_is_null(name)) a.keyword = text(name);
        a.value = expr(k.field(ts::field_value));
        out.push_back(std::move(a));
        break;
      }
      case ts::sym_dictionary_splat: {
        const Children k(*this, child.node);
        Argument a;
        a.range = range(child.node);
        a.double_star = true;
        a.value = expr(k.size() > 1 ? k[k.size() - 1].node : TSNode{});
        out.push_back(std::move(a));
        break;
      }
      default: {
        Argument a;
        a.range = range(child.node);
        a.value = expr(child.node);
        if (a.value->kind == ExprKind::Starred && a.value->outer == a.value->range && !a.value->kids.empty()) {
          a.star = true;
          a.value = a.value->kids[0];
        }
        out.push_back(std::move(a));
      }
    }
  }
}

program::Expr* Lowering::call(TSNode node) {
  const Children c(*this, node);
  Expr* e = make(ExprKind::Call, node);
  e->kids.push_back(expr(c.field(ts::field_function)));
  const TSNode list = c.field(ts::field_arguments);
  if (!ts_node_is_null(list) && ts_node_symbol(list) == ts::sym_generator_expression) {
    Argument a;  // f(x for x in y): the call's parentheses are the generator's
    a.value = expr(list);
    a.range = a.value->range;
    e->args.push_back(std::move(a));
  } else {
    arguments(list, e->args);
  }
  return e;
}

program::Expr* Lowering::unary(TSNode node) {
  const Children c(*this, node);
  Expr* e = make(ExprKind::Unary, node);
  const TSNode op = c.field(ts::field_operator);
  e->text = ts_node_is_null(op) ? "not" : std::string(text(op));
  e->kids.push_back(expr(c.field(ts::field_argument)));
  return e;
}

program::Expr* Lowering::binary(TSNode node) {
  const Children c(*this, node);
  Expr* e = make(ExprKind::Binary, node);
  const TSNode op = c.field(ts::field_operator);
  if (!ts_node_is_null(op)) e->text = text(op);
  e->kids.push_back(expr(c.field(ts::field_left)));
  e->kids.push_back(expr(c.field(ts::field_right)));
  return e->text == "&" ? regroup_and_xor(e) : e;
}

// In the grammar ^ binds tighter than &; in Python it is the other way round. Operands and operators of such a chain are laid out in
// their order and grouped again.
program::Expr* Lowering::regroup_and_xor(Expr* e) {
  const auto open = [](const Expr* k, std::string_view op) { return k->kind == ExprKind::Binary && k->text == op && k->outer == k->range; };
  if (!open(e->kids[0], "^") && !open(e->kids[1], "^")) return e;
  std::vector<Expr*> operands, nodes;
  std::vector<char> ops;
  const auto flatten = [&](const auto& self, Expr* k) -> void {
    if (k != e && !open(k, "^") && !open(k, "&")) {
      operands.push_back(k);
      return;
    }
    self(self, k->kids[0]);
    ops.push_back(k->text[0]);
    nodes.push_back(k);
    self(self, k->kids[1]);
  };
  flatten(flatten, e);
  std::size_t node = 0;
  const auto join = [&](Expr* left, char op, Expr* right) {
    Expr* b = nodes[node++];
    b->text = op;
    b->kids = {left, right};
    b->range = b->outer = Range{source_.id, left->outer.begin, right->outer.end};
    return b;
  };
  Expr* sum = nullptr;
  Expr* product = operands[0];
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i] == '&') {
      product = join(product, '&', operands[i + 1]);
    } else {
      sum = sum ? join(sum, '^', product) : product;
      product = operands[i + 1];
    }
  }
  return sum ? join(sum, '^', product) : product;
}

program::Expr* Lowering::bool_op(TSNode node) {
  const Children c(*this, node);
  const TSNode op = c.field(ts::field_operator);
  const std::string word(ts_node_is_null(op) ? std::string_view("and") : text(op));
  Expr* left = expr(c.field(ts::field_left));
  Expr* right = expr(c.field(ts::field_right));
  // a and b and c is one operation on three.
  if (left->kind == ExprKind::BoolOp && left->text == word && left->outer == left->range) {
    left->kids.push_back(right);
    left->range.end = left->outer.end = ts_node_end_byte(node);
    return left;
  }
  Expr* e = make(ExprKind::BoolOp, node);
  e->text = word;
  e->kids = {left, right};
  return e;
}

program::Expr* Lowering::compare(TSNode node) {
  const Children c(*this, node);
  Expr* e = make(ExprKind::Compare, node);
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].field == ts::field_operators) {
      std::string op(text(c[i].node));
      if (op.size() > 2) op = op[0] == 'n' ? "not in" : "is not";  // any white space between the words
      // "not in" and "is not" may come as one node or as two words.
      if (!e->ops.empty() && e->ops.size() == e->kids.size() && (op == "in" || op == "not" || op == "not in" || op == "is not")) {
        e->ops.back() = e->ops.back() == "is" ? "is not" : "not in";
      } else {
        e->ops.push_back(std::move(op));
      }
    } else {
      e->kids.push_back(expr(c[i].node));
    }
  }
  Expr* first = e->kids.empty() ? nullptr : e->kids[0];
  if (first && first->kind == ExprKind::Compare && first->outer == first->range) {  // a < b < c, should it come nested
    first->kids.insert(first->kids.end(), e->kids.begin() + 1, e->kids.end());
    first->ops.insert(first->ops.end(), e->ops.begin(), e->ops.end());
    first->range.end = first->outer.end = e->range.end;
    return first;
  }
  while (e->ops.size() + 1 > e->kids.size()) e->kids.push_back(expr(TSNode{}));
  return e;
}

program::Expr* Lowering::conditional(TSNode node) {
  const Children c(*this, node);
  Expr* e = make(ExprKind::Conditional, node);
  for (std::size_t i = 0; i < c.size(); ++i)
    if (c[i].symbol != ts::anon_sym_if && c[i].symbol != ts::anon_sym_else) e->kids.push_back(expr(c[i].node));
  while (e->kids.size() < 3) e->kids.push_back(expr(TSNode{}));
  return e;
}

program::Expr* Lowering::sequence(ExprKind kind, TSNode node) {
  const Children c(*this, node);
  Expr* e = make(kind, node);
  for (std::size_t i = 0; i < c.size(); ++i)
    if (ts_node_is_named(c[i].node)) e->kids.push_back(expr(c[i].node));
  return e;
}

program::Expr* Lowering::dictionary(TSNode node) {
  const Children c(*this, node);
  Expr* e = make(ExprKind::Dict, node);
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].symbol == ts::sym_pair) {
      const Children p(*this, c[i].node);
      e->kids.push_back(expr(p.field(ts::field_key)));
      e->kids.push_back(expr(p.field(ts::field_value)));
    } else if (c[i].symbol == ts::sym_dictionary_splat) {
      const Children p(*this, c[i].node);
      e->kids.push_back(nullptr);
      e->kids.push_back(expr(p.size() > 1 ? p[p.size() - 1].node : TSNode{}));
    }
  }
  return e;
}

program::Expr* Lowering::comprehension(ExprKind kind, TSNode node) {
  const Children c(*this, node);
  Expr* e = make(kind, node);
  const TSNode body = c.field(ts::field_body);
  if (kind == ExprKind::DictComp && !ts_node_is_null(body)) {
    const Children p(*this, body);
    e->kids.push_back(expr(p.field(ts::field_key)));
    e->kids.push_back(expr(p.field(ts::field_value)));
  } else {
    e->kids.push_back(expr(body));
  }
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].symbol == ts::sym_for_in_clause) {
      const Children f(*this, c[i].node);
      Clause clause;
      clause.target = expr(f.field(ts::field_left));
      std::vector<Expr*> iterables;
      for (std::size_t k = 0; k < f.size(); ++k)
        if (f[k].field == ts::field_right && f[k].symbol != ts::anon_sym_COMMA) iterables.push_back(expr(f[k].node));
      if (iterables.size() == 1) clause.iterable = iterables[0];
      else if (iterables.empty()) clause.iterable = expr(TSNode{});
      else clause.iterable = comma_list(iterables, iterables.front()->outer.begin, iterables.back()->outer.end);
      e->clauses.push_back(std::move(clause));
    } else if (c[i].symbol == ts::sym_if_clause && !e->clauses.empty()) {
      const Children f(*this, c[i].node);
      if (f.size() > 1) e->clauses.back().conditions.push_back(expr(f[1].node));
    }
  }
  return e;
}

program::Expr* Lowering::walrus(TSNode node) {
  const Children c(*this, node);
  Expr* e = make(ExprKind::Walrus, node);
  e->kids.push_back(expr(c.field(ts::field_name)));
  e->kids.push_back(expr(c.field(ts::field_value)));
  bind_target(e->kids[0]);
  return e;
}

// `*x` and `await x`.
program::Expr* Lowering::prefix_operator(ExprKind kind, TSNode node) {
  const Children c(*this, node);
  Expr* e = make(kind, node);
  Expr* operand = expr(c.size() > 1 ? c[c.size() - 1].node : TSNode{});
  // `await x ** 2` is a power of the awaited value; the grammar has it the other way round.
  if (kind == ExprKind::Await && operand->kind == ExprKind::Binary && operand->text == "**" && operand->outer == operand->range) {
    Expr* base = operand->kids[0];
    e->kids.push_back(base);
    e->range.end = e->outer.end = base->outer.end;
    operand->kids[0] = e;
    operand->range.begin = operand->outer.begin = e->range.begin;
    return operand;
  }
  e->kids.push_back(operand);
  return e;
}

program::Expr* Lowering::yield(TSNode node) {
  const Children c(*this, node);
  Expr* e = make(ExprKind::Yield, node);
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].symbol == ts::anon_sym_from) e->kind = ExprKind::YieldFrom;
    else if (ts_node_is_named(c[i].node)) e->kids.push_back(expr(c[i].node));
  }
  if (program::Function* f = scopes_.back().function) f->is_generator = true;
  return e;
}

program::Expr* Lowering::lambda(TSNode node) {
  const Children c(*this, node);
  Expr* e = make(ExprKind::Lambda, node);
  program::Function* f = arena_.function();
  e->function = f;
  f->name = "<lambda>";
  f->range = f->def_range = e->range;
  parameters(c.field(ts::field_parameters), f);
  push_function(f);
  Expr* body = expr(c.field(ts::field_body));
  program::Stmt* s = arena_.stmt(program::StmtKind::Return, body->outer);
  s->value = body;
  f->body.push_back(s);
  f->body_range = body->outer;
  pop_function();
  return e;
}

program::Expr* Lowering::string(TSNode node) {
  const Children c(*this, node);
  if (c.size() == 0) return opaque(node);
  const StringPrefix prefix = string_prefix(text(c[0].node));
  if (text(c[0].node).back() == '`') syntax_error(range(node), "backquotes are Python 2");  // the scanner takes them for strings
  if (prefix.format) {
    Expr* e = make(ExprKind::FString, node);
    string_parts(node, e);
    return e;
  }
  Expr* e = make(prefix.bytes ? ExprKind::Bytes : ExprKind::String, node);
  const std::uint32_t begin = ts_node_end_byte(c[0].node);
  const TSNode last = c[c.size() - 1].node;
  const std::uint32_t end =
      std::max(begin, c[c.size() - 1].symbol == ts::sym_string_end ? ts_node_start_byte(last) : ts_node_end_byte(node));
  decode_string(std::string_view(source_.text).substr(begin, end - begin), prefix, e->text);
  return e;
}

// The parts of one literal, appended to an FString; text next to text is joined.
void Lowering::string_parts(TSNode node, Expr* into) {
  const Children c(*this, node);
  if (c.size() == 0) return;
  const StringPrefix prefix = string_prefix(text(c[0].node));
  const auto add = [&](TSNode part, std::string_view body) {
    if (body.empty()) return;
    if (into->kids.empty() || into->kids.back()->kind != ExprKind::String) into->kids.push_back(make(ExprKind::String, part));
    Expr* s = into->kids.back();
    s->range.end = s->outer.end = ts_node_end_byte(part);
    decode_string(body, prefix, s->text);
  };
  if (!prefix.format) {
    const std::uint32_t begin = ts_node_end_byte(c[0].node);
    const std::uint32_t end = std::max(begin, ts_node_start_byte(c[c.size() - 1].node));
    add(node, std::string_view(source_.text).substr(begin, end - begin));
    return;
  }
  std::uint32_t at = ts_node_end_byte(c[0].node);
  for (std::size_t i = 1; i < c.size(); ++i) {
    if (c[i].symbol == ts::sym_interpolation) {
      interpolation(c[i].node, into);
    } else if (c[i].symbol != ts::sym_string_end) {
      // From the end of the last part: white space before a string_content may be outside its node.
      const std::uint32_t end = ts_node_end_byte(c[i].node);
      if (end > at) add(c[i].node, std::string_view(source_.text).substr(at, end - at));
    } else {
      const std::uint32_t end = ts_node_start_byte(c[i].node);
      if (end > at) add(c[i].node, std::string_view(source_.text).substr(at, end - at));
    }
    at = ts_node_end_byte(c[i].node);
  }
}

void Lowering::interpolation(TSNode node, Expr* into) {
  const Children c(*this, node);
  Expr* e = make(ExprKind::FormattedValue, node);
  const TSNode value = c.field(ts::field_expression);
  e->kids.push_back(expr(value));
  std::string conversion, specification;
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].symbol == ts::sym_type_conversion) {
      conversion = text(c[i].node);
    } else if (c[i].symbol == ts::sym_format_specifier) {
      specification = text(c[i].node);
      const Children parts(*this, c[i].node);
      Expr scratch{};  // nested fields, in order; the text between them is in `specification`
      for (std::size_t k = 0; k < parts.size(); ++k)
        if (parts[k].symbol == ts::sym_interpolation || parts[k].symbol == ts::alias_sym_format_expression)
          interpolation(parts[k].node, &scratch);
      for (Expr* part : scratch.kids)
        if (part->kind == ExprKind::FormattedValue) e->kids.push_back(part);
    }
  }
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].symbol != ts::anon_sym_EQ) continue;
    // {x=}: everything from the brace to after the sign, white space included, is text.
    const std::uint32_t begin = ts_node_start_byte(node) + 1;
    std::uint32_t end = ts_node_end_byte(c[i].node);
    while (end < source_.text.size() && source_.text[end] == ' ') ++end;
    if (into->kids.empty() || into->kids.back()->kind != ExprKind::String)
      into->kids.push_back(arena_.expr(ExprKind::String, Range{source_.id, begin, end}));
    Expr* s = into->kids.back();
    s->range.end = s->outer.end = end;
    s->text += std::string_view(source_.text).substr(begin, end - begin);
    if (conversion.empty() && specification.empty()) conversion = "!r";
  }
  e->text = conversion + specification;
  into->kids.push_back(e);
}

program::Expr* Lowering::concatenated(TSNode node) {
  const Children c(*this, node);
  bool format = false;
  for (std::size_t i = 0; i < c.size(); ++i) {
    const Children part(*this, c[i].node);
    if (part.size() > 0 && string_prefix(text(part[0].node)).format) format = true;
  }
  if (format) {
    Expr* e = make(ExprKind::FString, node);
    for (std::size_t i = 0; i < c.size(); ++i) string_parts(c[i].node, e);
    return e;
  }
  Expr* e = make(ExprKind::String, node);
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].symbol != ts::sym_string) continue;
    const Expr* part = string(c[i].node);
    e->kind = part->kind;
    e->text += part->text;
  }
  return e;
}

// `Optional[int]` in an annotation has a node kind of its own: a Subscript all the same.
program::Expr* Lowering::generic_type(TSNode node) {
  const Children c(*this, node);
  if (c.size() < 2) return opaque(node);
  Expr* e = make(ExprKind::Subscript, node);
  e->kids.push_back(expr(c[0].node));
  const Children list(*this, c[c.size() - 1].node);
  std::vector<Expr*> indices;
  bool comma = false;
  std::uint32_t end = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].symbol == ts::anon_sym_COMMA) {
      comma = true;
      end = ts_node_end_byte(list[i].node);
    } else if (ts_node_is_named(list[i].node)) {
      indices.push_back(expr(list[i].node));
      end = indices.back()->outer.end;
    }
  }
  if (indices.size() == 1 && !comma && indices[0]->kind != ExprKind::Starred) e->kids.push_back(indices[0]);
  else e->kids.push_back(comma_list(indices, indices.empty() ? e->range.end : indices[0]->outer.begin, end));
  return e;
}

// The grammar nests `A[int] | B | None` in an annotation to the right; Python's | is left-associative.
program::Expr* Lowering::union_type(TSNode node) {
  const Children c(*this, node);
  if (c.size() < 3) return opaque(node);
  Expr* e = expr(c[0].node);
  std::vector<Expr*> alternatives;
  Expr* rest = expr(c[2].node);
  while (rest->kind == ExprKind::Binary && rest->text == "|" && rest->outer == rest->range) {
    alternatives.push_back(rest->kids[1]);
    rest = rest->kids[0];
  }
  alternatives.push_back(rest);
  for (auto it = alternatives.rbegin(); it != alternatives.rend(); ++it) {
    Expr* both = arena_.expr(ExprKind::Binary, Range{source_.id, e->outer.begin, (*it)->outer.end});
    both->text = "|";
    both->kids = {e, *it};
    e = both;
  }
  return e;
}

program::Expr* Lowering::member_type(TSNode node) {
  const Children c(*this, node);
  if (c.size() < 3) return opaque(node);
  Expr* e = make(ExprKind::Attribute, node);
  e->kids.push_back(expr(c[0].node));
  e->text = text(c[2].node);
  return e;
}

// `a.b.c` of an import or a pattern, as Attributes of a Name.
program::Expr* Lowering::dotted(TSNode node) {
  const Children c(*this, node);
  Expr* e = nullptr;
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].symbol != ts::sym_identifier) continue;
    if (!e) {
      e = leaf(ExprKind::Name, c[i].node);
      continue;
    }
    Expr* a = arena_.expr(ExprKind::Attribute, Range{source_.id, e->range.begin, ts_node_end_byte(c[i].node)});
    a->kids.push_back(e);
    a->text = text(c[i].node);
    e = a;
  }
  return e ? e : opaque(node);
}

}  // namespace shardwright::python
