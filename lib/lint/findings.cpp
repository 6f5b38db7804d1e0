#include "lint/findings.h"

#include <algorithm>

namespace shardwright::lint {

bool Found::has(const std::string& code, support::Range where) const {
  return std::any_of(all_.begin(), all_.end(), [&](const auto& d) { return d.code == code && d.range == where; });
}

void Found::add(support::Severity severity, std::string code, support::Range where, std::string message, std::vector<support::Note> notes,
                std::optional<support::Fix> fix) {
  if (!where.valid() || has(code, where)) return;
  std::erase_if(notes, [](const support::Note& n) { return !n.range.valid(); });
  all_.push_back({severity, std::move(code), where, std::move(message), std::move(notes), std::move(fix)});
}

void Found::back_to(std::size_t mark, const std::set<std::string>& keep) {
  std::size_t to = mark;
  for (std::size_t i = mark; i < all_.size(); ++i)
    if (keep.count(all_[i].code)) std::swap(all_[to++], all_[i]);
  all_.resize(to);
}

void Found::keep_common(std::size_t mark, const std::string& code, const std::vector<support::Diagnostic>& other) {
  std::size_t to = mark;
  for (std::size_t i = mark; i < all_.size(); ++i) {
    const bool both = std::any_of(other.begin(), other.end(), [&](const auto& d) { return d.code == code && d.range == all_[i].range; });
    if (all_[i].code != code || both) std::swap(all_[to++], all_[i]);
  }
  all_.resize(to);
}

}  // namespace shardwright::lint
