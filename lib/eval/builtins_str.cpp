// str and bytes.
#include <algorithm>

#include "eval/impl.h"

namespace shardwright::eval {

namespace {

bool space(char c) { return isspace(static_cast<unsigned char>(c)) != 0; }

std::string strip(const std::string& s, const std::string& chars, bool left, bool right) {
  auto hit = [&](char c) { return chars.empty() ? space(c) : chars.find(c) != std::string::npos; };
  std::size_t b = 0, e = s.size();
  while (left && b < e && hit(s[b])) ++b;
  while (right && e > b && hit(s[e - 1])) --e;
  return s.substr(b, e - b);
}

std::string mapped(std::string s, int (*f)(int)) {
  for (char& c : s) c = static_cast<char>(f(static_cast<unsigned char>(c)));
  return s;
}

/// "{0.a[1]!r:>{w}}" with the arguments of str.format.
Value str_format(In& in, const std::string& f, CallInfo& info) {
  std::string out;
  std::size_t automatic = 1;  // args[0] is the string
  for (std::size_t i = 0; i < f.size(); ++i) {
    char c = f[i];
    if (c == '{' && i + 1 < f.size() && f[i + 1] == '{') {
      out += '{';
      ++i;
      continue;
    }
    if (c == '}') {
      if (i + 1 < f.size() && f[i + 1] == '}') ++i;
      out += '}';
      continue;
    }
    if (c != '{') {
      out += c;
      continue;
    }
    int depth = 1;
    std::size_t j = i + 1;
    for (; j < f.size() && depth; ++j) {
      if (f[j] == '{') ++depth;
      if (f[j] == '}') --depth;
    }
    if (depth) in.raise("ValueError", "expected '}' before end of string");
    std::string field = f.substr(i + 1, j - i - 2);
    i = j - 1;
    std::size_t k = 0;
    int br = 0;
    for (; k < field.size(); ++k) {
      if (field[k] == '[') ++br;
      if (field[k] == ']') --br;
      if (!br && (field[k] == '!' || field[k] == ':')) break;
    }
    std::string name = field.substr(0, k), conv, spec;
    if (k < field.size() && field[k] == '!') {
      conv = field.substr(k + 1, 1);
      k += 2;
    }
    if (k < field.size() && field[k] == ':') spec = field.substr(k + 1);
    std::size_t e = name.find_first_of(".[");
    std::string first = name.substr(0, e), rest = e == std::string::npos ? "" : name.substr(e);
    auto arg = [&](std::size_t at) {
      if (at >= info.args.size())
        in.raise("IndexError", "Replacement index " + std::to_string(at - 1) + " out of range for positional args tuple");
      return info.args[at];
    };
    auto find = [&](const std::string& n) -> Value {
      if (n.empty()) return arg(automatic++);
      if (isdigit(static_cast<unsigned char>(n[0]))) return arg(1 + static_cast<std::size_t>(std::atoi(n.c_str())));
      if (auto* kw = info.keyword(n)) return kw->value;
      in.raise_value(in.call(in.builtin_class("KeyError"), {in.str(n)}));
    };
    Value v = find(first);
    while (!rest.empty()) {
      if (rest[0] == '.') {
        std::size_t n = rest.find_first_of(".[", 1);
        v = in.getattr(v, rest.substr(1, n == std::string::npos ? n : n - 1));
        rest = n == std::string::npos ? "" : rest.substr(n);
      } else {
        std::size_t n = rest.find(']');
        std::string key = rest.substr(1, n - 1);
        v = in.getitem(v,
                       !key.empty() && isdigit(static_cast<unsigned char>(key[0])) ? Value::integer(std::atoi(key.c_str())) : in.str(key));
        rest = n == std::string::npos ? "" : rest.substr(n + 1);
      }
    }
    for (std::size_t b = spec.find('{'); b != std::string::npos; b = spec.find('{')) {
      std::size_t q = spec.find('}', b);
      if (q == std::string::npos) break;
      spec.replace(b, q - b + 1, in.to_str(find(spec.substr(b + 1, q - b - 1))));
    }
    if (v.is_unknown()) return v;
    if (conv == "r" || conv == "a") v = in.str(in.to_repr(v));
    if (conv == "s") v = in.str(in.to_str(v));
    out += in.format(v, spec);
  }
  return in.str(out);
}

const std::string& text_arg(In& in, CallInfo& c, std::size_t i) {
  if (i >= c.args.size()) in.raise("TypeError", "expected at least " + std::to_string(i) + " argument", c.call);
  if (!c.args[i].is(Kind::Str) && !c.args[i].is(Kind::Bytes))
    in.raise("TypeError", "expected str, not " + in.type_of(c.args[i])->name, c.call);
  return c.args[i].str();
}

Value keyword_or(CallInfo& c, std::size_t i, const char* name, Value dflt) {
  if (i < c.args.size()) return c.args[i];
  if (auto* k = c.keyword(name)) return k->value;
  return dflt;
}

}  // namespace

void register_str(Interpreter& in) {
  auto& m = *in.impl();
  for (ClassObj* cls : {m.str_, m.bytes_}) {
    Kind kind = cls == m.str_ ? Kind::Str : Kind::Bytes;
    auto put = [&in, cls, kind](const char* name, std::function<Value(In&, CallInfo&, const std::string&)> f) {
      in.method(cls, name, [f, kind, name](In& i, CallInfo& c) -> Value {
        // A subclass instance that is not stored as text (enum members with a str base) has its value inside.
        if (c.args.empty()) i.raise("TypeError", std::string("unbound method ") + name + "() needs an argument", c.call);
        for (const auto& a : c.args)
          if (a.is_unknown()) return a;
        if (!c.args[0].is(kind))
          i.raise("TypeError",
                  std::string("descriptor '") + name + "' requires a 'str' object but received a '" + i.type_of(c.args[0])->name + "'",
                  c.call);
        return f(i, c, c.args[0].str());
      });
    };
    auto same = [kind](In& i, std::string s) -> Value { return i.make<StrObj>(std::move(s), kind); };
    put("upper", [same](In& i, CallInfo&, const std::string& s) { return same(i, mapped(s, toupper)); });
    put("lower", [same](In& i, CallInfo&, const std::string& s) { return same(i, mapped(s, tolower)); });
    put("casefold", [same](In& i, CallInfo&, const std::string& s) { return same(i, mapped(s, tolower)); });
    put("capitalize", [same](In& i, CallInfo&, const std::string& s) {
      auto t = mapped(s, tolower);
      if (!t.empty()) t[0] = static_cast<char>(toupper(t[0]));
      return same(i, t);
    });
    put("title", [same](In& i, CallInfo&, const std::string& s) {
      auto t = mapped(s, tolower);
      bool word = false;
      for (char& c : t) {
        bool a = isalpha(static_cast<unsigned char>(c)) != 0;
        if (a && !word) c = static_cast<char>(toupper(c));
        word = a;
      }
      return same(i, t);
    });
    put("swapcase", [same](In& i, CallInfo&, const std::string& s) {
      auto t = s;
      for (char& c : t) c = static_cast<char>(isupper(static_cast<unsigned char>(c)) ? tolower(c) : toupper(c));
      return same(i, t);
    });
    for (int side = 0; side < 3; ++side)
      put(side == 0       ? "strip"
              : side == 1 ? "lstrip"
                          : "rstrip",
          [same, side](In& i, CallInfo& c, const std::string& s) {
            std::string chars = c.args.size() > 1 && !c.args[1].is_none() ? text_arg(i, c, 1) : "";
            return same(i, strip(s, chars, side != 2, side != 1));
          });
    for (bool right : {false, true})
      put(right ? "rsplit" : "split", [same, right](In& i, CallInfo& c, const std::string& s) {
        Value sep = keyword_or(c, 1, "sep", Value::none()), max = keyword_or(c, 2, "maxsplit", Value::integer(-1));
        std::int64_t left = i.to_int(max);
        std::vector<std::string> parts;
        if (sep.is_none()) {
          std::size_t p = 0;
          std::vector<std::pair<std::size_t, std::size_t>> words;
          while (p < s.size()) {
            while (p < s.size() && space(s[p])) ++p;
            std::size_t b = p;
            while (p < s.size() && !space(s[p])) ++p;
            if (p > b) words.emplace_back(b, p);
          }
          if (left < 0 || words.size() <= static_cast<std::size_t>(left) + 1) {
            for (auto& w : words) parts.push_back(s.substr(w.first, w.second - w.first));
          } else if (!right) {
            for (std::size_t k = 0; k < static_cast<std::size_t>(left); ++k)
              parts.push_back(s.substr(words[k].first, words[k].second - words[k].first));
            parts.push_back(strip(s.substr(words[static_cast<std::size_t>(left)].first), "", false, true));
          } else {
            std::size_t keep = words.size() - static_cast<std::size_t>(left);
            parts.push_back(s.substr(words[0].first, words[keep - 1].second - words[0].first));
            for (std::size_t k = keep; k < words.size(); ++k) parts.push_back(s.substr(words[k].first, words[k].second - words[k].first));
          }
        } else {
          const std::string& d = sep.str();
          if (d.empty()) i.raise("ValueError", "empty separator", c.call);
          if (!right) {
            std::size_t p = 0;
            while (left != 0) {
              std::size_t q = s.find(d, p);
              if (q == std::string::npos) break;
              parts.push_back(s.substr(p, q - p));
              p = q + d.size();
              --left;
            }
            parts.push_back(s.substr(p));
          } else {
            std::size_t e = s.size();
            while (left != 0 && e >= d.size()) {
              std::size_t q = s.rfind(d, e - d.size());
              if (q == std::string::npos) break;
              parts.insert(parts.begin(), s.substr(q + d.size(), e - q - d.size()));
              e = q;
              --left;
              if (q == 0) { break; }
            }
            parts.insert(parts.begin(), s.substr(0, e));
          }
        }
        std::vector<Value> out;
        for (auto& p : parts) out.push_back(same(i, p));
        return i.list(std::move(out));
      });
    put("splitlines", [same](In& i, CallInfo&, const std::string& s) {
      std::vector<Value> out;
      std::size_t p = 0;
      while (p < s.size()) {
        std::size_t q = s.find('\n', p);
        out.push_back(same(i, s.substr(p, q == std::string::npos ? q : q - p)));
        if (q == std::string::npos) break;
        p = q + 1;
      }
      return i.list(std::move(out));
    });
    put("join", [same](In& i, CallInfo& c, const std::string& s) -> Value {
      std::string out;
      bool first = true;
      for (const auto& x : i.to_vector(c.args.at(1), c.call)) {
        if (x.is_unknown()) return x;
        if (!x.is(Kind::Str) && !x.is(Kind::Bytes))
          i.raise("TypeError",
                  "sequence item " + std::to_string(first ? 0 : 1) + ": expected str instance, " + i.type_of(x)->name + " found", c.call);
        if (!first) out += s;
        first = false;
        out += x.str();
      }
      return same(i, out);
    });
    for (bool end : {false, true})
      put(end ? "endswith" : "startswith", [end](In& i, CallInfo& c, const std::string& whole) {
        auto bound = [&](std::size_t k, std::int64_t dflt) {
          std::int64_t n = static_cast<std::int64_t>(whole.size()),
                       v = c.args.size() > k && !c.args[k].is_none() ? i.to_int(c.args[k]) : dflt;
          return std::clamp<std::int64_t>(v < 0 ? v + n : v, 0, n);
        };
        std::int64_t from = bound(2, 0), to = bound(3, static_cast<std::int64_t>(whole.size()));
        const std::string s = whole.substr(static_cast<std::size_t>(from), static_cast<std::size_t>(std::max<std::int64_t>(0, to - from)));
        auto test = [&](const std::string& t) {
          return t.size() <= s.size() && s.compare(end ? s.size() - t.size() : 0, t.size(), t) == 0;
        };
        if (c.args.size() > 1 && c.args[1].is(Kind::Tuple)) {
          for (const auto& x : c.args[1].as<SeqObj>()->items)
            if (x.is(Kind::Str) && test(x.str())) return Value::boolean(true);
          return Value::boolean(false);
        }
        return Value::boolean(test(text_arg(i, c, 1)));
      });
    put("removeprefix", [same](In& i, CallInfo& c, const std::string& s) {
      const auto& t = text_arg(i, c, 1);
      return same(i, s.compare(0, t.size(), t) == 0 ? s.substr(t.size()) : s);
    });
    put("removesuffix", [same](In& i, CallInfo& c, const std::string& s) {
      const auto& t = text_arg(i, c, 1);
      return same(
          i, !t.empty() && t.size() <= s.size() && s.compare(s.size() - t.size(), t.size(), t) == 0 ? s.substr(0, s.size() - t.size()) : s);
    });
    put("replace", [same](In& i, CallInfo& c, const std::string& s) {
      const auto &a = text_arg(i, c, 1), &b = text_arg(i, c, 2);
      std::int64_t left = c.args.size() > 3 ? i.to_int(c.args[3]) : -1;
      std::string out;
      std::size_t p = 0;
      while (!a.empty() && left != 0) {
        std::size_t q = s.find(a, p);
        if (q == std::string::npos) break;
        out += s.substr(p, q - p) + b;
        p = q + a.size();
        --left;
      }
      return same(i, out + s.substr(p));
    });
    for (int which = 0; which < 4; ++which)
      put(which == 0       ? "find"
              : which == 1 ? "rfind"
              : which == 2 ? "index"
                           : "rindex",
          [which](In& i, CallInfo& c, const std::string& s) {
            const auto& t = text_arg(i, c, 1);
            std::size_t from =
                c.args.size() > 2 && c.args[2].is_integral() ? static_cast<std::size_t>(std::max<std::int64_t>(0, c.args[2].as_int())) : 0;
            std::size_t p = which % 2 ? s.rfind(t) : s.find(t, from);
            if (p == std::string::npos && which >= 2) i.raise("ValueError", "substring not found", c.call);
            return Value::integer(p == std::string::npos ? -1 : static_cast<std::int64_t>(p));
          });
    put("count", [](In& i, CallInfo& c, const std::string& s) {
      const auto& t = text_arg(i, c, 1);
      std::int64_t n = 0;
      if (t.empty()) return Value::integer(static_cast<std::int64_t>(s.size()) + 1);
      for (std::size_t p = s.find(t); p != std::string::npos; p = s.find(t, p + t.size())) ++n;
      return Value::integer(n);
    });
    for (bool right : {false, true})
      put(right ? "rpartition" : "partition", [same, right](In& i, CallInfo& c, const std::string& s) {
        const auto& t = text_arg(i, c, 1);
        std::size_t p = right ? s.rfind(t) : s.find(t);
        if (p == std::string::npos)
          return right ? i.tuple({same(i, ""), same(i, ""), same(i, s)}) : i.tuple({same(i, s), same(i, ""), same(i, "")});
        return i.tuple({same(i, s.substr(0, p)), same(i, t), same(i, s.substr(p + t.size()))});
      });
    auto all = [&](const char* name, int (*f)(int)) {
      put(name, [f](In&, CallInfo&, const std::string& s) {
        return Value::boolean(!s.empty() && std::all_of(s.begin(), s.end(), [&](char c) { return f(static_cast<unsigned char>(c)) != 0; }));
      });
    };
    all("isdigit", isdigit);
    all("isnumeric", isdigit);
    all("isdecimal", isdigit);
    all("isalpha", isalpha);
    all("isalnum", isalnum);
    all("isspace", isspace);
    put("isupper", [](In&, CallInfo&, const std::string& s) { return Value::boolean(mapped(s, toupper) == s && mapped(s, tolower) != s); });
    put("islower", [](In&, CallInfo&, const std::string& s) { return Value::boolean(mapped(s, tolower) == s && mapped(s, toupper) != s); });
    put("isidentifier", [](In&, CallInfo&, const std::string& s) {
      return Value::boolean(!s.empty() && !isdigit(static_cast<unsigned char>(s[0])) &&
                            std::all_of(s.begin(), s.end(), [](char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_'; }));
    });
    put("zfill", [same](In& i, CallInfo& c, const std::string& s) {
      std::string t = s;
      bool neg = !t.empty() && (t[0] == '-' || t[0] == '+');
      while (static_cast<std::int64_t>(t.size()) < i.to_int(c.args.at(1))) t.insert(neg ? 1 : 0, "0");
      return same(i, t);
    });
    for (int which = 0; which < 3; ++which)
      put(which == 0       ? "ljust"
              : which == 1 ? "rjust"
                           : "center",
          [same, which](In& i, CallInfo& c, const std::string& s) {
            std::string fill = c.args.size() > 2 ? text_arg(i, c, 2) : " ";
            return same(i,
                        i.impl()->format_spec(i.str(s),
                                              fill +
                                                  (which == 0       ? "<"
                                                       : which == 1 ? ">"
                                                                    : "^") +
                                                  std::to_string(i.to_int(c.args.at(1)))));
          });
    put("encode", [](In& i, CallInfo&, const std::string& s) -> Value { return i.make<StrObj>(s, Kind::Bytes); });
    put("decode", [](In& i, CallInfo&, const std::string& s) { return i.str(s); });
    put("expandtabs", [same](In& i, CallInfo&, const std::string& s) { return same(i, s); });
    put("format", [](In& i, CallInfo& c, const std::string& s) { return str_format(i, s, c); });
    put("format_map", [](In& i, CallInfo& c, const std::string& s) {
      CallInfo d;
      d.args = {c.args[0]};
      for (const auto& e : c.args.at(1).as<DictObj>()->entries)
        if (e.alive && e.key.is(Kind::Str)) d.kwargs.push_back({e.key.str(), e.value, nullptr});
      return str_format(i, s, d);
    });
    put("translate", [](In& i, CallInfo& c, const std::string& s) {
      std::string out;
      auto* d = c.args.at(1).is(Kind::Dict) ? c.args[1].as<DictObj>() : nullptr;
      for (char ch : s) {
        Value* v = d ? d->find(i, Value::integer(static_cast<unsigned char>(ch))) : nullptr;
        if (!v) out += ch;
        else if (v->is(Kind::Str)) out += v->str();
        else if (v->is_integral()) out += static_cast<char>(v->as_int());
      }
      return i.str(out);
    });
    put("__len__", [](In& i, CallInfo& c, const std::string&) {
      Value v = i.make<StrObj>(c.args[0].str(), c.args[0].kind());
      return i.length(v);
    });
    put("__str__", [](In& i, CallInfo&, const std::string& s) { return i.str(s); });
    put("__hash__", [](In&, CallInfo&, const std::string& s) {
      return Value::integer(static_cast<std::int64_t>(std::hash<std::string_view>()(s) >> 2));
    });
    put("__contains__",
        [](In& i, CallInfo& c, const std::string& s) { return Value::boolean(s.find(text_arg(i, c, 1)) != std::string::npos); });
  }
  auto* maketrans = in.make<NativeObj>("str.maketrans", [](In& i, CallInfo& c) -> Value {
    auto* d = i.make<DictObj>();
    if (c.args.size() >= 2)
      for (std::size_t k = 0; k < std::min(text_arg(i, c, 0).size(), text_arg(i, c, 1).size()); ++k)
        d->set(i, Value::integer(static_cast<unsigned char>(c.args[0].str()[k])), i.str(std::string(1, c.args[1].str()[k])));
    if (c.args.size() >= 3)
      for (char ch : text_arg(i, c, 2)) d->set(i, Value::integer(static_cast<unsigned char>(ch)), i.str(""));
    return d;
  });
  maketrans->binds = false;
  m.str_->dict.set("maketrans", maketrans);
  in.method(m.str_, "__new__", [](In& i, CallInfo& c) -> Value {
    auto* cls = c.args.at(0).as<ClassObj>();
    Value v = c.args.size() > 1 ? c.args[1] : Value();
    if (v.is_unknown()) return v;
    std::string s = !v.set() ? "" : v.is(Kind::Bytes) && c.args.size() > 2 ? v.str() : i.to_str(v);
    auto* o = i.make<StrObj>(s);
    if (cls != i.impl()->str_) o->cls = cls;
    return o;
  });
  in.method(m.bytes_, "__new__", [](In& i, CallInfo& c) -> Value {
    std::string s;
    if (c.args.size() > 1) {
      if (c.args[1].is(Kind::Str) || c.args[1].is(Kind::Bytes)) s = c.args[1].str();
      else if (c.args[1].is_integral()) s.assign(static_cast<std::size_t>(std::clamp<std::int64_t>(c.args[1].as_int(), 0, 1 << 20)), '\0');
      else
        for (const auto& x : i.to_vector(c.args[1])) s += static_cast<char>(i.to_int(x));
    }
    return i.make<StrObj>(s, Kind::Bytes);
  });
}

}  // namespace shardwright::eval
