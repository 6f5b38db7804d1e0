// What rules/ops/*.yaml says about operations: names, parameters, and what an operation does to dimensions.
//
//   - op: [matmul, bmm]              # several names; `in` are the prefixes they live under
//     in: [torch, torch.Tensor]      # default; names with a dot stand for themselves
//     signature: "input, other"      # parameters in order, "*" starts keyword-only ones, "*size" collects, "a=1" has a default
//     rule: "... m k, ... k n -> ... m n"     # or  like: elementwise | reduce | keep   or  compute: NAME (C++)
//
// Factor notation: a letter or word is a dimension, "..." any number of leading ones (broadcast), "k!" is needed whole, an
// operand "o?" may be absent and "o+" is a bias, added once after the contraction. A dimension that is only on the left is
// contracted (summed), one only on the right is new.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardwright::rules {

/// One parameter of a signature.
struct Parameter {
  std::string name;
  enum Kind : std::uint8_t { Positional, KeywordOnly, VarArgs, VarKeywords } kind = Positional;
  bool has_default = false;
  std::string default_text;  ///< a Python literal: None, True, 1, 0.5, 'mean', (0, 1)
};

/// One dimension of a pattern.
struct PatternDim {
  std::string name;  ///< "..." for the broadcast dimensions
  bool blocked = false;
};

struct PatternOperand {
  std::vector<PatternDim> dims;
  bool optional = false;
  bool bias = false;
};

/// "... i, o i, o?+ -> ... o"
struct Pattern {
  std::vector<PatternOperand> inputs;
  std::vector<PatternOperand> outputs;
};

enum class Like : std::uint8_t {
  None,
  Elementwise,  ///< operands are broadcast against each other; one result
  Reduce,       ///< dimensions in `full` (all when None) go: summed when linear, needed whole otherwise; keepdim
  Keep,         ///< as the first operand; dimensions in `full` are needed whole
};

/// Type of the result's elements.
enum class ResultType : std::uint8_t { Promote, Same, Float, Bool, Int64, Real, Complex };

struct OpRule {
  std::vector<std::string> names;  ///< qualified; the first is canonical
  std::string signature_text;      ///< as written
  std::vector<Parameter> signature;
  bool has_pattern = false;
  Pattern pattern;
  Like like = Like::None;
  std::string compute;                 ///< name of a C++ function of lib/eval/torch
  std::vector<std::string> operands;   ///< parameters that are the pattern's inputs; default: the first ones
  std::vector<std::string> full;       ///< parameters that name dimensions needed whole
  std::vector<std::string> any_value;  ///< parameters that change no size, type or placement: one that is not known does not matter
  std::string linear = "nonlinear";    ///< linear | bilinear | nonlinear
  bool mean = false;
  ResultType type = ResultType::Promote;
  int outputs = 1;                ///< Keep, Reduce: number of results (values, indices)
  std::string why;                ///< reason given for dimensions needed whole
  std::string random;             ///< how it draws random numbers
  std::string flops;              ///< expression; see rules.md
  bool inplace = false;           ///< torch.Tensor.NAME_ exists too
  bool gradient = true;           ///< false: the result never needs a gradient
  std::vector<std::string> test;  ///< calls for tests/oprules
  std::string where;              ///< file:line of the rule
};

/// Parses factor notation; returns an error message, empty when it is right.
std::string parse_pattern(std::string_view text, Pattern& out);

/// Parses a signature; returns an error message, empty when it is right.
std::string parse_signature(std::string_view text, std::vector<Parameter>& out);

}  // namespace shardwright::rules
