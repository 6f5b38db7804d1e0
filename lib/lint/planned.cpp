// Inputs that a generated package was planned for: plan.yaml beside it says their shapes, which no name tells.
#include "eval/run.h"
#include "lint/files.h"
#include "lint/session.h"
#include "support/files.h"
#include "support/yaml.h"

namespace shardwright::lint {

const std::map<std::string, std::vector<std::int64_t>>& Session::planned_inputs(const program::Module& m) {
  const std::string folder = support::parent_path(sources_.file(m.file).path);
  auto [at, fresh] = planned_.emplace(folder, std::map<std::string, std::vector<std::int64_t>>{});
  if (!fresh) return at->second;
  const auto& files = request_.files ? *request_.files : disk();
  for (const std::string& path :
       {support::join_path(folder, ".shardwright/plan.yaml"), support::join_path(support::parent_path(folder), "plan.yaml")}) {
    if (!files.is_file(path)) continue;
    auto text = files.read(path);
    if (!text) continue;
    const auto file = sources_.add(path, *text);
    auto root = support::yaml::parse(sources_, file);
    if (!root) continue;
    const auto job = root->get("job");
    const auto inputs = job ? job->get("inputs") : std::nullopt;
    if (!inputs) continue;
    for (const auto& [name, spec] : inputs->entries())
      if (spec.is_scalar())
        if (auto parsed = eval::parse_input(spec.text())) at->second[name.text()] = parsed->shape;
    break;
  }
  return at->second;
}

}  // namespace shardwright::lint
