#include "sharding/layout.h"

#include <algorithm>

namespace shardwright::sharding {

namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

bool carries(const Dim& d, int axis) {
  return std::any_of(d.begin(), d.end(), [&](const Term& t) {
    return t.axis == axis || std::any_of(t.segments.begin(), t.segments.end(), [&](const Dim& s) { return carries(s, axis); });
  });
}

/// One sharded factor among sizes that stay whole: (outer, shard, inner); shard is 1 where there is none.
struct Product {
  std::int64_t outer = 1, shard = 1, inner = 1;
};

/// A dimension as a list of consecutive products. A concatenation that carries the axis is opened; what stands outside it
/// repeats its parts, what stands inside multiplies them.
std::vector<Product> flatten(const Dim& d, int axis) {
  std::vector<Product> parts{{}};
  for (const Term& t : d) {
    if (!t.segments.empty() && carries({t}, axis)) {
      std::vector<Product> opened;
      for (const Dim& s : t.segments) {
        const std::vector<Product> inside = flatten(s, axis);
        opened.insert(opened.end(), inside.begin(), inside.end());
      }
      std::int64_t repeats = 1;
      for (const Product& p : parts) repeats *= p.outer * p.shard * p.inner;
      parts.clear();
      for (std::int64_t i = 0; i < repeats; ++i) parts.insert(parts.end(), opened.begin(), opened.end());
    } else if (t.axis == axis) {
      for (Product& p : parts) p.shard = t.size;
    } else {
      for (Product& p : parts) (p.shard > 1 ? p.inner : p.outer) *= t.size;
    }
  }
  return parts;
}

std::string letter(int n) {
  std::string s(1, static_cast<char>('a' + n % 26));
  return n < 26 ? s : s + std::to_string(n / 26);
}

std::string text(const LayoutPiece& p) {
  if (p.factors.empty()) return "1";
  if (p.factors.size() == 1) return p.factors[0].first;
  std::string s = "(";
  for (const auto& f : p.factors) s += (s.size() > 1 ? " " : "") + f.first;
  return s + ")";
}

}  // namespace

Layout layout(const Result& result, const model::Trace& trace, TensorId t) {
  Layout out;
  const auto& shape = trace.tensor(t).shape;
  const int axis = result.axis_of[index(t)];
  out.rank = static_cast<int>(shape.size());
  out.grad_sum = std::find(result.grad_summed.begin(), result.grad_summed.end(), t) != result.grad_summed.end();
  out.pieces.resize(shape.size());
  int letters = 0;
  const auto name = [&](std::int64_t size) {
    const std::string l = letter(letters++);
    out.sizes[l] = size;
    return std::pair(l, size);
  };
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool here = axis >= 0 && carries(result.tensors[index(t)][i], axis);
    const std::vector<Product> parts = here ? flatten(result.tensors[index(t)][i], axis) : std::vector<Product>{{shape[i], 1, 1}};
    std::int64_t begin = 0;
    for (const Product& p : parts) {
      LayoutPiece piece;
      piece.begin = begin;
      piece.end = begin = begin + p.outer * p.shard * p.inner;
      if (p.outer > 1) piece.factors.push_back(name(p.outer));
      if (here && p.shard > 1) {
        // The sharded factor is one axis, so one letter, in whichever segment it stands.
        if (out.shard.empty()) {
          out.shard = name(p.shard).first;
          out.shard_size = p.shard;
          out.shard_dim = static_cast<int>(i);
        }
        piece.factors.emplace_back(out.shard, p.shard);
      }
      if (p.inner > 1) piece.factors.push_back(name(p.inner));
      out.pieces[i].push_back(std::move(piece));
    }
  }
  const auto line = [&](const LayoutPiece* piece) {
    std::string s;
    for (std::size_t i = 0; i < out.pieces.size(); ++i) {
      s += (i > 0 ? " " : "");
      s += text(piece != nullptr && static_cast<int>(i) == out.shard_dim ? *piece : out.pieces[i][0]);
    }
    return s;
  };
  if (out.shard_dim >= 0 && out.pieces[index(out.shard_dim)].size() > 1) {
    for (const LayoutPiece& p : out.pieces[index(out.shard_dim)]) out.segments.push_back({out.shard_dim, p.begin, p.end, line(&p)});
  } else {
    out.dims = line(nullptr);
  }
  return out;
}

std::vector<std::vector<IndexRange>> slices(const Layout& l, int tp, int rank) {
  std::vector<std::vector<IndexRange>> out;
  for (const auto& pieces : l.pieces) {
    std::vector<IndexRange> ranges;
    const auto add = [&](std::int64_t begin, std::int64_t end) {
      if (begin >= end) return;
      if (!ranges.empty() && ranges.back().second == begin) ranges.back().second = end;
      else ranges.emplace_back(begin, end);
    };
    for (const LayoutPiece& p : pieces) {
      std::int64_t outer = 1, inner = 1, shard = 0;
      for (const auto& [name, size] : p.factors) {
        if (!l.shard.empty() && name == l.shard) shard = size;
        else (shard > 0 ? inner : outer) *= size;
      }
      if (shard == 0) {
        add(p.begin, p.end);
        continue;
      }
      if (tp < 1 || shard % tp != 0) return {};
      const std::int64_t mine = shard / tp;
      for (std::int64_t o = 0; o < outer; ++o) {
        const std::int64_t at = p.begin + (o * shard + rank * mine) * inner;
        add(at, at + mine * inner);
      }
    }
    out.push_back(std::move(ranges));
  }
  return out;
}

}  // namespace shardwright::sharding
