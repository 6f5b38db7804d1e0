#include "emit/cxx_package.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "model/trace.h"
#include "program/visit.h"
#include "rules/embedded.h"
#include "support/files.h"

namespace shardwright::emit {
namespace {

namespace fs = std::filesystem;
using program::Expr;
using program::ExprKind;
using support::failure;

struct Unwritable {
  std::string why;
};

std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out + "\"";
}

/// Values of the job, which are written as in Python, in C++.
class Values {
 public:
  Values(const CxxInput& in) : in_(in) {}

  std::string of(const Expr* e) const {
    switch (e->kind) {
      case ExprKind::None: return "{}";
      case ExprKind::True: return "true";
      case ExprKind::False: return "false";
      case ExprKind::Int: return e->text.empty() ? std::to_string(e->integer) : e->text;
      case ExprKind::Float: return std::string(in_.sources.text(e->range));
      case ExprKind::String: return quoted(e->text);
      case ExprKind::Unary: return e->text + of(e->kids[0]);
      case ExprKind::Binary:
        if (e->text == "//" || e->text == "/" || e->text == "+" || e->text == "-" || e->text == "*")
          return "(" + of(e->kids[0]) + " " + e->text.substr(0, 1) + " " + of(e->kids[1]) + ")";
        break;
      case ExprKind::Tuple:
      case ExprKind::List: {
        std::string s;
        for (const Expr* k : e->kids) s += (s.empty() ? "" : ", ") + of(k);
        return "{" + s + "}";
      }
      case ExprKind::Name: return e->text;
      case ExprKind::Call: {
        if (e->kids[0]->kind != ExprKind::Name) break;
        const std::string& name = e->kids[0]->text;
        const auto* cls = class_named(name);
        if (!cls) break;
        return object(name, *cls, e->args);
      }
      default: break;
    }
    throw Unwritable{"'" + std::string(in_.sources.text(e->range)) + "' of the job cannot be written in C++"};
  }

  /// Class(arguments): braces with field names for an aggregate, arguments in the constructor's order otherwise.
  std::string object(const std::string& name, const cxx::Unit::Class& cls, const std::vector<program::Argument>& args) const {
    const auto* init = constructor(name);
    if (!init) throw Unwritable{"class '" + name + "' was not read"};
    const bool aggregate = is_aggregate(*init);
    std::string s;
    std::size_t given = 0;
    bool gap = false;
    std::string missing;
    for (std::size_t i = 1; i < init->parameters.size(); ++i) {
      const auto& p = init->parameters[i];
      const program::Argument* a = nullptr;
      for (std::size_t k = 0; k < args.size(); ++k)
        if (args[k].keyword == p.name || (args[k].keyword.empty() && k + 1 == i)) a = &args[k];
      if (!a) {
        gap = true;
        if (missing.empty()) missing = p.name;
        continue;
      }
      if (gap && !aggregate)
        throw Unwritable{"give '" + missing + "' of " + name + " too: in C++ an argument cannot be given without those before it"};
      ++given;
      s += (s.empty() ? "" : ", ") + (aggregate ? "." + p.name + " = " : std::string()) + of(a->value);
    }
    if (given != args.size()) throw Unwritable{"an argument given for " + name + " is none of its constructor's"};
    return aggregate ? cls.spelled + "{" + s + "}" : cls.spelled + "(" + s + ")";
  }

  /// Arguments of the model's constructor.
  std::string arguments(const std::string& name, const std::vector<program::Argument>& args) const {
    const auto* cls = class_named(name);
    if (!cls) throw Unwritable{"class '" + name + "' was not read"};
    const std::string s = object(name, *cls, args);
    return s.substr(cls->spelled.size() + 1, s.size() - cls->spelled.size() - 2);
  }

  const cxx::Unit::Class* class_named(const std::string& name) const {
    for (const auto& c : in_.unit.classes)
      if (c.name == name) return &c;
    return nullptr;
  }

 private:
  const program::Function* constructor(const std::string& name) const {
    for (const program::Stmt* s : in_.unit.module->body)
      if (s->class_def && s->class_def->name == name) return program::method(*s->class_def, "__init__");
    return nullptr;
  }

  /// Made by the front end for a class without a constructor: every parameter is absent by default.
  static bool is_aggregate(const program::Function& init) {
    return !init.range.valid() &&
        (init.parameters.size() == 1 || (init.parameters[1].default_value && init.parameters[1].default_value->text == "absent"));
  }

  const CxxInput& in_;
};

std::string cxx_dtype(model::DType t) {
  std::string n(model::torch_name(t));  // torch.float32
  static const std::map<std::string, std::string> all = {{"float32", "kFloat32"},
                                                         {"float64", "kFloat64"},
                                                         {"float16", "kFloat16"},
                                                         {"bfloat16", "kBFloat16"},
                                                         {"int64", "kInt64"},
                                                         {"int32", "kInt32"},
                                                         {"int16", "kInt16"},
                                                         {"int8", "kInt8"},
                                                         {"uint8", "kUInt8"},
                                                         {"bool", "kBool"},
                                                         {"complex64", "kComplexFloat"},
                                                         {"complex128", "kComplexDouble"}};
  auto it = all.find(n.substr(n.rfind('.') + 1));
  return "torch::" + (it == all.end() ? std::string("kFloat32") : it->second);
}

/// Folder that all of the user's files are below.
std::string common_root(const std::vector<std::string>& paths) {
  fs::path root = fs::path(paths.front()).parent_path();
  auto below = [](const fs::path& p, const fs::path& r) {
    const std::string s = r.string() + "/";
    return p.string().rfind(s, 0) == 0;
  };
  for (const auto& p : paths)
    while (root.has_relative_path() && !below(p, root)) root = root.parent_path();
  return root.string();
}

struct Flags {
  std::vector<std::string> includes, definitions;
  std::string standard = "20";
};

Flags flags_of(const cxx::Unit& unit) {
  Flags f;
  auto absolute = [&](const std::string& p) {
    return fs::path(p).is_absolute() ? p : support::normal_path(support::join_path(unit.directory, p));
  };
  for (std::size_t i = 0; i < unit.command.size(); ++i) {
    const std::string& a = unit.command[i];
    auto value = [&](const std::string& option) -> std::string {
      if (a == option && i + 1 < unit.command.size()) return unit.command[++i];
      return a.rfind(option, 0) == 0 && a.size() > option.size() ? a.substr(option.size()) : "";
    };
    for (const char* option : {"-isystem", "-I"})
      if (std::string v = value(option); !v.empty()) {
        f.includes.push_back(absolute(v));
        break;
      }
    if (std::string v = value("-D"); !v.empty()) f.definitions.push_back(v);
    if (a.rfind("-std=", 0) == 0 && a.size() >= 2) {
      const std::string n = a.substr(a.size() - 2);
      if (n == "23" || n == "2b" || n == "26" || n == "2c") f.standard = "23";
    }
  }
  return f;
}

std::string filled(std::string text, const std::map<std::string, std::string>& values) {
  for (const auto& [key, value] : values) {
    const std::string hole = "@" + key + "@";
    for (std::size_t at = text.find(hole); at != std::string::npos; at = text.find(hole, at + value.size()))
      text.replace(at, hole.size(), value);
  }
  return text;
}

std::string params_yaml(const CxxInput& in) {
  std::string s = "# Which slice of an original parameter each rank holds (docs/cxx.md).\nversion: 1\nstages: 1\ntensors:\n";
  for (const auto& h : in.text.held) {
    s += "  " + h.name + ": {";
    if (h.buffer) s += "kind: buffer, ";
    if (h.dim < 0) s += std::string("shard: null") + (h.summed ? ", grad_sum: tp" : "");
    else {
      s += fmt::format("dim: {}", h.dim);
      if (!h.segments.empty()) {
        s += ", segments: [";
        for (std::size_t i = 0; i < h.segments.size(); ++i)
          s += fmt::format("{}[{}, {}]", i ? ", " : "", h.segments[i].first, h.segments[i].second);
        s += "]";
      } else if (h.outer != 1) s += fmt::format(", outer: {}", h.outer);
      s += ", shard: tp";
    }
    s += "}\n";
  }
  return s;
}

}  // namespace

support::Expected<std::vector<File>> cxx_files(const CxxInput& in) {
  std::vector<File> out;
  std::vector<std::string> paths;
  for (auto f : in.unit.files) paths.push_back(in.sources.file(f).path);
  const std::string root = common_root(paths);
  auto relative = [&](const std::string& p) { return fs::path(p).lexically_relative(root).string(); };
  std::string entry;
  for (auto f : in.unit.files) {
    const auto& file = in.sources.file(f);
    std::string text = file.text;
    auto it = in.text.edits.find(f);
    const bool edited = it != in.text.edits.end() && !it->second.empty();
    if (edited) {
      auto done = it->second.apply(file.text);
      if (!done) return done.error();
      text = *done;
      // The runtime's names: after the file's own first include.
      const std::string include = "#include \"shardwright/parallel.h\"\n";
      std::size_t at = text.find("#include");
      if (const std::size_t torch = text.find("#include <torch/"); torch != std::string::npos) at = text.find('\n', torch) + 1;
      if (at == std::string::npos) at = 0;
      text.insert(at, include);
    }
    out.push_back({"include/" + relative(file.path), text, false, false, {}});
  }
  entry = relative(in.job.model.empty() ? paths.front() : in.sources.file(in.unit.module->file).path);

  // How the model is built and called.
  std::string build, inputs, call;
  const Values values(in);
  const std::string cls = in.job.model.substr(in.job.model.rfind(':') == std::string::npos ? 0 : in.job.model.find(':') + 1);
  const auto* spelled = values.class_named(cls);
  if (!spelled) return failure("class '" + cls + "' was not read", {}, "input");
  try {
    support::Diagnostics ignored;
    auto expression = [&](const std::string& text) -> const Expr* {
      auto* m = in.syntax.parse("cxx.job", "<job>", text, false, ignored);
      if (!m || !m->syntax_errors.empty() || m->body.size() != 1 || !m->body[0]->value)
        throw Unwritable{"'" + text + "' of the job cannot be written in C++"};
      return m->body[0]->value;
    };
    std::vector<program::Argument> args;
    if (!in.job.build.empty()) {
      const Expr* e = expression(in.job.build);
      if (e->kind != ExprKind::Call || e->kids[0]->text != cls) throw Unwritable{"build: '" + in.job.build + "' is not " + cls + "(…)"};
      args = e->args;
    } else {
      std::string text;
      for (const auto& [name, value] : in.job.args) text += (text.empty() ? "" : ", ") + name + "=" + value;
      args = expression("f(" + text + ")")->args;
    }
    build = values.arguments(cls, args);
    int tensors = 0;
    for (const auto& [name, spec] : in.job.inputs) {
      std::string argument;
      if (spec.expression.empty()) {
        std::string shape;
        for (auto n : spec.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(n);
        inputs += fmt::format("      {{\"{}\", {}, {{{}}}, {}, {}, {}}},\n", name, cxx_dtype(spec.dtype), shape, spec.low, spec.high,
                              spec.distribution == "rand" ? "true" : "false");
        argument = fmt::format("x[{}]", tensors++);
      } else {
        argument = values.of(expression(spec.expression));
      }
      call += (call.empty() ? "" : ", ") + argument;
    }
  } catch (const Unwritable& e) { return failure(e.why, {}, "input"); }

  auto text = [](const std::string& name) { return std::string(rules::embedded("targets/libtorch/" + name).value_or("")); };
  const Flags flags = flags_of(in.unit);
  std::string includes, originals, definitions;
  auto quote = [](const std::string& p) { return "  \"" + p + "\"\n"; };
  std::vector<std::string> folders;  // of the user's files: what `#include "x.h"` finds beside them
  for (const auto& p : paths)
    if (std::string d = support::parent_path(p); std::find(folders.begin(), folders.end(), d) == folders.end()) folders.push_back(d);
  std::vector<std::string> seen;
  auto add = [&](const std::string& p) {
    if (std::find(seen.begin(), seen.end(), p) != seen.end()) return;
    seen.push_back(p);
    const std::string rel = fs::path(p).lexically_relative(root).string();
    if (rel == "." || (!rel.empty() && rel.rfind("..", 0) != 0))
      includes += quote("${CMAKE_CURRENT_SOURCE_DIR}/include" + (rel == "." ? "" : "/" + rel));
  };
  for (const auto& p : flags.includes) add(p);
  add(root);
  for (const auto& p : folders) add(p);
  for (const auto& p : flags.includes) originals += quote(p);
  for (const auto& p : folders) originals += quote(p);
  for (const auto& d : flags.definitions) definitions += " \"" + d + "\"";
  const std::map<std::string, std::string> holes = {{"SPEC", in.spec},
                                                    {"ENTRY", entry},
                                                    {"ORIGINAL", in.sources.file(in.unit.module->file).path},
                                                    {"CLASS", spelled->spelled},
                                                    {"BUILD", build},
                                                    {"INPUTS", inputs},
                                                    {"CALL", call},
                                                    {"INCLUDES", includes},
                                                    {"ORIGINALS", originals},
                                                    {"DEFINITIONS", definitions},
                                                    {"STANDARD", flags.standard},
                                                    {"RUNTIME", in.runtime},
                                                    {"TP", std::to_string(in.grid.tp)},
                                                    {"SEED", std::to_string(in.job.seed)},
                                                    {"TRAIN", in.job.train ? "true" : "false"}};
  for (const char* name : {"CMakeLists.txt", "job.h", "outputs.h", "train.cpp", "verify.cpp"}) {
    std::string source = name == std::string("CMakeLists.txt") ? "CMakeLists.txt.in" : std::string(name) + ".in";
    out.push_back({name, filled(text(source), holes), false, false, {}});
  }
  out.push_back({"params.yaml", params_yaml(in), false, false, {}});
  std::string notes = "# " + in.spec + ": what was changed, and why\n\n";
  for (const auto& w : in.text.why) notes += "- " + w.substr(w.find(root) == 0 ? root.size() + 1 : 0) + "\n";
  if (!in.fallbacks.empty()) notes += "\n## What stays replicated\n\n";
  for (const auto& f : in.fallbacks) notes += "- " + f + "\n";
  notes += "\nBuild: `cmake -S . -B build -G Ninja && ninja -C build train`; run: `torchrun --no-python --nproc-per-node " +
      std::to_string(in.grid.tp) + " build/train`.\n";
  out.push_back({"README.md", notes, false, false, {}});
  return out;
}

}  // namespace shardwright::emit
