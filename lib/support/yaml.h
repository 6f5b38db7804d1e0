// A strict reader for YAML: every value knows its place, every key has to be expected. On yaml-cpp; none of its exceptions gets out.
//
//   auto doc = yaml::parse(sources, file);            // Expected<yaml::Node>
//   yaml::Reader r(*doc);                             // a mapping
//   auto name = r.required<std::string>("name");      // "" after an error
//   auto tp = r.optional<int>("tp", 1);
//   for (auto item : r.list("items")) …
//   if (auto error = r.finish()) return *error;       // the first error, or an unknown key with the nearest valid one
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/result.h"

namespace shardwright::support::yaml {

/// A value with its place. Cheap to copy.
class Node {
 public:
  enum Kind { Null, Scalar, List, Map };
  Kind kind() const;
  Range range() const;
  bool is_null() const { return kind() == Null; }
  bool is_scalar() const { return kind() == Scalar; }
  bool is_list() const { return kind() == List; }
  bool is_map() const { return kind() == Map; }
  /// "a text", "a list", "a mapping", "nothing": for messages.
  const char* describe() const;

  /// A scalar as written (without quotes).
  const std::string& text() const;
  /// Was it quoted? "1" and '1' are texts, 1 is a number.
  bool quoted() const;
  std::size_t size() const;
  /// Elements of a list; empty for anything else.
  const std::vector<Node>& items() const;
  /// Entries of a mapping in order: key node and value.
  const std::vector<std::pair<Node, Node>>& entries() const;
  /// The value of a key, or nothing.
  std::optional<Node> get(std::string_view key) const;

  Expected<std::string> as_string() const;
  Expected<std::int64_t> as_int() const;
  Expected<double> as_double() const;
  Expected<bool> as_bool() const;
  Expected<std::vector<std::string>> as_strings() const;  ///< a list of texts, or one text alone
  Expected<std::vector<std::int64_t>> as_ints() const;

  struct Data;
  explicit Node(std::shared_ptr<const Data> data) : data_(std::move(data)) {}

 private:
  std::shared_ptr<const Data> data_;
};

/// Parses one document. Errors: bad syntax, a key twice in one mapping, a key that is no text, several documents, an anchor that
/// refers to itself; with line and column. An empty document is Null.
Expected<Node> parse(const SourceManager& sources, FileId file);

/// The nearest of `valid` to `word` (Levenshtein, close enough to be a slip of the pen), or nothing.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& valid);

/// Reads one mapping strictly. The first error is kept and returned by finish(); until then reading goes on with defaults.
class Reader {
 public:
  /// `what` names the mapping in messages: "the rule", "job.model".
  explicit Reader(const Node& map, std::string what = "this mapping");

  template <class T>
  T required(const std::string& key);
  template <class T>
  T optional(const std::string& key, T otherwise = T{});
  /// The value as it is; nothing when the key is absent.
  std::optional<Node> node(const std::string& key);
  /// Elements of a list (empty when absent); an error when it is something else.
  std::vector<Node> list(const std::string& key);
  /// Entries of a mapping (empty when absent).
  std::vector<std::pair<Node, Node>> map(const std::string& key);
  /// A required or optional text out of a few; the error lists them.
  std::string choice(const std::string& key, const std::vector<std::string>& valid, std::optional<std::string> otherwise = std::nullopt);
  bool has(const std::string& key) const;
  /// Marks a key as known without reading it.
  void ignore(const std::string& key) { known_.push_back(key); }
  void fail(Diagnostic d);
  void fail(const Node& at, std::string message);

  /// The first error: of what was read, else of a key that nothing asked for. Nothing when all is well.
  std::optional<Diagnostic> finish();

 private:
  std::optional<Node> find(const std::string& key, bool required);
  Node map_;
  std::string what_;
  std::vector<std::string> known_;
  std::optional<Diagnostic> error_;
};

}  // namespace shardwright::support::yaml
