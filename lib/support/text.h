// Small changes to texts.
#pragma once
#include <string>

namespace shardwright::support {

/// ASCII letters in lower case.
std::string lower(std::string s);
/// Every `from` as `to`.
std::string replaced(std::string s, const std::string& from, const std::string& to);

}  // namespace shardwright::support
