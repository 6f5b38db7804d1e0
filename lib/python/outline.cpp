#include "python/outline.h"

#include <algorithm>
#include <cstring>

namespace shardwright::python {

namespace {

constexpr std::uint32_t kLeast = 80;  ///< bytes of a body that are worth a parse of its own

class Scanner {
 public:
  explicit Scanner(std::string_view text) : t_(text) {}

  bool run(Outline& out) {
    if (t_.find('\t') != std::string_view::npos || t_.find('\r') != std::string_view::npos || t_.find('\f') != std::string_view::npos ||
        t_.find('\0') != std::string_view::npos)
      return false;
    if (t_.starts_with("\xef\xbb\xbf")) return false;
    struct Open {
      std::uint32_t indent;
      bool is_class;
    };
    std::vector<Open> open;
    LeftOut body;
    bool in_body = false;
    std::uint32_t body_indent = 0;
    const auto close = [&] {
      if (in_body && body.end - body.begin >= kLeast) out.bodies.push_back(body);
      in_body = false;
    };
    while (at_ < t_.size()) {
      const std::size_t line = at_;
      while (at_ < t_.size() && t_[at_] == ' ') ++at_;
      const auto indent = static_cast<std::uint32_t>(at_ - line);
      if (at_ >= t_.size()) break;
      if (t_[at_] == '\n') {
        ++at_;
        continue;
      }
      if (t_[at_] == '#') {
        comment();
        if (at_ < t_.size()) ++at_;
        continue;
      }
      if (in_body && indent <= body_indent) close();
      const std::size_t first = at_;
      std::size_t last = at_;
      char ends = 0;
      if (!logical_line(last, ends)) return false;
      if (in_body) {
        body.last = static_cast<std::uint32_t>(last);
        body.end = static_cast<std::uint32_t>(at_);
        continue;
      }
      while (!open.empty() && open.back().indent >= indent) open.pop_back();
      const bool definable = open.empty() ? indent == 0 : std::all_of(open.begin(), open.end(), [](const Open& o) { return o.is_class; });
      const std::string_view head = t_.substr(first, last - first);
      if (definable && ends == ':' && (word(head, "def") || (word(head, "async") && word(trimmed(head.substr(5)), "def")))) {
        in_body = true;
        body_indent = indent;
        body = {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(at_), static_cast<std::uint32_t>(at_), 0};
      } else if (ends == ':') {
        open.push_back({indent, definable && word(head, "class")});
      }
    }
    close();
    auto c = comments_.begin();
    for (const LeftOut& b : out.bodies) {
      while (c != comments_.end() && c->first < b.begin) ++c;
      for (; c != comments_.end() && c->first < b.end; ++c) out.comments.push_back(*c);
    }
    return true;
  }

 private:
  static bool word(std::string_view text, std::string_view w) {
    return text.starts_with(w) && text.size() > w.size() && text[w.size()] == ' ';
  }
  static std::string_view trimmed(std::string_view text) {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    return text;
  }
  void comment() {
    const std::size_t begin = at_;
    const void* end = std::memchr(t_.data() + at_, '\n', t_.size() - at_);
    at_ = end ? static_cast<std::size_t>(static_cast<const char*>(end) - t_.data()) : t_.size();
    comments_.emplace_back(static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(at_));
  }
  /// Past the quote that ends a string.
  bool string() {
    const char q = t_[at_];
    const bool triple = t_.substr(at_, 3) == std::string_view(q == '"' ? "\"\"\"" : "'''");
    at_ += triple ? 3 : 1;
    while (at_ < t_.size()) {
      const char c = t_[at_];
      if (c == '\\') at_ += 2;
      else if (c == q && (!triple || (at_ + 2 < t_.size() && t_[at_ + 1] == q && t_[at_ + 2] == q))) {
        at_ += triple ? 3 : 1;
        return true;
      } else if (c == '\n' && !triple) return false;
      else ++at_;
    }
    return false;
  }
  /// To the start of the next line that does not go on with this one. `last`: end of what is said, `ends`: its last character.
  bool logical_line(std::size_t& last, char& ends) {
    int depth = 0;
    while (at_ < t_.size()) {
      const char c = t_[at_];
      switch (c) {
        case '\n':
          ++at_;
          if (depth == 0) return true;
          continue;
        case ' ': ++at_; continue;
        case '#': comment(); continue;
        case '\\':
          if (at_ + 1 >= t_.size() || t_[at_ + 1] != '\n') return false;
          at_ += 2;
          continue;
        case '"':
        case '\'':
          if (!string()) return false;
          break;
        case '(':
        case '[':
        case '{':
          ++depth;
          ++at_;
          break;
        case ')':
        case ']':
        case '}':
          if (--depth < 0) return false;
          ++at_;
          break;
        case ';':
          ++at_;
          if (depth == 0) continue;
          break;
        default: ++at_;
      }
      last = at_;
      ends = c;
    }
    return depth == 0;
  }

  std::string_view t_;
  std::size_t at_ = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> comments_;
};

}  // namespace

const LeftOut* Outline::of(std::uint32_t def) const {
  const auto at = std::lower_bound(bodies.begin(), bodies.end(), def, [](const LeftOut& b, std::uint32_t d) { return b.def < d; });
  return at != bodies.end() && at->def == def ? &*at : nullptr;
}

Outline outline(std::string_view text) {
  Outline out;
  if (!Scanner(text).run(out)) return {};
  return out;
}

}  // namespace shardwright::python
