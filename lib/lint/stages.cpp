// Pipeline boundaries: the declared shapes against what the stages return, as far as one file tells both.
#include <algorithm>
#include <cctype>
#include <optional>

#include "eval/coroutine.h"
#include "eval/impl.h"
#include "eval/torch_link.h"
#include "lint/session.h"
#include "program/visit.h"
#include "support/text.h"

namespace shardwright::lint {

using program::Expr;
using program::ExprKind;
using support::Severity;

namespace {

using Shape = std::vector<std::int64_t>;

const Expr* keyword(const Expr* call, const char* name) {
  for (const auto& a : call->args)
    if (a.keyword == name) return a.value;
  return nullptr;
}

bool is_list(const Expr* e) { return e && (e->kind == ExprKind::List || e->kind == ExprKind::Tuple); }

/// "…stage3" → 3.
std::optional<std::size_t> number_of(const std::string& name) {
  std::size_t end = name.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(name[end - 1]))) --end;
  if (end == name.size()) return std::nullopt;
  const std::string low = support::lower(name.substr(0, end));
  if (!low.ends_with("stage") && !low.ends_with("stage_")) return std::nullopt;
  return std::stoul(name.substr(end));
}

std::string text_of(const std::vector<Shape>& shapes) {
  std::string out;
  for (const auto& s : shapes) {
    out += out.empty() ? "(" : ", (";
    for (std::size_t i = 0; i < s.size(); ++i) out += (i ? ", " : "") + (i == 0 ? std::string("batch") : std::to_string(s[i]));
    out += ")";
  }
  return out;
}

}  // namespace

void Session::boundaries(const program::Module& m) {
  if (m.file < 0 || sources_.file(m.file).text.find("PipelineTensorShapeConfig") == std::string::npos) return;
  std::vector<const Expr*> configs;
  program::walk_exprs(m.body, [&](const Expr* e) {
    if (e->kind == ExprKind::Call && e->kids[0]->text == "PipelineTensorShapeConfig" && is_list(keyword(e, "stage_shapes")))
      configs.push_back(e);
    return true;
  });
  if (configs.size() != 1) return;
  const Expr* config = configs[0];
  const Expr* list = keyword(config, "stage_shapes");
  // Sizes of the declared shapes; a shape with a size that cannot be computed is left empty.
  std::vector<std::vector<Shape>> declared;
  std::optional<std::int64_t> stages;
  eval::Coroutine co(
      [&] {
        model::Trace trace;
        eval::Interpreter in(sources_, *loader_, trace);
        in.max_steps = request_.max_steps;
        in.impl()->stack_limit = co.stack_limit();
        eval::Env& env = *in.impl()->new_env(nullptr, nullptr);
        eval::ActiveFrame frame;
        frame.env = &env;
        frame.name = "lint";
        try {
          eval::Watch watch;
          watch.parallel_libraries = true;
          eval::register_torch(in, rules_, watch);
          env.globals = in.import(m.name);
          if (!env.globals) return;
          eval::FrameScope scope(eval::StackAccess::of(in), &frame);
          auto number = [&](const Expr* e) -> std::optional<std::int64_t> {
            try {
              auto v = in.eval(e, &env);
              if (v.is(eval::Kind::Int)) return v.as_int();
            } catch (eval::PyError&) {}
            return std::nullopt;
          };
          if (const Expr* n = keyword(config, "num_stages")) stages = number(n);
          for (const Expr* stage : list->kids) {
            std::vector<Shape> shapes;
            if (is_list(stage))
              for (const Expr* shape : stage->kids) {
                Shape s;
                if (is_list(shape))
                  for (const Expr* size : shape->kids) s.push_back(number(size).value_or(-1));
                shapes.push_back(std::move(s));
              }
            declared.push_back(std::move(shapes));
          }
        } catch (eval::PyError&) {
        } catch (eval::Abort&) {}
      },
      64u << 20);
  co.resume();
  if (stages && *stages - 1 != static_cast<std::int64_t>(list->kids.size()))
    findings_.add(Severity::Error, "SW301", list->range,
                  "stage_shapes has " + std::to_string(list->kids.size()) + " entries, " + std::to_string(*stages) + " stages have " +
                      std::to_string(*stages - 1) + " cuts; one entry a cut",
                  {});
  for (const Expr* stage : list->kids)
    if (is_list(stage))
      for (const Expr* shape : stage->kids)
        if (is_list(shape) && shape->kids.size() > 1 && shape->kids[0]->kind == ExprKind::Int) {
          findings_.add(Severity::Warning, "SW301", shape->range,
                        "the leading size " + std::to_string(shape->kids[0]->integer) +
                            " is the micro-batch of one run, written as a number: another micro-batch size is cut off or hangs; use the "
                            "configured one",
                        {});
          break;
        }
  // The stages of this file, in their order.
  std::vector<Class> classes;
  for (const auto* s : m.body)
    if (s->kind == program::StmtKind::ClassDef) {
      bool has_forward = program::method(*s->class_def, "forward") != nullptr;
      if (has_forward) classes.push_back({s->class_def, &m, true, true});
    }
  std::vector<std::pair<std::size_t, const Class*>> order;
  for (const auto& c : classes)
    if (auto n = number_of(c.def->name)) order.emplace_back(*n, &c);
  if (order.empty() && !classes.empty() && classes.size() <= list->kids.size() + 1)
    for (std::size_t i = 0; i < classes.size(); ++i) order.emplace_back(i, &classes[i]);
  for (const auto& [k, c] : order) {
    if (k >= declared.size() || declared[k].empty()) continue;
    Facts facts;
    std::vector<Shape> returned;
    if (auto at = stage_facts_.find(c->def); at != stage_facts_.end()) facts = at->second;
    else if (!run_class(*c, &facts, true)) continue;
    for (const auto& sent : facts.outputs) returned.push_back(sent.shape);
    if (returned.empty()) continue;
    const Expr* at = list->kids[k];
    if (returned.size() != declared[k].size()) {
      findings_.add(Severity::Error, "SW301", at->range,
                    c->def->name + " returns " + std::to_string(returned.size()) + " tensors, " + std::to_string(declared[k].size()) +
                        " shapes are declared for its boundary",
                    {{c->def->range, "the stage"}});
      continue;
    }
    // Batch sizes and sizes of made-up inputs may differ; the same shapes in another order may not.
    auto inner = [](const std::vector<Shape>& shapes) {
      std::vector<Shape> out;
      for (const auto& s : shapes) out.emplace_back(s.empty() ? s.begin() : s.begin() + 1, s.end());
      return out;
    };
    auto a = inner(returned), b = inner(declared[k]);
    if (a == b) continue;
    auto x = a, y = b;
    std::sort(x.begin(), x.end());
    std::sort(y.begin(), y.end());
    if (x == y)
      findings_.add(
          Severity::Error, "SW301", at->range,
          c->def->name + " returns " + text_of(returned) + "; the boundary declares them in another order: " + text_of(declared[k]), {});
  }
}

}  // namespace shardwright::lint
