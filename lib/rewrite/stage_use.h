// Which modules, parameters and buffers a stage holds. Internal to the stage slicer.
#pragma once
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rewrite/stage_slice.h"

namespace shardwright::rewrite::stage {

using Named = std::pair<ModuleId, std::string>;  ///< a parameter or buffer under the name of its owner

/// Names of attributes that code which stays in a stage mentions.
struct Mentions {
  std::set<Named> of_module;  ///< resolved: self.attr, self.child.attr
  std::set<std::string> any;  ///< every attribute name in the text
};

class Use {
 public:
  Use(const Context& c, const std::vector<StageSlice>& stages);

  bool holds(int k, ModuleId m) const { return held_[static_cast<std::size_t>(k)].count(m) != 0; }
  bool holds(int k, const Named& p) const { return held_params_[static_cast<std::size_t>(k)].count(p) != 0; }
  /// Another stage uses something below it that stage k does not.
  bool divided(int k, ModuleId m) const { return divided_[static_cast<std::size_t>(k)].count(m) != 0; }
  /// User classes that need a class of their own in stage k, root first.
  const std::vector<ModuleId>& partial(int k) const { return partial_[static_cast<std::size_t>(k)]; }
  const Mentions& mentions(int k) const { return mentions_[static_cast<std::size_t>(k)]; }
  /// Names, as seen from the root, of modules that stage k is asked attributes, sizes or methods of but does not run, and of parameters
  /// that it has but does not compute with: built, they leave their parameters (attributes_only).
  const std::vector<std::string>& described(int k) const { return described_[static_cast<std::size_t>(k)]; }

  /// No module has it in the end (a list that another container took the place of).
  bool nowhere(ModuleId m) const { return parents_[static_cast<std::size_t>(m)].empty(); }

  /// ModuleList, Sequential, ModuleDict, or a user's class made of one without an __init__ of its own.
  bool anyones(ModuleId m) const;
  void mark_called(int k, ModuleId m, FrameId caller);
  bool container(ModuleId m) const;

  /// The module that an attribute path from `self` reaches, or -1. `passed`: every module on the way, the first first. `at`: what
  /// `self.layers[-1]` is depends on when it is asked for; -1: when all is built.
  ModuleId resolve(ModuleId self, const Expr* e, const std::string& self_name,
                   std::vector<std::pair<ModuleId, std::string>>* passed = nullptr, model::Clock at = -1) const;

 private:
  void activity(int k);
  void tied_by_methods(int k);
  void mention(int k);
  void ask(int k);
  void describe(int k);
  void hold(int k);
  void find_partial(int k);
  void mark(int k, ModuleId m);
  void mention_expr(int k, ModuleId self, const std::string& self_name, const Expr* e);
  void mention_pieces(int k, ModuleId self, const std::string& self_name, const std::vector<Piece>& p, const FrameSlice& f);
  bool below(ModuleId m, int k, int j) const;

  const Context& c_;
  const std::vector<StageSlice>& stages_;
  std::vector<std::set<ModuleId>> active_, held_, divided_;
  std::vector<std::set<Named>> active_params_, held_params_;
  std::vector<std::vector<ModuleId>> partial_;
  std::vector<Mentions> mentions_;
  std::vector<std::set<ModuleId>> asked_, way_;  ///< not active: asked for attributes; containers that lead there
  std::vector<std::vector<std::string>> described_;
  std::vector<std::vector<ModuleId>> parents_;  ///< all registrations
  std::map<TensorId, std::vector<Named>> owners_;
};

}  // namespace shardwright::rewrite::stage
