#include "python/literals.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace shardwright::python {

namespace {

void append_utf8(std::string& out, std::uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

// Reads up to `most` digits of `base`; returns how many there were.
std::size_t digits(std::string_view s, std::size_t most, int base, std::uint32_t& value) {
  value = 0;
  const std::size_t n = std::min(most, s.size());
  const auto [end, error] = std::from_chars(s.data(), s.data() + n, value, base);
  return error == std::errc() ? static_cast<std::size_t>(end - s.data()) : 0;
}

// One escape sequence; `s` starts at the backslash. Returns the number of bytes read.
std::size_t escape(std::string_view s, bool bytes, std::string& out) {
  if (s.size() < 2) {
    out += '\\';
    return 1;
  }
  const auto code = [&](std::size_t length) -> std::size_t {
    std::uint32_t value;
    if (digits(s.substr(2), length, 16, value) != length) return 0;
    if (bytes) out += static_cast<char>(value);
    else append_utf8(out, value);
    return 2 + length;
  };
  std::size_t used = 0;
  switch (s[1]) {
    case '\n': return 2;
    case '\r': return s.size() > 2 && s[2] == '\n' ? 3 : 2;
    case '\\':
    case '\'':
    case '"': out += s[1]; return 2;
    case 'a': out += '\a'; return 2;
    case 'b': out += '\b'; return 2;
    case 'f': out += '\f'; return 2;
    case 'n': out += '\n'; return 2;
    case 'r': out += '\r'; return 2;
    case 't': out += '\t'; return 2;
    case 'v': out += '\v'; return 2;
    case 'x': used = code(2); break;
    case 'u': used = bytes ? 0 : code(4); break;
    case 'U': used = bytes ? 0 : code(8); break;
    default: {
      std::uint32_t value;
      const std::size_t n = s[1] >= '0' && s[1] <= '7' ? digits(s.substr(1), 3, 8, value) : 0;
      if (n == 0) break;
      if (bytes) out += static_cast<char>(value);
      else append_utf8(out, value);
      return 1 + n;
    }
  }
  if (used != 0) return used;
  out += '\\';  // an unknown escape stands for itself
  return 1;
}

}  // namespace

StringPrefix string_prefix(std::string_view opening) {
  StringPrefix p;
  for (char c : opening) {
    if (c == 'r' || c == 'R') p.raw = true;
    else if (c == 'b' || c == 'B') p.bytes = true;
    else if (c == 'f' || c == 'F') p.format = true;
    else if (c == '"' || c == '\'') break;
  }
  return p;
}

void decode_string(std::string_view body, StringPrefix prefix, std::string& out) {
  std::size_t i = 0;
  while (i < body.size()) {
    const std::size_t special = body.find_first_of(prefix.format ? "\\\r{}" : "\\\r", i);
    out += body.substr(i, special == std::string_view::npos ? special : special - i);
    if (special == std::string_view::npos) return;
    i = special;
    const char c = body[i];
    const char next = i + 1 < body.size() ? body[i + 1] : '\0';
    if (c == '\\' && !prefix.raw) {
      if (next == 'N' && !prefix.bytes && i + 2 < body.size() && body[i + 2] == '{') {
        const std::size_t close = body.find('}', i);
        const std::size_t stop = close == std::string_view::npos ? body.size() : close + 1;
        out += body.substr(i, stop - i);
        i = stop;
      } else {
        i += escape(body.substr(i), prefix.bytes, out);
      }
    } else if (c == '\r') {
      out += '\n';
      i += next == '\n' ? 2 : 1;
    } else {
      out += c;
      i += (c == '{' || c == '}') && next == c ? 2 : 1;
    }
  }
}

void decode_number(std::string_view literal, program::Expr& out) {
  using program::ExprKind;
  std::string s;
  for (char c : literal)
    if (c != '_') s += c;
  const auto real = [&](std::string_view t) {
    // from_chars ignores the locale; it reports overflow instead of returning infinity, and leaves the value alone then.
    double value = 0;
    const auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), value);
    if (error == std::errc::result_out_of_range) {
      const auto e = t.find_first_of("eE");
      const bool tiny = e != std::string_view::npos && e + 1 < t.size() && t[e + 1] == '-';
      value = tiny ? 0.0 : std::numeric_limits<double>::infinity();
    }
    return value;
  };
  const bool prefixed = s.size() > 2 && s[0] == '0' && std::string_view("xXoObB").find(s[1]) != std::string_view::npos;
  if (!prefixed && !s.empty() && (s.back() == 'j' || s.back() == 'J')) {
    s.pop_back();
    out.kind = ExprKind::Imaginary;
    out.number = real(s);
    return;
  }
  if (!prefixed && s.find_first_of(".eE") != std::string::npos) {
    out.kind = ExprKind::Float;
    out.number = real(s);
    return;
  }
  out.kind = ExprKind::Int;
  const int base = !prefixed ? 10 : (s[1] | 0x20) == 'x' ? 16 : (s[1] | 0x20) == 'o' ? 8 : 2;
  const char* begin = s.data() + (prefixed ? 2 : 0);
  const auto [end, error] = std::from_chars(begin, s.data() + s.size(), out.integer, base);
  if (error != std::errc()) {
    out.integer = 0;
    out.text = s;
  }
}

}  // namespace shardwright::python
