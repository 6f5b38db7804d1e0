#include "driver/convert.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "driver/recheck.h"
#include "emit/tables.h"
#include "driver/version.h"
#include "support/edits.h"
#include "support/files.h"
#include "support/merge.h"
#include "rules/target.h"

namespace shardwright::driver {
namespace {

namespace fs = std::filesystem;
using support::failure;

/// Copies of what was generated lie here, beside the lock.
const char* const kBase = "generated/";

/// FNV-1a, 64 bits: tells whether a file was touched since it was generated; no secret is kept by it.
std::string content_hash(std::string_view text) {
  std::uint64_t h = 1469598103934665603ULL;
  for (unsigned char c : text) h = (h ^ c) * 1099511628211ULL;
  return fmt::format("{:016x}", h);
}

using Lock = std::map<std::string, std::string>;

Lock read_lock(const std::string& dir) {
  Lock lock;
  auto text = support::read_file(support::join_path(dir, "shardwright.lock"));
  if (!text) return lock;
  try {
    for (const auto& kv : YAML::Load(*text)["files"]) lock[kv.first.as<std::string>()] = kv.second.as<std::string>();
  } catch (const YAML::Exception&) {
    lock.clear();  // a damaged lock: every existing file counts as changed by hand
  }
  return lock;
}

/// What the conversions of other models in the same library wrote: path → lock, hash.
std::map<std::string, std::pair<std::string, std::string>> other_locks(const std::string& out, const std::string& tool_folder) {
  std::map<std::string, std::pair<std::string, std::string>> found;
  const fs::path models = (fs::path(out) / tool_folder).parent_path().parent_path().parent_path();
  std::error_code ec;
  for (const auto& f : fs::directory_iterator(models, ec)) {
    const std::string dir = (f.path() / ".shardwright").string();
    if (!f.is_directory(ec) || fs::equivalent(dir, fs::path(out) / tool_folder, ec)) continue;
    for (const auto& [path, hash] : read_lock(dir)) found[path] = {f.path().filename().string(), hash};
  }
  return found;
}

std::string lock_text(const std::vector<emit::File>& files, const std::map<std::string, std::string>& kept) {
  std::string out = "# What shardwright generated, so that it never overwrites what you changed. Keep it beside the code.\nversion: 1\nfiles:\n";
  std::vector<std::pair<std::string, std::string>> rows;
  for (const auto& f : files)
    if (!f.edited) rows.emplace_back(f.path, kept.count(f.path) ? kept.at(f.path) : content_hash(f.text));
  std::sort(rows.begin(), rows.end());
  for (const auto& [path, hash] : rows) out += "  " + path + ": \"" + hash + "\"\n";
  return out;
}


}  // namespace

std::string snake_case(const std::string& name) {
  std::string out;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool upper = std::isupper(static_cast<unsigned char>(name[i])) != 0;
    const bool word = i > 0 && upper && (!std::isupper(static_cast<unsigned char>(name[i - 1])) || (i + 1 < name.size() && std::islower(static_cast<unsigned char>(name[i + 1]))));
    if (word && !out.empty() && out.back() != '_') out += '_';
    out += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return out;
}

support::Expected<ConvertOutcome> convert(const ConvertRequest& request, support::SourceManager& sm, const Progress& progress) {
  ConvertOutcome out;
  std::string target_name = request.target;
  if (target_name.empty()) {
    auto job = load_job(request.model, sm);
    if (!job) return job.error();
    target_name = job->target;
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

  if (request.strict && !plan.fallbacks.empty()) {
    support::Diagnostic d = failure(fmt::format("--strict: {} part{} of the model would stay replicated; nothing was written", plan.fallbacks.size(), plan.fallbacks.size() == 1 ? "" : "s"), {}, "fallback");
    for (const auto& f : plan.fallbacks) d.notes.push_back({{}, f.where + ": " + f.reason});
    return d;
  }
  const bool splits = std::any_of(a.sharding.axes.begin(), a.sharding.axes.end(), [](const auto& x) { return x.chosen; });
  if (!splits && request.plan.grid.tp > 1 && request.plan.grid.pp == 1) {
    support::Diagnostic d = failure(fmt::format("nothing in this model can be split over {} tensor-parallel ranks, and --pp is 1: there is nothing to generate", request.plan.grid.tp), {}, "fallback");
    for (const auto& f : plan.fallbacks) d.notes.push_back({{}, f.where + ": " + f.reason});
    return d;
  }

  std::string class_name = t.module(0).type.substr(t.module(0).type.rfind('.') + 1);
  out.out = !request.out.empty() ? request.out : a.file.out;
  if (out.out.empty()) return failure("no output directory: give -o DIR (or `out:` in the job file)", {}, "usage");
  std::string absolute_out = fs::absolute(out.out).lexically_normal().string();
  std::string tool_folder, absolute_tool = absolute_out;   // where plan.yaml and its like lie
  auto seen_from_out = [&](const std::string& p) { return fs::path(p).lexically_relative(absolute_tool).string(); };

  progress("writing the source");
  const bool generic = std::find(target->generic.begin(), target->generic.end(), class_name) != target->generic.end();
  std::string default_name = snake_case(generic ? a.traced->entry_module.substr(a.traced->entry_module.rfind('.') + 1) : class_name);
  emit::PackageInput in{*a.traced, a.file.job, a.sharding, a.partition, a.edits, a.specialized, sm, *a.traced->loader, request.name.empty() ? default_name : request.name,
                        kVersion, request.model.spec, request.plan.grid, plan.grid.micro_batches, request.plan.schedule, copied_modules(a.file, sm), {}, "", {}, &*target, {}};
  if (in.in_place()) {
    in.layout = emit::layout_of(in, absolute_out);
    tool_folder = in.layout.tool;
    absolute_tool = fs::path(support::join_path(absolute_out, tool_folder)).lexically_normal().string();
    absolute_tool.pop_back();
  }
  for (const auto& p : a.file.job.python_path)
    if (p.find("/site-packages") == std::string::npos && p.find("/dist-packages") == std::string::npos) in.search_path.push_back(seen_from_out(p));
  if (!a.file.prepare.empty()) in.prepare = seen_from_out(a.file.prepare);
  for (const auto& f : plan.fallbacks) in.fallbacks.push_back(f.where + ": " + f.reason);

  auto package = emit::package_files(in);
  if (!package) return package.error();
  out.files = std::move(*package);

  out.next = "shardwright verify " + (tool_folder.empty() ? out.out : support::join_path(out.out, support::parent_path(in.layout.init.path)));

  progress("checking what was generated");
  auto check = recheck(a, in, out.files, request.plan.grid, sm);
  if (!check) return check.error();

  if (in.in_place() && target->shapes_module.empty()) {
    // the library's trainer cannot pass what these stages do
  } else if (in.in_place()) {
    emit::TrainingInput train{request.train_script.empty() ? a.file.train_script : request.train_script, absolute_out, a.other.get(), 1, emit::built_directly(in)};
    for (const auto& [name, spec] : a.file.job.inputs)
      if (!spec.shape.empty()) { train.batch = spec.shape[0]; break; }
    auto directory = emit::training_files(in, train);
    if (!directory) return directory.error();
    for (auto& f : *directory) out.files.push_back(std::move(f));
  } else {
    auto directory = emit::directory_files(in);
    if (!directory) return directory.error();
    for (auto& f : *directory) out.files.push_back(std::move(f));
  }
  out.files.push_back({tool_folder + "params.yaml", emit::params_yaml(in, check->held), false, false, {}});
  a.plan.package = in.in_place() ? in.layout.init.module : in.name + "_parallel";
  a.plan.job = verify_job(a, in, absolute_tool);
  out.files.push_back({tool_folder + "plan.yaml", plan::to_yaml(a.plan), false, false, {}});
  if (in.in_place()) {
    auto tables = emit::tables(in, out.files);
    out.files.push_back({tool_folder + "tables.md", "# " + class_name + ", " + std::to_string(request.plan.grid.tp) + "-way tensor x " + std::to_string(request.plan.grid.pp) +
                                                        "-stage pipeline parallel\n\n" + emit::markdown(tables), false, false, {}});
    out.files.push_back({tool_folder + "tables.json", emit::json(tables), false, false, {}});
    out.tables = emit::plain(tables);
    const std::string root = in.layout.init.path.substr(0, in.layout.init.path.size() - std::min(in.layout.init.path.size(), in.layout.init.module.size() + 12));   // "src/"
    out.files.push_back({tool_folder + "target.yaml", fmt::format("# How verify imports the stages and what answers the library's parallel layers.\nname: {}\nroot: {}\nmegatron: {}\n", target->name,
                                                                  seen_from_out(support::join_path(absolute_out, root.empty() ? "." : root)), target->megatron), false, false, {}});
  }
  for (auto& f : out.files)
    if (!f.text.empty() && f.text.back() != '\n') f.text += '\n';

  // Compare with what is there.
  const std::string lock_dir = support::join_path(out.out, tool_folder);
  Lock lock = read_lock(lock_dir);
  const auto others = tool_folder.empty() ? std::map<std::string, std::pair<std::string, std::string>>{} : other_locks(out.out, tool_folder);
  std::vector<std::string> changed_by_hand;
  support::Diagnostic conflict = failure("", {}, "overwrite");
  std::map<std::string, std::string> kept, bases;   // of merged files: hash and text of what was generated
  for (auto& f : out.files) {
    std::string path = support::join_path(out.out, f.path);
    std::error_code ec;
    if (!fs::exists(path, ec)) {
      out.written.push_back(f.path);
      if (request.diff) out.diff += support::unified_diff("", f.text, "/dev/null", f.path);
      continue;
    }
    auto old = support::read_file(path);
    if (!old) return old.error();
    if (*old == f.text) continue;
    if (request.update && !f.edited) {
      // Three texts: what was generated then (the lock's hash, and its copy), what is there now, what is generated now.
      auto known = lock.find(f.path);
      if (known != lock.end() && known->second == content_hash(f.text)) {   // nothing new: the file stays the user's
        kept[f.path] = known->second;
        out.merged.push_back(f.path);
        continue;
      }
      auto base = support::read_file(support::join_path(lock_dir, kBase + f.path));
      if (known != lock.end() && known->second != content_hash(*old) && base && content_hash(*base) == known->second) {
        auto merged = support::merge_three(*base, *old, f.text, "yours", "generated");
        if (merged.conflicts > 0) {
          changed_by_hand.push_back(f.path);
          conflict.notes.push_back({{}, f.path + ": both changed the same lines:\n" + merged.text});
          continue;
        }
        kept[f.path] = content_hash(f.text);
        bases[f.path] = f.text;
        f.text = merged.text;
        out.merged.push_back(f.path);
        if (*old != f.text) {
          out.written.push_back(f.path);
          if (request.diff) out.diff += support::unified_diff(*old, f.text, f.path, f.path);
        }
        continue;
      }
    }
    out.written.push_back(f.path);
    if (request.diff) out.diff += support::unified_diff(*old, f.text, f.path, f.path);
    if (f.edited) continue;   // the user's file with additions
    if (auto o = others.find(f.path); o != others.end() && o->second.second == content_hash(*old)) {
      support::Diagnostic d = failure(fmt::format("{} was generated for {} as well, which needs another text than this model: convert one of them with other sizes, or into a folder of its own", f.path, o->second.first),
                                      {}, "overwrite");
      d.notes.push_back({{}, support::unified_diff(*old, f.text, "for " + o->second.first, "for this model")});
      if (!request.force) return d;
    }
    auto known = lock.find(f.path);
    if (known == lock.end() || known->second != content_hash(*old)) {
      changed_by_hand.push_back(f.path);
      conflict.notes.push_back({{}, support::unified_diff(f.text, *old, "generated/" + f.path, "yours/" + f.path)});
    }
  }
  if (request.diff) return out;
  if (!changed_by_hand.empty() && !request.force) {
    std::string list;
    for (const auto& c : changed_by_hand) list += (list.empty() ? "" : ", ") + c;
    conflict.message = fmt::format("{} in {} {} changed since {} generated: {}. Nothing was written; --diff shows what would change, --force overwrites",
                                   changed_by_hand.size() == 1 ? "a file" : std::to_string(changed_by_hand.size()) + " files", out.out,
                                   changed_by_hand.size() == 1 ? "was" : "were", changed_by_hand.size() == 1 ? "it was" : "they were", list);
    return conflict;
  }
  const support::Uninterrupted whole;  // Ctrl-C before this: nothing is written; after it: everything is
  for (const auto& f : out.files) {
    if (std::find(out.written.begin(), out.written.end(), f.path) == out.written.end()) continue;
    if (auto w = support::write_file(support::join_path(out.out, f.path), f.text, f.executable); !w) return w.error();
  }
  // Files of an earlier run that are no longer generated go, unless somebody changed them.
  for (const auto& [path, hash] : lock) {
    if (std::any_of(out.files.begin(), out.files.end(), [&, p = path](const auto& f) { return f.path == p; })) continue;
    if (others.count(path)) continue;   // another model's conversion uses it
    std::string full = support::join_path(out.out, path);
    if (auto old = support::read_file(full); old && content_hash(*old) == hash) {
      std::error_code ec;
      fs::remove(full, ec);
    }
  }
  // The generated texts themselves, for the next --update.
  if (in.in_place())
    for (const auto& f : out.files) {
      if (f.edited) continue;
      const std::string path = support::join_path(lock_dir, kBase + f.path);
      const std::string& text = bases.count(f.path) ? bases[f.path] : f.text;
      if (auto there = support::read_file(path); there && *there == text) continue;
      if (auto w = support::write_file(path, text); !w) return w.error();
    }
  std::string lock_now = lock_text(out.files, kept);
  std::string lock_path = support::join_path(lock_dir, "shardwright.lock");
  auto lock_old = support::read_file(lock_path);
  if (!lock_old || *lock_old != lock_now)
    if (auto w = support::write_file(lock_path, lock_now); !w) return w.error();
  return out;
}

}  // namespace shardwright::driver
