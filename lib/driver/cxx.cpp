// Models in C++: from a job's file to the module that the interpreter runs.
#include <algorithm>

#include "cxx/load.h"
#include "driver/analysis.h"
#include "support/files.h"

namespace shardwright::driver {

support::Expected<bool> read_cxx(const ModelRequest& request, JobFile& file, support::SourceManager& sm) {
  const std::string wanted = file.job.model.substr(file.cxx_file.size() + 1);
  const std::string module = support::stem(file.cxx_file);
  auto unit = cxx::load({file.cxx_file, file.cxx_build, file.cxx_flags, request.cached}, module, sm);
  if (!unit) return unit.error();
  file.cxx = *unit;
  // ns::GPTImpl, GPTImpl, or the holder's name GPT
  std::string name = wanted;
  if (const auto colon = name.substr(0, name.find('<')).rfind(':'); colon != std::string::npos) name = name.substr(colon + 1);
  const auto& all = file.cxx->classes;
  auto has = [&](const std::string& n) { return std::any_of(all.begin(), all.end(), [&](const auto& c) { return c.name == n; }); };
  if (!has(name) && has(name + "Impl")) name += "Impl";
  if (!has(name)) {
    std::string list;
    for (const auto& c : all)
      if (c.module) list += (list.empty() ? "" : ", ") + c.name;
    return support::failure("'" + file.cxx_file + "' has no class '" + wanted + "'" +
                                (list.empty() ? "; it has no class derived from torch::nn::Module" : "; its modules are " + list),
                            {}, "input");
  }
  file.job.model = module + ":" + name;
  return true;
}

}  // namespace shardwright::driver
