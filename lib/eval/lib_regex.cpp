// The re module over std::regex: enough for name patterns and version strings. What std::regex cannot read is unknown.
#include <algorithm>
#include <map>
#include <regex>

#include "eval/impl.h"

namespace shardwright::eval {

namespace {

struct PatternObj : HostObj {
  std::string source;
  std::regex re;
  std::map<std::string, int> names;
  using HostObj::HostObj;
  Value getattr(In& in, std::string_view n) override { return n == "pattern" ? in.str(source) : Value(); }
};

struct MatchObj : HostObj {
  std::vector<Value> groups;
  std::vector<std::pair<std::int64_t, std::int64_t>> spans;
  std::map<std::string, int> names;
  Value text;
  using HostObj::HostObj;
  Value getattr(In&, std::string_view n) override {
    if (n == "string") return text;
    if (n == "lastindex") {
      for (std::size_t i = groups.size(); i-- > 1;)
        if (!groups[i].is_none()) return Value::integer(static_cast<std::int64_t>(i));
      return Value::none();
    }
    return {};
  }
};

/// Python's (?P<name>…) and (?P=name), (?i) in front, \A \Z, as ECMAScript has them.
PatternObj* compile(In& in, const Value& p, ClassObj* cls, std::int64_t flags) {
  if (p.is(Kind::Host))
    if (auto* o = dynamic_cast<PatternObj*>(p.obj())) return o;
  auto* o = in.make<PatternObj>(cls);
  o->source = p.str();
  std::string out;
  const std::string& s = o->source;
  int group = 0;
  bool cls_open = false, icase = (flags & 2) != 0;
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '\\' && i + 1 < s.size()) {
      if (s[i + 1] == 'A') out += '^';
      else if (s[i + 1] == 'Z') out += '$';
      else {
        out += s[i];
        out += s[i + 1];
      }
      ++i;
      continue;
    }
    if (cls_open) {
      if (s[i] == ']') cls_open = false;
      out += s[i];
      continue;
    }
    if (s[i] == '[') {
      cls_open = true;
      out += s[i];
      if (i + 1 < s.size() && s[i + 1] == '^') out += s[++i];
      if (i + 1 < s.size() && s[i + 1] == ']') {
        out += "\\]";
        ++i;
      }
      continue;
    }
    if (s[i] == '(') {
      if (s.compare(i, 4, "(?P<") == 0) {
        std::size_t e = s.find('>', i);
        if (e == std::string::npos) return nullptr;
        o->names[s.substr(i + 4, e - i - 4)] = ++group;
        out += '(';
        i = e;
        continue;
      }
      if (s.compare(i, 4, "(?P=") == 0) {
        std::size_t e = s.find(')', i);
        out += "\\" + std::to_string(o->names[s.substr(i + 4, e - i - 4)]);
        i = e;
        continue;
      }
      if (s.compare(i, 4, "(?i)") == 0) {
        icase = true;
        i += 3;
        continue;
      }
      if (s.compare(i, 3, "(?<") == 0) return nullptr;
      if (i + 1 >= s.size() || s[i + 1] != '?') ++group;
    }
    out += s[i];
  }
  try {
    auto f = std::regex::ECMAScript;
    if (icase) f |= std::regex::icase;
    o->re = std::regex(out, f);
  } catch (const std::regex_error&) { return nullptr; }
  return o;
}

Value match_value(In& in, ClassObj* cls, PatternObj* p, const Value& text, const std::smatch& m) {
  auto* o = in.make<MatchObj>(cls);
  for (std::size_t i = 0; i < m.size(); ++i) {
    o->groups.push_back(m[i].matched ? in.str(m[i].str()) : Value::none());
    o->spans.emplace_back(m[i].matched ? m.position(i) : -1, m[i].matched ? m.position(i) + m.length(i) : -1);
  }
  o->names = p->names;
  o->text = text;
  return o;
}

}  // namespace

void register_regex(Interpreter& in) {
  // The drop-in replacement of the same interface on PyPI is an extension module that nobody can follow.
  for (const char* name : {"re", "regex"})
    in.modules.native(name, [](In& i, ModuleObj& mod) {
      ClassObj* P = i.make_class("re", "Pattern");
      ClassObj* M = i.make_class("re", "Match");
      mod.env.vars.set("Pattern", P);
      mod.env.vars.set("Match", M);
      mod.env.vars.set("error", i.builtin_class("ValueError"));
      for (auto [n, v] : {std::pair{"IGNORECASE", 2},
                          {"I", 2},
                          {"MULTILINE", 8},
                          {"M", 8},
                          {"DOTALL", 16},
                          {"S", 16},
                          {"VERBOSE", 64},
                          {"X", 64},
                          {"ASCII", 256},
                          {"UNICODE", 32}})
        mod.env.vars.set(n, Value::integer(v));
      auto both = [&](const char* name, std::function<Value(In&, PatternObj*, CallInfo&)> f) {
        NativeFn fn = [f, P, name](In& in, CallInfo& c) -> Value {
          for (auto& a : c.args)
            if (a.is_unknown()) return a;
          std::int64_t flags = 0;
          if (auto* k = c.keyword("flags")) flags = in.to_int(k->value);
          PatternObj* p = compile(in, c.args.at(0), P, flags);
          if (!p) return in.unknown(std::string("regular expression that is not understood in re.") + name, c.call);
          try {
            return f(in, p, c);
          } catch (const std::regex_error&) { return in.unknown("regular expression too complex", c.call); }
        };
        i.def(mod, name, fn);
        i.method(P, name, fn);
      };
      i.def(mod, "compile", [P](In& in, CallInfo& c) -> Value {
        if (c.args.at(0).is_unknown()) return c.args[0];
        PatternObj* p = compile(in, c.args[0], P, c.args.size() > 1 && c.args[1].is_integral() ? c.args[1].as_int() : 0);
        return p ? Value(p) : in.unknown("regular expression that is not understood", c.call);
      });
      i.def(mod, "escape", [](In& in, CallInfo& c) {
        std::string out;
        for (char ch : c.args.at(0).str()) {
          if (!isalnum(static_cast<unsigned char>(ch)) && ch != '_') out += '\\';
          out += ch;
        }
        return in.str(out);
      });
      both("match", [M](In& in, PatternObj* p, CallInfo& c) {
        std::smatch m;
        const std::string& s = c.args.at(1).str();
        return std::regex_search(s, m, p->re, std::regex_constants::match_continuous) ? match_value(in, M, p, c.args[1], m) : Value::none();
      });
      both("fullmatch", [M](In& in, PatternObj* p, CallInfo& c) {
        std::smatch m;
        const std::string& s = c.args.at(1).str();
        return std::regex_match(s, m, p->re) ? match_value(in, M, p, c.args[1], m) : Value::none();
      });
      both("search", [M](In& in, PatternObj* p, CallInfo& c) {
        std::smatch m;
        const std::string& s = c.args.at(1).str();
        return std::regex_search(s, m, p->re) ? match_value(in, M, p, c.args[1], m) : Value::none();
      });
      both("findall", [](In& in, PatternObj* p, CallInfo& c) {
        std::vector<Value> out;
        const std::string& s = c.args.at(1).str();
        for (std::sregex_iterator it(s.begin(), s.end(), p->re), e; it != e; ++it) {
          if (it->size() == 1) out.push_back(in.str(it->str()));
          else if (it->size() == 2) out.push_back(in.str((*it)[1].str()));
          else {
            std::vector<Value> g;
            for (std::size_t k = 1; k < it->size(); ++k) g.push_back(in.str((*it)[k].str()));
            out.push_back(in.tuple(std::move(g)));
          }
        }
        return in.list(std::move(out));
      });
      both("finditer", [M](In& in, PatternObj* p, CallInfo& c) {
        std::vector<Value> out;
        const std::string& s = c.args.at(1).str();
        for (std::sregex_iterator it(s.begin(), s.end(), p->re), e; it != e; ++it) out.push_back(match_value(in, M, p, c.args[1], *it));
        return in.iter(in.list(std::move(out)));
      });
      both("split", [](In& in, PatternObj* p, CallInfo& c) {
        std::vector<Value> out;
        const std::string& s = c.args.at(1).str();
        std::size_t last = 0;
        for (std::sregex_iterator it(s.begin(), s.end(), p->re), e; it != e; ++it) {
          out.push_back(in.str(s.substr(last, static_cast<std::size_t>(it->position()) - last)));
          for (std::size_t k = 1; k < it->size(); ++k) out.push_back((*it)[k].matched ? in.str((*it)[k].str()) : Value::none());
          last = static_cast<std::size_t>(it->position() + it->length());
        }
        out.push_back(in.str(s.substr(last)));
        return in.list(std::move(out));
      });
      both("sub", [M](In& in, PatternObj* p, CallInfo& c) {
        Value rep = c.args.at(1);
        const std::string& s = c.args.at(2).str();
        std::int64_t left = c.args.size() > 3 ? in.to_int(c.args[3]) : c.keyword("count") ? in.to_int(c.keyword("count")->value) : 0;
        if (left == 0) left = -1;
        std::string out;
        std::size_t last = 0;
        for (std::sregex_iterator it(s.begin(), s.end(), p->re), e; it != e && left != 0; ++it, --left) {
          out += s.substr(last, static_cast<std::size_t>(it->position()) - last);
          if (rep.is(Kind::Str)) {
            const std::string& r = rep.str();
            for (std::size_t k = 0; k < r.size(); ++k) {
              if (r[k] != '\\' || k + 1 >= r.size()) {
                out += r[k];
                continue;
              }
              char d = r[++k];
              if (isdigit(static_cast<unsigned char>(d))) out += (*it)[static_cast<std::size_t>(d - '0')].str();
              else if (d == 'g' && k + 1 < r.size() && r[k + 1] == '<') {
                std::size_t e2 = r.find('>', k);
                std::string n = r.substr(k + 2, e2 - k - 2);
                out +=
                    (*it)[static_cast<std::size_t>(isdigit(static_cast<unsigned char>(n[0])) ? std::atoi(n.c_str()) : p->names[n])].str();
                k = e2;
              } else out += d == 'n' ? '\n' : d;
            }
          } else {
            out += in.to_str(in.call(rep, {match_value(in, M, p, c.args[2], *it)}));
          }
          last = static_cast<std::size_t>(it->position() + it->length());
        }
        return in.str(out + s.substr(last));
      });
      auto group_index = [](In& in, MatchObj* m, const Value& v) -> std::size_t {
        std::int64_t n = v.is(Kind::Str) ? (m->names.count(v.str()) ? m->names[v.str()] : -1) : in.to_int(v);
        if (n < 0 || n >= static_cast<std::int64_t>(m->groups.size())) in.raise("IndexError", "no such group");
        return static_cast<std::size_t>(n);
      };
      i.method(M, "group", [group_index](In& in, CallInfo& c) -> Value {
        auto* m = static_cast<MatchObj*>(c.args.at(0).obj());
        if (c.args.size() == 1) return m->groups[0];
        if (c.args.size() == 2) return m->groups[group_index(in, m, c.args[1])];
        std::vector<Value> out;
        for (std::size_t k = 1; k < c.args.size(); ++k) out.push_back(m->groups[group_index(in, m, c.args[k])]);
        return in.tuple(std::move(out));
      });
      i.method(M, "__getitem__", [group_index](In& in, CallInfo& c) -> Value {
        auto* m = static_cast<MatchObj*>(c.args.at(0).obj());
        return m->groups[group_index(in, m, c.args.at(1))];
      });
      i.method(M, "groups", [](In& in, CallInfo& c) {
        auto* m = static_cast<MatchObj*>(c.args.at(0).obj());
        return in.tuple(std::vector<Value>(m->groups.begin() + 1, m->groups.end()));
      });
      i.method(M, "groupdict", [](In& in, CallInfo& c) -> Value {
        auto* m = static_cast<MatchObj*>(c.args.at(0).obj());
        auto* d = in.make<DictObj>();
        for (auto& [n, k] : m->names) d->set(in, in.str(n), m->groups[static_cast<std::size_t>(k)]);
        return d;
      });
      for (int which = 0; which < 3; ++which)
        i.method(M,
                 which == 0       ? "start"
                     : which == 1 ? "end"
                                  : "span",
                 [group_index, which](In& in, CallInfo& c) -> Value {
                   auto* m = static_cast<MatchObj*>(c.args.at(0).obj());
                   auto s = m->spans[c.args.size() > 1 ? group_index(in, m, c.args[1]) : 0];
                   return which == 0 ? Value::integer(s.first)
                       : which == 1  ? Value::integer(s.second)
                                     : in.tuple({Value::integer(s.first), Value::integer(s.second)});
                 });
    });
}

}  // namespace shardwright::eval
