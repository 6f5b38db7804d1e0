// What rules/layers/*.yaml and rules/kinds.yaml say about module classes: the factors of their parameters, how a shard on a
// factor is spelled, and what a level of the call-chain tree is called.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace shardwright::rules {

struct LayerRule {
  std::string name;                                         ///< "torch.nn.Linear"
  std::vector<std::pair<std::string, std::string>> params;  ///< parameter → factors of its dimensions: "o i"
  std::string forward;                                      ///< "... i -> ... o", may be empty
  std::map<std::string, std::string> parallel;              ///< {"column": "o", "row": "i"}: which spelling shards which factor
  std::string heads;                                        ///< constructor parameter that counts heads
  std::string replace_with;                                 ///< named replacement of the targets: "parallel_multihead_attention"
  std::vector<std::string> sizes;                           ///< constructor parameters that are sizes: "in_features", "out_features"
  std::map<std::string, std::string> size_of;               ///< factor → constructor parameter: {"o": "out_features"}
  std::string where;
};

/// What is known about a module when it is given a kind.
struct KindFacts {
  std::string type;  ///< qualified class
  bool contracts_with_softmax =
      false;  ///< its own forward (children included) has softmax between two contractions, or scaled_dot_product_attention
  bool contracts_over_heads = false;
  bool is_root = false;
  bool is_stage = false;
  int linears = 0;                    ///< Linear layers directly below
  bool has_activation = false;        ///< a non-linear element-wise operation between them
  std::string repeats;                ///< kind of the child that is repeated in it, "" for none
  std::vector<std::string> contains;  ///< kinds of its children
  bool has_children = false;
};

/// A condition: leaves or any/all/not of conditions.
struct Condition {
  enum Kind {
    Any,
    All,
    Not,
    Name,
    ContractsWithSoftmax,
    ContractsOverHeads,
    Root,
    Stage,
    Repeats,
    Contains,
    Linears,
    Activation,
    Leaf
  } kind = All;
  std::vector<Condition> kids;
  std::string text;  ///< Name: glob on the last part of the class name; Repeats, Contains: a kind
  bool flag = true;
  int number = 0;  ///< Linears: at least so many
};

struct KindRule {
  std::string kind;
  Condition when;
};

/// "*" and "?" wild cards.
bool glob_match(const std::string& pattern, const std::string& text);

}  // namespace shardwright::rules
