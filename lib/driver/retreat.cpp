#include "driver/retreat.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardwright::driver {
namespace {
constexpr int kTries = 60;    // an attempt takes as long as a conversion
constexpr int kCutTries = 8;
}  // namespace

bool Retreat::next(const Fault& fault, const Analysis& a, PlanRequest& want) {
  const auto& t = a.traced->trace;
  if (!first_) {
    first_ = fault;
    for (const auto& x : a.sharding.axes) {
      if (!x.chosen) continue;
      std::vector<std::string> names;
      for (auto p : x.parameters) names.push_back(t.tensor(p).name);
      if (!names.empty()) axes_.emplace_back(names.front() + (names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : ""), std::move(names));
    }
  }
  if (++tries_ > kTries) return false;
  if (step_ <= Cuts && !fault.parameter.empty())
    for (const auto& [name, names] : axes_)
      if (std::find(names.begin(), names.end(), fault.parameter) != names.end() && std::find(named_.begin(), named_.end(), name) == named_.end()) {
        named_.push_back(name);
        parameters_.insert(parameters_.end(), names.begin(), names.end());
        want.whole = parameters_;
        given_up_.push_back(name + ": kept whole, because the source generated with it split did not pass its own check (" + fault.what.message + ")");
        return true;
      }
  if (step_ == Parameters) step_ = Cuts;
  if (step_ == Cuts) {
    bool banned = false;
    for (std::size_t c = 0; tries_ <= kCutTries && c < a.partition.cuts.size(); ++c)
      if (fault.stage < 0 || static_cast<int>(c) == fault.stage || static_cast<int>(c) + 1 == fault.stage) banned = want.no_cut.emplace(a.partition.cuts[c].clock, a.partition.cuts[c].kind).second || banned;
    if (banned) return true;
  }
  return advance(want);
}

bool Retreat::next(PlanRequest& want) { return ++tries_ <= kTries && advance(want); }

bool Retreat::advance(PlanRequest& want) {
  if (step_ < Axes) {
    step_ = Axes;
    want.no_cut.clear();
  }
  if (step_ == Axes) {
    if (axis_ < axes_.size() && axes_.size() > 1) {
      const auto& [name, names] = axes_[axis_++];
      want.whole = parameters_;
      want.whole.insert(want.whole.end(), names.begin(), names.end());
      given_up_.resize(named_.size());
      given_up_.push_back(name + ": kept whole, because the source generated with it split did not pass its own check (" + first_->what.message + ")");
      return true;
    }
    step_ = Nothing;
  }
  if (step_ == Nothing && want.grid.pp > 1 && !axes_.empty()) {
    step_ = Over;
    want.whole.clear();
    for (const auto& [name, names] : axes_) want.whole.insert(want.whole.end(), names.begin(), names.end());
    given_up_ = {"everything: kept whole, because the source generated with it split did not pass its own check (" + first_->what.message + ")"};
    return true;
  }
  return false;
}

support::Diagnostic Retreat::error(const Fault& last) const {
  support::Diagnostic d = first_ ? first_->what : last.what;
  d.message += " (a fault of the generator, and no smaller change avoids it: nothing was written)";
  return d;
}

}  // namespace shardwright::driver
