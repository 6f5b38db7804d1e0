#include "driver/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "driver/recheck.h"
#include "driver/retreat.h"
#include "driver/verify_cxx.h"
#include "driver/version.h"
#include "driver/write.h"
#include "emit/cxx_package.h"
#include "emit/tables.h"
#include "eval/imports.h"
#include "rules/target.h"
#include "support/files.h"
#include "support/text.h"

namespace shardwright::driver {

namespace fs = std::filesystem;
using support::failure;

namespace {

/// The folder that `import utils` of a model given by its path speaks of, where generated code says that, too ("" where none does): the
/// definitions that it names are copied, but a module as a whole is not.
std::string imported_originals(const Analysis& a, const std::vector<emit::File>& files) {
  if (!a.file.by_path) return "";
  std::string top = fs::weakly_canonical(a.file.entry_dir).string();
  for (char c : a.traced->entry_module)
    if (c == '.') top = support::parent_path(top);
  const std::string import = "import ";
  for (const auto& f : files)
    for (std::size_t at = 0; at < f.text.size(); at = std::min(f.text.find('\n', at), f.text.size() - 1) + 1) {
      if (f.text.compare(at, import.size(), import) != 0) continue;
      std::size_t end = at + import.size();
      while (end < f.text.size() && (std::isalnum(static_cast<unsigned char>(f.text[end])) || f.text[end] == '_')) ++end;
      const std::string module = support::join_path(top, f.text.substr(at + import.size(), end - at - import.size()));
      if (support::is_file(module + ".py") || support::is_directory(module)) return top;
    }
  return "";
}

}  // namespace

/// What models in C++ are written for: the runtime's C++ API.
const char* const kCxxTarget = "libtorch";

std::string snake_case(const std::string& name) {
  std::string out;
  const auto small = [&](std::size_t i) { return i < name.size() && std::islower(static_cast<unsigned char>(name[i])) != 0; };
  const auto large = [&](std::size_t i) { return i < name.size() && std::isupper(static_cast<unsigned char>(name[i])) != 0; };
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool upper = std::isupper(static_cast<unsigned char>(name[i])) != 0;
    const bool word = i > 0 && upper &&
        (!std::isupper(static_cast<unsigned char>(name[i - 1])) ||
         (i + 1 < name.size() && std::islower(static_cast<unsigned char>(name[i + 1]))));
    // ViT, MoE, LoRA: two letters before a capital that begins no word are none themselves.
    const bool short_name = i >= 2 && small(i - 1) && large(i - 2) && (i == 2 || !small(i - 3)) && !small(i + 1);
    if (word && !short_name && !out.empty() && out.back() != '_') out += '_';
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return out;
}

support::Expected<ConvertOutcome> convert(const ConvertRequest& request, support::SourceManager& sm, const Progress& progress) {
  ConvertOutcome out;
  std::string target_name = request.target;
  {
    auto job = load_job(request.model, sm);
    if (!job) return job.error();
    if (target_name.empty()) target_name = job->target;
    if (!job->cxx_file.empty()) {
      if (target_name != "runtime" && target_name != kCxxTarget)
        return failure("target '" + target_name + "' is for models in Python; C++ is written for the runtime's C++ API", {}, "usage");
      target_name = kCxxTarget;
      if (request.plan.grid.pp > 1) return failure("pipeline stages are not written for models in C++ yet: --pp must be 1", {}, "usage");
    } else if (target_name == kCxxTarget) {
      return failure("target '" + target_name + "' is for models in C++ (model.h:ClassImpl)", {}, "usage");
    }
  }
  auto target = rules::load_target(target_name, sm);
  if (!target) return target.error();
  PlanRequest wanted = request.plan;
  wanted.target = &*target;
  auto analysis = analyse(request.model, wanted, sm, progress);
  if (!analysis) return analysis.error();
  out.analysis = std::move(*analysis);
  Analysis& a = *out.analysis;
  const auto& t = a.traced->trace;
  const plan::Plan& plan = a.plan;

  if (!a.file.cxx && t.module(0).mro.empty()) {
    const std::string found = t.module(0).type;
    support::Diagnostic d =
        failure("the model is a " + found + ", of which no parallel class can be written; expected a class of the program's own",
                t.module(0).construct_call ? t.module(0).construct_call->range : support::Range{}, "usage");
    d.notes.push_back({{},
                       "write a class around it: class Net(nn.Module), whose __init__ sets self.layers to it and whose forward returns "
                       "self.layers(x). (What names its parameters then begins with layers.)"});
    return d;
  }

  // What the request forbids of a plan; a Diagnostic when it does.
  auto refused = [&]() -> std::optional<support::Diagnostic> {
    if (request.strict && !plan.fallbacks.empty()) {
      support::Diagnostic d = failure(fmt::format("--strict: {} part{} of the model would stay replicated; nothing was written",
                                                  plan.fallbacks.size(), plan.fallbacks.size() == 1 ? "" : "s"),
                                      {}, "fallback");
      for (const auto& f : plan.fallbacks) d.notes.push_back({{}, f.where + ": " + f.reason});
      return d;
    }
    const bool splits = std::any_of(a.sharding.axes.begin(), a.sharding.axes.end(), [](const auto& x) { return x.chosen; });
    if (!splits && request.plan.grid.tp > 1 && request.plan.grid.pp == 1) {
      support::Diagnostic d =
          failure(fmt::format("nothing in this model can be split over {} tensor-parallel ranks, and --pp is 1: there is nothing to "
                              "generate. `shardwright plan … --explain` says why for each part; --pp 2 cuts the model into stages",
                              request.plan.grid.tp),
                  {}, "fallback");
      for (auto& n : eval::missing_imports(t)) d.notes.push_back(std::move(n));
      for (auto& n : eval::not_followed(*a.traced)) d.notes.push_back(std::move(n));
      for (const auto& f : plan.fallbacks) d.notes.push_back({{}, f.where + ": " + f.reason});
      for (const auto& f : a.sharding.whole) d.notes.push_back({f.where, f.message});
      return d;
    }
    return std::nullopt;
  };
  if (auto why = refused()) return *why;

  std::string class_name = t.module(0).type.substr(t.module(0).type.rfind('.') + 1);
  out.out = !request.out.empty() ? request.out : a.file.out;
  if (out.out.empty()) return failure("no output directory: give -o DIR (or `out:` in the job file)", {}, "usage");
  std::string absolute_out = fs::absolute(out.out).lexically_normal().string();
  std::string tool_folder, absolute_tool = absolute_out;  // where plan.yaml and its like lie
  auto seen_from_out = [&](const std::string& p) { return fs::path(p).lexically_relative(absolute_tool).string(); };

  progress("writing the source");
  if (a.file.cxx) {
    std::vector<std::string> fallbacks;
    for (const auto& f : plan.fallbacks) fallbacks.push_back(f.where + ": " + f.reason);
    auto files = emit::cxx_files(
        {*a.traced, a.file.job, *a.file.cxx, a.typed, sm, *a.syntax, request.model.spec, request.plan.grid, runtime_folder(), fallbacks});
    if (!files) return files.error();
    out.files = std::move(*files);
    out.files.push_back({"plan.yaml", plan::to_yaml(a.plan), false, false, {}});
    out.next = "shardwright verify " + out.out;
    if (auto written = write_out(request, tool_folder, out); !written) return written.error();
    return out;
  }
  const bool generic = std::find(target->generic.begin(), target->generic.end(), class_name) != target->generic.end();
  std::string default_name = snake_case(generic ? a.traced->entry_module.substr(a.traced->entry_module.rfind('.') + 1) : class_name);
  // Beside the originals: as the model's file or folder is called, where that is the class's name (seaice/, UNet.py).
  if (target->in_place) {
    const std::string joined = support::lower(class_name), module = "." + support::lower(a.traced->entry_module) + ".";
    if (module.find("." + joined + ".") != std::string::npos) default_name = joined;
  }
  emit::PackageInput in{*a.traced,
                        a.file.job,
                        a.sharding,
                        a.partition,
                        a.edits,
                        a.specialized,
                        sm,
                        *a.traced->loader,
                        request.name.empty() ? default_name : request.name,
                        kVersion,
                        request.model.spec,
                        request.plan.grid,
                        plan.grid.micro_batches,
                        request.plan.schedule,
                        copied_modules(a.file, sm),
                        {},
                        "",
                        "",
                        {},
                        &*target,
                        {},
                        "",
                        {}};
  in.recompute = request.recompute == "none" ? "" : request.recompute;
  if (in.in_place() && in.grid.virtual_stages > 1)
    return failure("--virtual-stages is for target runtime: what target '" + target->name +
                       "' generates takes the argument of its own trainer (--num-layers-per-virtual-pipeline-stage), leave it out",
                   {}, "usage");
  Retreat retreat;
  Recheck check;
  for (;;) {
    if (in.in_place()) {
      in.layout = emit::layout_of(in, absolute_out);
      tool_folder = in.layout.tool;
      out.original = a.traced->entry_module + ":" + class_name;
      absolute_tool = fs::path(support::join_path(absolute_out, tool_folder)).lexically_normal().string();
      absolute_tool.pop_back();
    }
    in.search_path.clear();
    for (const auto& p : a.file.job.python_path)
      if (p.find("/site-packages") == std::string::npos && p.find("/dist-packages") == std::string::npos)
        in.search_path.push_back(seen_from_out(p));
    if (!a.file.prepare.empty()) in.prepare = seen_from_out(a.file.prepare);
    for (const auto& g : retreat.given_up()) {
      const auto colon = g.find(": ");
      a.plan.fallbacks.push_back({"", g.substr(0, colon), g.substr(colon + 2)});
    }
    if (auto why = refused()) return *why;
    in.stage_modules.clear();
    for (const auto& s : plan.stages) in.stage_modules.push_back(s.modules);
    in.fallbacks.clear();
    for (const auto& f : plan.fallbacks) in.fallbacks.push_back(f.where + ": " + f.reason);
    auto package = emit::package_files(in);
    if (!package) return package.error();
    out.files = std::move(*package);
    in.originals = imported_originals(a, out.files);
    if (!in.originals.empty()) in.search_path.push_back(seen_from_out(in.originals));

    progress("checking what was generated");
    auto checked = recheck(a, in, out.files, request.plan.grid, sm);
    if (!checked) return checked.error();
    if (!checked->fault) {
      check = std::move(*checked);
      break;
    }
    bool again = wanted.plan_file.empty() && retreat.next(*checked->fault, a, wanted);
    for (bool planned = false; again && !planned;) {
      planned = static_cast<bool>(plan_again(a, request.model, wanted, sm, progress));
      if (!planned) again = retreat.next(wanted);
    }
    if (!again) return retreat.error(*checked->fault);
  }
  out.next =
      "shardwright verify " + (tool_folder.empty() ? out.out : support::join_path(out.out, support::parent_path(in.layout.init.path)));

  if (in.in_place() && target->shapes_module.empty()) {
    // the library's trainer cannot pass what these stages do
  } else if (in.in_place()) {
    emit::TrainingInput train{request.train_script.empty() ? a.file.train_script : request.train_script,
                              absolute_out,
                              a.other.get(),
                              1,
                              emit::built_directly(in),
                              a.file.data_ranks};
    for (const auto& [name, spec] : a.file.job.inputs)
      if (!spec.shape.empty()) {
        train.batch = spec.shape[0];
        break;
      }
    auto directory = emit::training_files(in, train, out.left);
    if (!directory) return directory.error();
    for (auto& f : *directory) out.files.push_back(std::move(f));
  } else {
    auto directory = emit::directory_files(in);
    if (!directory) return directory.error();
    for (auto& f : *directory) out.files.push_back(std::move(f));
  }
  out.files.push_back({tool_folder + "params.yaml", emit::params_yaml(in, check.held), false, false, {}});
  a.plan.package = in.in_place() ? in.layout.init.module : in.name + "_parallel";
  a.plan.job = verify_job(a, in, absolute_tool);
  out.files.push_back({tool_folder + "plan.yaml", plan::to_yaml(a.plan), false, false, {}});
  if (in.in_place()) {
    auto tables = emit::tables(in, out.files);
    out.files.push_back({tool_folder + "tables.md",
                         "# " + class_name + ", " + std::to_string(request.plan.grid.tp) + "-way tensor x " +
                             std::to_string(request.plan.grid.pp) + "-stage pipeline parallel\n\n" + emit::markdown(tables),
                         false,
                         false,
                         {}});
    out.files.push_back({tool_folder + "tables.json", emit::json(tables), false, false, {}});
    out.tables = emit::plain(tables);
    const std::string root = in.layout.init.path.substr(
        0, in.layout.init.path.size() - std::min(in.layout.init.path.size(), in.layout.init.module.size() + 12));  // "src/"
    out.files.push_back(
        {tool_folder + "target.yaml",
         fmt::format("# How verify imports the stages and what answers the library's parallel layers.\nname: {}\nroot: {}\nmegatron: {}\n",
                     target->name, seen_from_out(support::join_path(absolute_out, root.empty() ? "." : root)), target->megatron),
         false,
         false,
         {}});
  }
  for (auto& f : out.files)
    if (!f.text.empty() && f.text.back() != '\n') f.text += '\n';

  if (auto written = write_out(request, tool_folder, out); !written) return written.error();
  return out;
}

}  // namespace shardwright::driver
