#include "python/lower.h"

#include <algorithm>

#include "python/parse.h"
#include "tree_sitter_python_symbols.h"

extern "C" const TSLanguage* tree_sitter_python(void);

namespace shardwright::python {

using program::ExprKind;

namespace {
constexpr std::uint16_t kErrorSymbol = 0xFFFF;
constexpr std::size_t kMostDiagnostics = 5;  // a file that is not Python at all would drown everything else
constexpr std::size_t kMostErrors = 1000;
}  // namespace

Lowering::Lowering(const support::SourceFile& source, program::Arena& arena, program::Module& module, support::Diagnostics& diagnostics)
    : source_(source), arena_(arena), module_(module), diagnostics_(diagnostics) {}

Lowering::~Lowering() {
  if (cursor_ready_) ts_tree_cursor_delete(&cursor_);
}

Concrete::Concrete(std::string_view text, const Parts& parts) {
  struct Parser {
    TSParser* p = ts_parser_new();
    Parser() { ts_parser_set_language(p, tree_sitter_python()); }
    ~Parser() { ts_parser_delete(p); }
  };
  static thread_local Parser parser;
  // Rows do not matter to anybody here: every offset is a column of the first.
  std::vector<TSRange> ranges;
  for (const auto& [begin, end] : parts) ranges.push_back({{0, begin}, {0, end}, begin, end});
  ts_parser_set_included_ranges(parser.p, ranges.data(), static_cast<std::uint32_t>(ranges.size()));
  tree_ = ts_parser_parse_string(parser.p, nullptr, text.data(), static_cast<std::uint32_t>(text.size()));
}

void Lowering::run(TSNode root, const Outline* outline) {
  outline_ = outline;
  cursor_ = ts_tree_cursor_new(root);
  cursor_ready_ = true;
  scopes_.emplace_back();
  if (ts_node_has_error(root)) collect_errors(root);
  block(root, module_.body);
  if (outline)
    for (const auto& [begin, end] : outline->comments) module_.comments.push_back({source_.id, begin, end});
  const auto by_place = [](const Range& a, const Range& b) { return a.begin < b.begin; };
  std::sort(module_.comments.begin(), module_.comments.end(), by_place);
  module_.comments.erase(std::unique(module_.comments.begin(), module_.comments.end()), module_.comments.end());
  std::stable_sort(module_.syntax_errors.begin(), module_.syntax_errors.end(), by_place);
}

std::vector<program::Stmt*> Lowering::run_part(TSNode root) {
  comments_known_ = true;
  cursor_ = ts_tree_cursor_new(root);
  cursor_ready_ = true;
  scopes_.emplace_back();
  if (ts_node_has_error(root)) collect_errors(root);
  std::vector<Stmt*> out;
  block(root, out);
  return out;
}

Lowering::Children::Children(Lowering& owner, TSNode node) : pool_(owner.pool_), begin_(pool_.size()), end_(begin_) {
  if (ts_node_is_null(node)) return;
  TSTreeCursor* cursor = &owner.cursor_;
  ts_tree_cursor_reset(cursor, node);
  if (!ts_tree_cursor_goto_first_child(cursor)) return;
  do {
    const TSNode child = ts_tree_cursor_current_node(cursor);
    const std::uint16_t symbol = ts_node_symbol(child);
    if (symbol == ts::sym_comment) {
      Range r = owner.range(child);
      if (r.end > r.begin && owner.source_.text[r.end - 1] == '\r') --r.end;  // of CRLF
      if (!owner.comments_known_) owner.module_.comments.push_back(r);
      continue;
    }
    if (symbol == ts::sym_line_continuation || symbol == kErrorSymbol) continue;
    pool_.push_back({child, symbol, ts_tree_cursor_current_field_id(cursor)});
  } while (ts_tree_cursor_goto_next_sibling(cursor));
  end_ = pool_.size();
}

TSNode Lowering::Children::field(std::uint16_t f) const {
  for (std::size_t i = begin_; i < end_; ++i)
    if (pool_[i].field == f) return pool_[i].node;
  return TSNode{};
}

std::string_view Lowering::text(TSNode node) const {
  const std::uint32_t begin = ts_node_start_byte(node);
  return std::string_view(source_.text).substr(begin, ts_node_end_byte(node) - begin);
}

// A dotted name as one string: comments, blanks and continuations between its parts are legal.
std::string Lowering::dotted_text(TSNode node) const {
  std::string out;
  const std::string_view all = text(node);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const char c = all[i];
    if (c == '#') {
      while (i < all.size() && all[i] != '\n') ++i;
    } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r' && c != '\\' && c != '\f') {
      out += c;
    }
  }
  return out;
}

void Lowering::bind(std::string_view name) {
  Scope& s = scopes_.back();
  if (!s.function || name.empty()) return;
  if (s.bound.insert(name).second) s.order.push_back(name);
}

void Lowering::bind_target(const Expr* target) {
  if (!target) return;
  switch (target->kind) {
    case ExprKind::Name:
      // The view must outlive the scope: the node's own text does.
      bind(target->text);
      break;
    case ExprKind::Tuple:
    case ExprKind::List:
    case ExprKind::Starred:
      for (const Expr* k : target->kids) bind_target(k);
      break;
    default: break;
  }
}

void Lowering::push_function(program::Function* f) {
  f->module = &module_;
  scopes_.emplace_back();
  scopes_.back().function = f;
  for (const program::Parameter& p : f->parameters) bind(p.name);
}

void Lowering::pop_function() {
  Scope& s = scopes_.back();
  for (std::string_view name : s.order)
    if (!s.excluded.count(name)) s.function->locals->emplace_back(name);
  scopes_.pop_back();
}

bool Lowering::too_deep(TSNode node) {
  if (depth_ < kMaxDepth) return false;
  if (!depth_reported_) {
    depth_reported_ = true;
    syntax_error(range(node), "nested too deeply (more than " + std::to_string(kMaxDepth) + " levels)");
  }
  return true;
}

void Lowering::syntax_error(Range r, std::string message) {
  if (module_.syntax_errors.size() >= kMostErrors) return;
  module_.syntax_errors.push_back(r);
  if (module_.syntax_errors.size() <= kMostDiagnostics) diagnostics_.error(r, "syntax error: " + std::move(message), "syntax");
}

void Lowering::collect_errors(TSNode root) {
  // Only into nodes that hold an error, with an explicit stack: errors may nest as deep as the text does.
  std::vector<TSNode> pending{root};
  bool found = false;
  while (!pending.empty()) {
    const TSNode node = pending.back();
    pending.pop_back();
    if (ts_node_is_missing(node)) {
      found = true;
      std::string what = ts_node_type(node);
      if (what == "_newline") what = "end of line";
      else if (what == "_indent") what = "indented block";
      syntax_error(range(node), "expected " + (ts_node_is_named(node) ? what : "'" + what + "'") + " here");
      continue;
    }
    if (ts_node_symbol(node) == kErrorSymbol) {
      found = true;
      std::string_view shown = text(node);
      while (!shown.empty() && (shown.front() == ' ' || shown.front() == '\n' || shown.front() == '\r')) shown.remove_prefix(1);
      shown = shown.substr(0, shown.find_first_of("\r\n"));
      std::string message =
          shown.empty() ? "unexpected end of line" : "cannot read '" + std::string(shown.substr(0, 40)) + (shown.size() > 40 ? "…'" : "'");
      syntax_error(range(node), std::move(message));
      continue;
    }
    const std::size_t first = pending.size();
    ts_tree_cursor_reset(&cursor_, node);
    if (ts_tree_cursor_goto_first_child(&cursor_)) {
      do {
        const TSNode child = ts_tree_cursor_current_node(&cursor_);
        if (ts_node_has_error(child) || ts_node_is_missing(child)) pending.push_back(child);
      } while (ts_tree_cursor_goto_next_sibling(&cursor_));
    }
    std::reverse(pending.begin() + static_cast<std::ptrdiff_t>(first), pending.end());
  }
  if (!found) syntax_error(range(root), "cannot read this file as Python");
}

void Lowering::read_later(program::Function* f, const LeftOut& body) {
  // By value and by what outlives this: the reader runs long after the lowering of the file.
  f->later = [&source = source_, &arena = arena_, &module = module_, body](program::Function& f) {
    const Concrete tree(source.text, {{body.def, body.end}});
    if (!tree) return;
    support::Diagnostics said;
    const auto top = Lowering(source, arena, module, said).run_part(tree.root());
    if (top.size() != 1 || !top[0]->function) return;
    program::Function& read = *top[0]->function;
    f.body = std::move(read.body.fill());
    f.locals = std::move(read.locals.fill());
    f.is_generator = bool(read.is_generator);
    f.body_range = read.body_range;
  };
}

program::Module* parse(support::SourceManager& sources, support::FileId file, program::Arena& arena, support::Diagnostics& diagnostics,
                       bool bodies_later) {
  const support::SourceFile& source = sources.file(file);
  program::Module* module = arena.module();
  module->name = source.module;
  module->file = file;
  constexpr std::string_view kPackageFile = "__init__.py";
  const std::string& path = source.path;
  module->is_package =
      path.size() >= kPackageFile.size() && path.compare(path.size() - kPackageFile.size(), kPackageFile.size(), kPackageFile) == 0;

  // No Python has NUL bytes, and the parser's recovery from thousands of them (UTF-16 in an editor's buffer) takes seconds.
  if (const std::size_t nul = source.text.find('\0'); nul != std::string::npos) {
    const auto at = static_cast<std::uint32_t>(nul);
    module->syntax_errors.push_back({file, at, at + 1});
    diagnostics.add({support::Severity::Error, "syntax", {file, at, at + 1}, "a NUL byte: this is no Python source"});
    return module;
  }

  const auto lower = [&](const Concrete& tree, const Outline* outline) {
    Lowering(source, arena, *module, diagnostics).run(tree.root(), outline);
  };
  if (bodies_later)
    if (const Outline o = outline(source.text); !o.bodies.empty()) {
      Concrete::Parts rest{{0, 0}};
      for (const LeftOut& b : o.bodies) {
        rest.back().second = b.begin;
        rest.emplace_back(b.end, 0);
      }
      rest.back().second = static_cast<std::uint32_t>(source.text.size());
      if (rest.back().first == rest.back().second) rest.pop_back();
      // An error anywhere: all of it is read, so that the error is told as it is.
      if (const Concrete tree(source.text, rest); tree && !ts_node_has_error(tree.root())) {
        lower(tree, &o);
        return module;
      }
    }
  if (const Concrete tree(source.text); tree) lower(tree, nullptr);
  return module;
}

}  // namespace shardwright::python
