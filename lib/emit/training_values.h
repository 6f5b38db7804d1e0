// Numbers in a training script: literals, names bound to them, keys of its YAML configuration, defaults of its arguments.
#pragma once
#include <optional>
#include <string>

#include "program/program.h"
#include "support/source.h"

namespace shardwright::emit {

class TrainingValues {
 public:
  TrainingValues(const program::Module& m, support::SourceManager& sources, const std::string& path);
  /// The text of a number that the expression surely has.
  std::optional<std::string> number(const program::Expr* e, int depth = 0) const;
  /// The same for an element of a pair or a list: (0.9, 0.95), tuple(cfg["betas"]).
  std::optional<std::string> element(const program::Expr* e, std::size_t at) const;

 private:
  std::optional<std::string> configured(const std::vector<std::string>& keys, int element = -1) const;
  std::optional<std::string> argument(const std::string& name) const;
  bool altered(const std::string& root, const std::string& key) const;
  const program::Expr* bound_once(const std::string& name) const;
  std::optional<std::string> member(const program::Expr* made, const std::vector<std::string>& keys, int depth) const;
  const program::Module& m_;
  support::SourceManager& sources_;
  std::vector<std::string> configs_;  ///< YAML files beside the script
};

}  // namespace shardwright::emit
