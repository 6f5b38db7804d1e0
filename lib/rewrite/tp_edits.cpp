// What must change where so that every rank computes its slice: the parts in order. docs/generation.md §1.
#include "rewrite/tp_context.h"

namespace shardwright::rewrite {

namespace {

/// One entry per operand that reads a converted tensor.
std::vector<tp::Need> needs_of(const sharding::Result& result) {
  std::vector<tp::Need> needs;
  for (std::size_t i = 0; i < result.conversions.size(); ++i) {
    const auto& c = result.conversions[i];
    needs.push_back({c, false, i, ""});
    needs.back().c.also.clear();
    for (const auto& [op, operand] : c.also) {
      tp::Need n = needs.back();
      n.c.op = op;
      n.c.operand = operand;
      needs.push_back(n);
    }
  }
  return needs;
}

/// A created tensor whose values are all alike is created at its local size when a size expression in the source sets it.
void resize_fills(tp::Context& ctx, std::vector<tp::Need>& needs) {
  for (auto& n : needs) {
    if (n.c.kind != sharding::Conversion::Slice || !n.c.on_output || !n.c.fill) continue;
    const auto& op = ctx.trace.op(n.c.op);
    bool sized = false;
    for (const auto& a : op.size_args) {
      bool covers = (a.role == model::SizeArg::Dim && a.dim == n.c.dim) ||
          (a.role == model::SizeArg::Shape && a.dim <= n.c.dim && n.c.dim < a.dim + static_cast<int>(a.values.size()));
      sized = sized || (covers && a.expr && ctx.editable(op.frame, a.expr));
    }
    if (sized) n.done = true;
    else n.c.fill = false;  // sliced like any other
  }
}

}  // namespace

TpEdits tp_edits(const model::Trace& trace, const sharding::Result& result, const support::SourceManager& sources,
                 const rules::Database& rules, const rules::Target* target, const model::Trace* other) {
  static const rules::Target ours;
  tp::Context ctx(trace, result, sources, rules, target ? *target : ours);
  if (result.tp <= 1) return {};
  if (other && other->tensors.size() == trace.tensors.size()) ctx.other = other;  // the same tensors, one by one
  auto needs = needs_of(result);
  tp::Layers layers(ctx);
  layers.perform(needs);
  resize_fills(ctx, needs);
  if (ctx.target.share_copies) tp::share_copies(ctx, layers, needs);
  layers.settle(needs);
  layers.emit(needs);
  tp::emit_sizes(ctx, layers, needs);
  tp::emit_conversions(ctx, layers, needs);
  ctx.out.copies.assign(result.conversions.size(), 1);
  std::vector<std::set<std::string>> written(result.conversions.size());
  for (const auto& n : needs)
    if (n.c.kind == sharding::Conversion::CopyTo && !n.copy.empty()) written[n.origin].insert(n.copy);
  for (std::size_t i = 0; i < written.size(); ++i) ctx.out.copies[i] = std::max(1, static_cast<int>(written[i].size()));
  ctx.finish();
  return std::move(ctx.out);
}

}  // namespace shardwright::rewrite
