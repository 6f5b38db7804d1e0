// Text of values: str(), repr(), format specifications, the % operator.
#include <charconv>
#include <cmath>

#include "eval/impl.h"

namespace shardwright::eval {

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buf[64];
  auto r = std::to_chars(buf, buf + sizeof buf, d, std::chars_format::scientific);
  std::string s(buf, r.ptr);
  int exp = std::atoi(s.c_str() + s.find('e') + 1);
  if (exp >= -4 && exp < 16) {
    r = std::to_chars(buf, buf + sizeof buf, d, std::chars_format::fixed);
    s.assign(buf, r.ptr);
    if (s.find('.') == std::string::npos) s += ".0";
  }
  return s;
}

std::string quote_repr(const std::string& s) {
  char q = s.find('\'') != std::string::npos && s.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, q);
  for (char c : s) {
    if (c == '\n') out += "\\n";
    else if (c == '\t') out += "\\t";
    else if (c == '\r') out += "\\r";
    else if (c == '\\') out += "\\\\";
    else if (c == q) {
      out += '\\';
      out += c;
    } else out += c;
  }
  return out + q;
}

std::string In::to_str(const Value& v) {
  if (v.is(Kind::Str) && !v.obj()->cls) return v.str();
  if (v.is_object() && v.obj()->cls && !v.is(Kind::Class)) {
    Value f = v.obj()->cls->lookup("__str__");
    if (f.set() && !f.is(Kind::Native)) {
      Value s = call(f, {v});
      return s.is(Kind::Str) ? s.str() : to_repr(v);
    }
    if (f.is(Kind::Native) && f.as<NativeObj>()->name != "object.__str__") {
      Value s = call(f, {v});
      if (s.is(Kind::Str)) return s.str();
    }
  }
  if (v.is(Kind::Str) || v.is(Kind::Bytes)) return v.is(Kind::Str) ? v.str() : to_repr(v);
  return to_repr(v);
}

std::string In::to_repr(const Value& v) {
  if (v.is_object() && v.obj()->cls && !v.is(Kind::Class)) {
    Value f = v.obj()->cls->lookup("__repr__");
    if (f.is(Kind::Function) || (f.is(Kind::Native) && f.as<NativeObj>()->name != "object.__repr__")) {
      Value s = call(f, {v});
      if (s.is(Kind::Str)) return s.str();
    }
  }
  auto items = [&](const std::vector<Value>& l) {
    std::string out;
    for (std::size_t i = 0; i < l.size(); ++i) out += (i ? ", " : "") + to_repr(l[i]);
    return out;
  };
  switch (v.kind()) {
    case Kind::Unset: return "<no value>";
    case Kind::None: return "None";
    case Kind::Bool: return v.as_bool() ? "True" : "False";
    case Kind::Int: return std::to_string(v.as_int());
    case Kind::Float: return float_repr(v.as_double());
    case Kind::Complex: return float_repr(v.as_double()) + "j";
    case Kind::NotImplemented: return "NotImplemented";
    case Kind::Ellipsis: return "Ellipsis";
    case Kind::Str: return quote_repr(v.str());
    case Kind::Bytes: return "b" + quote_repr(v.str());
    case Kind::Tuple: {
      auto& l = v.as<SeqObj>()->items;
      return "(" + items(l) + (l.size() == 1 ? ",)" : ")");
    }
    case Kind::List: return "[" + items(v.as<SeqObj>()->items) + "]";
    case Kind::Dict: {
      std::string out = "{";
      for (const auto& e : v.as<DictObj>()->entries)
        if (e.alive) out += (out.size() > 1 ? ", " : "") + to_repr(e.key) + ": " + to_repr(e.value);
      return out + "}";
    }
    case Kind::Set:
    case Kind::FrozenSet: {
      std::string out;
      for (const auto& e : v.as<DictObj>()->entries)
        if (e.alive) out += (out.empty() ? "" : ", ") + to_repr(e.key);
      if (v.is(Kind::FrozenSet)) return "frozenset({" + out + "})";
      return out.empty() ? "set()" : "{" + out + "}";
    }
    case Kind::Slice: {
      auto* s = v.as<SliceObj>();
      return "slice(" + to_repr(s->start) + ", " + to_repr(s->stop) + ", " + to_repr(s->step) + ")";
    }
    case Kind::Range: {
      auto* r = v.as<RangeObj>();
      return "range(" + std::to_string(r->start) + ", " + std::to_string(r->stop) + (r->step != 1 ? ", " + std::to_string(r->step) : "") +
          ")";
    }
    case Kind::Function: return "<function " + v.as<FunctionObj>()->qualname + ">";
    case Kind::BoundMethod: return "<bound method>";
    case Kind::Native: return "<built-in function " + v.as<NativeObj>()->name + ">";
    case Kind::Class: return "<class '" + v.as<ClassObj>()->qualified() + "'>";
    case Kind::Module: return "<module '" + v.as<ModuleObj>()->name + "'>";
    case Kind::Host: return v.as<HostObj>()->repr(*this);
    case Kind::Unknown: return "<unknown: " + v.as<UnknownObj>()->why + ">";
    case Kind::Instance:
      if (isinstance(v, builtin_class("BaseException"))) {
        Value a = plain_getattr(v, "args");
        return type_of(v)->name +
            (a.is(Kind::Tuple) && a.as<SeqObj>()->items.size() == 1 ? "(" + to_repr(a.as<SeqObj>()->items[0]) + ")"
                 : a.set()                                          ? to_repr(a)
                                                                    : "()");
      }
      if (v.as<InstanceObj>()->base.set()) return to_repr(v.as<InstanceObj>()->base);
      return "<" + type_of(v)->qualified() + " object>";
    default: return "<" + type_of(v)->name + ">";
  }
}

namespace {

std::string group(std::string digits, char sep) {
  std::size_t dot = digits.find_first_of(".e");
  std::string tail = dot == std::string::npos ? "" : digits.substr(dot);
  digits = digits.substr(0, dot);
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i && (digits.size() - i) % 3 == 0) out += sep;
    out += digits[i];
  }
  return out + tail;
}

std::string radix(std::uint64_t v, unsigned base, bool upper) {
  if (v == 0) return "0";
  std::string s;
  for (; v; v /= base) s.insert(s.begin(), (upper ? "0123456789ABCDEF" : "0123456789abcdef")[v % base]);
  return s;
}

std::string real_text(double d, char type, int prec, bool alt) {
  char buf[512];
  double a = std::fabs(d);
  if (std::isnan(a)) return "nan";
  if (std::isinf(a)) return "inf";
  if (type == '%') {
    std::snprintf(buf, sizeof buf, "%.*f%%", prec < 0 ? 6 : prec, a * 100);
    return buf;
  }
  if (type == 0 && prec < 0) return float_repr(a);
  std::string f = "%";
  if (alt) f += '#';
  f += ".*";
  f += type == 0 || type == 'n' ? 'g' : type;
  std::snprintf(buf, sizeof buf, f.c_str(), prec < 0 ? 6 : prec, a);
  std::string s = buf;
  if (type == 0 && s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

}  // namespace

std::string In::format(const Value& v, std::string_view spec) {
  if (v.is_object() && v.obj()->cls && !v.is(Kind::Class)) {
    Value f = v.obj()->cls->lookup("__format__");
    if (f.is(Kind::Function)) {
      Value s = call(f, {v, str(std::string(spec))});
      if (s.is(Kind::Str)) return s.str();
    }
  }
  if (spec.empty()) return to_str(v);
  Value x = v.is(Kind::Instance) && v.as<InstanceObj>()->base.set() ? v.as<InstanceObj>()->base : v;
  if (x.is(Kind::Tensor) && tensors) {
    Value n = tensors->to_number(*this, x, "float");
    if (n.is_number()) x = n;
    else return "?";
  }
  if (x.is(Kind::Host)) {
    Value n = getattr_or(x, "__float__");
    if (n.set()) x = call(n, {});
  }
  return impl_->format_spec(x, spec);
}

std::string In::Impl::format_spec(const Value& v, std::string_view spec) {
  std::size_t i = 0;
  std::string fill = " ";
  char align = 0, sign = '-', comma = 0, type = 0;
  bool alt = false, zero = false;
  int width = 0, prec = -1;
  auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  std::size_t n1 = 1;  // length of a possible fill character in UTF-8
  while (n1 < spec.size() && (static_cast<unsigned char>(spec[n1]) & 0xC0) == 0x80) ++n1;
  if (spec.size() > n1 && is_align(spec[n1])) {
    fill = std::string(spec.substr(0, n1));
    align = spec[n1];
    i = n1 + 1;
  } else if (!spec.empty() && is_align(spec[0])) {
    align = spec[0];
    i = 1;
  }
  if (i < spec.size() && (spec[i] == '+' || spec[i] == '-' || spec[i] == ' ')) sign = spec[i++];
  if (i < spec.size() && spec[i] == '#') {
    alt = true;
    ++i;
  }
  if (i < spec.size() && spec[i] == '0') {
    zero = true;
    ++i;
  }
  while (i < spec.size() && isdigit(static_cast<unsigned char>(spec[i])) && width < 100000) width = width * 10 + (spec[i++] - '0');
  if (i < spec.size() && (spec[i] == ',' || spec[i] == '_')) comma = spec[i++];
  if (i < spec.size() && spec[i] == '.') {
    ++i;
    prec = 0;
    while (i < spec.size() && isdigit(static_cast<unsigned char>(spec[i])) && prec < 400) prec = prec * 10 + (spec[i++] - '0');
  }
  if (i < spec.size()) type = spec[i++];
  if (i < spec.size())
    in.raise("ValueError", "Invalid format specifier '" + std::string(spec) + "' for object of type '" + in.type_of(v)->name + "'");
  std::string body, prefix;
  bool number = v.is_number() && type != 's';
  if (number && v.is(Kind::Bool) && type == 0) number = false;
  if (number) {
    bool neg = v.as_double() < 0 || (v.is(Kind::Float) && std::signbit(v.as_double()));
    if (v.is_integral() &&
        (type == 0 || type == 'd' || type == 'n' || type == 'x' || type == 'X' || type == 'o' || type == 'b' || type == 'c')) {
      auto u = static_cast<std::uint64_t>(v.as_int());
      if (v.as_int() < 0) u = 0 - u;
      if (type == 'c') body = std::string(1, static_cast<char>(u));
      else if (type == 'x' || type == 'X') {
        body = radix(u, 16, type == 'X');
        if (alt) prefix = type == 'x' ? "0x" : "0X";
      } else if (type == 'o') {
        body = radix(u, 8, false);
        if (alt) prefix = "0o";
      } else if (type == 'b') {
        body = radix(u, 2, false);
        if (alt) prefix = "0b";
      } else body = std::to_string(u);
    } else {
      if (type == 'd') in.raise("ValueError", "Unknown format code 'd' for object of type 'float'");
      body = real_text(v.as_double(), type, prec, alt);
    }
    if (comma) body = group(body, comma);
    prefix = (neg ? "-" : sign == '-' ? "" : std::string(1, sign)) + prefix;
    if (zero && !align) {
      align = '=';
      fill = "0";
    }
    if (!align) align = '>';
  } else {
    if (type && type != 's')
      in.raise("ValueError", std::string("Unknown format code '") + type + "' for object of type '" + in.type_of(v)->name + "'");
    body = in.to_str(v);
    if (prec >= 0 && body.size() > static_cast<std::size_t>(prec)) body.resize(static_cast<std::size_t>(prec));
    if (zero && !align) {
      align = '<';
      fill = "0";
    }
    if (!align) align = '<';
    if (align == '=') align = '>';
  }
  int len = 0;
  for (char c : prefix + body) len += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  int pad = width - len;
  auto fills = [&](int n) {
    std::string s;
    for (int k = 0; k < n; ++k) s += fill;
    return s;
  };
  if (pad <= 0) return prefix + body;
  if (align == '<') return prefix + body + fills(pad);
  if (align == '^') return fills(pad / 2) + prefix + body + fills(pad - pad / 2);
  if (align == '=') return prefix + fills(pad) + body;
  return fills(pad) + prefix + body;
}

Value In::Impl::percent_format(const std::string& f, const Value& args) {
  std::string out;
  std::size_t next = 0;
  std::vector<Value> list;
  if (args.is(Kind::Tuple)) list = args.as<SeqObj>()->items;
  else list = {args};
  for (std::size_t i = 0; i < f.size(); ++i) {
    if (f[i] != '%') {
      out += f[i];
      continue;
    }
    if (++i >= f.size()) in.raise("ValueError", "incomplete format");
    if (f[i] == '%') {
      out += '%';
      continue;
    }
    Value v;
    if (f[i] == '(') {
      std::size_t e = f.find(')', i);
      if (e == std::string::npos) in.raise("ValueError", "incomplete format key");
      v = in.getitem(args, in.str(f.substr(i + 1, e - i - 1)));
      i = e + 1;
    }
    std::string spec, flags;
    while (i < f.size() && std::string_view("-+ #0").find(f[i]) != std::string_view::npos) flags += f[i++];
    auto take = [&] {
      if (next >= list.size()) in.raise("TypeError", "not enough arguments for format string");
      return list[next++];
    };
    std::string width, prec;
    if (i < f.size() && f[i] == '*') {
      width = std::to_string(in.to_int(take()));
      ++i;
    }
    while (i < f.size() && isdigit(static_cast<unsigned char>(f[i]))) width += f[i++];
    if (i < f.size() && f[i] == '.') {
      ++i;
      prec = ".";
      if (i < f.size() && f[i] == '*') {
        prec += std::to_string(in.to_int(take()));
        ++i;
      }
      while (i < f.size() && isdigit(static_cast<unsigned char>(f[i]))) prec += f[i++];
      if (prec == ".") prec = ".0";
    }
    if (i >= f.size()) in.raise("ValueError", "incomplete format");
    char t = f[i];
    if (!v.set()) v = take();
    if (v.is_unknown()) return v;
    bool text = t == 's' || t == 'r' || t == 'a';
    spec = flags.find('-') != std::string::npos ? "<" : text ? ">" : "";
    if (flags.find('+') != std::string::npos) spec += '+';
    if (flags.find('#') != std::string::npos) spec += '#';
    if (flags.find('0') != std::string::npos && flags.find('-') == std::string::npos && !text) spec += '0';
    spec += width;
    if (t == 'd' || t == 'i' || t == 'u') {
      if (!v.is_number() && !v.is(Kind::Instance))
        in.raise("TypeError", "%d format: a real number is required, not " + in.type_of(v)->name);
      if (v.is(Kind::Float)) v = Value::integer(static_cast<std::int64_t>(v.as_double()));
      out += in.format(v.is(Kind::Bool) ? Value::integer(v.as_int()) : v, spec + "d");
    } else if (text) {
      std::string s = t == 's' ? in.to_str(v) : in.to_repr(v);
      out += in.format(in.str(s), spec + prec + "s");
    } else {
      if (v.is_integral() && t != 'x' && t != 'X' && t != 'o' && t != 'c') v = Value::real(v.as_double());
      out += in.format(v, spec + prec + t);
    }
  }
  return in.str(out);
}

}  // namespace shardwright::eval
