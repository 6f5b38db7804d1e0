#include "driver/directives.h"

#include <algorithm>

#include "lint/suppress.h"

namespace shardwright::driver {
namespace {

struct Lines {
  support::FileId file;
  std::uint32_t first, last;
};

class Reader {
 public:
  Reader(const model::Trace& t, const support::SourceManager& sm, Directives& out) : t_(t), sm_(sm), out_(out) {}

  /// Everything that the statement or class at these lines makes stays whole.
  void keep(const Lines& l, bool uncut) {
    for (const auto& m : t_.modules) {
      const bool made_here = m.construct_call && at(m.construct_call->range, l);
      if (!made_here && !(m.class_def && !m.builtin && at(m.class_def->range, l))) continue;
      if (uncut && m.construct_call) out_.uncut.insert(m.construct_call);
      whole(m.id);
    }
    for (const auto& w : t_.attr_writes)
      if (w.kind == model::AttrWrite::Parameter && w.step >= 0 && w.value.kind == model::Binding::Tensor &&
          at(t_.step(w.step).stmt->range, l))
        out_.whole.push_back(t_.tensor(w.value.tensor).name);
  }

  void cut(const lint::Directive& d) {
    // Behind a statement: before the one that follows it, so the text's next line that forward runs.
    std::uint32_t line = d.alone ? d.first : 0;
    std::vector<const model::Step*> steps;
    for (const auto& s : t_.steps) {
      const auto& f = t_.frame(s.frame);
      if (f.builtin || f.init || s.begin < t_.forward_begin || s.stmt->range.file != d.comment.file) continue;
      const auto begin = sm_.position(s.stmt->range.file, s.stmt->range.begin).line;
      if (!d.alone && begin > d.last && (line == 0 || begin < line)) line = begin;
      steps.push_back(&s);
    }
    Directives::Here here{d.comment, {}};
    for (const auto* s : steps)
      if (sm_.position(s->stmt->range.file, s->stmt->range.begin).line == line) here.clocks.push_back(s->begin);
    if (!here.clocks.empty()) out_.cuts.push_back(std::move(here));
  }

 private:
  bool at(const support::Range& r, const Lines& l) const {
    if (!r.valid() || r.file != l.file) return false;
    const auto line = sm_.position(r.file, r.begin).line;
    return l.first <= line && line <= l.last;
  }

  void whole(model::ModuleId id) {
    const auto& m = t_.module(id);
    for (const auto& p : m.params)
      if (p.tensor >= 0 && !p.buffer) out_.whole.push_back(t_.tensor(p.tensor).name);
    for (const auto& [name, child] : m.children)
      if (child >= 0) whole(child);
  }

  const model::Trace& t_;
  const support::SourceManager& sm_;
  Directives& out_;
};

}  // namespace

Directives directives(const model::Trace& t, support::SourceManager& sm) {
  Directives out;
  std::set<support::FileId> files;
  for (const auto& m : t.modules)
    if (m.class_def && !m.builtin) files.insert(m.class_def->range.file);
  for (const auto& f : t.frames)
    if (f.function && !f.builtin) files.insert(f.function->def_range.file);
  Reader reader(t, sm, out);
  for (const auto file : files) {
    if (file < 0) continue;
    for (const auto& d : lint::directives(sm, file)) {
      if (d.word == "keep" || d.word == "replicate") reader.keep({file, d.first, d.last}, d.word == "keep");
      if (d.word == "cut-here") reader.cut(d);
      if (auto wrong = lint::unknown_request(sm, d))
        out.unknown.push_back({support::Severity::Warning, "comment", d.comment, std::move(*wrong), {}, {}});
    }
  }
  std::sort(out.whole.begin(), out.whole.end());
  out.whole.erase(std::unique(out.whole.begin(), out.whole.end()), out.whole.end());
  return out;
}

}  // namespace shardwright::driver
