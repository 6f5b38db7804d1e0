// Reading rules/**/*.yaml strictly: every key of every mapping must be known. Internal to lib/rules.
#pragma once
#include <yaml-cpp/yaml.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "rules/rules.h"

namespace shardwright::rules {

/// First error found in a file: thrown inside lib/rules only, turned into a Diagnostic by Database::load.
struct RuleError {
  std::string message;
  int line = 0, column = 0;  ///< 1-based
};

/// The key of `allowed` that is most like `key` (edit distance at most a third of its length), or "".
std::string nearest(std::string_view key, const std::vector<std::string>& allowed);

/// A mapping with checked keys.
class Fields {
 public:
  Fields(const YAML::Node& node, std::string_view what, std::initializer_list<const char*> allowed);
  bool has(const char* key) const { return static_cast<bool>(node_[key]); }
  YAML::Node at(const char* key) const { return node_[key]; }
  YAML::Node required(const char* key) const;
  std::string text(const char* key, std::string fallback = "") const;
  bool flag(const char* key, bool fallback) const;
  double number(const char* key, double fallback) const;
  int integer(const char* key, int fallback) const;
  /// A string or a list of strings.
  std::vector<std::string> list(const char* key) const;
  const YAML::Node& node() const { return node_; }

 private:
  YAML::Node node_;
  std::string what_;
};

[[noreturn]] void fail(const YAML::Node& at, std::string message);

/// The error with its place in the text, which `sm` gets.
support::Diagnostic diagnose(support::SourceManager& sm, const std::string& path, std::string_view text, const RuleError& e);

class Loader {
 public:
  explicit Loader(Database& db) : db_(db) {}
  /// Reads one file of the given folder ("ops", "layers", "devices", "kinds"); throws RuleError.
  void read(std::string_view folder, const std::string& display, std::string_view text);
  /// Later definitions win; called once at the end.
  void index();

 private:
  void op(const YAML::Node&);
  void layer(const YAML::Node&);
  void kind(const YAML::Node&);
  void device(const YAML::Node&);
  Condition condition(const YAML::Node&);
  Database& db_;
  std::string display_;
};

}  // namespace shardwright::rules
