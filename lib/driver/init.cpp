#include "driver/init.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "program/visit.h"
#include "python/parse.h"
#include "python/resolve.h"
#include "support/files.h"
#include "support/text.h"

namespace shardwright::driver {
namespace {

using program::ClassDef;
using program::Function;
using program::Parameter;
using support::failure;

struct Argument {
  std::string name, value;
  bool guessed = false, by_default = false;
  std::string note;
};

bool has(const std::string& name, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const char* p) { return name.find(p) != std::string::npos; });
}

// A value for a constructor argument that has no default, by what such names mean in this field; small sizes, so that everything stays
// quick.
std::optional<std::string> guess_argument(const std::string& given, const std::string& annotation) {
  const std::string name = support::lower(given);
  if (annotation == "bool") return "False";
  if (annotation.starts_with("Optional") || annotation.find("None") != std::string::npos) return "None";
  if (annotation == "str" || has(name, {"config", "cfg", "path", "file"})) return std::nullopt;
  if (annotation == "float" || has(name, {"drop", "prob", "eps"}) || name.ends_with("rate")) return "0.0";
  if (has(name, {"vocab", "num_embeddings"})) return "96";
  if (has(name, {"num_class", "n_class", "num_labels"})) return "10";
  if (has(name, {"head_dim", "dim_head", "head_size"})) return "16";
  if (has(name, {"head"})) return "4";
  if (has(name, {"depth", "layer", "block_count", "num_blocks", "n_block"})) return "2";
  if (has(name, {"in_chan", "in_ch", "img_channels", "image_channels"})) return "3";
  if (has(name, {"patch", "window", "ratio", "mult", "stride", "kernel"})) return "4";
  if (has(name, {"img", "image", "resolution", "height"})) return "32";
  if (name == "w" || (name == "width" && annotation == "size")) return "32";
  if (has(name, {"len", "ctx", "context", "block_size", "seq", "token", "position"})) return "16";
  if (has(name, {"dim", "emb", "hidden", "width", "chan", "feature", "d_model", "size", "inner", "units"}) || name == "c" || name == "d")
    return "64";
  if (annotation == "int" || has(name, {"num", "n_"})) return "4";
  return std::nullopt;
}

const ClassDef* class_named(const program::Module& m, const std::string& name) {
  const ClassDef* out = nullptr;
  program::walk(m.body, [&](const program::Stmt* s) {
    if (s->class_def && s->class_def->name == name) out = s->class_def;
    return s->kind != program::StmtKind::FunctionDef;
  });
  return out;
}

/// A method of the class or of its bases in the same file.
const Function* method(const program::Module& m, const ClassDef* c, const std::string& name, int depth = 0) {
  if (const auto* own = program::method(*c, name)) return own;
  if (depth > 20) return nullptr;
  for (const auto& b : c->bases)
    if (b.keyword.empty() && b.value && b.value->kind == program::ExprKind::Name)
      if (const auto* base = class_named(m, b.value->text); base && base != c)
        if (const auto* f = method(m, base, name, depth + 1)) return f;
  return nullptr;
}

struct Shapes {
  std::string width = "64", vocabulary = "96", length = "16", channels = "3", image = "32";
};

// What a float input may look like, the likeliest first.
std::vector<std::string> float_shapes(const Shapes& s, bool convolutions) {
  const std::vector<std::string> others = {"f32[2," + s.length + "," + s.width + "]", "f32[2," + s.width + "]",
                                           "f32[2," + s.image + "," + s.image + "," + s.width + "]",
                                           "f32[2," + s.channels + "," + s.length + "]"};
  std::vector<std::string> pictures;
  for (const auto& channels : {s.channels, std::string("3"), std::string("1"), s.width})
    for (const auto& side : {s.image, std::string("32"), std::string("64"), std::string("224")}) {
      const std::string shape = "f32[2," + channels + "," + side + "," + side + "]";
      if (std::find(pictures.begin(), pictures.end(), shape) == pictures.end()) pictures.push_back(shape);
    }
  std::vector<std::string> out = convolutions ? pictures : others;
  const auto& rest = convolutions ? others : pictures;
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

std::string yaml_text(const std::string& s) {
  std::string out = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

support::Expected<FirstJob> first_job(const ModelRequest& request, const std::string& folder, support::SourceManager& sm) {
  namespace fs = std::filesystem;
  if (request.spec.ends_with(".yaml") || request.spec.ends_with(".yml"))
    return failure("'" + request.spec + "' is a job file already; expected path/to/file.py:Class", {}, "usage");
  auto file = load_job(request, sm);
  if (!file) return file.error();
  const std::size_t colon = file->job.model.rfind(':');
  std::string path = file->job.model.substr(0, colon);
  const std::string name = file->job.model.substr(colon + 1);
  const python::DiskFileSystem files;
  if (!file->by_path) {
    python::Resolver resolver(files, file->job.python_path);
    const auto where = resolver.find(path);
    if (where.kind != python::ModuleLocation::Source)
      return failure("module '" + path + "' is not found; give its folder with --python-path", {}, "input");
    path = where.path;
  }
  auto text = files.read(path);
  if (!text) return text.error();
  const auto id = sm.add(path, *text);
  program::Arena arena;
  support::Diagnostics problems;
  const program::Module* m = python::parse(sm, id, arena, problems);
  const ClassDef* c = class_named(*m, name);
  if (!c) return failure("there is no class '" + name + "' in " + path, {}, "input");

  // Constructor.
  const auto spelled = [&](const program::Expr* e) { return e ? std::string(sm.text(e->outer)) : std::string(); };
  std::vector<Argument> arguments;
  Shapes sizes;
  const Function* init = method(*m, c, "__init__");
  auto given = [&](const std::vector<std::pair<std::string, std::string>>& list, const std::string& n) -> const std::string* {
    for (const auto& [k, v] : list)
      if (k == n) return &v;
    return nullptr;
  };
  for (std::size_t i = 1; init && i < init->parameters.size(); ++i) {
    const Parameter& p = init->parameters[i];
    if (p.kind == Parameter::VarArgs || p.kind == Parameter::VarKeywords) continue;
    Argument a{p.name, "", false, false, ""};
    if (const auto* v = given(file->job.args, p.name)) {
      a.value = *v;
    } else if (p.default_value) {
      a.value = spelled(p.default_value);
      a.by_default = true;
    } else if (auto g = guess_argument(p.name, spelled(p.annotation))) {
      a.value = *g;
      a.guessed = true;
    } else {
      a.value = "None";
      a.guessed = true;
      a.note = "nothing tells what this is" + (p.annotation ? " (" + spelled(p.annotation) + ")" : "");
    }
    const bool number = !a.value.empty() && std::all_of(a.value.begin(), a.value.end(), [](unsigned char d) { return std::isdigit(d); });
    const std::string n = support::lower(p.name);
    if (number && has(n, {"vocab", "num_embeddings"})) sizes.vocabulary = a.value;
    else if (number && has(n, {"in_chan", "in_ch", "channels"}) && !has(n, {"out"})) sizes.channels = a.value;
    else if (number && has(n, {"len", "ctx", "context", "block_size", "seq"})) sizes.length = a.value;
    else if (number && has(n, {"img", "image", "resolution"})) sizes.image = a.value;
    else if (number &&
             (n == "dim" || n == "width" || n == "d_model" || n == "c" ||
              has(n, {"embed_dim", "n_embd", "hidden_size", "hidden_dim", "d_model", "in_features", "in_dim"})))
      sizes.width = a.value;
    arguments.push_back(std::move(a));
  }

  // Inputs.
  struct Input {
    std::string name, value;
    bool guessed = true, by_default = false, floating = false;
  };
  std::vector<Input> inputs;
  const Function* forward = method(*m, c, "forward");
  const std::string_view body = sm.text(c->range);
  const bool convolutions = text->find("Conv2d") != std::string::npos && body.find("Embedding") == std::string_view::npos;
  auto said = [&](const std::string& n) -> const std::string* {
    for (const auto& s : request.inputs)
      if (s.compare(0, n.size() + 1, n + "=") == 0) return &s;
    return nullptr;
  };
  for (std::size_t i = 1; forward && i < forward->parameters.size(); ++i) {
    const Parameter& p = forward->parameters[i];
    if (p.kind == Parameter::VarArgs || p.kind == Parameter::VarKeywords) continue;
    Input in{p.name, "", true, false, false};
    const std::string n = support::lower(p.name);
    if (const auto* s = said(p.name)) {
      in.value = s->substr(p.name.size() + 1);
      in.guessed = false;
    } else if (p.default_value) {
      in.value = "=" + spelled(p.default_value);
      in.by_default = true;
    } else if (has(n, {"mask"})) {
      in.value = "=None";
    } else if (n == "t" || has(n, {"timestep", "time_step"})) {
      in.value = "i64[2]<1000";
    } else if (n == "ids" || n == "idx" || has(n, {"_ids", "input_ids", "token", "indices"})) {
      in.value = "i64[2," + sizes.length + "]<" + sizes.vocabulary;
    } else if (has(n, {"target", "label"})) {
      in.value = "i64[2]<10";
    } else {
      in.value = float_shapes(sizes, convolutions)[0];
      in.floating = true;
    }
    inputs.push_back(std::move(in));
  }

  // Try it; where a float input's shape is a guess, the first that the analysis gets through with.
  auto attempt = [&]() -> std::string {
    ModelRequest r = request;
    r.args.clear();
    r.inputs.clear();
    for (const auto& a : arguments)
      if (!a.by_default) r.args += (r.args.empty() ? "" : ", ") + a.name + "=" + a.value;
    for (const auto& in : inputs)
      if (!in.by_default) r.inputs.push_back(in.name + "=" + in.value);
    support::SourceManager own;
    auto a = trace_model(r, own, [](const std::string&) {});
    if (!a) return a.error().range.valid() ? own.describe(a.error().range) + ": " + a.error().message : a.error().message;
    return "";
  };
  FirstJob out;
  out.trouble = attempt();
  if (!out.trouble.empty()) {
    const auto first = out.trouble;
    bool through = false;
    for (auto& in : inputs) {
      if (!in.floating) continue;
      const std::string before = in.value;
      for (const auto& shape : float_shapes(sizes, convolutions)) {
        in.value = shape;
        if (attempt().empty()) {
          through = true;
          break;
        }
      }
      if (through) break;
      in.value = before;
    }
    out.trouble = through ? "" : first;
  }

  // The text.
  std::error_code ec;
  const std::string base = fs::absolute(folder.empty() ? "." : folder, ec).lexically_normal().string();
  const std::string model = file->by_path
      ? fs::path(path).lexically_relative(base.ends_with('/') ? base.substr(0, base.size() - 1) : base).generic_string() + ":" + name
      : file->job.model;
  const std::string cls = support::lower(name);
  out.name = cls + ".yaml";
  std::string& y = out.text;
  y += "# How " + name + " is built and called. Written by `shardwright init`; what it guessed says so: correct it.\n";
  if (!out.trouble.empty()) {
    y += "# The analysis does not get through with these values:\n";
    for (std::size_t at = 0; at <= out.trouble.size();) {
      std::size_t end = std::min(out.trouble.find('\n', at), out.trouble.size());
      y += "#   " + out.trouble.substr(at, end - at) + "\n";
      at = end + 1;
    }
  }
  y += "model: " + model + "\n";
  if (request.python_path.empty()) y += "# python_path: [.]                 folders to import from\n";
  else {
    y += "python_path: [";
    for (const auto& p : request.python_path)
      y += (&p == &request.python_path.front() ? "" : ", ") + yaml_text(fs::absolute(p, ec).lexically_relative(base).generic_string());
    y += "]\n";
  }
  const bool any = std::any_of(arguments.begin(), arguments.end(), [](const Argument& a) { return !a.by_default; });
  y += any ? "args:                              # constructor arguments\n"
           : "# args:                            constructor arguments, all with defaults\n";
  for (const auto& a : arguments) {
    std::string value = a.value;
    std::replace(value.begin(), value.end(), '\n', ' ');
    const bool plain =
        value.find_first_not_of("0123456789.-") == std::string::npos || value == "True" || value == "False" || value == "None";
    std::string line = (a.by_default ? "  # " : "  ") + a.name + ": " + (plain ? value : yaml_text(value));
    if (a.by_default) line += "  (default)";
    if (a.guessed) line += std::string(line.size() < 34 ? 34 - line.size() : 1, ' ') + "# guessed" + (a.note.empty() ? "" : ": " + a.note);
    y += line + "\n";
  }
  if (!forward) y += "# inputs: forward is not in this file; name its inputs here, as x: \"f32[2,16,64]\"\n";
  else
    y += "inputs:                            # of forward, in order: dtype[shape], integers with bounds, \"=expression\" for anything "
         "else\n";
  for (const auto& in : inputs) {
    std::string line = (in.by_default ? "  # " : "  ") + in.name + ": " + yaml_text(in.value);
    if (in.by_default) line += "  (default)";
    else if (in.guessed) line += std::string(line.size() < 34 ? 34 - line.size() : 1, ' ') + "# guessed";
    y += line + "\n";
  }
  y += "mode: eval                         # or train\n";
  y += "parallel: {tp: 2, pp: 1, micro_batches: 4}\n";
  return out;
}

}  // namespace shardwright::driver
