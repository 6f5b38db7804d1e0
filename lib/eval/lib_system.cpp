// sys, os, importlib, inspect, types and others that ask about the interpreter itself.
#include <algorithm>

#include "eval/impl.h"

namespace shardwright::eval {

namespace {

Value simple(In& in, const std::string& cls, std::vector<std::pair<std::string, Value>> fields) {
  auto* o = in.make<InstanceObj>(in.make_class("", cls));
  o->attrs = &in.impl()->new_env(nullptr, nullptr)->vars;
  for (auto& [n, v] : fields) o->attrs->set(n, v);
  return o;
}

std::string text(In& in, const Value& v) { return v.is(Kind::Str) ? v.str() : in.to_str(v); }

}  // namespace

void register_system(Interpreter& in) {
  in.modules.native("sys", [](In& i, ModuleObj& m) {
    auto* vi = i.make<SeqObj>(
        Kind::Tuple, std::vector<Value>{Value::integer(3), Value::integer(11), Value::integer(2), i.str("final"), Value::integer(0)});
    vi->cls = i.make_class("sys", "version_info", {i.builtin_class("tuple")});
    vi->attrs = &i.impl()->new_env(nullptr, nullptr)->vars;
    for (auto [n, v] : {std::pair{"major", 3}, {"minor", 11}, {"micro", 2}}) vi->attrs->set(n, Value::integer(v));
    m.env.vars.set("version_info", vi);
    m.env.vars.set("version", i.str("3.11.2"));
    m.env.vars.set("platform", i.str("linux"));
    m.env.vars.set("byteorder", i.str("little"));
    m.env.vars.set("maxsize", Value::integer(INT64_MAX));
    m.env.vars.set("argv", i.list({i.str("")}));
    m.env.vars.set("path", i.list({}));
    m.env.vars.set("executable", i.str("python"));
    auto* mods = i.make<DictObj>();
    mods->cls = i.make_class("sys", "modules", {i.builtin_class("dict")});
    auto find = [](In& in, const Value& k) -> Value {
      if (!k.is(Kind::Str)) return {};
      auto it = in.impl()->loaded.find(k.str());
      return it == in.impl()->loaded.end() ? Value() : Value(it->second);
    };
    for (const char* n : {"__getitem__", "get", "__contains__"}) {
      std::string name = n;
      i.method(mods->cls, n, [find, name](In& in, CallInfo& c) -> Value {
        auto* d = c.args.at(0).as<DictObj>();
        Value v = d->find(in, c.args.at(1)) ? *d->find(in, c.args[1]) : find(in, c.args[1]);
        if (name == "__contains__") return Value::boolean(v.set());
        if (v.set()) return v;
        if (name == "get") return c.args.size() > 2 ? c.args[2] : Value::none();
        in.raise_value(in.call(in.builtin_class("KeyError"), {c.args[1]}));
      });
    }
    // The class's natives count only for instances of Python classes; reads of the plain dictionary go through these.
    i.impl()->sys_modules = mods;
    m.env.vars.set("modules", mods);
    for (const char* n : {"stdout", "stderr", "stdin"}) {
      auto* f = i.make_class("io", "TextIOWrapper");
      for (const char* w : {"write", "flush", "close"}) i.method(f, w, [](In&, CallInfo&) { return Value::none(); });
      i.method(f, "isatty", [](In&, CallInfo&) { return Value::boolean(false); });
      m.env.vars.set(n, i.make<InstanceObj>(f));
    }
    i.def(m, "exit", [](In& in, CallInfo& c) -> Value { in.raise("SystemExit", c.args.empty() ? "" : in.to_str(c.args[0]), c.call); });
    i.def(m, "getrecursionlimit", [](In&, CallInfo&) { return Value::integer(1000); });
    i.def(m, "setrecursionlimit", [](In&, CallInfo&) { return Value::none(); });
    i.def(m, "exc_info", [](In& in, CallInfo&) {
      Value e = in.frame() && in.frame()->handling.set() ? in.frame()->handling : Value::none();
      return in.tuple({e.is_none() ? e : Value(in.type_of(e)), e, Value::none()});
    });
    i.def(m, "_getframe", [](In& in, CallInfo& c) { return in.unknown("sys._getframe is not followed", c.call); });
    i.def(m, "intern", [](In&, CallInfo& c) { return c.args.at(0); });
  });
  in.modules.native("importlib", [](In& i, ModuleObj& m) {
    i.def(m, "import_module", [](In& in, CallInfo& c) -> Value {
      Value n = c.args.at(0);
      if (n.is_unknown()) return n;
      std::string name = n.str();
      if (!name.empty() && name[0] == '.') {
        Value pkg = c.args.size() > 1 ? c.args[1] : c.keyword("package") ? c.keyword("package")->value : Value::none();
        if (!pkg.is(Kind::Str))
          in.raise("TypeError", "the 'package' argument is required to perform a relative import for '" + name + "'", c.call);
        std::size_t dots = name.find_first_not_of('.');
        std::string base = pkg.str();
        for (std::size_t k = 1; k < dots; ++k) base = base.substr(0, base.rfind('.') == std::string::npos ? 0 : base.rfind('.'));
        name = base + "." + name.substr(dots);
      }
      if (ModuleObj* mod = in.import(name)) return mod;
      in.raise_value(in.call(in.builtin_class("ModuleNotFoundError"), {in.str("No module named '" + name + "'")}), in.range_of(c.call));
    });
    i.def(m, "reload", [](In&, CallInfo& c) { return c.args.at(0); });
    i.def(m, "invalidate_caches", [](In&, CallInfo&) { return Value::none(); });
  });
  in.modules.native("importlib.util", [](In& i, ModuleObj& m) {
    i.def(m, "find_spec", [](In& in, CallInfo& c) -> Value {
      if (c.args.at(0).is_unknown()) return c.args[0];
      if (!in.import(c.args[0].str())) return Value::none();
      return simple(in, "ModuleSpec", {{"name", c.args[0]}, {"origin", c.args[0]}, {"loader", Value::none()}});
    });
  });
  in.modules.native("importlib.metadata", [](In& i, ModuleObj& m) {
    auto* nf = i.make_class("importlib.metadata", "PackageNotFoundError", {i.builtin_class("ModuleNotFoundError")});
    m.env.vars.set("PackageNotFoundError", nf);
    i.def(m, "version", [nf](In& in, CallInfo& c) -> Value {
      if (c.args.at(0).is_unknown()) return c.args[0];
      ModuleObj* mod = in.import(c.args[0].str());
      if (!mod) in.raise_value(in.call(nf, {c.args[0]}), in.range_of(c.call));
      Value v = in.module_attr(mod, "__version__");
      return v.is(Kind::Str) ? v : in.unknown("version of " + c.args[0].str(), c.call);
    });
    i.def(m, "packages_distributions", [](In& in, CallInfo&) { return in.dict(); });
    i.def(m, "entry_points", [](In& in, CallInfo&) { return in.list({}); });
  });
  in.modules.native("os", [](In& i, ModuleObj& m) {
    // The environment is not the model's: what it would say is taken to be unset.
    auto* env = i.make<DictObj>();
    m.env.vars.set("environ", env);
    i.def(m, "getenv", [env](In& in, CallInfo& c) -> Value {
      if (Value* v = env->find(in, c.args.at(0))) return *v;
      return c.args.size() > 1 ? c.args[1] : Value::none();
    });
    m.env.vars.set("sep", i.str("/"));
    m.env.vars.set("linesep", i.str("\n"));
    m.env.vars.set("name", i.str("posix"));
    m.env.vars.set("PathLike", i.make_class("os", "PathLike"));
    m.env.vars.set("devnull", i.str("/dev/null"));
    i.def(m, "getcwd", [](In& in, CallInfo&) { return in.str("."); });
    i.def(m, "cpu_count", [](In&, CallInfo&) { return Value::integer(1); });
    i.def(m, "getpid", [](In&, CallInfo&) { return Value::integer(1); });
    i.def(m, "fspath", [](In& in, CallInfo& c) { return in.str(text(in, c.args.at(0))); });
    for (const char* n : {"makedirs", "mkdir", "remove", "chdir", "putenv"}) i.def(m, n, [](In&, CallInfo&) { return Value::none(); });
    i.def(m, "listdir", [](In& in, CallInfo& c) { return in.unknown("os.listdir is not followed", c.call); });
  });
  in.modules.native("os.path", [](In& i, ModuleObj& m) {
    i.def(m, "join", [](In& in, CallInfo& c) -> Value {
      std::string p;
      for (auto& a : c.args) {
        if (a.is_unknown()) return a;
        std::string t = text(in, a);
        if (!t.empty() && t[0] == '/') p = t;
        else p += (p.empty() || p.back() == '/' ? "" : "/") + t;
      }
      return in.str(p);
    });
    auto fn = [&](const char* n, std::function<Value(In&, std::string)> f) {
      i.def(m, n, [f](In& in, CallInfo& c) -> Value { return c.args.at(0).is_unknown() ? c.args[0] : f(in, text(in, c.args[0])); });
    };
    fn("dirname", [](In& in, std::string s) {
      auto p = s.rfind('/');
      return in.str(p == std::string::npos ? "" : s.substr(0, p));
    });
    fn("basename", [](In& in, std::string s) { return in.str(s.substr(s.rfind('/') + 1)); });
    for (const char* n : {"abspath", "realpath", "normpath", "expanduser", "expandvars"})
      fn(n, [](In& in, std::string s) { return in.str(s); });
    for (const char* n : {"exists", "isfile", "isdir", "islink", "isabs"}) {
      std::string name = n;
      fn(n, [name](In&, std::string s) { return Value::boolean(name == "isabs" && !s.empty() && s[0] == '/'); });
    }
    fn("splitext", [](In& in, std::string s) {
      auto p = s.rfind('.');
      if (p == std::string::npos || p < s.rfind('/') + 1) return in.tuple({in.str(s), in.str("")});
      return in.tuple({in.str(s.substr(0, p)), in.str(s.substr(p))});
    });
    fn("split", [](In& in, std::string s) {
      auto p = s.rfind('/');
      return in.tuple({in.str(p == std::string::npos ? "" : s.substr(0, p)), in.str(s.substr(p == std::string::npos ? 0 : p + 1))});
    });
    m.env.vars.set("sep", i.str("/"));
  });
  in.modules.native("inspect", [](In& i, ModuleObj& m) {
    auto kind = [&](const char* n, std::function<bool(In&, const Value&)> f) {
      i.def(m, n, [f](In& in, CallInfo& c) { return Value::boolean(f(in, c.args.at(0))); });
    };
    kind("isfunction", [](In&, const Value& v) { return v.is(Kind::Function); });
    kind("ismethod", [](In&, const Value& v) { return v.is(Kind::BoundMethod); });
    kind("isclass", [](In&, const Value& v) { return v.is(Kind::Class); });
    kind("ismodule", [](In&, const Value& v) { return v.is(Kind::Module); });
    kind("isbuiltin", [](In&, const Value& v) { return v.is(Kind::Native); });
    kind("isroutine", [](In&, const Value& v) { return v.is(Kind::Function) || v.is(Kind::Native) || v.is(Kind::BoundMethod); });
    kind("isgenerator", [](In&, const Value& v) { return v.is(Kind::Iterator); });
    kind("isgeneratorfunction", [](In&, const Value& v) { return v.is(Kind::Function) && v.as<FunctionObj>()->def->is_generator; });
    kind("iscoroutinefunction", [](In&, const Value& v) { return v.is(Kind::Function) && v.as<FunctionObj>()->def->is_async; });
    kind("isabstract", [](In&, const Value&) { return false; });
    for (const char* n : {"getsource", "getfile", "getsourcefile", "currentframe", "stack", "getmodule"}) {
      std::string s = n;
      i.def(m, n, [s](In& in, CallInfo& c) { return in.unknown("inspect." + s + " is not followed", c.call); });
    }
    i.def(m, "getdoc", [](In&, CallInfo&) { return Value::none(); });
    i.def(m, "unwrap", [](In& in, CallInfo& c) {
      Value f = c.args.at(0);
      for (Value w = in.getattr_or(f, "__wrapped__"); w.set(); w = in.getattr_or(f, "__wrapped__")) f = w;
      return f;
    });
    auto* P = i.make_class("inspect", "Parameter");
    auto* empty = i.make_class("inspect", "_empty");
    P->dict.set("empty", empty);
    static constexpr const char* kinds[] = {"POSITIONAL_OR_KEYWORD", "POSITIONAL_ONLY", "KEYWORD_ONLY", "VAR_POSITIONAL", "VAR_KEYWORD"};
    for (int k = 0; k < 5; ++k) P->dict.set(kinds[k], i.str(kinds[k]));
    i.method(P, "__init__", [empty](In& in, CallInfo& c) -> Value {
      static const Signature sig("inspect.Parameter", "self, name, kind, *, default=None, annotation=None");
      auto b = sig.bind(in, c);
      in.plain_setattr(b[0], "name", b[1]);
      in.plain_setattr(b[0], "kind", b[2]);
      in.plain_setattr(b[0], "default", b.given[3] ? b[3] : Value(empty));
      in.plain_setattr(b[0], "annotation", b.given[4] ? b[4] : Value(empty));
      return Value::none();
    });
    m.env.vars.set("Parameter", P);
    m.env.vars.set("_empty", empty);
    auto* S = i.make_class("inspect", "Signature");
    S->dict.set("empty", empty);
    m.env.vars.set("Signature", S);
    i.method(S, "__init__", [empty](In& in, CallInfo& c) -> Value {
      static const Signature sig("inspect.Signature", "self, parameters=None, *, return_annotation=None");
      auto b = sig.bind(in, c);
      auto* d = in.make<DictObj>();
      if (!b[1].is_none())
        for (auto& p : in.to_vector(b[1])) d->set(in, in.getattr(p, "name"), p);
      in.plain_setattr(b[0], "parameters", d);
      in.plain_setattr(b[0], "return_annotation", b.given[2] ? b[2] : Value(empty));
      return Value::none();
    });
    for (const char* r : {"replace"})
      for (ClassObj* k : {P, S})
        i.method(k, r, [](In& in, CallInfo& c) -> Value {
          auto* o = in.make<InstanceObj>(in.type_of(c.args.at(0)));
          if (c.args[0].obj()->attrs)
            for (const auto& a : *c.args[0].obj()->attrs) in.plain_setattr(o, a.name, a.value);
          for (auto& kw : c.kwargs) {
            Value v = kw.value;
            if (kw.name == "parameters") {
              auto* d = in.make<DictObj>();
              for (auto& p : in.to_vector(v)) d->set(in, in.getattr(p, "name"), p);
              v = d;
            }
            in.plain_setattr(o, kw.name, v);
          }
          return o;
        });
    for (bool partial : {false, true})
      i.method(S, partial ? "bind_partial" : "bind", [partial](In& in, CallInfo& c) -> Value {
        auto* kw = in.make<DictObj>();
        for (auto& k : c.kwargs) kw->set(in, in.str(k.name), k.value);
        std::vector<Value> rest(c.args.begin() + 1, c.args.end());
        return in.call(in.module_attr(in.import("inspect"), "_bind"),
                       {c.args.at(0), in.tuple(std::move(rest)), kw, Value::boolean(partial)}, c.call);
      });
    auto parameters = [P, empty](In& in, Value f) -> Value {
      bool skip = false;
      if (f.is(Kind::Class)) {
        f = f.as<ClassObj>()->lookup("__init__");
        skip = true;
      } else if (f.is(Kind::Instance)) {
        f = in.type_of(f)->lookup("__call__");
        skip = true;
      }
      if (f.is(Kind::BoundMethod)) {
        f = f.as<BoundMethodObj>()->function;
        skip = true;
      }
      for (int n = 0; n < 20 && f.is(Kind::Function); ++n) {
        Value w = f.obj()->attrs ? f.obj()->attrs->get("__wrapped__") : Value();
        if (!w.set()) break;
        f = w;
      }
      auto* d = in.make<DictObj>();
      if (!f.is(Kind::Function)) return {};
      auto* fn = f.as<FunctionObj>();
      for (std::size_t k = skip ? 1 : 0; k < fn->def->parameters.size(); ++k) {
        const auto& p = fn->def->parameters[k];
        if (p.name.empty()) continue;
        auto* o = in.make<InstanceObj>(P);
        o->attrs = &in.impl()->new_env(nullptr, nullptr)->vars;
        o->attrs->set("name", in.str(p.name));
        o->attrs->set("default", fn->defaults[k].set() ? fn->defaults[k] : Value(empty));
        o->attrs->set("kind",
                      in.str(kinds[p.kind == program::Parameter::Positional           ? 0
                                       : p.kind == program::Parameter::PositionalOnly ? 1
                                       : p.kind == program::Parameter::KeywordOnly    ? 2
                                       : p.kind == program::Parameter::VarArgs        ? 3
                                                                                      : 4]));
        o->attrs->set("annotation", p.annotation ? in.str(std::string(in.sources.text(p.annotation->range))) : Value(empty));
        d->set(in, in.str(p.name), o);
      }
      return d;
    };
    i.def(m, "signature", [parameters, S, empty](In& in, CallInfo& c) -> Value {
      if (c.args.at(0).is_unknown()) return c.args[0];
      Value d = parameters(in, c.args[0]);
      if (!d.set()) return in.unknown("signature of something that is not written in Python", c.call);
      auto* o = in.make<InstanceObj>(S);
      o->attrs = &in.impl()->new_env(nullptr, nullptr)->vars;
      o->attrs->set("parameters", d);
      o->attrs->set("return_annotation", empty);
      return o;
    });
    i.def(m, "getfullargspec", [parameters](In& in, CallInfo& c) -> Value {
      Value d = parameters(in, c.args.at(0));
      if (!d.set()) return in.unknown("signature of something that is not written in Python", c.call);
      std::vector<Value> names;
      for (auto& e : d.as<DictObj>()->entries) names.push_back(e.key);
      return simple(in, "FullArgSpec",
                    {{"args", in.list(names)}, {"varargs", Value::none()}, {"varkw", Value::none()}, {"kwonlyargs", in.list({})}});
    });
    i.def(m, "getmembers", [](In& in, CallInfo& c) -> Value {
      std::vector<Value> out;
      for (auto& n : in.to_vector(in.call(in.impl()->builtins.get("dir"), {c.args.at(0)}))) {
        Value v = in.getattr_or(c.args[0], n.str());
        if (!v.set()) continue;
        if (c.args.size() > 1 && !in.truthy(in.call(c.args[1], {v}))) continue;
        out.push_back(in.tuple({n, v}));
      }
      return in.list(std::move(out));
    });
    i.def(m, "getmro", [](In& in, CallInfo& c) { return in.getattr(c.args.at(0), "__mro__"); });
  });
  in.modules.native("types", [](In& i, ModuleObj& m) {
    auto& t = *i.impl();
    for (auto [n, c] : {std::pair{"FunctionType", t.function_},
                        {"LambdaType", t.function_},
                        {"MethodType", t.method_},
                        {"BuiltinFunctionType", t.native_},
                        {"ModuleType", t.module_},
                        {"GeneratorType", t.iterator_},
                        {"NoneType", t.none_},
                        {"EllipsisType", t.ellipsis_}})
      m.env.vars.set(n, c);
    i.method(t.method_, "__new__", [](In& in, CallInfo& c) -> Value { return in.make<BoundMethodObj>(c.args.at(2), c.args.at(1)); });
    i.method(t.module_, "__new__", [](In& in, CallInfo& c) -> Value {
      if (c.args.at(0).as<ClassObj>() == in.impl()->module_) return in.new_module(c.args.at(1).str());
      return in.make<InstanceObj>(c.args[0].as<ClassObj>());
    });
    i.method(t.module_, "__init__", [](In& in, CallInfo& c) {
      if (c.args.at(0).is(Kind::Instance) && c.args.size() > 1) in.plain_setattr(c.args[0], "__name__", c.args[1]);
      return Value::none();
    });
    m.env.vars.set("MappingProxyType", i.builtin_class("dict"));
    m.env.vars.set("UnionType", i.make_class("types", "UnionType"));
    m.env.vars.set("GenericAlias", i.make_class("types", "GenericAlias"));
    m.env.vars.set("CodeType", i.make_class("types", "CodeType"));
  });
  for (const char* n : {"time",
                        "random",
                        "gc",
                        "subprocess",
                        "shutil",
                        "glob",
                        "pickle",
                        "threading",
                        "multiprocessing",
                        "socket",
                        "hashlib",
                        "uuid",
                        "tempfile",
                        "urllib",
                        "urllib.request",
                        "requests",
                        "traceback",
                        "platform",
                        "ctypes",
                        "argparse",
                        "datetime",
                        "signal",
                        "zipfile",
                        "tarfile",
                        "struct",
                        "base64",
                        "io",
                        "csv",
                        "atexit",
                        "queue",
                        "textwrap",
                        "pprint",
                        "statistics",
                        "ast",
                        "dis",
                        "builtins_",
                        "fnmatch",
                        "decimal",
                        "fractions",
                        "heapq",
                        "bisect",
                        "codecs",
                        "errno",
                        "getpass",
                        "unittest",
                        "unittest.mock",
                        "concurrent",
                        "concurrent.futures",
                        "asyncio",
                        "locale",
                        "site",
                        "sysconfig",
                        "resource",
                        "linecache",
                        "html",
                        "configparser",
                        "email",
                        "http",
                        "ssl",
                        "secrets",
                        "cProfile",
                        "pstats",
                        "timeit",
                        "pkgutil",
                        "zlib",
                        "gzip",
                        "lzma",
                        "bz2",
                        "sqlite3",
                        "xml",
                        "xml.etree",
                        "xml.etree.ElementTree",
                        "difflib",
                        "select",
                        "tracemalloc",
                        "optparse",
                        "shlex",
                        "ftplib",
                        "stat",
                        "mmap",
                        "importlib.resources",
                        "importlib.machinery",
                        "importlib.abc",
                        "faulthandler",
                        "token",
                        "tokenize",
                        "keyword",
                        "curses",
                        "calendar",
                        "cmath",
                        "array",
                        "unicodedata",
                        "sched",
                        "opcode",
                        "distutils",
                        "distutils.version"})
    in.modules.native(n, [](In&, ModuleObj&) {});
  for (const char* n : {"time", "perf_counter", "monotonic", "time_ns", "perf_counter_ns", "process_time"})
    in.modules.native("time",
                      [n](In& i, ModuleObj& m) { i.def(m, n, [](In& in, CallInfo& c) { return in.unknown("the time", c.call); }); });
  in.modules.native("time", [](In& i, ModuleObj& m) { i.def(m, "sleep", [](In&, CallInfo&) { return Value::none(); }); });
  in.modules.native("random", [](In& i, ModuleObj& m) {
    i.def(m, "seed", [](In&, CallInfo&) { return Value::none(); });
    for (const char* n : {"random", "randint", "uniform", "choice", "choices", "sample", "gauss", "normalvariate", "randrange", "shuffle"})
      i.def(m, n, [](In& in, CallInfo& c) { return in.unknown("a random number", c.call); });
  });
  // For stdlib/*.py: what a description cannot know, with the reason; its place is the user's statement.
  in.modules.native("_shardwright", [](In& i, ModuleObj& m) {
    i.def(m, "unknown", [](In& in, CallInfo& c) { return in.unknown(c.args.at(0).str(), Range{in.here()}); });
  });
  in.modules.native("gc", [](In& i, ModuleObj& m) {
    for (const char* n : {"collect", "enable", "disable", "freeze"}) i.def(m, n, [](In&, CallInfo&) { return Value::integer(0); });
  });
}

}  // namespace shardwright::eval
