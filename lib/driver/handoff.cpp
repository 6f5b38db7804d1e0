#include "driver/handoff.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "rules/target.h"
#include "support/files.h"

namespace shardwright::driver {
namespace {

namespace fs = std::filesystem;
using support::failure;

std::string text_of(const YAML::Node& n) { return n && n.IsScalar() ? n.Scalar() : ""; }

bool is_path(const std::string& s) {
  return s.find_first_of(" \t\n") == std::string::npos && (s.find('/') != std::string::npos || s.find('.') != std::string::npos);
}

/// What kind of artifact a generated file is.
std::string type_of(const emit::File& f) {
  const std::string name = f.path.substr(f.path.rfind('/') == std::string::npos ? 0 : f.path.rfind('/') + 1);
  if (f.edited) return "registry";
  if (name == "params.yaml" || name == "plan.yaml") return "plan";
  if (name == "train.py") return "training_script";
  if ((name.size() > 3 && name.substr(name.size() - 3) == ".sh") || name == "run.slurm") return "run_script";
  if (f.path.find("conf/") != std::string::npos) return "config";
  if ((name.size() > 3 && name.substr(name.size() - 3) == ".md") || name == "tables.json") return "report";
  return f.path.find("models/") != std::string::npos ? "model" : "module";
}

/// `a: 1` and `{a: 1}` alike: a mapping of expressions for --args and --input.
std::vector<std::pair<std::string, std::string>> entries(const YAML::Node& n) {
  std::vector<std::pair<std::string, std::string>> out;
  if (n && n.IsMap())
    for (const auto& kv : n) {
      YAML::Emitter e;
      e << YAML::Flow << kv.second;
      out.emplace_back(kv.first.Scalar(), kv.second.IsScalar() ? kv.second.Scalar() : e.c_str());
    }
  return out;
}

/// A step as a request; what is missing is listed in the result, whose status is then set.
ConvertRequest request_of(const YAML::Node& step, const std::string& dir, const rules::Target& target, HandoffResult& r) {
  ConvertRequest q;
  auto blocked = [&](const std::string& what) {
    r.status = "blocked";
    r.missing.push_back(what);
  };
  const std::string skill = text_of(step["execution_skill"]);
  if (skill.empty()) blocked(fmt::format("execution_skill: not given; this tool serves {}", target.handoff_skill));
  else if (skill != target.handoff_skill)
    blocked(fmt::format("execution_skill: '{}' is unknown here; this tool serves {}", skill, target.handoff_skill));
  std::string bound;
  if (const YAML::Node list = step["resource_bindings"]; list && list.IsSequence())
    for (const auto& b : list) {
      const std::string path = text_of(b.IsMap() ? b["path"] : YAML::Node());
      if (path.empty()) {
        blocked("resource_bindings: an entry has no path");
        continue;
      }
      if (!fs::exists(support::join_path(dir, path))) blocked("resource_bindings: " + path + " does not exist");
      else if (text_of(b["type"]) == "model" && bound.empty()) bound = path;
      if (text_of(b["type"]) == "training_script" || text_of(b["purpose"]) == "training") q.train_script = path;
    }
  const YAML::Node in = step["inputs"];
  if (in && !in.IsMap() && !in.IsNull()) {
    blocked("inputs: expected a mapping with model, tp, pp");
    return q;
  }
  auto input = [&](const char* key) { return in && in.IsMap() ? in[key] : YAML::Node(YAML::NodeType::Undefined); };
  std::string model = text_of(input("model"));
  const bool job = model.size() > 5 && (model.substr(model.size() - 5) == ".yaml" || model.substr(model.size() - 4) == ".yml");
  if (!model.empty() && !job && model.find(':') == std::string::npos) {
    if (!bound.empty()) model = bound + ":" + model;  // the class alone: in the bound file
    else if (auto dot = model.rfind('.'); dot != std::string::npos) model[dot] = ':';
    else blocked("inputs.model: '" + model + "' is a class without its file; expected path/to/file.py:Class or package.module:Class");
  }
  if (model.empty())
    blocked(bound.empty() ? "inputs.model: which model to convert (path/to/file.py:Class)" : "inputs.model: which class of " + bound);
  if (auto colon = model.rfind(':');
      colon != std::string::npos && model.find(".py:") != std::string::npos && !fs::exists(support::join_path(dir, model.substr(0, colon))))
    blocked("inputs.model: " + model.substr(0, colon) + " does not exist");
  q.model.spec = model;
  auto number = [&](const char* key, int& into) {
    const YAML::Node n = input(key);
    if (!n) return;
    try {
      into = n.as<int>();
      if (into >= 1) return;
    } catch (const YAML::Exception&) {}
    blocked(fmt::format("inputs.{}: '{}' is no whole number of at least 1", key, text_of(n)));
  };
  number("tp", q.plan.grid.tp);
  number("pp", q.plan.grid.pp);
  number("dp", q.plan.grid.dp);
  number("micro_batches", q.plan.micro_batches);
  q.target = text_of(input("target"));
  if (q.target.empty()) q.target = target.name;
  q.out = text_of(input("out"));
  if (q.out.empty()) q.out = dir;
  q.name = text_of(input("name"));
  q.model.config = text_of(input("config"));
  if (const std::string script = text_of(input("train_script")); !script.empty()) q.train_script = script;
  if (const YAML::Node p = input("python_path"); p && p.IsSequence())
    for (const auto& x : p) q.model.python_path.push_back(text_of(x));
  else if (p && p.IsScalar()) q.model.python_path.push_back(p.Scalar());
  if (const YAML::Node a = input("args"); a && a.IsScalar()) q.model.args = a.Scalar();
  else
    for (const auto& [k, v] : entries(a)) q.model.args += (q.model.args.empty() ? "" : ", ") + k + "=" + v;
  for (const char* key : {"input", "inputs"})
    for (const auto& [k, v] : entries(input(key))) q.model.inputs.push_back(k + "=" + v);
  return q;
}

void run(const YAML::Node& step, const std::string& dir, const rules::Target& target, HandoffResult& r, support::SourceManager& sm,
         const Progress& progress) {
  ConvertRequest q = request_of(step, dir, target, r);
  if (!r.status.empty()) {
    r.summary = "the step cannot start: " + r.missing.front();
    r.next = "complete the step's file and run shardwright handoff again";
    return;
  }
  auto done = convert(q, sm, progress);
  if (!done) {
    const auto& d = done.error();
    const bool asks = d.code == "usage" || d.code == "input";
    r.status = asks ? "blocked" : "failed";
    r.summary = d.message;
    r.missing.push_back((d.range.valid() ? sm.describe(d.range) + ": " : "") + d.message);
    for (const auto& n : d.notes) r.risks.push_back((n.range.valid() ? sm.describe(n.range) + ": " : "") + n.message.substr(0, 400));
    r.next = asks ? "give what is missing under `inputs` and run shardwright handoff again" : "see the message; nothing was written";
    return;
  }
  for (const auto& f : done->files) r.artifacts.emplace_back(support::join_path(done->out, f.path), type_of(f));
  const auto& plan = done->analysis->plan;
  r.completed.push_back(fmt::format("{} converted for {} tensor-parallel ranks and {} pipeline stages: {} files, {} written", q.model.spec,
                                    q.plan.grid.tp, q.plan.grid.pp, done->files.size(), done->written.size()));
  r.completed.push_back("the generated source was analysed again: it builds, its parameters and boundaries are those of the plan");
  for (const auto& f : plan.fallbacks)
    r.missing.push_back("replicated: " + f.where + (f.module.empty() ? "" : " " + f.module) + ": " + f.reason);
  for (const auto& w : plan.warnings) r.risks.push_back(w);
  for (const auto& w : done->analysis->warnings) r.risks.push_back(w.message);
  if (const YAML::Node list = step["required_outputs"]; list && list.IsSequence())
    for (const auto& o : list) {
      const std::string path = text_of(o.IsMap() ? o["path"] : o);
      if (is_path(path) && !fs::exists(support::join_path(dir, path)) && !fs::exists(support::join_path(done->out, path)))
        r.missing.push_back("required output " + path + " was not written");
    }
  r.status = r.missing.empty() ? "success" : "partial";
  r.summary = r.status == "success"
      ? "the parallel model was written"
      : fmt::format("the parallel model was written; {} point{} left", r.missing.size(), r.missing.size() == 1 ? "" : "s");
  for (const auto& what : done->left) r.risks.push_back(what);
  r.next = done->next;
}

std::string result_text(const HandoffResult& r, const std::string& skill) {
  YAML::Emitter e;
  auto list = [&](const char* key, const std::vector<std::string>& items) {
    e << YAML::Key << key << YAML::Value << (items.empty() ? YAML::Flow : YAML::Block) << items;
  };
  e << YAML::BeginMap << YAML::Key << "execution_result" << YAML::Value << YAML::BeginMap;
  e << YAML::Key << "skill" << YAML::Value << skill;
  e << YAML::Key << "status" << YAML::Value << r.status;
  e << YAML::Key << "artifacts" << YAML::Value << (r.artifacts.empty() ? YAML::Flow : YAML::Block) << YAML::BeginSeq;
  for (const auto& [path, type] : r.artifacts)
    e << YAML::Flow << YAML::BeginMap << YAML::Key << "path" << YAML::Value << path << YAML::Key << "type" << YAML::Value << type
      << YAML::EndMap;
  e << YAML::EndSeq;
  e << YAML::Key << "observation" << YAML::Value << YAML::BeginMap;
  e << YAML::Key << "summary" << YAML::Value << r.summary;
  list("completed", r.completed);
  list("missing", r.missing);
  list("risks", r.risks);
  e << YAML::Key << "next_recommendation" << YAML::Value << r.next << YAML::EndMap << YAML::EndMap << YAML::EndMap;
  return std::string(e.c_str()) + "\n";
}

}  // namespace

support::Expected<std::vector<HandoffResult>> handoff(const std::string& dir, const std::string& wanted, support::SourceManager& sm,
                                                      const Progress& progress) {
  std::vector<HandoffResult> out;
  std::string places;
  bool any = false;
  for (const auto& name : rules::target_names()) {
    auto target = rules::load_target(name, sm);
    if (!target) return target.error();
    if (target->handoff_folder.empty()) continue;
    const std::string folder = support::join_path(dir, target->handoff_folder);
    places += (places.empty() ? "" : " or ") + target->handoff_folder;
    std::vector<std::string> ids;
    std::error_code ec;
    for (const auto& f : fs::directory_iterator(folder, ec)) {
      any = any || wanted.empty();
      const std::string file = f.path().filename().string();
      if (file.rfind("step_", 0) != 0 || file.size() < 11 || file.substr(file.size() - 5) != ".yaml") continue;
      const std::string id = file.substr(5, file.size() - 10);
      if (id.size() > 7 && id.substr(id.size() - 7) == "_result") continue;
      if (wanted.empty() ? !fs::exists(support::join_path(folder, "step_" + id + "_result.yaml")) : id == wanted) ids.push_back(id);
    }
    std::sort(ids.begin(), ids.end());
    for (const auto& id : ids) {
      any = true;
      HandoffResult r;
      r.step_id = id;
      r.file = support::join_path(folder, "step_" + id + "_result.yaml");
      const std::string path = support::join_path(folder, "step_" + id + ".yaml");
      try {
        auto text = support::read_file(path);
        if (!text) return text.error();
        const YAML::Node root = YAML::Load(*text);
        const YAML::Node step = root.IsMap() ? root["step_handoff"] : YAML::Node(YAML::NodeType::Undefined);
        if (!step || !step.IsMap()) {
          r.status = "blocked";
          r.missing.push_back("step_handoff: the file has no such mapping");
          r.summary = path + ": expected a mapping step_handoff with execution_skill, inputs, …";
          r.next = "complete the step's file and run shardwright handoff again";
        } else {
          run(step, dir, *target, r, sm, progress);
        }
      } catch (const YAML::Exception& e) {
        r.status = "failed";
        r.summary = fmt::format("{}:{}:{}: this is not YAML: {}", path, e.mark.line + 1, e.mark.column + 1, e.msg);
        r.missing.push_back("a step file that can be read");
        r.next = "correct the file and run shardwright handoff --step " + id;
      }
      if (auto w = support::write_file(r.file, result_text(r, target->handoff_skill)); !w) return w.error();
      out.push_back(std::move(r));
    }
  }
  const std::string here = dir.empty() ? "." : dir;
  if (!any && !wanted.empty()) return failure(fmt::format("there is no step_{}.yaml in {} of {}", wanted, places, here), {}, "usage");
  if (!any)
    return failure(fmt::format("there is no {} with step_ID.yaml files in {}; without them use shardwright convert", places, here), {},
                   "usage");
  return out;
}

}  // namespace shardwright::driver
