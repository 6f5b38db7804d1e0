// MODEL and the options of the command line → one job. Everything goes through one YAML document, so that a job file, --set and
// the other options have one meaning and one checker.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "cxx/load.h"
#include "driver/analysis.h"
#include "program/visit.h"
#include "python/parse.h"
#include "python/resolve.h"
#include "support/files.h"

namespace shardwright::driver {
namespace {

namespace fs = std::filesystem;
using support::failure;

bool ends_with(const std::string& s, const char* tail) {
  std::string t(tail);
  return s.size() >= t.size() && s.compare(s.size() - t.size(), t.size(), t) == 0;
}

/// "a=1, b=(2, 3)" → name, text.
support::Expected<std::vector<std::pair<std::string, std::string>>> keyword_list(const std::string& text, const std::string& option,
                                                                                 support::SourceManager& sm) {
  program::Arena arena;
  support::Diagnostics diags;
  auto id = sm.add("<" + option + ">", "dict(" + text + ")");
  auto* m = python::parse(sm, id, arena, diags);
  std::vector<std::pair<std::string, std::string>> out;
  if (!m->syntax_errors.empty() || m->body.size() != 1 || !m->body[0]->value || m->body[0]->value->kind != program::ExprKind::Call)
    return failure(option + " '" + text + "': expected keyword arguments as in Python, for example 'embed_dim=192, num_heads=(6, 12)'", {},
                   "usage");
  for (const auto& a : m->body[0]->value->args) {
    if (a.keyword.empty())
      return failure(option + " '" + text + "': every argument needs its name, found '" + std::string(sm.text(a.range)) + "'", {}, "usage");
    out.emplace_back(a.keyword, std::string(sm.text(a.value->range)));
  }
  return out;
}

support::Expected<std::pair<std::string, std::string>> key_value(const std::string& text, const std::string& option) {
  auto eq = text.find('=');
  if (eq == std::string::npos || eq == 0) return failure(option + " '" + text + "': expected NAME=VALUE", {}, "usage");
  return std::make_pair(text.substr(0, eq), text.substr(eq + 1));
}

std::string absolute(const std::string& p, const std::string& base) {
  return fs::path(p).is_absolute() ? p : support::normal_path(support::join_path(base, p));
}

/// ":line:column" of a node that was read from a file; "" of one that the command line made.
std::string place_of(const YAML::Node& n) {
  return n.Mark().line >= 0 ? ":" + std::to_string(n.Mark().line + 1) + ":" + std::to_string(n.Mark().column + 1) : "";
}

/// A mapping of known keys, or what is wrong with it. Positions are those of the text that `node` was read from.
std::string wrong_keys(const YAML::Node& node, const std::string& name, const std::vector<std::string>& known, const std::string& where) {
  auto at = [&](const YAML::Node& n) { return where + place_of(n) + ": "; };
  std::string all;
  for (const auto& k : known) all += (all.empty() ? "" : ", ") + k;
  if (node.IsNull()) return "";
  if (!node.IsMap()) return at(node) + "'" + name + "' is a mapping with the keys " + all;
  for (const auto& kv : node)
    if (std::find(known.begin(), known.end(), kv.first.Scalar()) == known.end())
      return at(kv.first) + "unknown key '" + kv.first.Scalar() + "' in '" + name + "'; known are " + all;
  return "";
}

/// A key that a mapping has twice, in it or anywhere below it: yaml-cpp keeps both and reads the first or the last.
std::string key_twice(const YAML::Node& node, const std::string& where, int depth = 0) {
  if (depth > 64 || (!node.IsMap() && !node.IsSequence())) return "";
  std::set<std::string> seen;
  for (const auto& item : node) {
    const bool pair = node.IsMap();
    if (pair && item.first.IsScalar() && !seen.insert(item.first.Scalar()).second)
      return where + place_of(item.first) + ": the key '" + item.first.Scalar() + "' is given twice: leave one of them out";
    if (auto below = key_twice(pair ? item.second : YAML::Node(item), where, depth + 1); !below.empty()) return below;
  }
  return "";
}

/// What yaml-cpp says, for a person.
std::string explain(const YAML::Exception& e) {
  if (e.msg.find("bad conversion") != std::string::npos) return "this value has the wrong type (sizes are whole numbers, names are texts)";
  if (e.msg.find("operator[] call on a scalar") != std::string::npos || e.msg.find("invalid node") != std::string::npos)
    return "a mapping is expected here, found a plain value";
  return "this is not YAML: " + e.msg;
}

void set_path(YAML::Node node, const std::string& dotted, const YAML::Node& value) {
  auto dot = dotted.find('.');
  if (dot == std::string::npos) node[dotted] = value;
  else set_path(node[dotted.substr(0, dot)], dotted.substr(dot + 1), value);
}

}  // namespace

support::Expected<JobFile> load_job(const ModelRequest& request, support::SourceManager& sm) {
  JobFile out;
  YAML::Node node;
  std::string base = fs::current_path().string();
  std::string where = "command line", text_of_file;
  const std::string& spec = request.spec;
  if (spec.empty()) return failure("no model given: expected path/to/file.py:Class, package.module:Class or a job file", {}, "usage");
  try {
    if (ends_with(spec, ".yaml") || ends_with(spec, ".yml")) {
      auto text = support::read_file(spec);
      if (!text) return text.error();
      out.path = fs::absolute(spec).string();
      base = support::parent_path(out.path);
      where = spec;
      text_of_file = *text;
      node = YAML::Load(*text);
      if (!node.IsMap()) return failure(spec + ": expected a job file: a mapping with `model`, `args` or `build`, `inputs`", {}, "input");
      if (auto twice = key_twice(node, spec); !twice.empty()) return failure(twice, {}, "input");
      if (node["args"] && node["build"])
        return failure(
            spec + place_of(node["args"]) + ": `build` says how the model is made, `args` is not read beside it: leave one of them out", {},
            "input");
    } else {
      node = YAML::Node(YAML::NodeType::Map);
      node["model"] = spec;
    }
    for (const auto& s : request.settings) {
      auto kv = key_value(s, "--set");
      if (!kv) return kv.error();
      YAML::Node value;
      try {
        value = YAML::Load(kv->second);
      } catch (const YAML::Exception& e) {
        return failure("--set '" + s + "': " + explain(e) + "; expected KEY=VALUE with a YAML value, for example --set mode=train", {},
                       "usage");
      }
      try {
        set_path(node, kv->first, value);
      } catch (const YAML::Exception&) {
        return failure("--set '" + s + "': '" + kv->first + "' leads through a value that is no mapping", {}, "usage");
      }
    }
    if (!request.config.empty()) {
      // cfg.yaml[:key.path] → constructor arguments
      auto colon = request.config.rfind(':');
      std::string path = request.config, key;
      if (colon != std::string::npos && !support::is_file(path))
        path = request.config.substr(0, colon), key = request.config.substr(colon + 1);
      auto text = support::read_file(path);
      if (!text) return text.error();
      YAML::Node c = YAML::Load(*text);
      while (!key.empty()) {
        auto dot = key.find('.');
        std::string head = key.substr(0, dot);
        if (!c.IsMap() || !c[head])
          return failure(path + ": there is no key '" + head + "' (of --config " + request.config + ")", {}, "input");
        YAML::Node next = c[head];
        c.reset(next);
        key = dot == std::string::npos ? "" : key.substr(dot + 1);
      }
      if (!c.IsMap()) return failure(request.config + ": expected a mapping of constructor arguments", {}, "input");
      for (const auto& kv : c)
        if (!node["args"] || !node["args"][kv.first.as<std::string>()]) node["args"][kv.first.as<std::string>()] = kv.second;
    }
    if (!request.args.empty()) {
      auto list = keyword_list(request.args, "--args", sm);
      if (!list) return list.error();
      for (auto& [k, v] : *list) {
        YAML::Node text(v);
        text.SetTag("!expr");
        node["args"][k] = text;
      }
    }
    for (const auto& s : request.inputs) {
      auto kv = key_value(s, "--input");
      if (!kv) return kv.error();
      node["inputs"][kv->first] = kv->second;
    }

    if (node["args"] && node["build"]) {
      // The command line goes before the file: --set build=… takes the place of the file's arguments.
      const bool set_here =
          std::any_of(request.settings.begin(), request.settings.end(), [](const auto& s) { return s.rfind("build=", 0) == 0; });
      if (!set_here || !request.args.empty() || !request.config.empty())
        return failure("--args and --config are arguments of the class, but `build` says how the model is made: '" +
                           node["build"].as<std::string>() + "'; put them into it, or leave it out",
                       {}, "usage");
      node.remove("args");
    }

    // The keys that are not the interpreter's.
    auto take_int = [&](const YAML::Node& n, const char* key, int& into) {
      if (n[key]) into = n[key].as<int>(), out.has_grid = true;
    };
    if (YAML::Node p = node["parallel"])
      if (auto wrong = wrong_keys(p, "parallel", {"tp", "pp", "dp", "micro_batches", "schedule"}, where); !wrong.empty())
        return failure(wrong, {}, "input");
    if (YAML::Node v = node["verify"])
      if (auto wrong = wrong_keys(v, "verify", {"prepare", "reinit", "loss"}, where); !wrong.empty()) return failure(wrong, {}, "input");
    if (YAML::Node p = node["parallel"]; p && p.IsMap()) {
      take_int(p, "tp", out.grid.tp);
      take_int(p, "pp", out.grid.pp);
      take_int(p, "dp", out.grid.dp);
      if (p["micro_batches"]) out.micro_batches = p["micro_batches"].as<int>();
      if (p["schedule"]) out.schedule = p["schedule"].as<std::string>();
    }
    if (YAML::Node t = node["train"]) {
      if (auto wrong = wrong_keys(t, "train", {"script", "data_ranks"}, where); !wrong.empty()) return failure(wrong, {}, "input");
      if (t["script"]) out.train_script = absolute(t["script"].as<std::string>(), base);
      if (t["data_ranks"]) out.data_ranks = t["data_ranks"].as<std::string>();
      if (!out.data_ranks.empty() && out.data_ranks != "all" && out.data_ranks != "needed")
        return failure(where + ": train.data_ranks is \"" + out.data_ranks +
                           "\", expected all (every stage reads data) or needed (those that use them)",
                       {}, "input");
    }
    if (YAML::Node c = node["cxx"]) {
      if (auto wrong = wrong_keys(c, "cxx", {"build", "flags"}, where); !wrong.empty()) return failure(wrong, {}, "input");
      if (c.IsMap() && c["build"]) out.cxx_build = absolute(c["build"].as<std::string>(), base);
      if (c.IsMap() && c["flags"])
        for (const auto& f : c["flags"]) out.cxx_flags.push_back(f.as<std::string>());
    }
    if (node["target"]) out.target = node["target"].as<std::string>();
    if (node["out"]) out.out = absolute(node["out"].as<std::string>(), base);
    if (YAML::Node v = node["verify"]; v && v.IsMap()) {
      if (v["prepare"]) {
        out.prepare = absolute(v["prepare"].as<std::string>(), base);
        if (!support::is_file(out.prepare))
          return failure(where + place_of(v["prepare"]) + ": `prepare` of `verify` names '" + out.prepare +
                             "', and there is no such file: a Python file is expected that verify runs before it builds the model",
                         {}, "input");
      }
      if (v["reinit"])
        for (const auto& r : v["reinit"]) out.reinit.push_back(r.as<std::string>());
      if (v["loss"]) out.loss = v["loss"].as<std::string>();
    }
    const bool as_written =
        !text_of_file.empty() && request.settings.empty() && request.config.empty() && request.args.empty() && request.inputs.empty();
    std::string merged = text_of_file;
    if (!as_written) {
      YAML::Emitter e;
      e << node;
      merged = e.c_str();
    }
    const std::string origin = out.path.empty() ? support::join_path(base, "command line") : out.path;
    auto job = eval::parse_job(merged, origin);
    if (!job) {
      support::Diagnostic d = job.error();
      // The merged text is nobody's file: its lines would lead astray.
      if (d.message.rfind(origin + ":", 0) == 0) {
        std::string rest = d.message.substr(origin.size());
        if (!as_written) {
          std::size_t i = 1;
          while (i < rest.size() && (std::isdigit(static_cast<unsigned char>(rest[i])) || rest[i] == ':')) ++i;
          rest = ":" + rest.substr(rest[i] == ' ' ? i : 1);
          if (rest.rfind(": ", 0) != 0) rest = ": " + rest.substr(1);
        }
        d.message = where + rest;
      }
      return d;
    }
    out.job = *job;
  } catch (const YAML::Exception& e) {
    const std::string place = e.mark.line >= 0 ? ":" + std::to_string(e.mark.line + 1) + ":" + std::to_string(e.mark.column + 1) : "";
    return failure(where + place + ": " + explain(e), {}, "input");
  }
  for (const auto& p : request.python_path) out.job.python_path.push_back(absolute(p, fs::current_path().string()));
  // Installed packages: $VIRTUAL_ENV, else a .venv here, else the active conda environment.
  python::DiskFileSystem files;
  const char* venv = std::getenv("VIRTUAL_ENV");
  const char* conda = std::getenv("CONDA_PREFIX");
  std::string env = venv ? venv : "";
  if (env.empty() && support::is_directory(".venv")) env = fs::absolute(".venv").string();
  if (env.empty() && conda) env = conda;
  for (auto& p : python::site_packages_of(files, env, "")) out.job.python_path.push_back(p);

  if (const auto first = out.job.model.find(':');
      first != std::string::npos && cxx::is_cxx(out.job.model.substr(0, first)) && first + 1 < out.job.model.size()) {
    // model.h:GPTImpl; which class that is, is known when the file has been read (trace_model).
    const std::string path = absolute(out.job.model.substr(0, first), base);
    if (!support::is_file(path)) return failure("'" + path + "': there is no such file; expected path/to/model.h:ClassImpl", {}, "input");
    out.cxx_file = path;
    if (!request.cxx_build.empty()) out.cxx_build = absolute(request.cxx_build, fs::current_path().string());
    if (!request.cxx_flags.empty()) out.cxx_flags = request.cxx_flags;
    out.by_path = true;
    out.entry_dir = support::parent_path(path);
    out.job.model = path + out.job.model.substr(first);
    return out;
  }
  if (!request.cxx_build.empty() || !request.cxx_flags.empty())
    return failure("-p and flags after -- are for models in C++ (model.h:ClassImpl); '" + out.job.model + "' is none", {}, "usage");
  auto colon = out.job.model.rfind(':');
  if (colon == std::string::npos || colon + 1 == out.job.model.size())
    return failure("model '" + out.job.model + "': expected path/to/file.py:Class or package.module:Class" +
                       (out.job.build.empty() ? "" : ", also where `build` says how it is made: the class of what that gives"),
                   {}, "usage");
  std::string module = out.job.model.substr(0, colon);
  if (ends_with(module, ".py")) {
    std::string path = absolute(module, base);
    if (!support::is_file(path)) {
      if (support::is_directory(path)) return failure("'" + path + "' is a folder, a file is expected: path/to/file.py:Class", {}, "input");
      return failure("'" + (out.path.empty() ? module : path) + "': there is no such file" +
                         (out.path.empty() ? "" : " (`model` of " + spec + ")") +
                         "; expected path/to/file.py:Class, or package.module:Class with --python-path DIR",
                     {}, "input");
    }
    out.by_path = true;
    out.entry_dir = support::parent_path(path);
    out.job.model = path + out.job.model.substr(colon);
  } else if (module.find('/') != std::string::npos || module.find_first_not_of('.') == std::string::npos) {
    return failure("model '" + out.job.model + "': '" + module +
                       "' is neither a .py file nor a module's name; expected path/to/file.py:Class or package.module:Class",
                   {}, "usage");
  } else if (out.path.empty()) {
    out.job.python_path.insert(out.job.python_path.begin(), fs::current_path().string());
  }
  return out;
}

}  // namespace shardwright::driver
