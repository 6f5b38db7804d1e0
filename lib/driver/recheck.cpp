#include "driver/recheck.h"

#include <fmt/format.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "driver/same_trace.h"
#include "lint/placement.h"
#include "model/shape.h"
#include "program/visit.h"
#include "rules/target.h"
#include "support/files.h"
#include "support/text.h"

namespace shardwright::driver {
namespace {

namespace fs = std::filesystem;
using support::failure;

/// A folder that is removed again.
struct TemporaryFolder {
  fs::path path;
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "shardwright-XXXXXX").string();
    if (char* made = ::mkdtemp(pattern.data())) path = made;
  }
  ~TemporaryFolder() {
    std::error_code ec;
    if (!path.empty()) fs::remove_all(path, ec);
  }
};

eval::InputSpec spec_of(const model::Tensor& x, const std::vector<std::int64_t>& local) {
  eval::InputSpec s;
  s.dtype = x.dtype;
  s.shape = local;
  s.free.assign(local.size(), false);
  return s;
}

}  // namespace

namespace {

/// The job's `call` for one stage: the call of `model` in it hands over what the stage reads, behind `receive` when it gets something from
/// the stage before; what surrounds it is for the last stage's result.
support::Expected<std::string> stage_call(const std::string& whole, const model::Module& root, const std::vector<std::string>& wants,
                                          const std::string& receive, bool last, eval::ModuleSource& loader, support::SourceManager& sm) {
  const program::Module* m = loader.parse("generated.call", "<call>", whole);
  const program::Expr* call = nullptr;
  program::walk_exprs(m->body, [&](const program::Expr* e) {
    if (e->kind == program::ExprKind::Call && e->kids[0]->kind == program::ExprKind::Name && e->kids[0]->text == "model" && call == nullptr)
      call = e;
    return call == nullptr;
  });
  if (call == nullptr) return failure("the job's call does not call `model`, as stages need: " + whole, {}, "input");
  std::string text(sm.text(call->range));
  if (!receive.empty()) {
    std::vector<std::string> names;  // parameters of forward after self
    for (const auto* c : root.mro) {
      const auto* forward = program::method(*c, "forward");
      if (!forward) continue;
      for (const auto& p : forward->parameters) names.push_back(p.name);
      break;
    }
    std::string arguments;
    std::size_t position = 1;
    for (const auto& x : call->args) {
      if (x.star || x.double_star)
        return failure("the job's call hands `model` arguments with * or **, which cannot be shared out among stages: " + whole, {},
                       "input");
      const std::string name = !x.keyword.empty() ? x.keyword : position < names.size() ? names[position++] : "";
      if (std::find(wants.begin(), wants.end(), name) != wants.end()) arguments += name + "=" + std::string(sm.text(x.value->range)) + ", ";
    }
    text = receive + "model(" + arguments + "))[1]";
  }
  if (!last) return text;
  const std::string all(sm.file(call->range.file).text);
  return all.substr(0, call->range.begin) + text + all.substr(call->range.end);
}

/// What lint finds in a generated stage: it is looked at as hand-written code would be.
std::optional<support::Diagnostic> fault_of(const lint::Found& found, lint::Propagator& watcher, const model::Trace& s, int stage,
                                            bool last) {
  static const std::set<std::string> codes{"SW101", "SW102", "SW103", "SW105", "SW106", "SW107", "SW108",
                                           "SW109", "SW110", "SW111", "SW115", "SW121", "SW122"};
  for (const auto& d : found.all())
    if (codes.count(d.code)) {
      support::Diagnostic fault = d;
      fault.severity = support::Severity::Error;
      fault.message = fmt::format("generated stage {}: {}", stage, d.message);
      return fault;
    }
  if (watcher.repairs > 0)
    return failure(fmt::format("generated stage {}: sizes of one rank do not fit those of the whole", stage), {}, "internal");
  if (last)
    for (auto t : model::tensors_of(s.output)) {
      const auto& p = watcher.place(t);
      if (p.known && (watcher.any_sharded(p) || p.partial >= 0))
        return failure(
            fmt::format("generated stage {} returns {} instead of the whole result", stage, p.partial >= 0 ? "a partial sum" : "a share"),
            {}, "SW105");
    }
  return std::nullopt;
}

support::Expected<Recheck> check_in(const TemporaryFolder& folder, const Analysis& a, const emit::PackageInput& in,
                                    const std::vector<emit::File>& files, const emit::Grid& grid, support::SourceManager& sm) {
  Recheck out;
  auto faulty = [&](support::Diagnostic what, int stage, std::string parameter = "") -> Recheck& {
    out.fault = Fault{std::move(what), stage, std::move(parameter)};
    return out;
  };
  eval::Options options;
  options.rules = a.rules;
  options.syntax = a.syntax;
  options.watch.tp = grid.tp;
  if (in.in_place())
    for (const auto& f : files)
      if (!f.module.empty()) options.modules.emplace_back(f.module, (folder.path / f.path).string());
  for (const auto& [module, file] : in.target->described) {
    options.described.emplace_back(module, support::replaced(in.target->text(file), "{megatron}", in.target->megatron));
  }

  const auto& t = a.traced->trace;
  std::map<std::string, model::TensorId> original, given;  // parameters and buffers; inputs
  for (const auto& n : model::named_tensors(t, true)) original[n.fqn] = n.ref.tensor;
  for (const auto& x : t.tensors)
    if (x.origin == model::Origin::Input) given[x.name] = x.id;

  std::optional<SameTrace> same;
  if (!in.in_place()) same.emplace(t, a.sharding);

  for (int k = 0; k < grid.pp; ++k) {
    eval::Job job;
    job.model = (in.in_place() ? in.layout.init.module : in.name + "_parallel") + ":build_stage";
    job.imports = a.file.job.imports;
    job.python_path = a.file.job.python_path;
    job.python_path.insert(job.python_path.begin(), folder.path.string());
    if (!in.originals.empty()) job.python_path.push_back(in.originals);
    if (const program::Module* entry = in.in_place() ? in.loader.load(in.traced.entry_module) : nullptr; entry && entry->file >= 0) {
      // An entry given by its file: its package's root.
      fs::path root = fs::absolute(sm.file(entry->file).path).parent_path();
      for (char ch : entry->name)
        if (ch == '.') root = root.parent_path();
      if (entry->is_package) root = root.parent_path();
      job.python_path.push_back(root.string());
    }
    job.build = fmt::format("build_stage({})", k);
    job.train = a.file.job.train;
    lint::Found found;
    lint::Propagator watcher(sm, found, grid.tp);
    std::string receive, call;
    auto inputs = given;  // of the stage, what they are in the original
    if (a.slicer) {
      auto face = a.slicer->interface(k);
      for (std::size_t i = 0; i < face.receives.size(); ++i) {
        const auto& x = t.tensor(face.receives[i]);
        std::string name = fmt::format("received{}", i);
        job.inputs.emplace_back(name, spec_of(x, a.sharding.local_shape(t, x.id)));
        inputs[name] = x.id;
        if (int d = a.sharding.sharded_dim(x.id); d >= 0) watcher.sharded_inputs[name].insert(d);
        receive += name + ", ";
      }
      // All of the job's: one may be written in terms of another (labels: =input_ids).
      for (const auto& given : a.file.job.inputs) {
        job.inputs.push_back(given);
        if (std::find(face.needs_inputs.begin(), face.needs_inputs.end(), given.first) != face.needs_inputs.end())
          call += given.first + "=" + given.first + ", ";
      }
      job.call = k == 0 ? fmt::format("model({})", call) : fmt::format("(model.set_input_tensor(({})), model({}))[1]", receive, call);
      if (k == 0) job.inputs = a.file.job.inputs, job.call = "", job.keyword = a.file.job.keyword;
      if (!a.file.job.call.empty()) {
        const bool last = k + 1 == grid.pp;
        auto own = stage_call(a.file.job.call, t.module(0), face.needs_inputs,
                              k == 0 ? "" : fmt::format("(model.set_input_tensor(({})), ", receive), last, in.loader, sm);
        if (!own) return own.error();
        job.call = *own;
      }
    } else {
      job.inputs = a.file.job.inputs;
      job.call = a.file.job.call;
      job.keyword = a.file.job.keyword;
    }
    // Other libraries' layers are described for sizes, not for placements; at tp = 1 nothing has a placement.
    const bool watched = !in.in_place() && grid.tp > 1;
    if (watched) options.watch.observer = &watcher;
    auto traced = eval::trace(job, options, sm);
    if (!traced) {
      support::Diagnostic d = traced.error();
      d.message = fmt::format("the generated stage {} does not run on abstract tensors: {}", k, d.message);
      faulty(std::move(d), k).fault->raised = true;
      return out;
    }
    const auto& s = (*traced)->trace;
    if (watched) {
      watcher.end();
      if (auto fault = fault_of(found, watcher, s, k, k + 1 == grid.pp)) return faulty(std::move(*fault), k);
    }
    std::vector<std::string> names;
    std::unordered_map<model::TensorId, model::TensorId> known;  // of the stage → of the original
    for (const auto& n : model::named_tensors(s, true)) {
      names.push_back(n.fqn);
      auto o = original.find(n.fqn);
      if (o == original.end())
        return faulty(failure(fmt::format("generated stage {} has a parameter {} that the original has not", k, n.fqn), {}, "internal"), k);
      known[n.ref.tensor] = o->second;
      auto want = a.sharding.local_shape(t, o->second);
      if (s.tensor(n.ref.tensor).shape != want)
        return faulty(failure(fmt::format("generated stage {}: {} has local shape {}, the plan says {}", k, n.fqn,
                                          model::shape_text(s.tensor(n.ref.tensor).shape), model::shape_text(want)),
                              {}, "internal"),
                      k, n.fqn);
    }
    // What it returns must be what the next stage receives (or the model's own output).
    std::vector<model::TensorId> returns;
    if (a.slicer && k + 1 < grid.pp) returns = a.slicer->interface(k).returns;
    else returns = model::tensors_of(t.output);
    auto got = model::tensors_of(s.output);
    if (got.size() != returns.size()) {
      support::Diagnostic d =
          failure(fmt::format("generated stage {} returns {} tensors, the plan says {}", k, got.size(), returns.size()), {}, "internal");
      for (const auto& i : s.incomplete) d.notes.push_back({i.range, i.why});
      return faulty(std::move(d), k);
    }
    for (std::size_t i = 0; i < got.size(); ++i) {
      auto want = a.sharding.local_shape(t, returns[i]);
      if (s.tensor(got[i]).shape != want)
        return faulty(failure(fmt::format("generated stage {}: returned tensor {} has shape {}, the plan says {}", k, i,
                                          model::shape_text(s.tensor(got[i]).shape), model::shape_text(want)),
                              {}, "internal"),
                      k);
    }
    if (same) {
      for (const auto& x : s.tensors)
        if (const auto at = inputs.find(x.name); x.origin == model::Origin::Input && at != inputs.end()) known[x.id] = at->second;
      if (auto unlike = same->compare(s, known, returns))
        return faulty(failure(fmt::format("generated stage {} does not compute what the original does: {}", k, unlike->what), unlike->where,
                              "internal"),
                      k);
    }
    out.held.push_back(std::move(names));
  }
  // Nothing of the original may be lost.
  for (const auto& [name, id] : original) {
    bool found = false;
    for (const auto& [other, same] : original)
      if (same == id)
        for (const auto& held : out.held) found = found || std::find(held.begin(), held.end(), other) != held.end();
    if (!found) return faulty(failure(fmt::format("parameter {} of the original is in no generated stage", name), {}, "internal"), -1);
  }
  return out;
}

}  // namespace

support::Expected<Recheck> recheck(const Analysis& a, const emit::PackageInput& in, const std::vector<emit::File>& package,
                                   const emit::Grid& grid, support::SourceManager& sm) {
  TemporaryFolder folder;
  if (folder.path.empty()) return failure("no temporary folder can be made to check the generated code in");
  for (const auto& f : package)
    if (auto w = support::write_file((folder.path / f.path).string(), f.text); !w) return w.error();
  auto out = check_in(folder, a, in, package, grid, sm);
  sm.show_folder_as(folder.path.string(), "<generated>");  // which is gone when a person reads of it
  // For a report of a generator's fault: SHARDWRIGHT_KEEP_FAILED=DIR keeps what it made.
  if (const char* keep = std::getenv("SHARDWRIGHT_KEEP_FAILED"); keep && (!out || out->fault)) {
    std::error_code ec;
    fs::remove_all(keep, ec);
    fs::copy(folder.path, keep, fs::copy_options::recursive, ec);
  }
  return out;
}

std::string verify_job(const Analysis& a, const emit::PackageInput& in, const std::string& out_dir) {
  const auto& j = a.file.job;
  auto relative = [&](const std::string& p) { return fs::path(p).lexically_relative(out_dir).string(); };
  YAML::Emitter e;
  e << YAML::BeginMap;
  auto colon = j.model.rfind(':');
  std::string model = j.model;
  if (a.file.by_path) model = relative(j.model.substr(0, colon)) + j.model.substr(colon);
  e << YAML::Key << "model" << YAML::Value << model;
  e << YAML::Key << "python_path" << YAML::Value << YAML::Flow << in.search_path;
  if (!j.imports.empty()) {
    e << YAML::Key << "imports" << YAML::Value << YAML::BeginMap;
    for (const auto& [k, v] : j.imports) e << YAML::Key << k << YAML::Value << v;
    e << YAML::EndMap;
  }
  if (!j.setup.empty()) e << YAML::Key << "setup" << YAML::Value << YAML::Literal << j.setup;
  if (!j.build.empty()) e << YAML::Key << "build" << YAML::Value << j.build;
  if (!j.args.empty()) {
    std::string build = j.model.substr(colon + 1) + "(";
    for (const auto& [name, value] : a.traced->arguments) build += (build.back() == '(' ? "" : ", ") + name + "=" + value;
    if (j.build.empty()) e << YAML::Key << "build" << YAML::Value << build + ")";
  }
  e << YAML::Key << "inputs" << YAML::Value << YAML::BeginMap;
  for (const auto& [name, spec] : j.inputs) e << YAML::Key << name << YAML::Value << YAML::DoubleQuoted << emit::input_text(spec);
  e << YAML::EndMap;
  if (!j.call.empty()) e << YAML::Key << "call" << YAML::Value << j.call;
  if (j.keyword) e << YAML::Key << "keyword" << YAML::Value << true;
  e << YAML::Key << "mode" << YAML::Value << (j.train ? "train" : "eval");
  e << YAML::Key << "seed" << YAML::Value << j.seed;
  if (!in.prepare.empty() || !a.file.reinit.empty() || !a.file.loss.empty()) {
    e << YAML::Key << "verify" << YAML::Value << YAML::BeginMap;
    if (!in.prepare.empty()) e << YAML::Key << "prepare" << YAML::Value << in.prepare;
    if (!a.file.reinit.empty()) e << YAML::Key << "reinit" << YAML::Value << YAML::Flow << a.file.reinit;
    if (!a.file.loss.empty()) e << YAML::Key << "loss" << YAML::Value << a.file.loss;
    e << YAML::EndMap;
  }
  e << YAML::EndMap;
  return e.c_str();
}

}  // namespace shardwright::driver
