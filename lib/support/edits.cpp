#include "support/edits.h"

#include <algorithm>

namespace shardwright::support {

void Edits::replace(Range range, std::string text) {
  if (file_ < 0) file_ = range.file;
  if (range.begin == range.end) {
    insert_before(range.begin, std::move(text));
    return;
  }
  replacements_.push_back({range.begin, range.end, std::move(text)});
}

void Edits::insert_before(std::uint32_t offset, std::string text, int priority) {
  insertions_.push_back({offset, true, priority, std::move(text)});
}

void Edits::insert_after(std::uint32_t offset, std::string text, int priority) {
  insertions_.push_back({offset, false, priority, std::move(text)});
}

void Edits::wrap(Range range, std::string prefix, std::string suffix) {
  if (file_ < 0) file_ = range.file;
  wraps_.push_back({range.begin, range.end, std::move(prefix), std::move(suffix)});
}

void Edits::merge(const Edits& other) {
  if (file_ < 0) file_ = other.file_;
  replacements_.insert(replacements_.end(), other.replacements_.begin(), other.replacements_.end());
  insertions_.insert(insertions_.end(), other.insertions_.begin(), other.insertions_.end());
  wraps_.insert(wraps_.end(), other.wraps_.begin(), other.wraps_.end());
}

void Edits::remove_duplicates() {
  const auto unique = [](auto& list) {
    std::remove_reference_t<decltype(list)> kept;
    for (auto& e : list)
      if (std::find(kept.begin(), kept.end(), e) == kept.end()) kept.push_back(std::move(e));
    list = std::move(kept);
  };
  unique(replacements_);
  unique(insertions_);
  unique(wraps_);
}

Expected<std::vector<TextEdit>> Edits::flatten(std::string_view original) const {
  const auto conflict = [&](std::uint32_t begin, std::uint32_t end, const std::string& what) {
    return failure("edits overlap: " + what, Range{file_, begin, end}, "internal");
  };
  const auto size = static_cast<std::uint32_t>(original.size());
  std::vector<const Replacement*> replacements;
  for (const Replacement& r : replacements_) replacements.push_back(&r);
  std::stable_sort(replacements.begin(), replacements.end(), [](auto a, auto b) { return a->begin < b->begin; });
  for (std::size_t i = 0; i < replacements.size(); ++i) {
    const Replacement& r = *replacements[i];
    if (r.end > size || r.begin > r.end) return conflict(r.begin, r.end, "a replacement reaches past the end of the text");
    if (i > 0 && replacements[i - 1]->end > r.begin)
      return conflict(r.begin, r.end, "'" + replacements[i - 1]->text + "' and '" + r.text + "' replace the same text");
  }
  // The replacement that has `offset` strictly inside it.
  const auto inside = [&](std::uint32_t offset) -> const Replacement* {
    auto it = std::upper_bound(replacements.begin(), replacements.end(), offset, [](std::uint32_t o, auto r) { return o < r->end; });
    return it != replacements.end() && (*it)->begin < offset ? *it : nullptr;
  };
  for (const Insertion& i : insertions_) {
    if (i.offset > size) return conflict(i.offset, i.offset, "an insertion is past the end of the text");
    if (const Replacement* r = inside(i.offset))
      return conflict(i.offset, i.offset, "'" + i.text + "' is inserted inside what '" + r->text + "' replaces");
  }
  // Outer wraps first; of equal ranges the one added later is the outer.
  std::vector<std::size_t> wraps(wraps_.size());
  for (std::size_t i = 0; i < wraps.size(); ++i) wraps[i] = i;
  std::sort(wraps.begin(), wraps.end(), [&](std::size_t a, std::size_t b) {
    const Wrap &x = wraps_[a], &y = wraps_[b];
    if (x.begin != y.begin) return x.begin < y.begin;
    if (x.end != y.end) return x.end > y.end;
    return a > b;
  });
  std::vector<const Wrap*> open;
  for (std::size_t i : wraps) {
    const Wrap& w = wraps_[i];
    if (w.end > size || w.begin > w.end) return conflict(w.begin, w.end, "a wrapped range reaches past the end of the text");
    for (std::uint32_t at : {w.begin, w.end})
      if (const Replacement* r = inside(at))
        return conflict(w.begin, w.end, "'" + w.prefix + "' wraps a part of what '" + r->text + "' replaces");
    while (!open.empty() && open.back()->end <= w.begin && open.back()->begin < open.back()->end) open.pop_back();
    if (!open.empty() && w.begin < open.back()->end && w.end > open.back()->end)
      return conflict(w.begin, w.end, "the ranges that '" + open.back()->prefix + "' and '" + w.prefix + "' wrap cross");
    open.push_back(&w);
  }

  // Everything that is inserted, as (offset, class, rank, text); the classes are the order described in the header.
  struct Piece {
    std::uint32_t offset;
    int group;
    std::int64_t rank, second;
    const std::string* text;
  };
  std::vector<Piece> pieces;
  for (std::size_t k = 0; k < wraps.size(); ++k) {
    const Wrap& w = wraps_[wraps[k]];
    if (w.begin == w.end) {  // an empty range: nothing to cling to, both go before what follows
      pieces.push_back({w.begin, 3, 0, static_cast<std::int64_t>(k), &w.prefix});
      pieces.push_back({w.begin, 3, 1, -static_cast<std::int64_t>(k), &w.suffix});
      continue;
    }
    // `wraps` has outer ones first: prefixes in that order, suffixes in the reverse.
    pieces.push_back({w.end, 0, -static_cast<std::int64_t>(k), 0, &w.suffix});
    pieces.push_back({w.begin, 4, static_cast<std::int64_t>(k), 0, &w.prefix});
  }
  for (std::size_t k = 0; k < insertions_.size(); ++k) {
    const Insertion& i = insertions_[k];
    pieces.push_back({i.offset, i.before ? 2 : 1, i.before ? -i.priority : i.priority, static_cast<std::int64_t>(k), &i.text});
  }
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    if (a.offset != b.offset) return a.offset < b.offset;
    if (a.group != b.group) return a.group < b.group;
    if (a.rank != b.rank) return a.rank < b.rank;
    return a.second < b.second;
  });

  std::vector<TextEdit> out;
  std::size_t p = 0, r = 0;
  while (p < pieces.size() || r < replacements.size()) {
    const std::uint32_t at = p < pieces.size() && (r == replacements.size() || pieces[p].offset <= replacements[r]->begin)
        ? pieces[p].offset
        : replacements[r]->begin;
    TextEdit e{Range{file_, at, at}, ""};
    while (p < pieces.size() && pieces[p].offset == at) e.text += *pieces[p++].text;
    if (r < replacements.size() && replacements[r]->begin == at) {
      e.text += replacements[r]->text;
      e.range.end = replacements[r]->end;
      ++r;
    }
    out.push_back(std::move(e));
  }
  return out;
}

Expected<std::string> Edits::apply(std::string_view original) const {
  auto edits = flatten(original);
  if (!edits) return edits.error();
  std::string out;
  std::size_t at = 0;
  for (const TextEdit& e : *edits) {
    out += original.substr(at, e.range.begin - at);
    out += e.text;
    at = e.range.end;
  }
  out += original.substr(at);
  return out;
}

}  // namespace shardwright::support
