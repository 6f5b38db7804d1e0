// Convolutions, pooling, padding, interpolation: space is needed whole, batch and channels keep their factors.
#include <algorithm>
#include <cmath>

#include "eval/torch/compute.h"

namespace shardwright::eval::torch {
namespace {

using model::Linearity;
using model::Prim;

void block(Build& b, int label, const std::string& why) {
  if (label < 0) return;
  b.op.labels[static_cast<std::size_t>(label)].blocked = true;
  b.op.labels[static_cast<std::size_t>(label)].why = why;
}

/// Trailing digit of conv2d, avg_pool3d, …
std::size_t rank_of(const std::string& name) {
  for (char ch : name)
    if (ch >= '1' && ch <= '3') return static_cast<std::size_t>(ch - '0');
  return 0;
}

struct Geometry {
  Shape kernel, stride, padding, dilation;
};

/// Result of a convolution: `groups` decide how channels relate.
Value conv(Call& c) {
  Domain& d = c.d;
  TensorId x = c.tensor("input"), w = c.tensor("weight");
  const model::Tensor in = d.tensor(x), weight = d.tensor(w);
  std::size_t n = rank_of(last_name(c.name));
  if (weight.shape.size() != n + 2)
    c.in.raise("RuntimeError",
               c.name + ": expected a weight with " + std::to_string(n + 2) + " dimensions, got " + std::to_string(weight.shape.size()),
               c.info.call);
  bool batched = in.shape.size() == n + 2;
  if (!batched && in.shape.size() != n + 1)
    c.in.raise("RuntimeError",
               "Expected " + std::to_string(n + 1) + "D (unbatched) or " + std::to_string(n + 2) + "D (batched) input to " +
                   last_name(c.name) + ", but got input of size: [" + std::to_string(in.shape.size()) + " dimensions]",
               c.info.call);
  std::int64_t groups = c.integer("groups", 1);
  std::size_t ch = batched ? 1 : 0;
  std::int64_t ci = in.shape[ch], co = weight.shape[0];
  if (weight.shape[1] * groups != ci)
    c.in.raise("RuntimeError",
               "Given groups=" + std::to_string(groups) + ", weight of size [" + std::to_string(co) + ", " +
                   std::to_string(weight.shape[1]) + ", …], expected input to have " + std::to_string(weight.shape[1] * groups) +
                   " channels, but got " + std::to_string(ci) + " channels instead",
               c.info.call);
  auto stride = spatial(d, c.arg("stride"), n, 1), dilation = spatial(d, c.arg("dilation"), n, 1);
  std::string mode = c.text("padding", "");
  std::optional<Shape> padding = mode.empty() ? spatial(d, c.arg("padding"), n, 0) : std::optional<Shape>(Shape(n, 0));
  if (!stride || !dilation || !padding) return c.in.unknown("geometry of a convolution is not known", c.info.call);
  Shape out_space;
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t size = in.shape[ch + 1 + i], k = weight.shape[2 + i];
    std::int64_t o = mode == "same" ? (size + (*stride)[i] - 1) / (*stride)[i]
                                    : (size + 2 * (*padding)[i] - (*dilation)[i] * (k - 1) - 1) / (*stride)[i] + 1;
    if (o <= 0) c.in.raise("RuntimeError", "Calculated padded input size per channel is smaller than the kernel size", c.info.call);
    out_space.push_back(o);
  }
  Out out{{}, d.promote({c.arg("input"), c.arg("weight")}), {}};
  if (batched) {
    out.shape.push_back(in.shape[0]);
    out.ones.push_back(in.literal_one[0]);
  }
  out.shape.push_back(co);
  out.ones.push_back(0);
  for (auto s : out_space) {
    out.shape.push_back(s);
    out.ones.push_back(0);
  }
  double per_output = static_cast<double>(weight.shape[1]);
  for (std::size_t i = 0; i < n; ++i) per_output *= static_cast<double>(weight.shape[2 + i]);
  double flops = 2 * count_of(out.shape) * per_output;
  bool depthwise = groups > 1 && groups == ci && co == ci;
  if (groups > 1 && !depthwise) {
    // Groups tie input to output channels in a way that no single label says.
    std::vector<TensorId> ids = {x, w};
    if (c.has("bias")) ids.push_back(c.tensor("bias"));
    Value v = d.wrap(d.opaque(c.name, c.site, ids, out, "grouped convolution"));
    c.in.trace.ops.back().flops = flops;
    return v;
  }
  Build b = c.build(Prim::Labelled);
  std::vector<int> ix, iw, io;
  if (batched) {
    int l = in.shape[0] == 1 && in.literal_one[0] ? -1 : b.label(in.shape[0]);
    ix.push_back(l);
    io.push_back(l);
  }
  int lo = b.label(co);
  int li = depthwise ? lo : b.label(ci);
  ix.push_back(li);
  io.push_back(lo);
  iw = {lo, depthwise ? -1 : li};
  for (std::size_t i = 0; i < n; ++i) {
    ix.push_back(b.label(in.shape[ch + 1 + i], true, "convolution"));
    iw.push_back(b.label(weight.shape[2 + i], true, "convolution"));
    io.push_back(b.label(out_space[i], true, "convolution"));
  }
  b.operand(x, "input", c.expr("input"));
  b.operand(w, "weight", c.expr("weight"));
  b.op.in = {ix, iw};
  if (c.has("bias")) {
    b.operand(c.tensor("bias"), "bias", c.expr("bias"), true);
    b.op.in.push_back({lo});
  }
  b.op.out = {io};
  b.op.flops = flops;
  // One group a channel: on part of the channels the number of groups is another.
  if (depthwise) b.op.size_args.push_back({model::SizeArg::Dim, static_cast<int>(ch), {groups}, {c.arg("groups").sym()}, c.expr("groups")});
  return d.wrap(b.done({out})[0]);
}

Value conv_transpose(Call& c) {
  Domain& d = c.d;
  TensorId x = c.tensor("input"), w = c.tensor("weight");
  const model::Tensor in = d.tensor(x), weight = d.tensor(w);
  std::size_t n = rank_of(last_name(c.name));
  bool batched = in.shape.size() == n + 2;
  if (!batched && in.shape.size() != n + 1)
    c.in.raise("RuntimeError", "Expected " + std::to_string(n + 2) + "D input to " + last_name(c.name), c.info.call);
  std::int64_t groups = c.integer("groups", 1);
  std::size_t ch = batched ? 1 : 0;
  std::int64_t ci = in.shape[ch], co = weight.shape[1] * groups;
  if (weight.shape[0] != ci)
    c.in.raise("RuntimeError",
               "Given transposed=1, weight of size [" + std::to_string(weight.shape[0]) + ", …], expected input to have " +
                   std::to_string(weight.shape[0]) + " channels, but got " + std::to_string(ci) + " channels instead",
               c.info.call);
  auto stride = spatial(d, c.arg("stride"), n, 1), dilation = spatial(d, c.arg("dilation"), n, 1),
       padding = spatial(d, c.arg("padding"), n, 0), extra = spatial(d, c.arg("output_padding"), n, 0);
  if (!stride || !dilation || !padding || !extra) return c.in.unknown("geometry of a convolution is not known", c.info.call);
  Out out{{}, in.dtype, {}};
  if (batched) {
    out.shape.push_back(in.shape[0]);
    out.ones.push_back(in.literal_one[0]);
  }
  out.shape.push_back(co);
  out.ones.push_back(0);
  double kernel = 1;
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t k = weight.shape[2 + i];
    kernel *= static_cast<double>(k);
    out.shape.push_back((in.shape[ch + 1 + i] - 1) * (*stride)[i] - 2 * (*padding)[i] + (*dilation)[i] * (k - 1) + (*extra)[i] + 1);
    out.ones.push_back(0);
  }
  double flops = 2 * count_of(in.shape) * static_cast<double>(weight.shape[1]) * kernel;
  if (groups > 1) {
    std::vector<TensorId> ids = {x, w};
    if (c.has("bias")) ids.push_back(c.tensor("bias"));
    Value v = d.wrap(d.opaque(c.name, c.site, ids, out, "grouped convolution"));
    c.in.trace.ops.back().flops = flops;
    return v;
  }
  Build b = c.build(Prim::Labelled);
  std::vector<int> ix, iw, io;
  if (batched) {
    int l = in.shape[0] == 1 && in.literal_one[0] ? -1 : b.label(in.shape[0]);
    ix.push_back(l);
    io.push_back(l);
  }
  int li = b.label(ci), lo = b.label(co);
  ix.push_back(li);
  io.push_back(lo);
  iw = {li, lo};
  for (std::size_t i = 0; i < n; ++i) {
    ix.push_back(b.label(in.shape[ch + 1 + i], true, "convolution"));
    iw.push_back(b.label(weight.shape[2 + i], true, "convolution"));
    io.push_back(b.label(out.shape[ch + 1 + i], true, "convolution"));
  }
  b.operand(x, "input", c.expr("input"));
  b.operand(w, "weight", c.expr("weight"));
  b.op.in = {ix, iw};
  if (c.has("bias")) {
    b.operand(c.tensor("bias"), "bias", c.expr("bias"), true);
    b.op.in.push_back({lo});
  }
  b.op.out = {io};
  b.op.flops = flops;
  return d.wrap(b.done({out})[0]);
}

/// Changes the last `n` dimensions to `space`; the others keep their labels.
TensorId respaced(Call& c, TensorId t, const Shape& space) {
  Shape s = c.d.shape(t);
  std::vector<int> whole;
  for (std::size_t i = 0; i < space.size(); ++i) {
    std::size_t at = s.size() - space.size() + i;
    whole.push_back(static_cast<int>(at));
    s[at] = space[i];
  }
  return resized(c, t, whole, s);
}

Value pool_of(Call& c, bool norm_type) {
  TensorId t = c.tensor("input");
  std::size_t n = rank_of(last_name(c.name));
  const Shape s = c.d.shape(t);
  auto kernel = spatial(c.d, c.arg("kernel_size"), n, 1);
  if (!kernel || s.size() < n) return c.in.unknown("kernel of a pooling is not known", c.info.call);
  // An empty stride means the kernel's size.
  bool own = c.has("stride") &&
      !(c.arg("stride").is_object() && (c.arg("stride").is(Kind::Tuple) || c.arg("stride").is(Kind::List)) &&
        c.arg("stride").as<SeqObj>()->items.empty());
  auto stride = own ? spatial(c.d, c.arg("stride"), n, 1) : kernel;
  auto padding = norm_type ? std::optional<Shape>(Shape(n, 0)) : spatial(c.d, c.arg("padding"), n, 0);
  auto dilation = c.signature.index("dilation") >= 0 ? spatial(c.d, c.arg("dilation"), n, 1) : std::optional<Shape>(Shape(n, 1));
  if (!stride || !padding || !dilation) return c.in.unknown("geometry of a pooling is not known", c.info.call);
  bool up = c.flag("ceil_mode", false);
  Shape space;
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t size = s[s.size() - n + i], span = size + 2 * (*padding)[i] - (*dilation)[i] * ((*kernel)[i] - 1) - 1;
    std::int64_t o = (up ? (span + (*stride)[i] - 1) / (*stride)[i] : span / (*stride)[i]) + 1;
    if (up && (o - 1) * (*stride)[i] >= size + (*padding)[i]) --o;
    space.push_back(o);
  }
  TensorId r = respaced(c, t, space);
  if (c.flag("return_indices", false))
    return c.in.tuple({c.d.wrap(r), c.d.wrap(c.d.opaque(c.name, c.site, {t}, {c.d.shape(r), DType::I64, {}}, "indices of a pooling"))});
  return c.d.wrap(r);
}
Value pool(Call& c) { return pool_of(c, false); }
Value lp_pool(Call& c) { return pool_of(c, true); }

Value adaptive_pool(Call& c) {
  TensorId t = c.tensor("input");
  std::size_t n = rank_of(last_name(c.name));
  Shape s = c.d.shape(t), space;
  Value given = c.arg("output_size");
  std::vector<Value> items(n, given);
  if (given.is(Kind::Tuple) || given.is(Kind::List)) items = std::vector<Value>(given.as<SeqObj>()->items);
  if (items.size() == 1) items.assign(n, items[0]);
  for (std::size_t i = 0; i < n && i < items.size(); ++i) {
    if (items[i].is_none()) {
      space.push_back(s[s.size() - n + i]);
      continue;
    }
    auto k = c.d.integer(items[i]);
    if (!k) return c.in.unknown("output size of a pooling is not known", c.info.call);
    space.push_back(*k);
  }
  TensorId r = respaced(c, t, space);
  if (c.flag("return_indices", false))
    return c.in.tuple({c.d.wrap(r), c.d.wrap(c.d.opaque(c.name, c.site, {t}, {c.d.shape(r), DType::I64, {}}, "indices of a pooling"))});
  return c.d.wrap(r);
}

Value interpolate(Call& c) {
  TensorId t = c.tensor("input");
  const Shape s = c.d.shape(t);
  if (s.size() < 3) c.in.raise("ValueError", "interpolate: input must have batch, channels and space", c.info.call);
  std::size_t n = s.size() - 2;
  Shape space;
  if (c.has("size")) {
    auto size = spatial(c.d, c.arg("size"), n, 1);
    if (!size) return c.in.unknown("size of an interpolation is not known", c.info.call);
    space = *size;
  } else {
    Value f = c.arg("scale_factor");
    std::vector<double> factors;
    if (f.is(Kind::Tuple) || f.is(Kind::List))
      for (const Value& v : f.as<SeqObj>()->items) factors.push_back(c.d.number(v).value_or(0));
    else factors.assign(n, c.d.number(f).value_or(0));
    if (factors.size() != n || std::find(factors.begin(), factors.end(), 0.0) != factors.end())
      return c.in.unknown("scale of an interpolation is not known", c.info.call);
    for (std::size_t i = 0; i < n; ++i) space.push_back(static_cast<std::int64_t>(std::floor(static_cast<double>(s[2 + i]) * factors[i])));
  }
  return c.d.wrap(respaced(c, t, space));
}

Value grid_sample(Call& c) {
  TensorId t = c.tensor("input"), g = c.tensor("grid");
  const model::Tensor in = c.d.tensor(t), grid = c.d.tensor(g);
  Build b = c.build(Prim::Labelled);
  std::vector<int> ix = b.fresh(t), ig(grid.shape.size(), -1), out = {ix[0], ix[1]};
  Shape s = {in.shape[0], in.shape[1]};
  ig[0] = ix[0];
  for (std::size_t i = 2; i < ix.size(); ++i) block(b, ix[i], "sampling");
  for (std::size_t i = 1; i < grid.shape.size(); ++i) {
    ig[i] = b.label(grid.shape[i], true, "sampling");
    if (i + 1 < grid.shape.size()) {
      out.push_back(ig[i]);
      s.push_back(grid.shape[i]);
    }
  }
  b.operand(t, "input", c.expr("input"));
  b.operand(g, "grid", c.expr("grid"));
  b.op.in = {ix, ig};
  b.op.out = {out};
  return c.d.wrap(b.done({{s, in.dtype, {}}})[0]);
}

Value affine_grid(Call& c) {
  auto size = c.d.integers(c.arg("size"));
  TensorId t = c.tensor("theta");
  if (!size || size->size() < 3) return c.in.unknown("size of affine_grid is not known", c.info.call);
  Shape s = {(*size)[0]};
  s.insert(s.end(), size->begin() + 2, size->end());
  s.push_back(static_cast<std::int64_t>(size->size()) - 2);
  return c.d.wrap(c.d.opaque(c.name, c.site, {t}, {s, c.d.tensor(t).dtype, {}}, "affine grid"));
}

Value pad(Call& c) {
  TensorId t = c.tensor("input");
  Shape s = c.d.shape(t);
  auto amounts = c.d.integers(c.arg("pad"));
  if (!amounts) return c.in.unknown("padding is not known", c.info.call);
  std::vector<int> whole;
  for (std::size_t i = 0; 2 * i + 1 < amounts->size() && i < s.size(); ++i) {
    std::size_t at = s.size() - 1 - i;
    std::int64_t before = (*amounts)[2 * i], after = (*amounts)[2 * i + 1];
    if (before == 0 && after == 0) continue;
    whole.push_back(static_cast<int>(at));
    s[at] += before + after;
  }
  // Nothing is added: the same tensor in new memory.
  if (whole.empty()) return c.d.wrap(c.d.keep(c, t, {}, {c.d.tensor(t).dtype})[0]);
  TensorId r = resized(c, t, whole, s);
  auto value = c.d.number(c.arg("value"));
  if (value && *value != 0) c.in.trace.ops.back().linearity = Linearity::Nonlinear;
  return c.d.wrap(r);
}

/// (b, c·r², h, w) → (b, c, h·r, w·r): the channels' outer factor goes on.
Value pixel_shuffle(Call& c) {
  TensorId t = c.tensor("input");
  const Shape s = c.d.shape(t);
  std::int64_t r = c.integer("upscale_factor", 1);
  if (s.size() < 3 || r <= 0 || s[s.size() - 3] % (r * r))
    c.in.raise("RuntimeError", "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor",
               c.info.call);
  Shape lead(s.begin(), s.end() - 3);
  std::int64_t ch = s[s.size() - 3] / (r * r), h = s[s.size() - 2], w = s[s.size() - 1];
  Shape split = lead, target = lead;
  split.insert(split.end(), {ch, r, r, h, w});
  target.insert(target.end(), {ch, h * r, w * r});
  TensorId x = c.d.reshape(c.name, c.site, t, split, {}, {}, c.expr("input"));
  int o = static_cast<int>(lead.size());
  std::vector<int> order;
  for (int i = 0; i < o; ++i) order.push_back(i);
  for (int i : {0, 3, 1, 4, 2}) order.push_back(o + i);
  x = c.d.permute(c.name, c.site, x, order);
  return c.d.wrap(c.d.reshape(c.name, c.site, x, target));
}

Value pixel_unshuffle(Call& c) {
  TensorId t = c.tensor("input");
  const Shape s = c.d.shape(t);
  std::int64_t r = c.integer("downscale_factor", 1);
  if (s.size() < 3 || r <= 0 || s[s.size() - 1] % r || s[s.size() - 2] % r)
    c.in.raise("RuntimeError", "pixel_unshuffle expects height and width to be divisible by downscale_factor", c.info.call);
  Shape lead(s.begin(), s.end() - 3);
  std::int64_t ch = s[s.size() - 3], h = s[s.size() - 2] / r, w = s[s.size() - 1] / r;
  Shape split = lead, target = lead;
  split.insert(split.end(), {ch, h, r, w, r});
  target.insert(target.end(), {ch * r * r, h, w});
  TensorId x = c.d.reshape(c.name, c.site, t, split, {}, {}, c.expr("input"));
  int o = static_cast<int>(lead.size());
  std::vector<int> order;
  for (int i = 0; i < o; ++i) order.push_back(i);
  for (int i : {0, 2, 4, 1, 3}) order.push_back(o + i);
  x = c.d.permute(c.name, c.site, x, order);
  return c.d.wrap(c.d.reshape(c.name, c.site, x, target));
}

/// F.unfold: (b, c, h, w) → (b, c·kh·kw, L).
Value im2col(Call& c) {
  TensorId t = c.tensor("input");
  const model::Tensor in = c.d.tensor(t);
  auto k = spatial(c.d, c.arg("kernel_size"), 2, 1), dil = spatial(c.d, c.arg("dilation"), 2, 1), p = spatial(c.d, c.arg("padding"), 2, 0),
       st = spatial(c.d, c.arg("stride"), 2, 1);
  if (!k || !dil || !p || !st || in.shape.size() != 4) return c.in.unknown("geometry of unfold is not known", c.info.call);
  std::int64_t positions = 1;
  for (std::size_t i = 0; i < 2; ++i) positions *= (in.shape[2 + i] + 2 * (*p)[i] - (*dil)[i] * ((*k)[i] - 1) - 1) / (*st)[i] + 1;
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(t);
  block(b, labels[2], "unfold");
  block(b, labels[3], "unfold");
  int lk = b.label((*k)[0] * (*k)[1], true, "unfold"), lp = b.label(positions, true, "unfold");
  b.operand(t, "input", c.expr("input"));
  b.op.in = {labels};
  b.op.out = {{labels[0], labels[1], lk, lp}};
  TensorId r = b.done({{{in.shape[0], in.shape[1], (*k)[0] * (*k)[1], positions}, in.dtype, {}}})[0];
  return c.d.wrap(c.d.reshape(c.name, c.site, r, {in.shape[0], in.shape[1] * (*k)[0] * (*k)[1], positions}));
}

Value col2im(Call& c) {
  TensorId t = c.tensor("input");
  const model::Tensor in = c.d.tensor(t);
  auto k = spatial(c.d, c.arg("kernel_size"), 2, 1), size = spatial(c.d, c.arg("output_size"), 2, 1);
  if (!k || !size || in.shape.size() != 3) return c.in.unknown("geometry of fold is not known", c.info.call);
  std::int64_t area = (*k)[0] * (*k)[1], ch = in.shape[1] / area;
  TensorId x = c.d.reshape(c.name, c.site, t, {in.shape[0], ch, area, in.shape[2]}, {}, {}, c.expr("input"));
  Build b = c.build(Prim::Labelled);
  std::vector<int> labels = b.fresh(x);
  block(b, labels[2], "fold");
  block(b, labels[3], "fold");
  int lh = b.label((*size)[0], true, "fold"), lw = b.label((*size)[1], true, "fold");
  b.operand(x, "input");
  b.op.in = {labels};
  b.op.out = {{labels[0], labels[1], lh, lw}};
  return c.d.wrap(b.done({{{in.shape[0], ch, (*size)[0], (*size)[1]}, in.dtype, {}}})[0]);
}

}  // namespace

Table spatial_functions() {
  return {{"conv", conv},
          {"conv_transpose", conv_transpose},
          {"pool", pool},
          {"lp_pool", lp_pool},
          {"adaptive_pool", adaptive_pool},
          {"interpolate", interpolate},
          {"grid_sample", grid_sample},
          {"affine_grid", affine_grid},
          {"pad", pad},
          {"pixel_shuffle", pixel_shuffle},
          {"pixel_unshuffle", pixel_unshuffle},
          {"im2col", im2col},
          {"col2im", col2im}};
}

}  // namespace shardwright::eval::torch
