#include "driver/retreat.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace shardwright::driver {
namespace {

constexpr int kTries = 60;  // an attempt takes as long as a conversion
constexpr int kCutTries = 8;

/// "layers.3.fc.weight" → "layers.*.fc.weight": the same in every layer.
std::string kind_of(const std::string& name) {
  std::string out;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t dot = std::min(name.find('.', at), name.size());
    const std::string part = name.substr(at, dot - at);
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    out += (out.empty() ? "" : ".") + (number ? "*" : part);
    at = dot + 1;
  }
  return out;
}

}  // namespace

bool Retreat::next(const Fault& fault, const Analysis& a, PlanRequest& want) {
  const auto& t = a.traced->trace;
  auto names_of = [&](const sharding::Axis& x) {
    Names names;
    for (auto p : x.parameters) names.push_back(t.tensor(p).name);
    return names;
  };
  if (!first_) {
    first_ = fault;
    for (const auto& x : a.sharding.axes) {
      const Names names = names_of(x);
      if (!x.chosen || names.empty()) continue;
      const std::string kind = kind_of(names.front());
      auto at = std::find_if(kinds_.begin(), kinds_.end(), [&](const auto& k) { return k.first == kind; });
      if (at == kinds_.end()) at = kinds_.insert(kinds_.end(), {kind, {}});
      at->second.insert(at->second.end(), names.begin(), names.end());
    }
  }
  if (++tries_ > kTries) return false;
  if (step_ <= Cuts && !fault.parameter.empty())
    for (const auto& x : a.sharding.axes) {
      const Names names = names_of(x);
      if (!x.chosen || std::find(names.begin(), names.end(), fault.parameter) == names.end()) continue;
      parameters_.insert(parameters_.end(), names.begin(), names.end());
      want.whole = parameters_;
      named_.push_back(line(names.front() + (names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : ""), fault.what));
      given_up_ = named_;
      return true;
    }
  if (step_ == Parameters && fault.stage >= 0 && want.grid.pp > 1) {
    if (want.built_whole.insert(fault.stage).second) {
      if (!fault.raised) guessed_.insert(fault.stage);
      return true;
    }
    if (guessed_.count(fault.stage)) want.built_whole.erase(fault.stage);  // that was not it
  }
  if (step_ == Parameters) step_ = Cuts;
  if (step_ == Cuts) {
    bool banned = false;
    for (std::size_t c = 0; tries_ <= kCutTries && c < a.partition.cuts.size(); ++c)
      if (fault.stage < 0 || static_cast<int>(c) == fault.stage || static_cast<int>(c) + 1 == fault.stage)
        banned = want.no_cut.emplace(a.partition.cuts[c].clock, a.partition.cuts[c].kind).second || banned;
    if (banned) return true;
  }
  return advance(want);
}

bool Retreat::next(PlanRequest& want) { return ++tries_ <= kTries && advance(want); }

bool Retreat::advance(PlanRequest& want) {
  if (step_ < Single) {
    step_ = Single;
    want.no_cut.clear();
  }
  if (step_ == Single) {
    if (kind_ < kinds_.size() && kinds_.size() > 1) {
      without(want, kind_, kind_ + 1);
      ++kind_;
      return true;
    }
    step_ = Several;
    kind_ = kinds_.size() > 1 ? 2 : 1;
  }
  // With nothing split and one stage there is nothing to generate.
  if (kind_ > kinds_.size() || (kind_ == kinds_.size() && want.grid.pp == 1)) return false;
  without(want, 0, kind_++);
  return true;
}

void Retreat::without(PlanRequest& want, std::size_t first, std::size_t last) {
  want.whole = parameters_;
  given_up_ = named_;
  for (std::size_t k = first; k < last; ++k) {
    want.whole.insert(want.whole.end(), kinds_[k].second.begin(), kinds_[k].second.end());
    given_up_.push_back(line(kinds_[k].first, first_->what));
  }
}

std::string Retreat::line(const std::string& what, const support::Diagnostic& why) const {
  return what + ": kept whole, because the source generated with it split did not pass its own check (" + why.message + ")";
}

support::Diagnostic Retreat::error(const Fault& last) const {
  support::Diagnostic d = first_ ? first_->what : last.what;
  d.message += " (a fault of the generator, and no smaller change avoids it: nothing was written)";
  d.code = "internal";
  d.notes.push_back({{},
                     "another grid (--tp, --pp) may well work; please report this with the command line and, if you can, the model. "
                     "SHARDWRIGHT_KEEP_FAILED=DIR keeps what was generated"});
  return d;
}

}  // namespace shardwright::driver
