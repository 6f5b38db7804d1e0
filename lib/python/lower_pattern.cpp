// Patterns of `match` statements; their representation is described in parse.h.
#include "python/literals.h"
#include "python/lower.h"
#include "tree_sitter_python_symbols.h"

namespace shardwright::python {

using program::Argument;
using program::ExprKind;

program::Expr* Lowering::pattern(TSNode node) {
  if (ts_node_is_null(node)) return expr(node);
  if (too_deep(node)) return opaque(node);
  const Depth deeper(depth_);
  switch (ts_node_symbol(node)) {
    case ts::sym_case_pattern: {
      const Children c(*this, node);
      if (c.size() == 1) return pattern(c[0].node);
      if (c.size() > 1) return pattern_number(c, ts_node_start_byte(node), ts_node_end_byte(node));
      // `_` and numbers may be anonymous or inlined.
      return leaf(ExprKind::Name, node);
    }
    case ts::anon_sym__: return leaf(ExprKind::Name, node);
    case ts::sym_dotted_name: {
      Expr* e = dotted(node);
      if (e->kind == ExprKind::Name && e->text != "_") bind(e->text);  // a capture
      return e;
    }
    case ts::sym_identifier: {
      Expr* e = leaf(ExprKind::Name, node);
      if (e->text != "_") bind(e->text);
      return e;
    }
    case ts::sym_as_pattern: {
      const Children c(*this, node);
      Expr* e = make(ExprKind::Walrus, node);
      e->kids.push_back(c.size() > 0 ? leaf(ExprKind::Name, c[c.size() - 1].node) : expr(TSNode{}));
      e->kids.push_back(c.size() > 1 ? pattern(c[0].node) : expr(TSNode{}));
      bind_target(e->kids[0]);
      return e;
    }
    case ts::sym_union_pattern: {
      const Children c(*this, node);
      Expr* e = nullptr;
      std::size_t i = 0;
      while (i < c.size()) {
        // An alternative may be several tokens: a signed number is not a node.
        const std::size_t first = i;
        while (i < c.size() && c[i].symbol != ts::anon_sym_PIPE) ++i;
        if (i > first) {
          Expr* one = i == first + 1 ? pattern(c[first].node) : nullptr;
          if (!one) {
            one = arena_.expr(ExprKind::Unary, Range{source_.id, ts_node_start_byte(c[first].node), ts_node_end_byte(c[i - 1].node)});
            one->text = "-";
            one->kids.push_back(expr(c[i - 1].node));
          }
          if (!e) {
            e = one;
          } else {
            Expr* both = arena_.expr(ExprKind::Binary, Range{source_.id, e->outer.begin, one->outer.end});
            both->text = "|";
            both->kids = {e, one};
            e = both;
          }
        }
        ++i;
      }
      return e ? e : opaque(node);
    }
    case ts::sym_list_pattern: return pattern_sequence(ExprKind::List, node);
    case ts::sym_tuple_pattern: return pattern_sequence(ExprKind::Tuple, node);
    case ts::sym_dict_pattern: return pattern_dict(node);
    case ts::sym_class_pattern: return pattern_class(node);
    case ts::sym_splat_pattern: {
      const Children c(*this, node);
      Expr* e = make(ExprKind::Starred, node);
      e->kids.push_back(c.size() > 1 ? pattern(c[c.size() - 1].node) : expr(TSNode{}));
      return e;
    }
    case ts::sym_complex_pattern: {
      const Children c(*this, node);
      return pattern_number(c, ts_node_start_byte(node), ts_node_end_byte(node));
    }
    default: return expr(node);
  }
}

// [-] number [(+|-) number]
program::Expr* Lowering::pattern_number(const Children& c, std::uint32_t begin, std::uint32_t end) {
  std::size_t i = 0;
  const bool negative = c.size() > 0 && c[0].symbol == ts::anon_sym_DASH;
  if (negative) ++i;
  Expr* e = i < c.size() ? expr(c[i].node) : expr(TSNode{});
  if (negative) {
    Expr* u = arena_.expr(ExprKind::Unary, Range{source_.id, begin, e->outer.end});
    u->text = "-";
    u->kids.push_back(e);
    e = u;
  }
  if (i + 2 < c.size()) {
    Expr* b = arena_.expr(ExprKind::Binary, Range{source_.id, begin, end});
    b->text = text(c[i + 1].node);
    b->kids = {e, expr(c[i + 2].node)};
    e = b;
  }
  return e;
}

program::Expr* Lowering::pattern_sequence(ExprKind kind, TSNode node) {
  const Children c(*this, node);
  Expr* e = make(kind, node);
  bool comma = false;
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].symbol == ts::anon_sym_COMMA) comma = true;
    else if (ts_node_is_named(c[i].node)) e->kids.push_back(pattern(c[i].node));
  }
  if (kind == ExprKind::Tuple && e->kids.size() == 1 && !comma) {  // only parentheses
    e->kids[0]->outer = e->range;
    return e->kids[0];
  }
  return e;
}

program::Expr* Lowering::pattern_class(TSNode node) {
  const Children c(*this, node);
  Expr* e = make(ExprKind::Call, node);
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (c[i].symbol == ts::sym_dotted_name && e->kids.empty()) {
      e->kids.push_back(dotted(c[i].node));
      continue;
    }
    if (!ts_node_is_named(c[i].node)) continue;
    Argument a;
    a.range = range(c[i].node);
    TSNode inner = c[i].node;
    if (c[i].symbol == ts::sym_case_pattern && ts_node_named_child_count(inner) == 1 &&
        ts_node_symbol(ts_node_named_child(inner, 0)) == ts::sym_keyword_pattern)
      inner = ts_node_named_child(inner, 0);
    if (ts_node_symbol(inner) == ts::sym_keyword_pattern) {
      const Children k(*this, inner);
      if (k.size() > 0) a.keyword = text(k[0].node);
      if (k.size() == 3) {
        a.value = pattern(k[2].node);
      } else if (k.size() > 3) {  // a signed number
        a.value = arena_.expr(ExprKind::Unary, Range{source_.id, ts_node_start_byte(k[2].node), ts_node_end_byte(inner)});
        a.value->text = "-";
        a.value->kids.push_back(expr(k[3].node));
      } else {
        a.value = expr(TSNode{});
      }
    } else {
      a.value = pattern(inner);
    }
    e->args.push_back(std::move(a));
  }
  if (e->kids.empty()) return opaque(node);
  return e;
}

program::Expr* Lowering::pattern_dict(TSNode node) {
  const Children c(*this, node);
  Expr* e = make(ExprKind::Dict, node);
  std::size_t i = 0;
  while (i < c.size()) {
    if (c[i].symbol == ts::sym_splat_pattern) {
      const Children s(*this, c[i].node);
      e->kids.push_back(nullptr);
      e->kids.push_back(s.size() > 1 ? pattern(s[s.size() - 1].node) : expr(TSNode{}));
    } else if (c[i].field == ts::field_key) {
      const std::size_t first = i;
      while (i + 1 < c.size() && c[i + 1].field == ts::field_key) ++i;
      Expr* key = nullptr;
      if (i > first) {
        key = arena_.expr(ExprKind::Unary, Range{source_.id, ts_node_start_byte(c[first].node), ts_node_end_byte(c[i].node)});
        key->text = "-";
        key->kids.push_back(expr(c[i].node));
      } else {
        key = c[first].symbol == ts::sym_dotted_name ? dotted(c[first].node) : pattern(c[first].node);
      }
      e->kids.push_back(key);
      e->kids.push_back(nullptr);
    } else if (c[i].field == ts::field_value && !e->kids.empty()) {
      e->kids.back() = pattern(c[i].node);
    }
    ++i;
  }
  for (std::size_t k = 1; k < e->kids.size(); k += 2)
    if (!e->kids[k]) e->kids[k] = expr(TSNode{});
  return e;
}

}  // namespace shardwright::python
