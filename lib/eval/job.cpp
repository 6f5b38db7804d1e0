// Job files and the mini-language of inputs.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <regex>

#include "eval/impl.h"
#include "eval/run.h"
#include "support/files.h"

namespace shardwright::eval {

using support::Expected;
using support::failure;

namespace {

bool dtype_named(std::string_view s, model::DType& out) {
  using D = model::DType;
  static const std::pair<std::string_view, D> names[] = {
      {"f16", D::F16},     {"bf16", D::BF16},     {"f32", D::F32},     {"f64", D::F64},     {"c64", D::C64},       {"c128", D::C128},
      {"i8", D::I8},       {"u8", D::U8},         {"i16", D::I16},     {"i32", D::I32},     {"i64", D::I64},       {"bool", D::Bool},
      {"float16", D::F16}, {"bfloat16", D::BF16}, {"float32", D::F32}, {"float64", D::F64}, {"complex64", D::C64}, {"int8", D::I8},
      {"uint8", D::U8},    {"int16", D::I16},     {"int32", D::I32},   {"int64", D::I64}};
  for (const auto& [n, d] : names)
    if (n == s) {
      out = d;
      return true;
    }
  return false;
}

std::string trim(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return std::string(s);
}

bool integer(std::string_view s, std::int64_t& out) {
  auto [p, ec] = std::from_chars(s.data(), s.data() + s.size(), out);
  return ec == std::errc() && p == s.data() + s.size() && !s.empty();
}

/// "2m_temperature", "10u": a word that is no number although it begins like one, which no expression does.
bool begins_as_number(const std::string& s) {
  static const std::regex word("[0-9][A-Za-z0-9_.-]*"),
      number("0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|[0-9_]+([.][0-9_]*)?([eE][+-]?[0-9_]+)?[jJ]?");
  return std::regex_match(s, word) && !std::regex_match(s, number) &&
      std::any_of(s.begin(), s.end(), [](unsigned char c) { return std::isalpha(c); });
}

/// A YAML value as a Python expression. Quoted scalars are strings; plain ones are expressions (a bare word that names nothing is a string:
/// see run.cpp).
std::string expression(const YAML::Node& n) {
  if (n.IsNull()) return "None";
  if (n.IsScalar()) {
    const std::string& s = n.Scalar();
    if (n.Tag() == "!") return quote_repr(s);
    if (s == "true") return "True";
    if (s == "false") return "False";
    if (s == "null" || s == "~") return "None";
    return begins_as_number(s) ? quote_repr(s) : s;
  }
  std::string out;
  if (n.IsSequence()) {
    for (const auto& k : n) out += (out.empty() ? "" : ", ") + expression(k);
    return "[" + out + "]";
  }
  for (const auto& kv : n) out += (out.empty() ? "" : ", ") + quote_repr(kv.first.Scalar()) + ": " + expression(kv.second);
  return "{" + out + "}";
}

}  // namespace

Expected<InputSpec> parse_input(std::string_view text) {
  std::string s = trim(text);
  InputSpec in;
  if (s.empty()) return failure("an input is written like 'f32[1,3,224,224]', 'i64[2,16]<128' or '=None'; found nothing", {}, "input");
  if (s[0] == '=') {
    in.expression = trim(s.substr(1));
    return in;
  }
  auto bad = [&](const std::string& why) {
    return failure(
        "input '" + s + "': " + why + " (expected for example 'f32[1,3,224,224]~rand', 'i64[2,16]<128', 'i64[4]2..128' or '=expression')",
        {}, "input");
  };
  std::size_t open = s.find('['), close = s.find(']');
  std::string type = trim(s.substr(0, open));
  if (!dtype_named(type, in.dtype)) return bad("unknown type '" + type + "'; known are f32 f64 bf16 f16 i64 i32 i16 i8 u8 bool c64 c128");
  std::size_t rest = open;
  if (open != std::string::npos) {
    if (close == std::string::npos || close < open) return bad("']' is missing");
    std::string dims = s.substr(open + 1, close - open - 1);
    std::size_t i = 0;
    while (i < dims.size()) {
      std::size_t j = dims.find(',', i);
      std::string d = trim(std::string_view(dims).substr(i, j == std::string::npos ? j : j - i));
      i = j == std::string::npos ? dims.size() : j + 1;
      if (d.empty()) continue;
      bool free = d.back() == '?';
      if (free) d.pop_back();
      std::int64_t n = 1;
      if (!(free && d.empty()) && (!integer(d, n) || n < 1)) return bad("'" + d + "' is not a size (1 or more)");
      in.shape.push_back(n);
      in.free.push_back(free);
    }
    rest = close + 1;
  } else {
    rest = type.size();
  }
  std::string tail = trim(std::string_view(s).substr(std::min(rest, s.size())));
  if (!tail.empty() && tail[0] == '<') {
    if (!integer(trim(tail.substr(1)), in.high)) return bad("bound after '<' is not an integer");
  } else if (!tail.empty() && tail[0] == '~') {
    in.distribution = trim(tail.substr(1));
    if (in.distribution != "normal" && in.distribution != "rand")
      return bad("unknown distribution '" + in.distribution + "'; known are normal and rand");
  } else if (auto d = tail.find(".."); d != std::string::npos) {
    if (!integer(trim(tail.substr(0, d)), in.low) || !integer(trim(tail.substr(d + 2)), in.high))
      return bad("bounds are two integers like 2..128");
  } else if (!tail.empty()) {
    return bad("'" + tail + "' is not understood");
  }
  return in;
}

Expected<Job> parse_job(std::string_view yaml, const std::string& path) {
  Job job;
  YAML::Node root;
  try {
    root = YAML::Load(std::string(yaml));
  } catch (const YAML::Exception& e) {
    return failure(path + ":" + std::to_string(e.mark.line + 1) + ":" + std::to_string(e.mark.column + 1) + ": " + e.msg, {}, "input");
  }
  auto at = [&](const YAML::Node& n) {
    return path + ":" + std::to_string(n.Mark().line + 1) + ":" + std::to_string(n.Mark().column + 1) + ": ";
  };
  if (!root.IsMap()) return failure(path + ": a job file is a mapping with at least 'model'", {}, "input");
  static const std::vector<std::string> known = {"model",  "python_path", "imports", "setup", "build", "args",
                                                 "inputs", "call",        "keyword", "mode",  "seed",  "parallel",
                                                 "target", "train",       "verify",  "out",   "cxx"};
  const std::string folder = support::parent_path(path);
  try {
    for (const auto& kv : root) {
      const std::string key = kv.first.Scalar();
      const YAML::Node& v = kv.second;
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        std::string all;
        for (const auto& k : known) all += (all.empty() ? "" : ", ") + k;
        return failure(at(kv.first) + "unknown key '" + key + "'; known are " + all, {}, "input");
      }
      if (key == "model") job.model = v.as<std::string>();
      else if (key == "python_path") {
        auto add = [&](const std::string& p) {
          job.python_path.push_back(!p.empty() && p[0] == '/' ? p
                                                              : support::normal_path(support::join_path(folder.empty() ? "." : folder, p)));
        };
        if (v.IsScalar()) add(v.as<std::string>());
        else
          for (const auto& p : v) add(p.as<std::string>());
      } else if (key == "imports") {
        for (const auto& i : v) job.imports.emplace_back(i.first.as<std::string>(), i.second.as<std::string>());
      } else if (key == "setup") job.setup = v.IsNull() ? "" : v.as<std::string>();
      else if (key == "build") job.build = v.as<std::string>();
      else if (key == "args") {
        if (!v.IsMap() && !v.IsNull()) return failure(at(v) + "'args' is a mapping from constructor parameter to value", {}, "input");
        for (const auto& i : v) job.args.emplace_back(i.first.as<std::string>(), expression(i.second));
      } else if (key == "inputs") {
        if (!v.IsMap() && !v.IsNull())
          return failure(at(v) + "'inputs' is a mapping from forward's parameter to 'dtype[shape]'", {}, "input");
        for (const auto& i : v) {
          if (!i.second.IsScalar()) return failure(at(i.second) + "an input is text like 'f32[1,3,224,224]'", {}, "input");
          auto spec = parse_input(i.second.as<std::string>());
          if (!spec) return failure(at(i.second) + spec.error().message, {}, "input");
          job.inputs.emplace_back(i.first.as<std::string>(), *spec);
        }
      } else if (key == "call") job.call = v.as<std::string>();
      else if (key == "keyword") job.keyword = v.as<bool>();
      else if (key == "mode") {
        std::string m = v.as<std::string>();
        if (m != "eval" && m != "train") return failure(at(v) + "'mode' is 'eval' or 'train', not '" + m + "'", {}, "input");
        job.train = m == "train";
      } else if (key == "seed") job.seed = v.as<std::int64_t>();
    }
  } catch (const YAML::Exception& e) {
    return failure(path + ":" + std::to_string(e.mark.line + 1) + ":" + std::to_string(e.mark.column + 1) + ": " + e.msg, {}, "input");
  }
  if (job.model.empty()) return failure(path + ": 'model' is missing (for example model: package.module:Class)", {}, "input");
  return job;
}

namespace {
bool shaped(const InputSpec& in) { return in.expression.empty() && !in.shape.empty(); }

bool marked(const Job& job) {
  return std::any_of(job.inputs.begin(), job.inputs.end(), [](const auto& i) {
    return shaped(i.second) && std::find(i.second.free.begin(), i.second.free.end(), true) != i.second.free.end();
  });
}

/// The job with the sizes that may change, changed: the marked ones, otherwise the batch.
template <class F>
Job with_sizes(const Job& job, F&& changed) {
  Job out = job;
  const bool by_mark = marked(job);
  std::int64_t batch = -1;
  for (auto& [name, in] : out.inputs) {
    if (!shaped(in)) continue;
    if (batch < 0) batch = in.shape[0];
    for (std::size_t i = 0; i < in.shape.size(); ++i)
      if (by_mark ? i < in.free.size() && in.free[i] : i == 0 && in.shape[0] == batch) in.shape[i] = changed(in.shape[i]);
  }
  return out;
}
}  // namespace

Job with_batch(const Job& job, std::int64_t k) {
  return with_sizes(job, [&](std::int64_t n) { return n * k; });
}

std::vector<Job> at_other_sizes(const Job& job) {
  std::vector<Job> out{with_batch(job, 3)};
  if (!marked(job)) return out;
  // A sequence may be as long as the model takes already: longer first, then shorter.
  out.push_back(with_batch(job, 2));
  out.push_back(with_sizes(job, [](std::int64_t n) { return n > 1 && n % 2 == 0 ? n / 2 : n * 3; }));
  out.push_back(with_sizes(job, [](std::int64_t n) { return n > 2 ? n - 1 : n * 3; }));
  return out;
}

}  // namespace shardwright::eval
