// The rule engine: everything the tool knows about PyTorch and other libraries is data in rules/**/*.yaml. This is the only
// reader of those files. Checking is strict: an unknown key, a missing field or a wrong value is an error with file, line,
// column and the nearest valid key. User rules (--rules DIR) are read after ours and win.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rules/layers.h"
#include "rules/ops.h"
#include "support/result.h"
#include "support/source.h"

namespace shardwright::rules {

/// A device of rules/devices/*.yaml, for the objectives `time` and `memory`.
struct Device {
  std::string name;
  double flops = 0;             ///< achievable, per second, in the type of training
  double memory = 0;            ///< bytes
  double memory_bandwidth = 0;  ///< bytes per second
  double link_bandwidth = 0;    ///< bytes per second between two devices of one tensor-parallel group
  double link_latency = 0;      ///< seconds per collective
};

class Database {
 public:
  /// Reads the embedded rules and then every *.yaml below `user_dirs`. `sm` gets the files that have errors.
  static support::Expected<std::shared_ptr<const Database>> load(support::SourceManager& sm,
                                                                 const std::vector<std::string>& user_dirs = {});

  /// By any of its names ("torch.Tensor.add_"), or nullptr.
  const OpRule* op(std::string_view qualified_name) const;
  /// In order of definition; overridden ones are gone.
  std::vector<const OpRule*> ops() const;
  /// By qualified class name, or nullptr.
  const LayerRule* layer(std::string_view qualified_name) const;
  /// In order of definition, overridden ones included.
  std::vector<const LayerRule*> layers() const;
  /// The first kind whose conditions hold, "" for none.
  std::string kind(const KindFacts&) const;
  const Device* device(std::string_view name) const;
  std::vector<std::string> device_names() const;

 private:
  friend class Loader;
  std::vector<std::unique_ptr<OpRule>> ops_;
  std::unordered_map<std::string, const OpRule*> op_index_;
  std::vector<std::unique_ptr<LayerRule>> layers_;
  std::unordered_map<std::string, const LayerRule*> layer_index_;
  std::vector<KindRule> kinds_;
  std::map<std::string, Device, std::less<>> devices_;
};

}  // namespace shardwright::rules
