#include "support/yaml.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <set>

namespace shardwright::support::yaml {

struct Node::Data {
  Kind kind = Null;
  Range range;
  std::string text;
  bool quoted = false;
  std::vector<Node> items;
  std::vector<std::pair<Node, Node>> entries;
};

Node::Kind Node::kind() const { return data_->kind; }
Range Node::range() const { return data_->range; }
const std::string& Node::text() const { return data_->text; }
bool Node::quoted() const { return data_->quoted; }
const std::vector<Node>& Node::items() const { return data_->items; }
const std::vector<std::pair<Node, Node>>& Node::entries() const { return data_->entries; }
std::size_t Node::size() const { return is_map() ? entries().size() : items().size(); }

const char* Node::describe() const {
  switch (kind()) {
    case Null: return "nothing";
    case Scalar: return "a single value";
    case List: return "a list";
    case Map: return "a mapping";
  }
  return "";
}

std::optional<Node> Node::get(std::string_view key) const {
  for (const auto& [k, v] : entries())
    if (k.text() == key) return v;
  return std::nullopt;
}

namespace {

std::string found(const Node& n) { return n.is_scalar() ? "'" + n.text() + "'" : n.describe(); }

Diagnostic wrong(const Node& n, const std::string& expected) {
  return failure("expected " + expected + ", found " + found(n), n.range(), "input");
}

}  // namespace

Expected<std::string> Node::as_string() const {
  if (!is_scalar()) return wrong(*this, "a text");
  return text();
}

Expected<std::int64_t> Node::as_int() const {
  if (!is_scalar() || quoted()) return wrong(*this, "an integer");
  std::string s;
  for (char c : text())
    if (c != '_') s += c;
  std::int64_t value = 0;
  const char* begin = s.data() + (!s.empty() && s[0] == '+');
  const auto [end, error] = std::from_chars(begin, s.data() + s.size(), value);
  if (error != std::errc() || end != s.data() + s.size()) return wrong(*this, "an integer");
  return value;
}

Expected<double> Node::as_double() const {
  if (!is_scalar() || quoted()) return wrong(*this, "a number");
  const std::string& s = text();
  double value = 0;
  const char* begin = s.data() + (!s.empty() && s[0] == '+');
  const auto [end, error] = std::from_chars(begin, s.data() + s.size(), value);
  if (error != std::errc() || end != s.data() + s.size()) return wrong(*this, "a number");
  return value;
}

Expected<bool> Node::as_bool() const {
  if (is_scalar() && !quoted()) {
    if (text() == "true" || text() == "True") return true;
    if (text() == "false" || text() == "False") return false;
  }
  return wrong(*this, "true or false");
}

Expected<std::vector<std::string>> Node::as_strings() const {
  std::vector<std::string> out;
  if (is_scalar()) return std::vector<std::string>{text()};
  if (!is_list()) return wrong(*this, "a list of texts");
  for (const Node& n : items()) {
    auto s = n.as_string();
    if (!s) return s.error();
    out.push_back(std::move(*s));
  }
  return out;
}

Expected<std::vector<std::int64_t>> Node::as_ints() const {
  std::vector<std::int64_t> out;
  if (!is_list()) return wrong(*this, "a list of integers");
  for (const Node& n : items()) {
    const auto i = n.as_int();
    if (!i) return i.error();
    out.push_back(*i);
  }
  return out;
}

namespace {

struct Builder {
  const SourceManager& sources;
  FileId file;
  int depth = 0;
  std::size_t nodes = 0;
  std::optional<Diagnostic> error;

  Range at(const YAML::Mark& m, std::size_t length) const {
    const auto size = static_cast<std::uint32_t>(sources.file(file).text.size());
    const std::uint32_t begin = m.is_null() ? 0 : std::min(static_cast<std::uint32_t>(m.pos), size);
    return {file, begin, std::min(begin + static_cast<std::uint32_t>(length), size)};
  }

  void fail(const Range& r, std::string message) {
    if (!error) error = failure(std::move(message), r, "input");
  }

  Node build(const YAML::Node& y) {
    auto d = std::make_shared<Node::Data>();
    d->range = at(y.Mark(), y.IsScalar() ? std::max<std::size_t>(1, y.Scalar().size()) : 1);
    // Aliases make a tree of a graph: bounded in depth (cycles) and in size ("billion laughs").
    if (++nodes > 1'000'000 || depth > 200) {
      fail(d->range, "nested too deeply, or too many aliases");
      return Node(d);
    }
    ++depth;
    switch (y.Type()) {
      case YAML::NodeType::Scalar:
        d->kind = Node::Scalar;
        d->text = y.Scalar();
        d->quoted = y.Tag() == "!";
        break;
      case YAML::NodeType::Sequence:
        d->kind = Node::List;
        for (const auto& item : y) {
          d->items.push_back(build(item));
          if (error) break;
        }
        break;
      case YAML::NodeType::Map: {
        d->kind = Node::Map;
        std::set<std::string> seen;
        for (const auto& entry : y) {
          Node key = build(entry.first);
          if (!error && !key.is_scalar()) fail(key.range(), "a key has to be a text");
          if (!error && !seen.insert(key.text()).second) fail(key.range(), "the key '" + key.text() + "' is given twice");
          if (error) break;
          d->entries.emplace_back(std::move(key), build(entry.second));
          if (error) break;
        }
        break;
      }
      default: break;
    }
    --depth;
    return Node(d);
  }
};

}  // namespace

Expected<Node> parse(const SourceManager& sources, FileId file) {
  Builder builder{sources, file, 0, 0, std::nullopt};
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(sources.file(file).text);
    if (documents.size() > 1)
      return failure("one YAML document is expected, found " + std::to_string(documents.size()), builder.at(documents[1].Mark(), 1),
                     "input");
    if (documents.empty()) {
      auto d = std::make_shared<Node::Data>();
      d->range = Range{file, 0, 0};
      return Node(d);
    }
    Node root = builder.build(documents[0]);
    if (builder.error) return *builder.error;
    return root;
  } catch (const YAML::Exception& e) {
    return failure("not valid YAML: " + e.msg, builder.at(e.mark, 1), "input");
  } catch (const std::exception& e) { return failure(std::string("not valid YAML: ") + e.what(), Range{file, 0, 0}, "input"); }
}

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& valid) {
  std::optional<std::string> best;
  std::size_t best_distance = (word.size() <= 3 ? 1 : std::max<std::size_t>(2, word.size() / 3)) + 1;
  for (const std::string& v : valid) {
    std::vector<std::size_t> row(v.size() + 1);
    for (std::size_t j = 0; j <= v.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= word.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j <= v.size(); ++j) {
        const std::size_t substitute = diagonal + (word[i - 1] != v[j - 1]);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
      }
    }
    if (row[v.size()] < best_distance) {
      best_distance = row[v.size()];
      best = v;
    }
  }
  return best;
}

Reader::Reader(const Node& map, std::string what) : map_(map), what_(std::move(what)) {
  if (!map.is_map() && !map.is_null()) error_ = failure("expected a mapping for " + what_ + ", found " + found(map), map.range(), "input");
}

void Reader::fail(Diagnostic d) {
  if (!error_) error_ = std::move(d);
}

void Reader::fail(const Node& at, std::string message) { fail(failure(std::move(message), at.range(), "input")); }

bool Reader::has(const std::string& key) const { return map_.get(key).has_value(); }

std::optional<Node> Reader::find(const std::string& key, bool required) {
  known_.push_back(key);
  auto n = map_.get(key);
  if (!n && required) fail(map_, what_ + " needs '" + key + "'");
  return n;
}

std::optional<Node> Reader::node(const std::string& key) { return find(key, false); }

std::vector<Node> Reader::list(const std::string& key) {
  const auto n = find(key, false);
  if (!n || n->is_null()) return {};
  if (!n->is_list()) fail(*n, "expected a list for '" + key + "', found " + found(*n));
  return n->items();
}

std::vector<std::pair<Node, Node>> Reader::map(const std::string& key) {
  const auto n = find(key, false);
  if (!n || n->is_null()) return {};
  if (!n->is_map()) fail(*n, "expected a mapping for '" + key + "', found " + found(*n));
  return n->entries();
}

std::string Reader::choice(const std::string& key, const std::vector<std::string>& valid, std::optional<std::string> otherwise) {
  const auto n = find(key, !otherwise);
  if (!n) return otherwise.value_or("");
  const auto s = n->as_string();
  if (s && std::find(valid.begin(), valid.end(), *s) != valid.end()) return *s;
  std::string all;
  for (const std::string& v : valid) all += (all.empty() ? "" : ", ") + v;
  fail(*n, "expected one of " + all + " for '" + key + "', found " + found(*n));
  return otherwise.value_or("");
}

std::optional<Diagnostic> Reader::finish() {
  if (error_) return error_;
  for (const auto& [key, value] : map_.entries()) {
    if (std::find(known_.begin(), known_.end(), key.text()) != known_.end()) continue;
    std::string message = "unknown key '" + key.text() + "' in " + what_;
    if (const auto near = nearest(key.text(), known_)) message += "; did you mean '" + *near + "'?";
    std::string all;
    for (const std::string& k : known_) all += (all.empty() ? "" : ", ") + k;
    if (!all.empty()) message += (message.back() == '?' ? " Valid keys: " : "; valid keys: ") + all;
    return failure(std::move(message), key.range(), "input");
  }
  return std::nullopt;
}

namespace {

Expected<std::string> convert(const Node& n, std::string*) { return n.as_string(); }
Expected<std::int64_t> convert(const Node& n, std::int64_t*) { return n.as_int(); }
Expected<double> convert(const Node& n, double*) { return n.as_double(); }
Expected<bool> convert(const Node& n, bool*) { return n.as_bool(); }
Expected<std::vector<std::string>> convert(const Node& n, std::vector<std::string>*) { return n.as_strings(); }
Expected<std::vector<std::int64_t>> convert(const Node& n, std::vector<std::int64_t>*) { return n.as_ints(); }
Expected<int> convert(const Node& n, int*) {
  const auto i = n.as_int();
  if (!i) return i.error();
  if (*i < INT32_MIN || *i > INT32_MAX) return wrong(n, "an integer of 32 bits");
  return static_cast<int>(*i);
}

template <class T>
void assign(Reader& reader, const Node& n, const std::string& key, T& out) {
  auto value = convert(n, static_cast<T*>(nullptr));
  if (value) {
    out = std::move(*value);
    return;
  }
  Diagnostic d = value.error();
  d.message = "'" + key + "': " + d.message;
  reader.fail(std::move(d));
}

}  // namespace

template <class T>
T Reader::required(const std::string& key) {
  T out{};
  if (const auto n = find(key, true)) assign(*this, *n, key, out);
  return out;
}

template <class T>
T Reader::optional(const std::string& key, T otherwise) {
  const auto n = find(key, false);
  if (n && !n->is_null()) assign(*this, *n, key, otherwise);
  return otherwise;
}

#define INSTANTIATE(T)                                \
  template T Reader::required<T>(const std::string&); \
  template T Reader::optional<T>(const std::string&, T);
INSTANTIATE(std::string)
INSTANTIATE(int)
INSTANTIATE(std::int64_t)
INSTANTIATE(double)
INSTANTIATE(bool)
INSTANTIATE(std::vector<std::string>)
INSTANTIATE(std::vector<std::int64_t>)
#undef INSTANTIATE

}  // namespace shardwright::support::yaml
