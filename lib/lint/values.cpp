// What expressions hold at one rank, from a finished run: results of operations where they are written, and names by their last assignment.
#include <map>

#include "lint/placement.h"
#include "lint/session.h"
#include "program/visit.h"

namespace shardwright::lint {

using program::Expr;
using program::ExprKind;

void Session::note_values(const model::Trace& trace, Propagator& placements) const {
  auto& out = *request_.values;
  for (const auto& op : trace.ops)
    if (op.site && op.frame >= 0 && !op.outputs.empty()) out.push_back({op.site->range, placements.describe(op.outputs[0])});
  // Names: the assignments of each function in the order of the text, the last one before the name tells.
  struct Write {
    std::uint32_t at;
    std::string name;
    model::TensorId tensor;
    const program::Stmt* stmt;
  };
  std::map<const program::Function*, std::vector<Write>> writes;
  for (const auto& w : trace.var_writes) {
    if (w.value.kind != model::Binding::Tensor || w.frame < 0) continue;
    const auto& frame = trace.frame(w.frame);
    if (!frame.function || frame.builtin) continue;
    const program::Stmt* stmt = w.step >= 0 ? trace.step(w.step).stmt : nullptr;
    writes[frame.function].push_back({stmt ? stmt->range.begin : frame.function->def_range.begin, w.name, w.value.tensor, stmt});
  }
  for (const auto& [function, list] : writes)
    program::walk_exprs(function->body, [&, &list = list](const Expr* e) {
      if (e->kind != ExprKind::Name) return true;
      const Write* last = nullptr;
      // On the right of its own assignment a name still holds what it held before.
      auto own = [&](const Write& w) { return w.stmt && w.stmt->value && w.stmt->value->range.contains(e->range); };
      for (const auto& w : list)
        if (w.name == e->text && !own(w) && w.at <= e->range.begin && (!last || w.at >= last->at)) last = &w;
      if (last) out.push_back({e->range, e->text + ": " + placements.describe(last->tensor)});
      return true;
    });
}

}  // namespace shardwright::lint
