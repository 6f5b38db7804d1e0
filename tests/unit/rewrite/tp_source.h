// A trace over real source text, written by hand: frames, module calls and operations point at expressions found by their text.
#pragma once
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>

#include "../sharding/trace_builder.h"
#include "program/visit.h"
#include "python/parse.h"
#include "rewrite/rewrite.h"
#include "rules/rules.h"
#include "support/edits.h"

namespace tp_test {

using namespace shardwright;
using builder::Shape;
using builder::TraceBuilder;
using model::FrameId;
using model::ModuleId;
using model::TensorId;
using program::Expr;

/// What rules/layers says of the layers used here.
inline std::shared_ptr<const rules::Database> layer_rules(support::SourceManager& sm) {
  auto dir = std::filesystem::temp_directory_path() / "shardwright_tp_rules";
  std::filesystem::create_directories(dir / "layers");
  std::ofstream(dir / "layers" / "tp.yaml") << "- layer: torch.nn.Linear\n"
                                               "  params: {weight: \"o i\", bias: \"o\"}\n"
                                               "  forward: \"... i -> ... o\"\n"
                                               "  parallel: {column: o, row: i}\n";
  auto db = rules::Database::load(sm, {dir.string()});
  if (!db) throw std::runtime_error(db.error().message);
  return *db;
}

class Source : public TraceBuilder {
 public:
  explicit Source(const std::string& text) {
    file = sm.add("model.py", text, "model");
    module = python::parse(sm, file, arena, diagnostics);
    if (diagnostics.has_errors()) throw std::runtime_error("syntax");
  }
  /// The n-th expression with exactly this text.
  const Expr* expr(const std::string& text, int n = 0) const {
    const Expr* found = nullptr;
    program::walk_exprs(module->body, [&](const Expr* e) {
      if (!found && sm.text(e->range) == text && n-- == 0) found = e;
      return true;
    });
    if (!found) throw std::runtime_error("no expression " + text);
    return found;
  }
  const program::Function* method(const std::string& cls, const std::string& name) const {
    for (const auto* s : module->body)
      if (s->class_def && s->class_def->name == cls)
        for (const auto* f : s->class_def->body)
          if (f->function && f->function->name == name) return f->function;
    throw std::runtime_error("no method " + name);
  }
  FrameId enter(const std::string& cls, const std::string& name, ModuleId self, FrameId parent = -1, const Expr* call = nullptr) {
    model::Frame f;
    f.id = static_cast<FrameId>(t.frames.size());
    f.parent = parent;
    f.function = method(cls, name);
    f.self = self;
    f.call = call;
    f.init = name == "__init__";
    f.begin = ++now;
    t.frames.push_back(f);
    // Every simple statement once: enough for straight-line code.
    for (const auto* s : f.function->body) {
      model::Step st;
      st.id = static_cast<model::StepId>(t.steps.size());
      st.frame = f.id;
      st.stmt = s;
      st.begin = now;
      t.steps.push_back(st);
    }
    return f.id;
  }
  void leave(FrameId f) { t.frames[static_cast<std::size_t>(f)].end = ++now; }
  ModuleId add_module(ModuleId parent, const std::string& attr, const std::string& type, FrameId construct_frame,
                      const Expr* construct_call) {
    model::Module m;
    m.id = static_cast<ModuleId>(t.modules.size());
    m.parent = parent;
    m.attr = attr;
    const auto& up = t.modules[static_cast<std::size_t>(parent)].fqn;
    m.fqn = up.empty() ? attr : up + "." + attr;
    m.type = type;
    m.builtin = type.rfind("torch.", 0) == 0;
    m.construct_frame = construct_frame;
    m.construct_call = construct_call;
    t.modules.push_back(m);
    t.modules[static_cast<std::size_t>(parent)].children.emplace_back(attr, m.id);
    return m.id;
  }
  TensorId own_param(ModuleId m, const std::string& attr, Shape s) {
    auto& mod = t.modules[static_cast<std::size_t>(m)];
    TensorId x = tensor(std::move(s), model::Origin::Parameter, mod.fqn.empty() ? attr : mod.fqn + "." + attr);
    mod.params.push_back({attr, x, false, true});
    return x;
  }
  /// Puts the last operation at its place.
  void at(FrameId frame, const Expr* site, std::vector<const Expr*> operands = {}, ModuleId m = -1) {
    auto& op = t.ops.back();
    op.clock = ++now;
    op.frame = frame;
    op.site = site;
    op.module = m;
    for (std::size_t i = 0; i < operands.size(); ++i) op.inputs[i].expr = operands[i];
  }
  void size_arg(const std::string& text, int n, int dim, std::int64_t value, const model::Sym* sym = nullptr) {
    model::SizeArg a;
    a.dim = dim;
    a.values = {value};
    a.syms = {sym};
    a.expr = expr(text, n);
    t.ops.back().size_args.push_back(a);
  }
  /// A call of a Linear from user code; the operation runs in a built-in frame.
  TensorId call_linear(ModuleId m, FrameId caller, const Expr* call, TensorId x) {
    model::ModuleCall c;
    c.module = m;
    c.caller = caller;
    c.call = call;
    c.begin = ++now;
    c.arguments = {bound(x)};
    model::Frame f;
    f.id = static_cast<FrameId>(t.frames.size());
    f.parent = caller;
    f.call = call;
    f.self = m;
    f.builtin = true;
    f.begin = ++now;
    c.callee = f.id;
    const auto& params = t.modules[static_cast<std::size_t>(m)].params;
    TensorId y = linear(x, params[0].tensor, params.size() > 1 ? params[1].tensor : -1);
    at(caller, call, {}, m);
    f.end = ++now;
    t.frames.push_back(f);
    c.end = ++now;
    c.result = bound(y);
    t.calls.push_back(c);
    return y;
  }
  static model::Binding bound(TensorId x) {
    model::Binding b;
    b.kind = model::Binding::Tensor;
    b.tensor = x;
    return b;
  }
  /// A parameter's value at entry.
  void parameter(FrameId frame, const std::string& name, TensorId x) {
    t.var_writes.push_back({frame, -1, name, bound(x), t.frames[static_cast<std::size_t>(frame)].begin});
  }
  void write(FrameId frame, const std::string& name, TensorId x) { t.var_writes.push_back({frame, -1, name, bound(x), ++now}); }
  const model::Sym* dim(TensorId x, int d) {
    model::Sym s;
    s.kind = model::Sym::Dim;
    s.tensor = x;
    s.dim = d;
    s.value = static_cast<double>(shape(x)[static_cast<std::size_t>(d)]);
    t.syms.push_back(s);
    return &t.syms.back();
  }

  /// The text with every edit of the file applied.
  std::string apply(const rewrite::TpEdits& e) const { return apply_verdicts(sm, file, module, e); }
  static std::string apply_verdicts(const support::SourceManager& sm, support::FileId file, const program::Module* module,
                                    const rewrite::TpEdits& e) {
    support::Edits edits(file);
    for (const auto& v : e.verdicts) {
      if (v.range.file != file) continue;
      auto line = sm.line_at(file, v.range.begin);
      std::string indent(line.substr(0, line.find_first_not_of(" \t")));
      switch (v.kind) {
        case rewrite::Verdict::Keep: break;
        case rewrite::Verdict::Replace: edits.replace(v.range, v.text); break;
        case rewrite::Verdict::Wrap: edits.wrap(v.range, v.prefix, v.suffix); break;
        case rewrite::Verdict::InsertBefore: edits.insert_before(v.range.begin, v.text + "\n" + indent); break;
        case rewrite::Verdict::InsertAfter: edits.insert_after(v.range.end, v.text); break;
        case rewrite::Verdict::AppendArgument:
          program::walk_exprs(module->body, [&](const Expr* c) {
            if (c->kind == program::ExprKind::Call && c->range == v.range)
              edits.insert_after(c->args.empty() ? c->range.end - 1 : c->args.back().range.end, (c->args.empty() ? "" : ", ") + v.text);
            return true;
          });
          break;
      }
    }
    edits.remove_duplicates();
    auto out = edits.apply(sm.file(file).text);
    return out ? *out : "ERROR " + out.error().message;
  }

  support::SourceManager sm;
  support::Diagnostics diagnostics;
  program::Arena arena;
  support::FileId file = -1;
  program::Module* module = nullptr;
  model::Clock now = 0;
};

}  // namespace tp_test
