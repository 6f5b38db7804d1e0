#include "driver/write.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "support/edits.h"
#include "support/files.h"
#include "support/merge.h"

namespace shardwright::driver {
namespace {

namespace fs = std::filesystem;
using support::content_hash;  // was a file touched since it was generated?
using support::failure;

/// Copies of what was generated lie here, beside the lock.
const char* const kBase = "generated/";

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
  std::string out =
      "# What shardwright generated, so that it never overwrites what you changed. Keep it beside the code.\nversion: 1\nfiles:\n";
  std::vector<std::pair<std::string, std::string>> rows;
  for (const auto& f : files)
    if (!f.edited) rows.emplace_back(f.path, kept.count(f.path) ? kept.at(f.path) : content_hash(f.text));
  std::sort(rows.begin(), rows.end());
  for (const auto& [path, hash] : rows) out += "  " + path + ": \"" + hash + "\"\n";
  return out;
}

}  // namespace

support::Expected<bool> write_out(const ConvertRequest& request, const std::string& tool_folder, ConvertOutcome& out) {
  // Compare with what is there.
  const std::string lock_dir = support::join_path(out.out, tool_folder);
  Lock lock = read_lock(lock_dir);
  const auto others =
      tool_folder.empty() ? std::map<std::string, std::pair<std::string, std::string>>{} : other_locks(out.out, tool_folder);
  std::vector<std::string> changed_by_hand;
  support::Diagnostic conflict = failure("", {}, "overwrite");
  std::map<std::string, std::string> kept, bases;  // of merged files: hash and text of what was generated
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
      if (known != lock.end() && known->second == content_hash(f.text)) {  // nothing new: the file stays the user's
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
    if (f.edited) continue;  // the user's file with additions
    if (auto o = others.find(f.path); o != others.end() && o->second.second == content_hash(*old)) {
      support::Diagnostic d = failure(fmt::format("{} was generated for {} as well, which needs another text than this model: convert one "
                                                  "of them with other sizes, or into a folder of its own",
                                                  f.path, o->second.first),
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
  if (request.diff) return true;
  if (!changed_by_hand.empty() && !request.force) {
    std::string list;
    for (const auto& c : changed_by_hand) list += (list.empty() ? "" : ", ") + c;
    conflict.message =
        fmt::format("{} in {} {} changed since {} generated: {}. Nothing was written; --diff shows what would change, --force overwrites",
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
    if (others.count(path)) continue;  // another model's conversion uses it
    std::string full = support::join_path(out.out, path);
    if (auto old = support::read_file(full); old && content_hash(*old) == hash) {
      std::error_code ec;
      fs::remove(full, ec);
    }
  }
  // The generated texts themselves, for the next --update.
  if (!tool_folder.empty())  // beside the originals
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
  return true;
}

}  // namespace shardwright::driver
