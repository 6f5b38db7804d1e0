// Three-way merge of texts by lines.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace shardwright::support {

struct Merged {
  std::string text;  ///< with conflict markers where both sides changed the same lines
  int conflicts = 0;
};

/// What both sides made of `base`: lines that one side changed are that side's; lines that both changed alike are taken once.
Merged merge_three(std::string_view base, std::string_view mine, std::string_view theirs, const std::string& mine_name,
                   const std::string& theirs_name);

}  // namespace shardwright::support
