// einops: rearrange, reduce and repeat become Reshape → permutation (or sum, or expansion) → Reshape, so that the named
// lengths of a pattern are factors like any other.
#include <algorithm>

#include "eval/torch/compute.h"

namespace shardwright::eval::torch {
namespace {

using model::Linearity;
using model::Prim;
using model::SizeArg;

/// "b (h d) ..." → groups of axis names; "..." is an axis of its own name, "1" and "()" are empty groups.
struct Side {
  std::vector<std::vector<std::string>> groups;
  std::vector<char> bare;  ///< beside groups: written without parentheses
};

std::optional<Side> parse(std::string_view text) {
  Side s;
  bool inside = false;
  std::size_t i = 0;
  while (i < text.size()) {
    char ch = text[i];
    if (ch == ' ' || ch == '\t' || ch == '\n') {
      ++i;
    } else if (ch == '(') {
      if (inside) return std::nullopt;
      inside = true;
      s.groups.emplace_back();
      s.bare.push_back(0);
      ++i;
    } else if (ch == ')') {
      if (!inside) return std::nullopt;
      inside = false;
      ++i;
    } else {
      std::size_t end = i;
      while (end < text.size() && text[end] != ' ' && text[end] != '(' && text[end] != ')' && text[end] != '\n' && text[end] != '\t') ++end;
      std::string word(text.substr(i, end - i));
      i = end;
      if (word == "1") {
        if (!inside) {
          s.groups.emplace_back();
          s.bare.push_back(1);
        }
        continue;
      }
      if (inside) {
        s.groups.back().push_back(word);
      } else {
        s.groups.push_back({word});
        s.bare.push_back(1);
      }
    }
  }
  return inside ? std::nullopt : std::optional<Side>(s);
}

struct Length {
  std::int64_t value;
  const model::Sym* sym;
  const program::Expr* expr;
};

[[noreturn]] void fail(Interpreter& in, const std::string& what, const std::string& pattern, const program::Expr* call) {
  in.raise("ValueError", "einops: " + what + " in pattern \"" + pattern + "\"", call);
}

Value transform_known(Domain& d, CallInfo& info, const std::string& which);

Value transform(Domain& d, CallInfo& info, const std::string& which) {
  Value r = transform_known(d, info, which);
  if (r.is_unknown()) d.escape(info);
  return r;
}

Value transform_known(Domain& d, CallInfo& info, const std::string& which) {
  Interpreter& in = d.in;
  auto argument = [&](std::size_t i, const char* name) {
    if (i < info.args.size()) return info.args[i];
    Keyword* k = info.keyword(name);
    return k ? k->value : Value::none();
  };
  Value x = argument(0, "tensor"), pattern_value = argument(1, "pattern");
  std::string how = "rearrange";
  if (which == "reduce") {
    Value r = argument(2, "reduction");
    how = r.is(Kind::Str) ? r.str() : "";
    if (how.empty()) return in.unknown("einops.reduce with a function", info.call);
  }
  if (x.is_unknown()) return x;
  if (x.is(Kind::List) || x.is(Kind::Tuple)) x = d.call_op("torch.stack", {x}, info.call);
  if (!x.is(Kind::Tensor) || !pattern_value.is(Kind::Str))
    return in.unknown("einops." + which + " of something that is not known", info.call);
  const std::string pattern = pattern_value.str();
  std::size_t arrow = pattern.find("->");
  if (arrow == std::string::npos) fail(in, "no \"->\"", pattern, info.call);
  auto left = parse(std::string_view(pattern).substr(0, arrow)), right = parse(std::string_view(pattern).substr(arrow + 2));
  if (!left || !right) fail(in, "unbalanced parentheses", pattern, info.call);
  std::unordered_map<std::string, Length> lengths;
  for (const Keyword& k : info.kwargs) {
    if (k.name == "tensor" || k.name == "pattern" || k.name == "reduction") continue;
    auto n = d.integer(k.value);
    if (!n) return in.unknown("length of an einops axis is not known", info.call);
    lengths[k.name] = {*n, k.value.sym(), k.expr};
  }
  TensorId t = d.id(x);
  const Shape shape = d.shape(t);
  const program::Expr* operand = info.expr(0);
  // "..." takes what the other axes leave.
  std::size_t plain = 0;
  bool dots = false;
  for (std::size_t i = 0; i < left->groups.size(); ++i) {
    const auto& g = left->groups[i];
    bool is_dots = left->bare[i] && g.size() == 1 && g[0] == "...";
    dots = dots || is_dots;
    plain += !is_dots;
  }
  if (dots ? shape.size() < plain : shape.size() != plain)
    fail(in, "the tensor has " + std::to_string(shape.size()) + " dimensions, the left side " + std::to_string(plain), pattern, info.call);
  std::size_t extra = shape.size() - plain;
  auto expand_dots = [&](Side& s) {
    std::vector<std::vector<std::string>> out;
    for (std::size_t k = 0; k < s.groups.size(); ++k) {
      const auto& g = s.groups[k];
      std::vector<std::string> group;
      bool alone = s.bare[k] && g.size() == 1 && g[0] == "...";
      for (auto& a : g) {
        if (a != "...") {
          group.push_back(a);
          continue;
        }
        for (std::size_t i = 0; i < extra; ++i) {
          if (alone) out.push_back({"..." + std::to_string(i)});
          else group.push_back("..." + std::to_string(i));
        }
      }
      if (!alone) out.push_back(group);
    }
    s.groups = std::move(out);
  };
  expand_dots(*left);
  expand_dots(*right);
  // Elementary axes of the left side and their sizes.
  std::vector<std::string> axes;
  Shape sizes;
  std::vector<char> ones;
  bool decompose = false;
  std::vector<SizeArg> named;
  for (std::size_t i = 0; i < left->groups.size(); ++i) {
    const auto& g = left->groups[i];
    if (g.size() != 1) decompose = true;
    std::int64_t known = 1;
    std::string hole;
    for (const auto& a : g) {
      auto at = lengths.find(a);
      if (at != lengths.end()) known *= at->second.value;
      else if (hole.empty()) hole = a;
      else fail(in, "lengths of axes \"" + hole + "\" and \"" + a + "\" are both unknown", pattern, info.call);
    }
    if (known == 0 || shape[i] % known || (hole.empty() && known != shape[i]))
      fail(in, "dimension of size " + std::to_string(shape[i]) + " cannot be cut by lengths whose product is " + std::to_string(known),
           pattern, info.call);
    for (const auto& a : g) {
      if (std::find(axes.begin(), axes.end(), a) != axes.end()) fail(in, "axis \"" + a + "\" occurs twice", pattern, info.call);
      auto at = lengths.find(a);
      if (at != lengths.end())
        named.push_back({SizeArg::Factor, static_cast<int>(axes.size()), {at->second.value}, {at->second.sym}, at->second.expr});
      axes.push_back(a);
      sizes.push_back(a == hole ? shape[i] / known : at->second.value);
      ones.push_back(g.size() == 1 ? d.tensor(t).literal_one[i] : 0);
    }
  }
  Site site = in.site(info.call);
  const std::string name = "einops." + which;
  auto only_user = [&](std::vector<SizeArg> s) {
    if (!site.direct)
      for (auto& a : s) a.expr = nullptr;
    return s;
  };
  if (decompose) {
    t = d.reshape(name, site, t, sizes, ones, only_user(named), operand);
    operand = nullptr;
    named.clear();
  }
  std::vector<std::string> wanted;
  for (const auto& g : right->groups)
    for (const auto& a : g) {
      if (std::find(wanted.begin(), wanted.end(), a) != wanted.end())
        fail(in, "axis \"" + a + "\" occurs twice on the right", pattern, info.call);
      wanted.push_back(a);
    }
  auto index_of = [](const std::vector<std::string>& v, const std::string& a) {
    return static_cast<int>(std::find(v.begin(), v.end(), a) - v.begin());
  };
  // Axes that are gone on the right.
  std::vector<int> gone;
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (std::find(wanted.begin(), wanted.end(), axes[i]) == wanted.end()) gone.push_back(static_cast<int>(i));
    else rest.push_back(axes[i]);
  }
  if (!gone.empty() && (which != "reduce" || how == "repeat"))
    fail(in, "axis \"" + axes[static_cast<std::size_t>(gone[0])] + "\" is missing on the right", pattern, info.call);
  if (which == "reduce" && !gone.empty()) {
    bool sum = how == "sum" || how == "mean";
    t = d.reduce(name, site, t, gone, false, sum ? Linearity::Linear : Linearity::Nonlinear, !sum, how == "mean", how, d.tensor(t).dtype,
                 operand);
    in.trace.ops.back().size_args = only_user(named);
    named.clear();
    operand = nullptr;
  }
  axes = rest;
  // Order of what stays.
  std::vector<int> order;
  for (const auto& a : wanted)
    if (std::find(axes.begin(), axes.end(), a) != axes.end()) order.push_back(index_of(axes, a));
  bool moved = !std::is_sorted(order.begin(), order.end());
  if (moved || !named.empty()) {
    t = d.permute(name, site, t, order, operand);
    in.trace.ops.back().size_args = only_user(named);
    operand = nullptr;
  }
  std::vector<std::string> now;
  for (int i : order) now.push_back(axes[static_cast<std::size_t>(i)]);
  // New axes of repeat.
  if (now != wanted) {
    if (which != "repeat" && how != "repeat") fail(in, "axis on the right that is not on the left", pattern, info.call);
    Build b(d, name, Prim::Labelled, site);
    b.op.linearity = Linearity::Linear;
    std::vector<int> labels = b.fresh(t), out;
    const model::Tensor source = d.tensor(t);
    Out o{{}, source.dtype, {}};
    std::vector<SizeArg> repeats;
    for (const auto& a : wanted) {
      auto at = std::find(now.begin(), now.end(), a);
      if (at != now.end()) {
        std::size_t k = static_cast<std::size_t>(at - now.begin());
        out.push_back(labels[k]);
        o.shape.push_back(source.shape[k]);
        o.ones.push_back(source.literal_one[k]);
        continue;
      }
      auto l = lengths.find(a);
      std::int64_t n = 0;
      if (l != lengths.end()) {
        n = l->second.value;
        repeats.push_back({SizeArg::Factor, static_cast<int>(out.size()), {n}, {l->second.sym}, l->second.expr});
      } else if (!a.empty() && std::all_of(a.begin(), a.end(), [](char ch) { return ch >= '0' && ch <= '9'; })) {
        n = std::stoll(a);
      } else {
        fail(in, "length of axis \"" + a + "\" is not given", pattern, info.call);
      }
      out.push_back(b.label(n));
      o.shape.push_back(n);
      o.ones.push_back(0);
    }
    b.operand(t, "tensor", operand);
    operand = nullptr;
    b.op.size_args = only_user(repeats);
    b.op.in = {labels};
    b.op.out = {out};
    t = b.done({o})[0];
  }
  // Groups of the right side.
  bool compose = false;
  std::vector<int> into;
  for (std::size_t g = 0; g < right->groups.size(); ++g) {
    if (right->groups[g].size() != 1) compose = true;
    into.insert(into.end(), right->groups[g].size(), static_cast<int>(g));
  }
  if (compose) t = d.merge(name, site, t, into, right->groups.size(), operand);
  return t == d.id(x) ? x : d.wrap(t);
}

}  // namespace

void register_einops(Domain& d) {
  d.in.modules.native("einops", [&d](Interpreter& in, ModuleObj& m) {
    for (const char* name : {"rearrange", "reduce", "repeat"})
      in.def(m, name, [&d, name](Interpreter&, CallInfo& info) { return transform(d, info, name); });
    in.def(m, "einsum", [&d](Interpreter& in, CallInfo& info) -> Value {
      // einops puts the pattern last and allows words; letters are mapped here.
      if (info.args.size() < 2 || !info.args.back().is(Kind::Str)) return in.unknown("einops.einsum without a pattern", info.call);
      std::string text = info.args.back().str(), mapped;
      std::unordered_map<std::string, char> letters;
      for (std::size_t i = 0; i < text.size();) {
        if (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_') {
          std::size_t end = i;
          while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
          auto [it, fresh] = letters.emplace(text.substr(i, end - i), static_cast<char>('a' + letters.size()));
          (void)fresh;
          mapped += it->second;
          i = end;
        } else {
          mapped += text[i++];
        }
      }
      CallInfo call;
      call.call = info.call;
      call.add(in.str(mapped));
      for (std::size_t i = 0; i + 1 < info.args.size(); ++i) call.add(info.args[i], info.expr(i));
      return d.call_op("torch.einsum", call);
    });
  });
}

}  // namespace shardwright::eval::torch
