#include "report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace shardwright::report {
namespace {

std::string esc(const std::string& s) {
  std::string out;
  for (const char c : s) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string last_part(const std::string& dotted) { return dotted.substr(dotted.find_last_of('.') + 1); }

constexpr const char* kStyle = R"(
:root{--ink:#1d2129;--soft:#667085;--line:#e3e6ea;--paper:#fff;--a:#2f6fde;--b:#12805c;--c:#b4540a;--bar:#2f6fde;--over:#b42318}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#98a2b3;--line:#333a45;--paper:#15181d;--a:#7aa7ff;--b:#5fd0a5;--c:#f0a868;--bar:#5b8def;--over:#f97066}}
body{font:14px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:2rem auto;max-width:1100px;padding:0 1rem}
h1{font-size:1.5rem;margin:0 0 .2rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}p.lead{color:var(--soft);margin:0}
table{border-collapse:collapse;width:100%}th{text-align:left;color:var(--soft);font-weight:600}th,td{padding:.25rem .6rem .25rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}code{font:12px ui-monospace,monospace}
details{margin-left:1.1rem}summary{cursor:pointer}.leaf{margin-left:2.1rem}.t{color:var(--soft)}.role{border:1px solid;border-radius:3px;padding:0 .3em;font-size:12px}
.column{color:var(--a)}.row{color:var(--b)}.sharded{color:var(--c)}svg text{fill:var(--ink);font:12px system-ui,sans-serif}.warn{color:var(--over)}
)";

std::string role_class(const std::string& role) { return role == "column" || role == "row" || role == "sharded" ? role : "other"; }

void tree_html(const Folded& f, int depth, std::string& out) {
  const Node& n = *f.node;
  std::string line = "<b>" + esc(f.label) + "</b>";
  if (f.count > 1) line += fmt::format(" ({}×)", f.count);
  if (n.module != 0) line += " " + esc(last_part(n.type));
  line += "<span class=t>";
  if (!n.shared_with.empty()) line += " = " + esc(n.shared_with);
  if (!n.kind.empty()) line += " · " + esc(n.kind);
  if (n.parameters) line += " · " + human_count(static_cast<double>(n.parameters)) + " parameters";
  if (n.flops > 0) line += " · " + plan::human_flops(n.flops);
  if (!n.file.empty()) line += " · " + esc(n.file.substr(n.file.find_last_of('/') + 1)) + ":" + std::to_string(n.line);
  if (!n.stages.empty()) {
    line += n.stages.size() > 1 ? " · stages " : " · stage ";
    for (std::size_t i = 0; i < n.stages.size(); ++i) line += (i ? ", " : "") + std::to_string(n.stages[i]);
  }
  line += "</span>";
  if (!n.role.empty()) line += fmt::format(" <span class=\"role {}\">{}</span>", role_class(n.role), esc(n.role));
  if (f.children.empty()) {
    out += "<div class=leaf>" + line + "</div>\n";
    return;
  }
  out += fmt::format("<details{}><summary>{}</summary>\n", depth < 3 ? " open" : "", line);
  for (const Folded& c : f.children) tree_html(c, depth + 1, out);
  out += "</details>\n";
}

/// One bar a stage, the mean as a line.
std::string bars(const plan::Plan& p) {
  double most = 1;
  for (const auto& s : p.stages) most = std::max(most, s.share);
  const int width = 640, left = 70, row = 26, height = row * static_cast<int>(p.stages.size()) + 24;
  std::string out = fmt::format(
      "<svg role=img aria-label=\"Cost of each stage relative to the mean\" viewBox=\"0 0 {} {}\" width=\"100%\" "
      "style=\"max-width:900px\">\n",
      width + left + 200, height);
  const double scale = width / (most * 1.05);
  for (std::size_t k = 0; k < p.stages.size(); ++k) {
    const auto& s = p.stages[k];
    const int y = static_cast<int>(k) * row + 4;
    out += fmt::format(
        "<text x=0 y={}>stage {}</text><rect x={} y={} width={:.1f} height={} rx=2 fill=\"var({})\"/><text x={:.1f} y={}>{:.2f} · {} · "
        "{:.2f} GiB</text>\n",
        y + 14, k, left, y, s.share * scale, row - 8, s.share > 1.2 ? "--over" : "--bar", left + s.share * scale + 8, y + 14, s.share,
        plan::human_flops(s.flops), s.gib);
  }
  const double mean = left + scale;
  out += fmt::format(
      "<line x1={0:.1f} x2={0:.1f} y1=0 y2={1} stroke=\"var(--soft)\" stroke-dasharray=\"3 3\"/><text x={0:.1f} y={2}>mean</text></svg>\n",
      mean, height - 18, height - 4);
  return out;
}

std::string shape(const std::vector<std::int64_t>& v) {
  std::string s;
  for (auto d : v) s += (s.empty() ? "" : " × ") + std::to_string(d);
  return s.empty() ? "scalar" : s;
}

std::string list(const std::vector<std::string>& v, std::size_t most = 6) {
  std::string s;
  for (std::size_t i = 0; i < v.size() && i < most; ++i) s += (i ? ", " : "") + ("<code>" + esc(v[i]) + "</code>");
  if (v.size() > most) s += fmt::format(" and {} more", v.size() - most);
  return s;
}

}  // namespace

std::string html(const plan::Plan& p, const Node& root) {
  std::string o = "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width\"><title>" +
      esc(p.model) + "</title><style>" + kStyle + "</style></head><body>\n";
  o += "<h1>" + esc(p.model) + "</h1>\n";
  o += fmt::format("<p class=lead>tensor {} × pipeline {} × data {} · {} micro-batches · schedule {} · objective {} · {} parameters</p>\n",
                   p.grid.tp, p.grid.pp, p.grid.dp, p.grid.micro_batches, esc(p.grid.schedule), esc(p.objective),
                   human_count(static_cast<double>(root.parameters)));
  if (!p.warnings.empty() || !p.fallbacks.empty()) {
    o += "<h2>To know first</h2><ul>\n";
    for (const auto& w : p.warnings) o += "<li class=warn>" + esc(w) + "</li>\n";
    for (const auto& f : p.fallbacks)
      o += "<li>" + (f.module.empty() ? std::string() : "<code>" + esc(f.module) + "</code>: ") + esc(f.reason) +
          (f.where.empty() ? "" : " <span class=t>" + esc(f.where) + "</span>") + "</li>\n";
    o += "</ul>\n";
  }
  o += "<h2>Stages</h2>\n";
  o += fmt::format(
      "<p class=lead>Slowest stage {:.3f} × the mean (best possible {:.3f}, of {} legal cuts). FLOPs are forward, one micro-batch; GiB are "
      "parameters, gradients and Adam's moments on one rank.</p>\n",
      p.slowest_over_mean, p.optimum_slowest_over_mean, p.legal_cuts);
  o += bars(p);
  o += "<table><tr><th>stage<th>holds<th>ends<th>sends<th class=n>bytes a micro-batch</tr>\n";
  for (std::size_t k = 0; k < p.stages.size(); ++k) {
    const auto& s = p.stages[k];
    std::string ends = "with the model's output", sends, bytes;
    for (const auto& c : s.cut) {
      ends = esc(c.at) + (c.by == plan::By::Pinned ? " <span class=t>pinned</span>" : "");
      for (const auto& x : c.sends)
        sends += fmt::format("{}<code>{}</code> {} {}{}", sends.empty() ? "" : "<br>", esc(x.name), shape(x.shape), esc(x.dtype),
                             x.gradient ? "" : " <span class=t>no gradient</span>");
      if (!c.recomputed.empty()) sends += "<br><span class=t>computed again: " + list(c.recomputed) + "</span>";
      if (!c.inputs.empty()) sends += "<br><span class=t>read from the batch: " + list(c.inputs) + "</span>";
      bytes = plan::human_bytes(static_cast<double>(c.bytes));
    }
    o += fmt::format("<tr><td>{}<td>{}<td>{}<td>{}<td class=n>{}</tr>\n", k, list(s.modules, 12), ends, sends, bytes);
  }
  o += "</table>\n";
  for (const auto& [name, n] : p.tied) o += "<p>Tied: <code>" + esc(name) + fmt::format("</code> is held by {} stages.</p>\n", n);

  if (!p.roles.empty()) {
    o += "<h2>Layers</h2><table><tr><th>class<th>attribute<th>role<th>becomes<th class=n>instances<th>where only</tr>\n";
    for (const auto& r : p.roles)
      o +=
          fmt::format("<tr><td>{}<td><code>{}</code><td><span class=\"role {}\">{}</span><td>{}<td class=n>{}<td>{}</tr>\n", esc(r.type),
                      esc(r.attribute), role_class(r.role), esc(r.role),
                      esc(r.layer) + (r.reason.empty() ? "" : " <span class=t>" + esc(r.reason) + "</span>"), r.instances, list(r.only, 4));
    o += "</table>\n";
  }
  if (!p.axes.empty()) {
    o += "<h2>Axes</h2><table><tr><th>axis<th class=n>size<th>split<th class=n>parameters<th class=n>forward<th class=n>backward</tr>\n";
    for (const auto& a : p.axes)
      o += fmt::format("<tr><td>{}<td class=n>{}<td>{}{}<td class=n>{}<td class=n>{}<td class=n>{}</tr>\n", list(a.parameters, 3), a.size,
                       a.split ? "yes" : "no",
                       a.why_not.empty() ? (a.by == plan::By::Pinned ? " <span class=t>pinned</span>" : "")
                                         : " <span class=t>" + esc(a.why_not) + "</span>",
                       plan::human_bytes(a.parameter_bytes), plan::human_bytes(a.forward_bytes), plan::human_bytes(a.backward_bytes));
    o += "</table>\n";
  }
  if (!p.collectives.empty()) {
    o += "<h2>Communication</h2><p class=lead>What one rank hands to the collectives in one optimizer "
         "step.</p><table><tr><th>tag<th>kind<th>site<th>stage<th class=n>calls<th class=n>bytes</tr>\n";
    std::map<std::string, std::pair<double, double>> sum;
    for (const auto& c : p.collectives) {
      o += fmt::format("<tr><td>{}<td>{}<td>{}<td>{}<td class=n>{:.0f}<td class=n>{}</tr>\n", esc(c.tag), esc(c.kind), esc(c.site),
                       c.stage < 0 ? "all" : std::to_string(c.stage), c.count, plan::human_bytes(c.bytes));
      sum[c.tag].first += c.count;
      sum[c.tag].second += c.bytes;
    }
    for (const auto& [tag, v] : sum)
      o += fmt::format("<tr><td><b>{}</b><td><td>all sites and stages<td><td class=n>{:.0f}<td class=n>{}</tr>\n", esc(tag), v.first,
                       plan::human_bytes(v.second));
    o += "</table>\n";
  }
  o += "<h2>Call-chain tree</h2>\n";
  tree_html(fold(root), 0, o);
  return o + "</body></html>\n";
}

}  // namespace shardwright::report
