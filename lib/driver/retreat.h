// Never wrong, at worst less parallel: where the generated source does not pass its own check, what the next attempt does without.
#pragma once
#include "driver/recheck.h"

namespace shardwright::driver {

/// First the axis of the parameter that the fault names; then other cuts than those beside the faulty stage; then, with the cuts as they were,
/// one axis after the other; at last no axis at all.
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
  enum Step : std::uint8_t { Parameters, Cuts, Axes, Nothing, Over };
  bool advance(PlanRequest& want);

  Step step_ = Parameters;
  int tries_ = 0;
  std::optional<Fault> first_;
  std::vector<std::string> parameters_;                              ///< kept whole for a parameter that a fault named
  std::vector<std::pair<std::string, std::vector<std::string>>> axes_;   ///< those of the first attempt: a name, the parameters
  std::size_t axis_ = 0;
  std::vector<std::string> named_, given_up_;
};

}  // namespace shardwright::driver
