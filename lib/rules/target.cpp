#include "rules/target.h"

#include <algorithm>
#include <cctype>

#include "rules/embedded.h"
#include "support/text.h"
#include "support/yaml.h"

namespace shardwright::rules {
namespace {

namespace yaml = support::yaml;

std::vector<std::pair<std::string, std::string>> pairs(yaml::Reader& r, const std::string& key) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [k, v] : r.map(key)) {
    auto text = v.as_string();
    if (text) out.emplace_back(k.text(), *text);
    else r.fail(text.error());
  }
  return out;
}

std::map<std::string, std::string> mapping(yaml::Reader& r, const std::string& key) {
  auto list = pairs(r, key);
  return {list.begin(), list.end()};
}

using Strings = std::vector<std::string>;

}  // namespace

std::string Target::class_name(const std::string& original) const {
  std::size_t at = std::string::npos;
  for (const auto& type : types)
    if (original.size() >= type.size() && original.compare(original.size() - type.size(), type.size(), type) == 0)
      at = std::min(at, original.size() - type.size());
  if (at == std::string::npos) at = 0;
  return original.substr(0, at) + word + original.substr(at);
}

std::string Target::file_stem(const std::string& original) const {
  const std::string small = support::lower(original);
  std::size_t at = std::string::npos;
  for (const auto& type : types) {
    std::string t = support::lower(type);
    if (small.size() >= t.size() && small.compare(small.size() - t.size(), t.size(), t) == 0) at = std::min(at, small.size() - t.size());
  }
  if (at != std::string::npos) return original.substr(0, at) + file_word + original.substr(at);
  const auto last = original.rfind('_');
  if (last == std::string::npos) return file_word + original;
  return original.substr(0, last + 1) + file_word + original.substr(last + (file_word.ends_with('_') ? 1 : 0));
}

std::string Target::text(const std::string& file) const {
  auto own = embedded(folder + "/" + file);
  if (!own && !like.empty()) own = embedded("targets/" + like + "/" + file);
  return std::string(own.value_or(""));
}

std::vector<std::string> target_names() {
  std::vector<std::string> out;
  for (const auto& f : embedded_files())
    if (f.path.starts_with("targets/") && f.path.ends_with("/target.yaml")) out.emplace_back(f.path.substr(8, f.path.size() - 8 - 12));
  std::sort(out.begin(), out.end());
  return out;
}

support::Expected<Target> load_target(const std::string& name, support::SourceManager& sm) {
  Target t;
  t.name = name;
  t.folder = "targets/" + name;
  auto text = embedded(t.folder + "/target.yaml");
  if (!text) {
    std::string known;
    for (const auto& n : target_names()) known += (known.empty() ? "" : ", ") + n;
    return support::failure("there is no target '" + name + "'; there are: " + known, {}, "usage");
  }
  auto doc = yaml::parse(sm, sm.add("rules/" + t.folder + "/target.yaml", std::string(*text)));
  if (!doc) return doc.error();
  yaml::Reader r(*doc, "the target");
  t.like = r.optional<std::string>("like");
  t.support = r.optional<std::string>("support", t.support);
  t.support_file = r.optional<std::string>("support_file");
  t.typed = r.optional<bool>("typed", false);
  for (const auto& [module, names] : r.map("imports")) {
    auto list = names.as_strings();
    if (!list) return list.error();
    for (const auto& n : *list) t.imports[n] = module.text();
  }
  for (auto& n : r.optional<Strings>("layers")) t.layers.insert(n);
  if (auto node = r.node("linear")) {
    yaml::Reader l(*node, "linear");
    t.linear.keywords = mapping(l, "keywords");
    t.linear.keyword_only = l.optional<bool>("keyword_only", false);
    for (auto& n : l.optional<Strings>("arguments")) t.linear.arguments.insert(n);
    t.linear.column = pairs(l, "column");
    t.linear.row = pairs(l, "row");
    t.linear.segments = l.optional<bool>("segments", true);
    t.linear.reduce_output = l.optional<bool>("reduce_output", true);
    t.linear.return_bias = l.optional<bool>("return_bias", true);
    t.linear.bare = mapping(l, "bare");
    t.linear.max_rank = static_cast<int>(l.optional<std::int64_t>("max_rank", 0));
    t.linear.any_rank = l.optional<std::string>("any_rank");
    if (auto e = l.finish()) return *e;
  }
  if (auto node = r.node("config")) {
    yaml::Reader c(*node, "config");
    t.config.parameter = c.required<std::string>("parameter");
    t.config.otherwise = c.required<std::string>("otherwise");
    t.config.elsewhere = c.required<std::string>("elsewhere");
    t.config.elsewhere_imports = c.optional<Strings>("elsewhere_imports");
    if (auto e = c.finish()) return *e;
  }
  if (auto node = r.node("names")) {
    yaml::Reader n(*node, "names");
    t.in_place = true;
    t.word = n.required<std::string>("word");
    t.file_word = n.required<std::string>("file_word");
    t.types = n.optional<Strings>("types");
    t.generic = n.optional<Strings>("generic");
    t.model_folder = n.required<std::string>("model_folder");
    t.model_folder_two = n.optional<std::string>("model_folder_two", t.model_folder);
    t.registries = n.optional<std::string>("registries");
    if (auto e = n.finish()) return *e;
  }
  if (auto node = r.node("stage")) {
    yaml::Reader s(*node, "stage");
    t.stage_members = s.required<std::string>("members");
    t.stage_names = s.optional<Strings>("names");
    t.stage_config = s.optional<std::string>("config");
    t.stage_config_names = s.optional<Strings>("config_names");
    t.stage_reserved = mapping(s, "reserved");
    t.optional_members = mapping(s, "optional_members");
    t.plain_sends = s.optional<bool>("plain_sends", false);
    t.stage_tied = s.optional<std::string>("tied");
    t.stage_tied_mark = s.optional<std::string>("tied_mark");
    t.stage_tied_names = s.optional<Strings>("tied_names");
    t.optional_inputs = s.optional<bool>("optional_inputs", false);
    t.strict_bases = s.optional<Strings>("strict_bases");
    if (auto e = s.finish()) return *e;
  }
  if (auto node = r.node("training")) {
    yaml::Reader s(*node, "training");
    t.megatron = s.required<std::string>("megatron");
    t.shapes_module = s.optional<std::string>("shapes_module");
    t.examples = s.optional<std::string>("examples", t.examples);
    if (auto e = s.finish()) return *e;
  }
  if (auto node = r.node("handoff")) {
    yaml::Reader s(*node, "handoff");
    t.handoff_folder = s.required<std::string>("folder");
    t.handoff_skill = s.required<std::string>("skill");
    if (auto e = s.finish()) return *e;
  }
  t.described = mapping(r, "described");
  if (auto e = r.finish()) return *e;
  return t;
}

}  // namespace shardwright::rules
