#include "checkpoint/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "support/files.h"
#include "support/yaml.h"

namespace shardwright::checkpoint {

using support::Expected;
using support::failure;

namespace {

using Dims = std::vector<std::vector<std::string>>;

/// "(q h d) c" → {{q, h, d}, {c}}
Dims parse_dims(const std::string& text) {
  Dims dims;
  bool inside = false;
  std::string word;
  auto end = [&] {
    if (word.empty()) return;
    if (inside) dims.back().push_back(word);
    else dims.push_back({word});
    word.clear();
  };
  for (char c : text) {
    if (c == '(') end(), inside = true, dims.emplace_back();
    else if (c == ')') end(), inside = false;
    else if (c == ' ') end();
    else word += c;
  }
  end();
  return dims;
}

std::optional<std::size_t> holder(const Dims& dims, const std::string& factor) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < dims.size(); ++i)
    for (const auto& f : dims[i])
      if (f == factor) {
        if (found) return std::nullopt;
        found = i;
      }
  return found;
}

struct Product {
  std::int64_t outer = 1, sharded = 1, inner = 1;
};

Expected<Product> product(const Entry& e, const std::vector<std::string>& factors, std::int64_t size) {
  std::int64_t known = 1;
  int open = 0;
  for (const auto& f : factors) {
    if (auto it = e.sizes.find(f); it != e.sizes.end()) known *= it->second;
    else ++open;
  }
  if (open > 1 || known == 0 || size % known || (!open && known != size))
    return failure(fmt::format("params.yaml: {}: a dimension of size {} is no product ({}) with the sizes given", e.name, size,
                               fmt::join(factors, " ")),
                   {}, "input");
  Product p;
  bool before = true;
  for (const auto& f : factors) {
    auto it = e.sizes.find(f);
    const std::int64_t n = it != e.sizes.end() ? it->second : size / known;
    if (f == e.shard) p.sharded = n, before = false;
    else (before ? p.outer : p.inner) *= n;
  }
  return p;
}

void copy(const Block& target, char* to, const Block& source, const char* from, std::size_t dim,
          const std::vector<std::uint64_t>& to_stride, const std::vector<std::uint64_t>& from_stride, const std::vector<bool>& solid) {
  for (const Span& t : target.spans[dim])
    for (const Span& s : source.spans[dim]) {
      const std::int64_t first = std::max(t.whole, s.whole), last = std::min(t.whole + t.length, s.whole + s.length);
      if (first >= last) continue;
      char* out = to + static_cast<std::uint64_t>(t.local + first - t.whole) * to_stride[dim];
      const char* in = from + static_cast<std::uint64_t>(s.local + first - s.whole) * from_stride[dim];
      if (solid[dim + 1]) {  // what lies below is the same in both: one piece of memory
        std::memcpy(out, in, static_cast<std::uint64_t>(last - first) * to_stride[dim]);
        continue;
      }
      for (std::int64_t i = first; i < last; ++i, out += to_stride[dim], in += from_stride[dim])
        copy(target, out, source, in, dim + 1, to_stride, from_stride, solid);
    }
}

}  // namespace

Block whole_block(const Shape& shape) {
  Block b{shape, {}};
  for (auto n : shape) b.spans.push_back({{0, 0, n}});
  return b;
}

void copy_common(const Block& target, char* to, const Block& source, const char* from, std::uint64_t size) {
  const std::size_t n = target.shape.size();
  if (n == 0) {
    std::memcpy(to, from, size);
    return;
  }
  std::vector<std::uint64_t> a(n), b(n);
  std::vector<bool> solid(n + 1, true);  // from this dimension on, both hold the same, whole
  std::uint64_t sa = size, sb = size;
  for (std::size_t i = n; i-- > 0;) {
    a[i] = sa, b[i] = sb;
    sa *= static_cast<std::uint64_t>(target.shape[i]), sb *= static_cast<std::uint64_t>(source.shape[i]);
    const auto& t = target.spans[i];
    const auto& s = source.spans[i];
    solid[i] = solid[i + 1] && t.size() == 1 && s.size() == 1 && t[0].whole == s[0].whole && t[0].length == s[0].length &&
        t[0].length == target.shape[i] && s[0].length == source.shape[i];
  }
  if (sa == 0 || sb == 0) return;
  copy(target, to, source, from, 0, a, b, solid);
}

bool Entry::on(int stage) const { return stages.empty() || std::find(stages.begin(), stages.end(), stage) != stages.end(); }

Expected<Block> Entry::slice(const Shape& original, int rank, int tp) const {
  auto fail = [&](const std::string& why) { return failure(fmt::format("params.yaml: {}: {}", name, why), {}, "input"); };
  if (rows && (original.empty() || rows->second > original[0]))
    return fail(fmt::format("rows {} to {} of a tensor with {} rows", rows->first, rows->second, original.empty() ? 0 : original[0]));
  Shape selected = original;
  const std::int64_t first_row = rows ? rows->first : 0;
  if (rows) selected[0] = rows->second - rows->first;
  std::optional<std::size_t> pad_dim;
  if (!pad.empty()) {
    pad_dim = holder(dims, pad);
    if (!pad_dim || dims[*pad_dim].size() != 1 || *pad_dim >= selected.size())
      return fail("pad: the factor '" + pad + "' must be a dimension of its own");
    selected[*pad_dim] = std::max(padded, selected[*pad_dim]);
  }
  Block b = whole_block(selected);
  if (!shard.empty()) {
    std::size_t dim = 0;
    std::vector<std::pair<std::int64_t, Product>> parts;
    if (!segments.empty()) {
      std::int64_t at = 0;
      for (std::size_t k = 0; k < segments.size(); ++k) {
        const auto& s = segments[k];
        auto h = holder(s.dims, shard);
        if (!h || (k && *h != dim))
          return fail("the sharded factor '" + shard + "' must be in one and the same dimension of every segment");
        if (s.first != at) return fail(fmt::format("segment rows [{}, {}] do not continue at {}", s.first, s.last, at));
        dim = *h, at = s.last;
        auto p = product(*this, s.dims[dim], s.last - s.first);
        if (!p) return p.error();
        parts.emplace_back(s.last - s.first, *p);
      }
      if (dim >= selected.size() || at != selected[dim]) return fail("segments do not end where the dimension does");
    } else {
      auto h = holder(dims, shard);
      if (!h) return fail("the sharded factor '" + shard + "' must be in exactly one dimension");
      if (dims.size() != selected.size()) return fail(fmt::format("dims do not fit a tensor of {} dimensions", selected.size()));
      dim = *h;
      auto p = product(*this, dims[dim], selected[dim]);
      if (!p) return p.error();
      parts.emplace_back(selected[dim], *p);
    }
    int pieces = tp, mine = rank;
    if (const auto count = parts[0].second.sharded; replicate_groups && tp > count) {
      if (tp % count) return fail(fmt::format("tp {} is no multiple of the {} groups", tp, count));
      pieces = static_cast<int>(count), mine = rank / (tp / pieces);
    }
    std::vector<Span> spans;
    std::int64_t begin = 0, local = 0;
    for (const auto& [size, p] : parts) {
      if (p.sharded % pieces) return fail(fmt::format("its factor {} = {} cannot be divided over tp {}", shard, p.sharded, pieces));
      const std::int64_t block = size / p.outer, piece = block / pieces;
      for (std::int64_t o = 0; o < p.outer; ++o) {
        const std::int64_t whole = begin + o * block + mine * piece;
        if (!spans.empty() && spans.back().whole + spans.back().length == whole) spans.back().length += piece;
        else spans.push_back({whole, local, piece});
        local += piece;
      }
      begin += size;
    }
    b.shape[dim] = local;
    b.spans[dim] = std::move(spans);
  }
  if (first_row)
    for (Span& s : b.spans[0]) s.whole += first_row;
  if (pad_dim) {  // what lies past the original's end is padding and is held by no other slice
    std::vector<Span> kept;
    for (Span s : b.spans[*pad_dim]) {
      s.length = std::min(s.length, original[*pad_dim] - s.whole);
      if (s.length > 0) kept.push_back(s);
    }
    b.spans[*pad_dim] = kept;
  }
  return b;
}

Shape Entry::original_shape(const Shape& local, int tp) const {
  if (!shape.empty()) return shape;
  Shape out = local;
  if (!shard.empty()) {
    if (!segments.empty()) {
      if (auto h = holder(segments[0].dims, shard); h && *h < out.size()) out[*h] = segments.back().last;
    } else if (auto h = holder(dims, shard); h && *h < out.size()) {
      auto it = sizes.find(shard);
      out[*h] *= replicate_groups && it != sizes.end() && tp > it->second ? it->second : tp;
    }
  }
  if (rows) out[0] = rows->second;
  return out;
}

Expected<Layouts> Layouts::load(const std::string& path) {
  auto text = support::read_file(path, 64u << 20);
  if (!text) return text.error();
  support::SourceManager sm;
  auto doc = support::yaml::parse(sm, sm.add(path, *text));
  if (!doc) return failure(path + ": " + doc.error().message, {}, "input");
  Layouts out;
  out.text = *text;
  auto tensors = doc->get("tensors");
  if (!tensors || !tensors->is_map()) return failure(path + ": expected a mapping with the key 'tensors'", {}, "input");
  if (auto v = doc->get("stages")) {
    auto n = v->as_int();
    if (!n) return failure(path + ": stages: " + n.error().message, {}, "input");
    out.stages = static_cast<int>(*n);
  }
  for (const auto& [key, value] : tensors->entries()) {
    Entry e;
    e.name = e.source = key.text();
    support::yaml::Reader r(value, e.name);
    if (auto from = r.node("from")) {
      if (from->is_map()) {
        support::yaml::Reader f(*from, "from");
        e.source = f.required<std::string>("name");
        if (auto rows = f.node("rows"); rows && !rows->is_null()) {
          auto two = rows->as_ints();
          if (!two || two->size() != 2) return failure(fmt::format("{}: {}: rows: expected [first, last]", path, e.name), {}, "input");
          e.rows = {(*two)[0], (*two)[1]};
        }
        if (auto error = f.finish()) return failure(path + ": " + e.name + ": " + error->message, {}, "input");
      } else {
        e.source = from->text();
      }
    }
    if (auto d = r.node("dims"); d && d->is_scalar()) e.dims = parse_dims(d->text());
    for (const auto& [k, v] : r.map("sizes")) {
      auto n = v.as_int();
      if (!n) return failure(fmt::format("{}: {}: sizes: {}", path, e.name, n.error().message), {}, "input");
      e.sizes[k.text()] = *n;
    }
    if (auto s = r.node("shard"); s && s->is_scalar()) e.shard = s->text();
    for (const auto& item : r.list("segments")) {
      support::yaml::Reader s(item, "segment");
      s.ignore("dim");
      Entry::Segment segment;
      auto rows = s.node("rows");
      auto two = rows ? rows->as_ints() : Expected<std::vector<std::int64_t>>(std::vector<std::int64_t>{});
      if (!two || two->size() != 2) return failure(fmt::format("{}: {}: a segment needs rows: [first, last]", path, e.name), {}, "input");
      segment.first = (*two)[0], segment.last = (*two)[1];
      segment.dims = parse_dims(s.required<std::string>("dims"));
      if (auto error = s.finish()) return failure(path + ": " + e.name + ": " + error->message, {}, "input");
      e.segments.push_back(std::move(segment));
    }
    for (const auto& [k, v] : r.map("pad")) {
      if (k.text() == "value") {
        auto n = v.as_double();
        if (!n) return failure(fmt::format("{}: {}: pad: {}", path, e.name, n.error().message), {}, "input");
        e.pad_value = *n;
      } else {
        auto n = v.as_int();
        if (!n) return failure(fmt::format("{}: {}: pad: {}", path, e.name, n.error().message), {}, "input");
        e.pad = k.text(), e.padded = *n;
      }
    }
    if (auto t = r.node("tied"); t && !t->is_null()) {
      auto names = t->as_strings();
      if (!names) return failure(fmt::format("{}: {}: tied: {}", path, e.name, names.error().message), {}, "input");
      e.tied = *names;
    }
    if (auto s = r.node("stage"); s && !s->is_null()) {
      if (s->is_list()) {
        auto all = s->as_ints();
        if (!all) return failure(fmt::format("{}: {}: stage: {}", path, e.name, all.error().message), {}, "input");
        for (auto n : *all) e.stages.push_back(static_cast<int>(n));
      } else if (auto n = s->as_int()) {
        e.stages.push_back(static_cast<int>(*n));
      }
    }
    e.buffer = r.optional<std::string>("kind", "") == "buffer";
    e.replicate_groups = r.optional<bool>("replicate_groups", false);
    if (auto s = r.node("shape"); s && s->is_list()) {
      auto all = s->as_ints();
      if (all) e.shape = *all;
    }
    for (const char* k : {"grad_sum", "dtype"}) r.ignore(k);
    if (auto error = r.finish()) return failure(path + ": " + e.name + ": " + error->message, {}, "input");
    out.entries.push_back(std::move(e));
  }
  for (const auto& e : out.entries)
    for (const auto& other : e.tied)
      if (other != e.source) out.alias_[other] = e.source;
  for (const auto& e : out.entries)  // a tied generated name that is cut from another original name
    if (auto it = out.alias_.find(e.name); it != out.alias_.end() && e.source != e.name && !e.rows && e.source != it->second)
      out.alias_.emplace(e.source, it->second);
  return out;
}

std::string Layouts::canonical(std::string original) const {
  std::set<std::string> seen;
  for (auto it = alias_.find(original); it != alias_.end() && it->second != original && seen.insert(original).second;
       it = alias_.find(original))
    original = it->second;
  return original;
}

}  // namespace shardwright::checkpoint
