// Text edits on one file that compose, and the difference of two texts.
//
// Our own and not clang::tooling::Replacements: that one orders insertions at equal offsets by when they were added and refuses others,
// while wrapping nested expressions that share an end, `f(g(x))` around the same x, needs an order that follows from the nesting; and
// lib/ is to stay free of LLVM.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/result.h"

namespace shardwright::support {

/// A set of edits on one text. Order of adding does not matter except between equal things (same kind, place and priority: as added).
///
/// At one offset the result has, from left to right:
///   1. insert_after(offset) and suffixes of wraps that end here: suffixes inner ones first, then the insertions by ascending priority;
///   2. insert_before(offset) by descending priority, then prefixes of wraps that begin here, outer ones first;
///   3. the text at the offset, or its replacement.
/// So "after" insertions cling to what ends at the offset (wraps included), "before" insertions to what begins there; a higher priority is
/// farther away from it.
///
/// A replacement stands for its range: edits strictly inside it are an error, wraps and insertions around it (at its ends) are not.
/// Wraps may nest, touch or share ends; two that cross are an error. Equal ranges: the wrap added first is the inner one.
class Edits {
 public:
  explicit Edits(FileId file = -1) : file_(file) {}

  void replace(Range range, std::string text);
  void remove(Range range) { replace(range, ""); }
  void insert_before(std::uint32_t offset, std::string text, int priority = 0);
  void insert_after(std::uint32_t offset, std::string text, int priority = 0);
  void wrap(Range range, std::string prefix, std::string suffix);

  bool empty() const { return replacements_.empty() && insertions_.empty() && wraps_.empty(); }
  FileId file() const { return file_; }
  /// All edits of another set on the same file.
  void merge(const Edits& other);
  /// Equal edits added twice count once from here on (the same class visited through two instances).
  void remove_duplicates();

  /// The edited text. An error names the two edits that overlap, with the place of the second.
  Expected<std::string> apply(std::string_view original) const;
  /// The same edits as plain, non-overlapping replacements in order, for a diagnostic's fix.
  Expected<std::vector<TextEdit>> flatten(std::string_view original) const;

 private:
  struct Replacement {
    std::uint32_t begin, end;
    std::string text;
    friend bool operator==(const Replacement&, const Replacement&) = default;
  };
  struct Insertion {
    std::uint32_t offset;
    bool before;
    int priority;
    std::string text;
    friend bool operator==(const Insertion&, const Insertion&) = default;
  };
  struct Wrap {
    std::uint32_t begin, end;
    std::string prefix, suffix;
    friend bool operator==(const Wrap&, const Wrap&) = default;
  };
  FileId file_;
  std::vector<Replacement> replacements_;
  std::vector<Insertion> insertions_;
  std::vector<Wrap> wraps_;
};

/// A unified difference of two texts by lines (Myers' O(ND)), with headers "--- old_name" and "+++ new_name"; "" when equal.
std::string unified_diff(std::string_view old_text, std::string_view new_text, const std::string& old_name, const std::string& new_name,
                         int context = 3);

}  // namespace shardwright::support
