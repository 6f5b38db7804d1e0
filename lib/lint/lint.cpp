#include "lint/lint.h"

#include <algorithm>
#include <unordered_map>

#include "lint/cache.h"
#include "lint/checks/check.h"
#include "lint/files.h"
#include "lint/findings.h"
#include "lint/scripts.h"
#include "lint/session.h"
#include "lint/trees.h"
#include "python/parse.h"
#include "support/files.h"
#include "support/parallel.h"
#include "support/word_search.h"

namespace shardwright::lint {

namespace {

/// What a look at a file's text says of it, before anything is parsed.
enum class Look : char { Nothing, Parallel, Styles, Unread };

struct Seen {
  Look look = Look::Nothing;
  std::vector<std::string> classes;
};

std::vector<Seen> look(const std::vector<std::string>& paths, const python::FileSystem& files) {
  static const support::WordSearch kStyles{"style="};
  std::vector<Seen> out(paths.size());
  constexpr std::size_t kPiece = 32;
  const std::size_t pieces = (paths.size() + kPiece - 1) / kPiece;
  support::parallel(pieces, support::workers_for(pieces), [&](std::size_t piece, std::size_t) {
    for (std::size_t i = piece * kPiece; i < std::min(paths.size(), (piece + 1) * kPiece); ++i) {
      auto text = files.read(paths[i]);
      if (!text) {
        out[i].look = Look::Unread;
        continue;
      }
      if (worth_reading(*text)) out[i].look = Look::Parallel;
      else if (kStyles.in(*text)) out[i].look = Look::Styles;
      out[i].classes = classes_in(*text);
    }
  });
  return out;
}

/// The tree whose roots a file lies deepest in; the first one when there is none.
std::size_t tree_of(const std::string& path, const std::vector<Tree>& trees) {
  std::size_t best = 0, depth = 0;
  const std::string folder = support::parent_path(support::normal_path(path));
  for (std::size_t i = 0; i < trees.size(); ++i)
    for (const auto& root : trees[i].roots)
      if (root.size() + 1 > depth && (root.empty() || root == "." || folder == root || folder.starts_with(root + "/")))
        best = i, depth = root.size() + 1;
  return best;
}

/// What to look at in one tree.
struct Work {
  std::vector<std::string> parallel;
  std::vector<std::string> with_styles;  ///< what may ask a wrapper for a style
  std::vector<std::string> scripts;
};

std::vector<support::Diagnostic> check_tree(const Request& request, const Tree& tree, const Work& work, const ClassesNamed& class_files,
                                            const std::shared_ptr<python::Syntax>& syntax, const rules::Database& rules) {
  const python::FileSystem& files = request.files ? *request.files : disk();
  support::SourceManager& sources = syntax->sources();
  Found findings;
  Session session(request, tree, class_files, syntax, rules, findings);
  std::vector<const program::Module*> modules;
  std::set<support::FileId> looked_at;
  constexpr std::size_t kMany = 16;  // a thread costs about what a small file does
  if (work.parallel.size() >= kMany) session.read_ahead(work.parallel);
  for (const auto& path : work.parallel)
    if (const auto* m = session.load(path)) {
      modules.push_back(m);
      looked_at.insert(m->file);
    }
  const auto wired = registries(modules, sources);
  std::vector<const program::Module*> asking = modules;
  if (!wired.empty())
    for (const auto& path : work.with_styles)
      if (auto text = files.read(path); text && asks_unknown_style(*text, wired))
        if (const auto* m = session.load(path)) {
          asking.push_back(m);
          looked_at.insert(m->file);
        }
  session.wiring(wired, asking);
  session.run(relevant_classes(modules, sources));
  for (const auto* m : modules) {
    check_scripts(*m, sources, findings);
    check_stages(*m, sources, findings);
    check_training(*m, sources, findings);
    session.boundaries(*m);
  }
  for (const auto& path : work.scripts)
    if (auto text = files.read(path)) {
      const auto script = sources.add(path, *text);
      looked_at.insert(script);
      session.run_script(script);
    }
  const std::set<std::string> asked_for(tree.files.begin(), tree.files.end());  // files that others led to
  std::vector<support::Diagnostic> out;
  const auto ours = [&](const support::Range& r) { return looked_at.count(r.file) > 0 || asked_for.count(sources.file(r.file).path) > 0; };
  for (const auto& d : findings.all()) {
    if (ours(d.range)) {
      out.push_back(d);
      continue;
    }
    // A pair that a file of others is handed: that is wrong where it comes from.
    const auto from = std::find_if(d.notes.begin(), d.notes.end(), [&](const support::Note& n) { return ours(n.range); });
    if (d.code != "SW103" || from == d.notes.end()) continue;
    if (std::any_of(out.begin(), out.end(), [&](const auto& o) { return o.code == d.code && o.range == from->range; })) continue;
    support::Diagnostic here = d;
    here.range = from->range;
    here.notes.erase(here.notes.begin() + (from - d.notes.begin()));
    here.notes.insert(here.notes.begin(), {d.range, "used here"});
    out.push_back(std::move(here));
  }
  for (const auto* m : modules) run_file_checks({*m, sources, out});
  return out;
}

/// The same, from the cache where nothing changed.
std::vector<support::Diagnostic> cached_tree(const Request& request, const Tree& tree, const Work& work, const ClassesNamed& classes,
                                             const std::shared_ptr<python::Syntax>& syntax, const rules::Database& rules) {
  if (request.cache.empty() || request.values || !request.rules.empty()) return check_tree(request, tree, work, classes, syntax, rules);
  const python::FileSystem& files = request.files ? *request.files : disk();
  std::string about = std::to_string(request.tp) + ' ' + std::to_string(request.max_steps);
  for (const auto* list : {&request.python_path, &work.parallel, &work.with_styles, &work.scripts}) {
    about += '\n';
    for (const auto& x : *list) about += x + '\n';
  }
  const Cache cache(request.cache, tree, about);
  if (auto known = cache.find(files, classes, syntax->sources())) return *known;
  const Witness witness(files, classes);
  Request watched = request;
  watched.files = &witness;
  auto found = check_tree(
      watched, tree, work, [&](const std::string& name) -> const std::vector<std::string>& { return witness.of_class(name); }, syntax,
      rules);
  cache.store(witness, found, syntax->sources());
  return found;
}

/// Findings of another thread's sources, in ours.
class Moved {
 public:
  Moved(const support::SourceManager& from, support::SourceManager& to) : from_(from), to_(to) {}
  void operator()(support::Range& r) {
    if (!r.valid()) return;
    auto [at, fresh] = files_.emplace(r.file, -1);
    if (fresh) {
      const auto& f = from_.file(r.file);
      at->second = to_.add(f.path, f.text, f.module);
    }
    r.file = at->second;
  }
  void operator()(support::Diagnostic& d) {
    (*this)(d.range);
    for (auto& n : d.notes) (*this)(n.range);
    if (d.fix)
      for (auto& e : d.fix->edits) (*this)(e.range);
  }

 private:
  const support::SourceManager& from_;
  support::SourceManager& to_;
  std::map<support::FileId, support::FileId> files_;
};

/// Files that cannot be read, and those that were named and are no Python although nothing else in them is of interest: in folders,
/// parsing what names no parallel library would be most of the time.
support::Expected<std::vector<support::Diagnostic>> unreadable(const Request& request, const std::vector<std::string>& paths,
                                                               const std::vector<Seen>& looks, const python::FileSystem& files,
                                                               support::SourceManager& sources) {
  std::vector<support::Diagnostic> out;
  const std::set<std::string> named(request.paths.begin(), request.paths.end());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const bool asked_for = named.count(paths[i]) > 0;
    if (looks[i].look == Look::Parallel || (looks[i].look != Look::Unread && !asked_for)) continue;
    auto text = files.read(paths[i]);
    if (!text && asked_for) return text.error();
    const auto file = sources.add(paths[i], text ? *text : "");
    if (!text) {
      support::Diagnostic d = text.error();
      d.code = "SW901";
      d.range = {file, 0, 0};
      out.push_back(std::move(d));
      continue;
    }
    program::Arena arena;
    support::Diagnostics ignored;
    if (const auto* m = python::parse(sources, file, arena, ignored); !m->syntax_errors.empty()) run_file_checks({*m, sources, out});
  }
  return out;
}

}  // namespace

support::Expected<std::vector<support::Diagnostic>> check(const Request& request, support::SourceManager& sources,
                                                          const rules::Database& rules) {
  const python::FileSystem& files = request.files ? *request.files : disk();
  auto listed = list_files(request.paths, files);
  if (!listed) return listed.error();
  const auto& paths = listed->python;
  const auto looks = look(paths, files);
  auto unread = unreadable(request, paths, looks, files, sources);
  if (!unread) return unread.error();
  std::unordered_map<std::string, Look> by_path;
  ClassFiles by_class;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    by_path.emplace(paths[i], looks[i].look);
    by_class.add(paths[i], looks[i].classes);
  }
  auto trees = separate(paths, files);
  if (trees.empty()) trees.emplace_back();
  std::vector<Work> work(trees.size());
  for (std::size_t t = 0; t < trees.size(); ++t)
    for (const auto& path : trees[t].files) {
      if (by_path[path] == Look::Parallel) work[t].parallel.push_back(path);
      if (by_path[path] == Look::Styles) work[t].with_styles.push_back(path);
    }
  for (const auto& path : listed->shell)
    if (auto text = files.read(path); text && text->find("parallel") != std::string::npos)
      work[tree_of(path, trees)].scripts.push_back(path);
  std::vector<std::size_t> order;  // trees with something in them, the largest first: it must not begin last
  for (std::size_t t = 0; t < trees.size(); ++t)
    if (!work[t].parallel.empty() || !work[t].scripts.empty()) order.push_back(t);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return work[a].parallel.size() > work[b].parallel.size(); });
  // Each worker has sources and syntax trees of its own, but the last, which uses the caller's.
  const std::size_t workers = request.values ? 1 : support::workers_for(order.size());
  std::vector<support::SourceManager> others(workers - 1);
  std::vector<std::shared_ptr<python::Syntax>> syntax;
  for (auto& o : others) syntax.push_back(std::make_shared<python::Syntax>(o, true));
  syntax.push_back(std::make_shared<python::Syntax>(sources, true));
  const ClassesNamed class_files = [&](const std::string& name) -> const std::vector<std::string>& { return by_class.of(name); };
  struct Result {
    std::size_t worker = 0;
    std::vector<support::Diagnostic> found;
  };
  std::vector<Result> results(trees.size());
  support::parallel(order.size(), workers, [&](std::size_t i, std::size_t worker) {
    const std::size_t t = order[i];
    results[t] = {worker, cached_tree(request, trees[t], work[t], class_files, syntax[worker], rules)};
  });
  std::vector<Moved> moved;
  for (auto& o : others) moved.emplace_back(o, sources);
  std::vector<support::Diagnostic> out = std::move(*unread);
  for (auto& r : results)
    for (auto& d : r.found) {
      if (r.worker < others.size()) moved[r.worker](d);
      out.push_back(std::move(d));
    }
  std::stable_sort(out.begin(), out.end(), [&](const auto& a, const auto& b) {
    if (a.range.file != b.range.file) return sources.file(a.range.file).path < sources.file(b.range.file).path;
    return a.range.begin < b.range.begin;
  });
  return out;
}

}  // namespace shardwright::lint
