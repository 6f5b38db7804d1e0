// Never wrong, at worst less parallel: where the generated source does not pass its own check, what the next attempt does without.
#pragma once
#include "driver/recheck.h"

namespace shardwright::driver {

/// First the axes of the parameter that the fault names; then the stage at fault builds all of the model and drops what it does not hold;
/// then other cuts than those beside the faulty stage; then, with the cuts as they were, each kind of axis (the same one of every
/// layer) by itself; then one kind after the other, until nothing is split.
class Retreat {
 public:
  /// Changes `want` for the next attempt; false: nothing is left to do without.
  bool next(const Fault&, const Analysis&, PlanRequest& want);
  /// The last attempt's plan could not be made at all.
  bool next(PlanRequest& want);

  /// The first fault (`last` when no attempt was made), as an error: nothing was written.
  support::Diagnostic error(const Fault& last) const;
  /// What is given up in the end and why, a line each.
  const std::vector<std::string>& given_up() const { return given_up_; }

 private:
  enum Step : std::uint8_t { Parameters, Cuts, Single, Several };
  using Names = std::vector<std::string>;
  bool advance(PlanRequest& want);
  void without(PlanRequest& want, std::size_t first, std::size_t last);
  std::string line(const std::string& what, const support::Diagnostic& why) const;

  Step step_ = Parameters;
  int tries_ = 0;
  std::optional<Fault> first_;
  Names parameters_;                                  ///< kept whole for a parameter that a fault named
  std::vector<std::string> named_;                    ///< the lines about them
  std::vector<std::pair<std::string, Names>> kinds_;  ///< axes of the first attempt by kind: "layers.*.mlp.fc1.weight", their parameters
  std::size_t kind_ = 0;
  std::vector<std::string> given_up_;
  std::set<int> guessed_;  ///< stages that build all of the model although they run without
};

}  // namespace shardwright::driver
