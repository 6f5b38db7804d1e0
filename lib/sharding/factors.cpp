#include "sharding/factors.h"

#include <algorithm>
#include <numeric>

namespace shardwright::sharding {

FactorId FactorStore::fresh(std::int64_t size) {
  factors_.emplace_back();
  factors_.back().size = size;
  return static_cast<FactorId>(factors_.size()) - 1;
}

FactorId FactorStore::find(FactorId f) {
  FactorId root = f;
  while (at(root).up >= 0) root = at(root).up;
  while (at(f).up >= 0) {
    const FactorId next = at(f).up;
    at(f).up = root;
    f = next;
  }
  return root;
}

void FactorStore::append_leaves(FactorId f, FactorList& out) {
  f = find(f);
  if (!at(f).kids.empty()) {
    const FactorList kids = at(f).kids;  // a copy: find() never adds factors, but keep the loop safe from reallocation
    for (FactorId k : kids) append_leaves(k, out);
  } else if (at(f).size != 1) {
    out.push_back(f);
  }
}

FactorList FactorStore::leaves(const FactorList& fs) {
  FactorList out;
  for (FactorId f : fs) append_leaves(f, out);
  return out;
}

void FactorStore::append_deep(FactorId f, FactorList& out) {
  FactorList own;
  append_leaves(f, own);
  for (FactorId g : own) {
    if (at(g).cat.empty()) {
      out.push_back(g);
      continue;
    }
    const std::vector<FactorList> segments = at(g).cat;
    for (const FactorList& s : segments)
      for (FactorId h : s) append_deep(h, out);
  }
}

FactorList FactorStore::deep(const FactorList& fs) {
  FactorList out;
  for (FactorId f : fs) append_deep(f, out);
  return out;
}

std::int64_t FactorStore::product(const FactorList& fs) {
  std::int64_t n = 1;
  for (FactorId f : fs) n *= size(f);
  return n;
}

bool FactorStore::concatenate(FactorId leaf, std::vector<FactorList> segments) {
  leaf = find(leaf);
  if (!at(leaf).kids.empty() || !at(leaf).cat.empty()) return false;
  const std::vector<Reason> inherited = at(leaf).why;
  for (const Reason& r : inherited)
    for (const FactorList& s : segments) block(s, r);
  at(leaf).cat = std::move(segments);
  return true;
}

std::pair<FactorId, FactorId> FactorStore::split(FactorId leaf, std::int64_t outer) {
  leaf = find(leaf);
  if (!at(leaf).cat.empty()) {
    const std::vector<FactorList> segments = std::move(at(leaf).cat);
    at(leaf).cat.clear();
    const Reason why{"a concatenation is split at other places than its parts", {}, false};
    for (const FactorList& s : segments) block(s, why);
    add_reason(leaf, why);
  }
  const FactorId a = fresh(outer);
  const FactorId b = fresh(at(leaf).size / outer);
  at(a).why = at(leaf).why;
  at(b).why = at(leaf).why;
  at(leaf).kids = {a, b};
  return {a, b};
}

void FactorStore::add_reason(FactorId f, const Reason& why) {
  auto& list = at(f).why;
  // A few reasons are enough to explain; what matters afterwards is whether there is any, and whether any is a known one.
  const bool seen = std::any_of(list.begin(), list.end(), [&](const Reason& r) { return r.why == why.why && r.unknown == why.unknown; });
  const bool only_unknown = std::all_of(list.begin(), list.end(), [](const Reason& r) { return r.unknown; });
  if (!seen && (list.size() < 4 || (only_unknown && !why.unknown))) list.push_back(why);
}

void FactorStore::block(const FactorList& fs, const Reason& why) {
  for (FactorId f : leaves(fs)) add_reason(f, why);
  for (FactorId f : deep(fs)) add_reason(f, why);
}

void FactorStore::merge(FactorId keep, FactorId gone, const Reason& why) {
  at(gone).up = keep;
  const std::vector<Reason> moved = std::move(at(gone).why);
  for (const Reason& r : moved) add_reason(keep, r);
  const std::vector<FactorList> other = std::move(at(gone).cat);
  at(gone).cat.clear();
  if (!other.empty() && at(keep).cat.empty()) {
    at(keep).cat = other;
  } else if (!other.empty()) {
    const std::vector<FactorList> mine = at(keep).cat;
    bool same = mine.size() == other.size();
    for (std::size_t i = 0; same && i < mine.size(); ++i) same = product(mine[i]) == product(other[i]);
    const Reason differ{"concatenated from parts of different sizes", why.where, false};
    if (same) {
      for (std::size_t i = 0; i < mine.size(); ++i) unify(mine[i], other[i], why);
    } else {
      for (const FactorList& s : mine) block(s, differ);
      for (const FactorList& s : other) block(s, differ);
    }
  }
  // A reason that one side had before it met the other's segments holds for those too.
  const FactorId root = find(keep);
  if (!at(root).cat.empty() && !at(root).why.empty()) {
    const std::vector<Reason> all = at(root).why;
    for (const Reason& r : all) block({root}, r);
  }
}

bool FactorStore::unify(const FactorList& la, const FactorList& lb, const Reason& why) {
  FactorList a = leaves(la), b = leaves(lb);
  std::reverse(a.begin(), a.end());  // the back is the next one: popping is cheap
  std::reverse(b.begin(), b.end());
  const auto open = [this](FactorList& l) {
    FactorList finer;
    append_leaves(l.back(), finer);
    l.pop_back();
    l.insert(l.end(), finer.rbegin(), finer.rend());
  };
  while (!a.empty() && !b.empty()) {
    const FactorId x = find(a.back()), y = find(b.back());
    if (!at(x).kids.empty()) {
      open(a);
    } else if (!at(y).kids.empty()) {
      open(b);
    } else if (x == y) {
      a.pop_back();
      b.pop_back();
    } else if (at(x).size == at(y).size) {
      a.pop_back();
      b.pop_back();
      merge(x, y, why);
    } else if (at(x).size != 0 && at(y).size != 0 && at(x).size % at(y).size == 0) {
      split(x, at(y).size);
    } else if (at(x).size != 0 && at(y).size != 0 && at(y).size % at(x).size == 0) {
      split(y, at(x).size);
    } else {
      const Reason misaligned{"sizes that do not align: " + why.why, why.where, why.unknown};
      block(a, misaligned);
      block(b, misaligned);
      return false;
    }
  }
  if (a.empty() && b.empty()) return true;
  const Reason misaligned{"sizes that do not align: " + why.why, why.where, why.unknown};
  block(a, misaligned);
  block(b, misaligned);
  return false;
}

bool FactorStore::regroup(const FactorList& fs, const std::vector<std::int64_t>& shape, std::vector<FactorList>& out, const Reason& why) {
  FactorList flat = leaves(fs);
  std::reverse(flat.begin(), flat.end());
  out.clear();
  for (std::int64_t n : shape) {
    std::int64_t need = n;
    FactorList got;
    while (need > 1) {
      if (flat.empty()) return false;
      const FactorId f = find(flat.back());
      if (!at(f).kids.empty()) {
        FactorList finer;
        append_leaves(f, finer);
        flat.pop_back();
        flat.insert(flat.end(), finer.rbegin(), finer.rend());
        continue;
      }
      const std::int64_t have = at(f).size;
      if (need % have == 0) {
        got.push_back(f);
        flat.pop_back();
        need /= have;
        continue;
      }
      const std::int64_t g = have % need == 0 ? need : std::gcd(need, have);
      if (g <= 1) {
        block(flat, why);
        block(got, why);
        return false;
      }
      const auto [outer, inner] = split(f, g);
      got.push_back(outer);
      flat.back() = inner;
      need /= g;
    }
    out.push_back(std::move(got));
  }
  return flat.empty();
}

}  // namespace shardwright::sharding
