#include "rules/lookup.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "rules/embedded.h"
#include "support/files.h"
#include "support/yaml.h"

namespace shardwright::rules {
namespace {

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

std::string text_of_file(const std::string& file) {
  if (file.starts_with("rules/"))
    if (auto text = embedded(std::string_view(file).substr(6))) return std::string(*text);
  auto text = support::read_file(file);
  return text ? *text : "";
}

// The entry of a list that begins at a line ("- op: …"), up to the next one.
RuleText entry(const std::string& name, const std::string& where) {
  RuleText out;
  out.name = name;
  const std::size_t colon = where.rfind(':');
  out.file = where.substr(0, colon);
  if (colon != std::string::npos) std::from_chars(where.data() + colon + 1, where.data() + where.size(), out.line);
  const std::string text = text_of_file(out.file);
  std::size_t begin = 0;
  for (int line = 1; line < out.line && begin != std::string::npos; ++line) {
    begin = text.find('\n', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (begin == std::string::npos) return out;
  std::size_t end = text.find("\n- ", begin);
  out.text = text.substr(begin, end == std::string::npos ? end : end - begin + 1);
  while (out.text.ends_with("\n\n")) out.text.pop_back();
  return out;
}

// The class or function that says in Python what a layer computes: rules/layers/torch/nn/modules/linear.py. Anywhere below the package that
// the name begins with: torch.nn.Linear is defined in torch.nn.modules.linear.
void described(const std::string& name, std::vector<RuleText>& out) {
  const std::string package = name.substr(0, name.find('.')), last = last_part(name);
  const bool dotted = name.find('.') != std::string::npos;
  for (const EmbeddedFile& f : embedded_files()) {
    const std::string_view folder = f.path.substr(0, f.path.find('/') + 1);
    if ((folder != "layers/" && folder != "written/") || !f.path.ends_with(".py") ||
        (dotted && !f.path.substr(folder.size()).starts_with(package + "/")))
      continue;
    for (const char* keyword : {"class ", "def "}) {
      const std::string head = keyword + last;
      for (std::size_t at = f.text.find(head); at != std::string_view::npos; at = f.text.find(head, at + 1)) {
        const std::size_t after = at + head.size();
        if ((at != 0 && f.text[at - 1] != '\n') || after >= f.text.size() || (f.text[after] != '(' && f.text[after] != ':')) continue;
        // Ends at the next line that is not indented.
        std::size_t end = f.text.find('\n', at);
        while (end != std::string_view::npos && end + 1 < f.text.size() && (f.text[end + 1] == ' ' || f.text[end + 1] == '\n'))
          end = f.text.find('\n', end + 1);
        std::string text(f.text.substr(at, end == std::string_view::npos ? end : end - at));
        while (!text.empty() && text.back() == '\n') text.pop_back();
        out.push_back({name, "rules/" + std::string(f.path),
                       static_cast<int>(std::count(f.text.begin(), f.text.begin() + static_cast<std::ptrdiff_t>(at), '\n')) + 1,
                       text + "\n"});
      }
    }
  }
}

}  // namespace

std::vector<RuleText> rules_of(const Database& db, const std::string& name) {
  std::vector<RuleText> out;
  std::set<std::string> seen;  // a rule has several names
  auto add = [&](const std::string& found, const std::string& where) {
    if (seen.insert(where).second) out.push_back(entry(found, where));
  };
  if (const OpRule* r = db.op(name)) add(name, r->where);
  if (const LayerRule* r = db.layer(name)) add(name, r->where);
  if (name.find('.') == std::string::npos) {
    for (const OpRule* r : db.ops())
      for (const auto& n : r->names)
        if (last_part(n) == name) add(n, r->where);
    for (const LayerRule* r : db.layers())
      if (last_part(r->name) == name) add(r->name, r->where);
    // Kinds and devices: by the entry's own head.
    for (const EmbeddedFile& f : embedded_files()) {
      if (!f.path.ends_with(".yaml") || f.path.starts_with("ops/") || f.path.starts_with("layers/") || f.path.starts_with("lint/"))
        continue;
      for (const char* key : {"- kind: ", "- device: "}) {
        const std::size_t at = f.text.find(key + name + "\n");
        if (at == std::string_view::npos) continue;
        add(name,
            "rules/" + std::string(f.path) + ":" +
                std::to_string(std::count(f.text.begin(), f.text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1));
      }
    }
  }
  described(name, out);
  return out;
}

std::string nearest_rule(const Database& db, const std::string& name) {
  std::vector<std::string> names;
  const bool dotted = name.find('.') != std::string::npos;
  auto add = [&](const std::string& n) { names.push_back(dotted ? n : last_part(n)); };
  for (const OpRule* r : db.ops())
    for (const auto& n : r->names) add(n);
  for (const LayerRule* r : db.layers()) add(r->name);
  return support::yaml::nearest(name, names).value_or("");
}

}  // namespace shardwright::rules
