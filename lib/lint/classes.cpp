#include "lint/classes.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "lint/scripts.h"
#include "lint/syntax_help.h"
#include "program/visit.h"
#include "support/word_search.h"

namespace shardwright::lint {

using program::ExprKind;
using program::StmtKind;

namespace {

/// First words of dotted module names that are parallel libraries, or contain them.
bool parallel_module(const std::string& name) {
  for (const char* part : {"megatron", "shardwright", "fairscale", "vllm", "apex"})
    if (name == part || name.rfind(std::string(part) + ".", 0) == 0 || name.find("." + std::string(part)) != std::string::npos) return true;
  return name == "torch.distributed" || name.rfind("torch.distributed.", 0) == 0;
}

bool letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::unordered_set<std::string_view> words(std::string_view text) {
  std::unordered_set<std::string_view> out;
  for (std::size_t i = 0; i < text.size();) {
    if (!letter(text[i])) {
      ++i;
      continue;
    }
    std::size_t e = i;
    while (e < text.size() && letter(text[e])) ++e;
    out.insert(text.substr(i, e - i));
    i = e;
  }
  return out;
}

bool has_collective(const std::unordered_set<std::string_view>& words) {
  for (const char* name : {"all_reduce", "all_gather", "all_gather_into_tensor", "_all_gather_base", "reduce_scatter",
                           "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "broadcast", "reduce"})
    if (words.count(name)) return true;
  return false;
}

/// Names that a module's statements (also inside try and if) bind to parallel libraries' things.
/// `of_torch`: those of torch.distributed.
std::unordered_set<std::string> parallel_names(const program::Module& m, std::unordered_set<std::string>& of_torch) {
  std::unordered_set<std::string> out;
  program::walk(m.body, [&](const program::Stmt* s) {
    if (s->kind == StmtKind::ClassDef || s->kind == StmtKind::FunctionDef) return false;
    if (s->kind == StmtKind::Import)
      for (const auto& i : s->imports)
        if (parallel_module(i.name)) {
          const std::string name = program::bound_name(*s, i);
          out.insert(name);
          if (i.name.rfind("torch.distributed", 0) == 0) of_torch.insert(name);
        }
    if (s->kind == StmtKind::ImportFrom && s->level == 0)
      for (const auto& i : s->imports)
        if (parallel_module(s->module) || parallel_module(s->module + "." + i.name)) {
          out.insert(i.asname.empty() ? i.name : i.asname);
          if (s->module.rfind("torch", 0) == 0) of_torch.insert(i.asname.empty() ? i.name : i.asname);
        }
    return true;
  });
  out.erase("torch");
  return out;
}

/// A class of the top level that could be relevant for its collectives.
bool class_with_collective(std::string_view text) {
  static const support::WordSearch kCollectives{"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"};
  for (std::size_t at = text.starts_with("class ") ? 0 : text.find("\nclass "); at != std::string_view::npos;) {
    const std::size_t next = text.find("\nclass ", at + 1);
    const auto part = text.substr(at, next == std::string_view::npos ? next : next - at);
    if (part.find("forward") != std::string_view::npos && kCollectives.in(part) && has_collective(words(part))) return true;
    at = next;
  }
  return false;
}

}  // namespace

bool worth_reading(std::string_view text) {
  // Long words: the shortest decides how far the search may skip.
  static const support::WordSearch kAny{"megatron",         "torch.distributed", "shardwright",
                                        "fairscale",        "from vllm",         "import vllm",
                                        "tensor_parallel",  "ParallelLinear",    "PipelineTensorShapeConfig",
                                        "_stage0",          "_stage1",           "_stage2",
                                        "DistributedFuser", "--local_rank",      "--local-rank",
                                        "pretrain(",        "forward_step",      "_REGISTRY = "};
  static const support::WordSearch kMore{"megatron",     "shardwright",     "fairscale",      "from vllm",
                                         "import vllm",  "tensor_parallel", "ParallelLinear", "PipelineTensorShapeConfig",
                                         "_stage0",      "_stage1",         "_stage2",        "DistributedFuser",
                                         "--local_rank", "--local-rank",    "pretrain(",      "forward_step",
                                         "_REGISTRY = "};
  if (!kAny.in(text)) return false;
  return kMore.in(text) || communicates(text) || trains(text) || class_with_collective(text);
}

std::vector<Class> relevant_classes(const std::vector<const program::Module*>& modules, const support::SourceManager& sources) {
  std::vector<Class> all;
  std::vector<std::unordered_set<std::string_view>> mentioned;
  std::unordered_map<std::string, std::vector<std::size_t>> by_name;
  for (const auto* m : modules) {
    std::unordered_set<std::string> of_torch;
    const auto names = parallel_names(*m, of_torch);
    std::function<void(const std::vector<program::Stmt*>&)> top = [&](const std::vector<program::Stmt*>& body) {
      for (const auto* s : body) {
        if (s->kind == StmtKind::If || s->kind == StmtKind::Try) {
          top(s->body);
          top(s->orelse);
        }
        if (s->kind != StmtKind::ClassDef) continue;
        Class c;
        c.def = s->class_def;
        c.module = m;
        auto text = sources.text(c.def->range);
        auto w = words(text);
        // Something that computes; of torch.distributed alone, its collectives.
        const bool library =
            std::any_of(names.begin(), names.end(), [&](const std::string& n) { return w.count(n) > 0 && !of_torch.count(n); });
        const bool collective = (text.find("torch.distributed") != std::string_view::npos ||
                                 std::any_of(of_torch.begin(), of_torch.end(), [&](const std::string& n) { return w.count(n) > 0; })) &&
            has_collective(w);
        c.relevant = (library || collective) && w.count("forward") > 0;
        by_name[c.def->name].push_back(all.size());
        all.push_back(c);
        mentioned.push_back(std::move(w));
      }
    };
    top(m->body);
  }
  std::vector<std::size_t> todo;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].relevant) todo.push_back(i);
  while (!todo.empty()) {
    const std::size_t used = todo.back();
    todo.pop_back();
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!all[i].relevant && mentioned[i].count("forward") && mentioned[i].count(all[used].def->name)) {
        all[i].relevant = true;
        todo.push_back(i);
      }
  }
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].relevant || syntax::stage_number(all[i].def->name)) kept.push_back(i);
  std::vector<Class> out;
  for (const std::size_t i : kept)
    all[i].root = std::none_of(kept.begin(), kept.end(), [&](std::size_t o) {
      return all[o].def->name != all[i].def->name && mentioned[o].count(all[i].def->name) > 0;
    });
  for (bool root : {true, false})
    for (const std::size_t i : kept)
      if (all[i].root == root) out.push_back(all[i]);
  return out;
}

std::size_t rank_of(const program::Function& forward, const std::string& parameter) {
  std::size_t exact = 0, least = 0;
  auto is_shape = [&](const program::Expr* e) {
    if (e && e->kind == ExprKind::Call && e->args.empty())
      e = e->kids[0]->kind == ExprKind::Attribute && e->kids[0]->text == "size" ? e->kids[0] : nullptr;
    else if (e && e->kind == ExprKind::Attribute && e->text != "shape") e = nullptr;
    return e && e->kind == ExprKind::Attribute && !e->kids.empty() && e->kids[0]->kind == ExprKind::Name && e->kids[0]->text == parameter;
  };
  program::walk(forward.body, [&](const program::Stmt* s) {
    if (s->kind == StmtKind::Assign && s->value && is_shape(s->value))
      for (const auto* t : s->targets)
        if (t->kind == ExprKind::Tuple || t->kind == ExprKind::List) {
          const bool starred = std::any_of(t->kids.begin(), t->kids.end(), [](const auto* k) { return k->kind == ExprKind::Starred; });
          if (!starred) exact = t->kids.size();
        }
    return true;
  });
  program::walk_exprs(forward.body, [&](const program::Expr* e) {
    const program::Expr* i = nullptr;
    if (e->kind == ExprKind::Subscript && is_shape(e->kids[0])) i = e->kids[1];
    if (e->kind == ExprKind::Call && e->args.size() == 1 && e->kids[0]->kind == ExprKind::Attribute && e->kids[0]->text == "size" &&
        e->kids[0]->kids[0]->kind == ExprKind::Name && e->kids[0]->kids[0]->text == parameter)
      i = e->args[0].value;
    if (i && i->kind == ExprKind::Int && i->integer >= 0 && i->integer < 6)
      least = std::max(least, static_cast<std::size_t>(i->integer) + 1);
    return true;
  });
  return exact ? exact : least > 3 ? least : 0;
}

}  // namespace shardwright::lint
