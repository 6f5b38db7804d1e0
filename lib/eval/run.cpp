// Runs a job: finds the class, builds the model, calls it on abstract inputs.
#include "eval/run.h"

#include <algorithm>
#include <set>

#include "eval/coroutine.h"
#include "eval/impl.h"
#include "eval/imports.h"
#include "eval/source.h"
#include "eval/torch_link.h"
#include "program/visit.h"
#include "support/edits.h"
#include "support/files.h"
#include "support/yaml.h"

namespace shardwright::eval {

using support::Diagnostic;
using support::Expected;
using support::failure;

namespace {

const python::DiskFileSystem& disk() {
  static const python::DiskFileSystem fs;
  return fs;
}

Diagnostic from_error(Interpreter& in, const PyError& e) {
  Diagnostic d = failure(in.describe(e), e.trace.empty() ? Range{} : e.trace[0].first, "python");
  for (std::size_t i = 0; i < e.trace.size() && i < 20; ++i) {
    const auto& [range, name] = e.trace[i];
    if (!range.valid() || (i == 0 && e.trace.size() == 1)) continue;
    d.notes.push_back({range, (i == 0 ? "raised in " : "called from ") + (name.empty() ? std::string("the job") : name)});
  }
  return d;
}

struct Failed {
  Diagnostic d;
};

/// The part of a reason that speaks of an import ("call of …: module 'x' is not found"); "" when none does.
std::string import_problem(const std::string& why) {
  std::size_t at = why.find("module '");
  if (at != std::string::npos && why.find("is not found", at) == std::string::npos && why.find("is not read", at) == std::string::npos)
    at = std::string::npos;
  if (at == std::string::npos) at = why.find("cannot import name '");
  return at == std::string::npos ? "" : why.substr(at);
}

/// The reason at the bottom of one: "call of something that is not followed: 'x.y' is not described" → "'x.y' is not described".
std::string first_reason(const std::string& why) {
  for (std::size_t colon = why.find(": "); colon != std::string::npos; colon = why.find(": ", colon + 2)) {
    const std::string wrapper = why.substr(0, colon);
    for (const char* w : {"not followed", "unknown value", "unknown condition", "unknown *", "not known"})
      if (wrapper.find(w) != std::string::npos) return first_reason(why.substr(colon + 2));
  }
  return why;
}

const char* const kLostResult = "what forward returns is not known, so what is computed with it stays whole on every rank and in one stage";
const char* const kLostLoop =
    "a loop or call depends on it, and what it makes is missing here: it stays whole on every rank and in one stage";

const char* way_out(const std::string& problem) {
  if (problem.find("circular import") != std::string::npos)
    return "move one of the two imports into the function that needs it, or what both need into a third module";
  return problem.find("is not read") != std::string::npos ? "put Python source there" : "give its folder with --python-path, or install it";
}

/// What the user's code cannot get past: a base class that is not there.
std::string missing_base(const ClassObj* cls) {
  if (!cls || !cls->unknown_base.is_unknown()) return "";
  const std::string problem = import_problem(cls->unknown_base.as<UnknownObj>()->why);
  return problem.empty()
      ? ""
      : "'" + cls->name + "' cannot be built: a class that it derives from is missing: " + problem + "; " + way_out(problem);
}

/// Modules at given files, and the packages above those that are nowhere else.
void place_modules(python::Resolver& resolver, const std::vector<std::pair<std::string, std::string>>& modules) {
  for (const auto& [name, path] : modules) {
    python::ModuleLocation at;
    at.kind = python::ModuleLocation::Source;
    at.name = name;
    at.path = path;
    if (support::stem(path) == "__init__") at.folders = {support::parent_path(path)};
    resolver.set(at);
  }
  for (const auto& [name, path] : modules) {
    std::string folder = support::stem(path) == "__init__" ? support::parent_path(path) : path;
    for (auto dot = name.rfind('.'); dot != std::string::npos; dot = dot == 0 ? std::string::npos : name.rfind('.', dot - 1)) {
      folder = support::parent_path(folder);
      const std::string package = name.substr(0, dot);
      if (resolver.find(package).is_package()) continue;
      python::ModuleLocation above;
      above.kind = python::ModuleLocation::Namespace;
      above.name = package;
      above.folders = {folder};
      resolver.set(above);
    }
  }
}

class Runner {
 public:
  Runner(const Job& job, Traced& out, PythonSource& src, support::SourceManager& sm)
      : job_(job), out_(out), in_(*out.interpreter), src_(src), sm_(sm) {}

  void run() {
    ModuleObj* entry = find_module();
    env_.globals = entry;
    job_frame_.env = &env_;
    job_frame_.name = "the job";
    FrameScope scope(StackAccess::of(in_), &job_frame_);
    for (const auto& [name, dotted] : job_.imports) {
      Value v = in_.import_name(dotted);
      if (!v.set()) throw Failed{failure("imports: '" + dotted + "' is not found", {}, "input")};
      if (v.is_unknown()) throw Failed{failure("imports: '" + dotted + "': " + v.as<UnknownObj>()->why, {}, "input")};
      env_.vars.set(name, v);
    }
    // Jobs may say torch, nn, F and np whether or not the model's file imports them.
    std::string text = job_.build + job_.setup + job_.call;
    for (const auto& a : job_.args) text += a.second;
    for (const auto& i : job_.inputs) text += i.second.expression;
    for (auto [name, dotted] : {std::pair{"torch", "torch"}, {"nn", "torch.nn"}, {"F", "torch.nn.functional"}, {"np", "numpy"}}) {
      if (text.find(std::string(name) + ".") == std::string::npos || in_.impl()->global(entry, name).set() || env_.vars.find(name))
        continue;
      if (ModuleObj* m = in_.import(dotted)) env_.vars.set(name, m);
    }
    Value cls = in_.module_attr(entry, class_name_);
    if (!cls.set())
      throw Failed{failure("module '" + entry->name + "'" + file_of(entry) + " has no class '" + class_name_ + "'" + classes_of(entry), {},
                           "input")};
    if (cls.is_unknown()) {
      const std::string why = cls.as<UnknownObj>()->why, problem = import_problem(why);
      throw Failed{failure("'" + class_name_ + "' cannot be followed: " + (problem.empty() ? why : problem + "; " + way_out(problem)),
                           cls.as<UnknownObj>()->where, "input")};
    }
    if (cls.is(Kind::Class)) out_.root_class = cls.as<ClassObj>();
    if (!job_.setup.empty()) {
      const program::Module* code = parse("<setup>", job_.setup);
      for (const Stmt* s : code->body) in_.impl()->exec(s, &env_);
    }
    Value model = build(cls);
    if (model.is_unknown())
      throw Failed{failure("the model could not be built: " + model.as<UnknownObj>()->why, model.as<UnknownObj>()->where, "input")};
    const Range class_at = out_.root_class && out_.root_class->def ? out_.root_class->def->range : Range{};
    if (!model.is(Kind::Instance) || model.as<InstanceObj>()->module_id < 0) {
      if (const std::string why = missing_base(out_.root_class); !why.empty()) throw Failed{failure(why, class_at, "input")};
      throw Failed{failure("'" + class_name_ + "' is not an nn.Module: building it gives " + in_.type_of(model)->qualified() +
                               "; expected a class derived from torch.nn.Module" + classes_of(entry),
                           class_at, "input")};
    }
    out_.root_class = in_.type_of(model);
    finish_model(in_, model, job_.train);
    in_.init_phase = false;
    forward(model);
  }

 private:
  ModuleObj* find_module() {
    std::size_t colon = job_.model.rfind(':');
    if (colon == std::string::npos || colon + 1 == job_.model.size() || colon == 0)
      throw Failed{failure("model '" + job_.model + "' names no class (expected path/file.py:Class or package.module:Class)", {}, "input")};
    std::string where = job_.model.substr(0, colon);
    class_name_ = job_.model.substr(colon + 1);
    std::string name = where;
    if (where.find('/') != std::string::npos || (where.size() > 3 && where.compare(where.size() - 3, 3, ".py") == 0)) {
      auto m = src_.loader().load_file(where);
      if (!m) throw Failed{failure(m.error().message + "; expected a Python file that defines " + class_name_, {}, "input")};
      name = (*m)->name;
    }
    ModuleObj* m = in_.import(name);
    if (!m) {
      std::string paths;
      for (const auto& p : src_.loader().resolver().search_paths()) paths += (paths.empty() ? "" : ", ") + p;
      throw Failed{failure("module '" + name + "' is not found" + (paths.empty() ? "" : " (looked in " + paths + ")") +
                               "; give its folder with --python-path",
                           {}, "input")};
    }
    if (m->source && !m->builtin && !m->source->syntax_errors.empty())
      throw Failed{failure("syntax error: this cannot be read as Python 3, expected a file that `python3 -m py_compile` accepts",
                           m->source->syntax_errors[0], "syntax")};
    out_.entry_module = name;
    return m;
  }

  std::string file_of(const ModuleObj* m) const {
    return m->source && m->source->file >= 0 ? " (" + sm_.file(m->source->file).path + ")" : "";
  }

  std::string classes_of(ModuleObj* m) {
    std::string out;
    std::vector<std::string> all;
    if (m->source)
      for (const Stmt* s : m->source->body)
        if (s->kind == StmtKind::ClassDef) {
          all.push_back(s->class_def->name);
          if (all.size() <= 12) out += (out.empty() ? "; the file defines " : ", ") + s->class_def->name;
        }
    if (all.size() > 12) out += ", …";
    const auto near = support::yaml::nearest(class_name_, all);
    return out.empty() ? "; the file defines no class" : out + (near && *near != class_name_ ? " (did you mean " + *near + "?)" : "");
  }

  const program::Module* parse(const std::string& what, const std::string& text) {
    const program::Module* m = in_.loader.parse("<job>", what, text);
    if (!m || !m->syntax_errors.empty()) {
      const bool open = std::count(text.begin(), text.end(), '(') > std::count(text.begin(), text.end(), ')');
      throw Failed{
          failure("syntax error in " + what + " of the job" +
                      (open ? ": a comma ends a value inside of {…}; write the tuple on a line of its own, or as a list, [2, 2]" : ""),
                  m ? m->syntax_errors[0] : Range{}, "syntax")};
    }
    return m;
  }

  Value expression(const std::string& what, const std::string& text) {
    const program::Module* m = parse(what, text);
    if (m->body.size() != 1 || m->body[0]->kind != StmtKind::Expression)
      throw Failed{failure(what + " of the job is not an expression: " + text, {}, "input")};
    return in_.eval(m->body[0]->value, &env_);
  }

  /// Elements of written-out lists and dicts (and the whole, when it is neither) that are words which name nothing: strings, as in YAML.
  void quote_words(const Expr* e, support::Edits& edits) {
    if (e == nullptr) return;
    if (e->kind == ExprKind::List || e->kind == ExprKind::Tuple || e->kind == ExprKind::Set || e->kind == ExprKind::Dict) {
      for (const Expr* k : e->kids) quote_words(k, edits);
      return;
    }
    const std::string text(sm_.text(e->range));
    if (!std::all_of(text.begin(), text.end(), [](unsigned char c) {
          return std::isalnum(c) || std::string_view("_-./ ").find(static_cast<char>(c)) != std::string_view::npos;
        }))
      return;
    try {
      in_.eval(e, &env_);
    } catch (PyError& error) {
      if (!in_.isinstance(error.exception, in_.builtin_class("NameError"))) throw;
      edits.replace(e->range, quote_repr(text));
    }
  }

  Value build(const Value& cls) {
    if (!job_.build.empty()) return expression("build", job_.build);
    CallInfo info;
    for (const auto& [name, written] : job_.args) {
      std::string text = written;
      const std::string what = "args." + name;
      Value v;
      try {
        v = expression(what, text);
      } catch (PyError& e) {
        if (!in_.isinstance(e.exception, in_.builtin_class("NameError"))) throw;
        support::Edits edits;
        const program::Module* m = parse(what, text);
        quote_words(m->body[0]->value, edits);
        if (edits.empty()) throw;
        const auto quoted = edits.apply(sm_.file(m->body[0]->value->range.file).text);
        if (!quoted) throw;
        v = expression(what, text = *quoted);
      }
      out_.arguments.emplace_back(name, text);
      info.kwargs.push_back({name, v, nullptr});
    }
    try {
      return in_.call(cls, info);
    } catch (PyError& e) {
      // Raised by the call itself, before a statement ran: the arguments do not fit.
      if (!e.trace.empty() && e.trace[0].first.valid()) throw;
      throw Failed{arguments_do_not_fit(cls, in_.describe(e))};
    }
  }

  Diagnostic arguments_do_not_fit(const Value& cls, const std::string& why) {
    if (!cls.is(Kind::Class))
      return failure("'" + class_name_ + "' is no class that can be built (" + why + "); expected a class derived from torch.nn.Module", {},
                     "input");
    Value init = cls.as<ClassObj>()->lookup("__init__");
    std::string takes;
    Range where = cls.as<ClassObj>()->def ? cls.as<ClassObj>()->def->range : Range{};
    if (init.is(Kind::Function) && init.as<FunctionObj>()->def) {
      const auto* def = init.as<FunctionObj>()->def;
      where = def->def_range;
      for (std::size_t i = 1; i < def->parameters.size(); ++i) {
        const auto& p = def->parameters[i];
        if (p.name.empty()) continue;
        takes += (takes.empty() ? "" : ", ") +
            std::string(p.kind == program::Parameter::VarArgs           ? "*"
                            : p.kind == program::Parameter::VarKeywords ? "**"
                                                                        : "") +
            p.name;
        if (init.as<FunctionObj>()->defaults[i].set()) takes += "=…";
      }
    }
    return failure(class_name_ + " cannot be built: " + why + "; it takes (" + takes +
                       "). Give arguments with --args 'name=value, …' or `args:` in the job file",
                   where, "input");
  }

  /// Inputs are handed over by position: each name must be that of the parameter it lands on.
  void check_names(const Value& model, const program::Function& forward) {
    std::vector<std::string> takes;
    for (std::size_t i = 1; i < forward.parameters.size(); ++i) {
      const auto& p = forward.parameters[i];
      if (p.kind == program::Parameter::VarArgs) return;
      if (p.kind != program::Parameter::VarKeywords && p.kind != program::Parameter::KeywordOnly && !p.name.empty())
        takes.push_back(p.name);
    }
    std::string list;
    for (const auto& t : takes) list += (list.empty() ? "" : ", ") + t;
    for (std::size_t i = 0; i < job_.inputs.size(); ++i) {
      const std::string& name = job_.inputs[i].first;
      if (i < takes.size() && takes[i] == name) continue;
      const bool known = std::find(takes.begin(), takes.end(), name) != takes.end();
      std::string why = known ? "input '" + name + "' is number " + std::to_string(i + 1) + " of the inputs given, but parameter " +
              std::to_string(std::find(takes.begin(), takes.end(), name) - takes.begin() + 1)
                              : "there is no parameter '" + name + "'";
      throw Failed{
          failure(why + " in " + in_.type_of(model)->name + ".forward(" + list + "); give inputs under forward's names and in its order" +
                      (known ? ", those between too, for example --input '" + (i < takes.size() ? takes[i] : name) + "==None'" : ""),
                  forward.def_range, "input")};
    }
  }

  /// The forward that the class's text has, where a decorator put a function in its place that hands on whatever it is given.
  static const program::Function& written(const ClassObj* cls, const program::Function& found) {
    if (std::none_of(found.parameters.begin(), found.parameters.end(), [](const auto& p) { return p.kind == program::Parameter::VarArgs; }))
      return found;
    for (const ClassObj* c : cls->mro)
      if (c->dict.find("forward")) {
        const program::Function* own = c->def ? program::method(*c->def, "forward") : nullptr;
        return own ? *own : found;
      }
    return found;
  }

  void check_inputs(const Value& model) {
    Value f = in_.type_of(model)->lookup("forward");
    if (!f.is(Kind::Function) || !job_.call.empty()) return;
    const program::Function& def = written(in_.type_of(model), *f.as<FunctionObj>()->def);
    if (!job_.keyword) check_names(model, def);
    std::vector<std::string> missing;
    std::size_t pos = 0;
    for (std::size_t i = 1; i < def.parameters.size(); ++i) {
      const auto& p = def.parameters[i];
      if (p.kind == program::Parameter::VarArgs || p.kind == program::Parameter::VarKeywords || p.name.empty()) continue;
      bool named = std::any_of(job_.inputs.begin(), job_.inputs.end(), [&](const auto& x) { return x.first == p.name; });
      bool given = named || (!job_.keyword && p.kind != program::Parameter::KeywordOnly && pos < job_.inputs.size());
      ++pos;
      if (!given && !p.default_value) missing.push_back(p.name);
    }
    if (missing.empty()) return;
    std::string l;
    for (const auto& m : missing) l += (l.empty() ? "" : ", ") + m;
    throw Failed{failure("no shape is given for " + std::string(missing.size() == 1 ? "input " : "inputs ") + l + " of " +
                             in_.type_of(model)->name + ".forward; give each, for example --input '" + missing[0] +
                             "=f32[1,3,224,224]' or inputs: in the job file",
                         def.def_range, "input")};
  }

  void forward(const Value& model) {
    check_inputs(model);
    CallInfo info;
    for (const auto& [name, spec] : job_.inputs) {
      Value v = spec.expression.empty() ? make_input(in_, name, spec) : expression("inputs." + name, spec.expression);
      env_.vars.set(name, v);
      out_.trace.inputs.emplace_back(name, in_.bind_summary(v, 4));
      if (job_.keyword) info.kwargs.push_back({name, v, nullptr});
      else info.add(v, nullptr);
    }
    env_.vars.set("model", model);
    out_.trace.forward_begin = in_.tick();
    Value result = job_.call.empty() ? in_.call(model, info) : expression("call", job_.call);
    in_.forward_over();
    if (result.is_unknown())
      in_.note_incomplete(result.as<UnknownObj>()->where, "the result is not followed: " + result.as<UnknownObj>()->why);
    out_.trace.output = in_.bind_summary(result, 6);
    note_lost(result);
    model::ModuleId root = model.as<InstanceObj>()->module_id;
    for (const auto& f : out_.trace.frames)
      if (!f.init && f.self == root && f.begin > out_.trace.forward_begin) {
        out_.trace.root_frame = f.id;
        break;
      }
  }

  void note_lost(const Value& v) {
    if (v.is_unknown()) out_.lost.push_back({v.as<UnknownObj>()->where, v.as<UnknownObj>()->why});
    else if (v.is(Kind::Tuple) || v.is(Kind::List))
      for (const Value& x : v.as<SeqObj>()->items) note_lost(x);
    else if (v.is(Kind::Dict))
      for (const auto& e : v.as<DictObj>()->entries)
        if (e.alive) note_lost(e.value);
  }

  const Job& job_;
  Traced& out_;
  Interpreter& in_;
  PythonSource& src_;
  support::SourceManager& sm_;
  std::string class_name_;
  Env& env_ = *in_.impl()->new_env(nullptr, nullptr);
  ActiveFrame job_frame_;
};

}  // namespace

std::vector<support::Range> hooks(const model::Trace& t) {
  std::vector<support::Range> out;
  for (const auto& i : t.incomplete)
    if (i.why.ends_with("hooks are not followed")) out.push_back(i.range);
  return out;
}

std::vector<support::Note> missing_imports(const model::Trace& t) {
  std::vector<support::Note> out;
  std::set<std::string> said;
  for (const auto& i : t.incomplete) {
    const std::string problem = import_problem(i.why);
    if (!problem.empty() && said.insert(problem).second)
      out.push_back({i.range, problem + ", but the model uses it here: this part is not followed and stays as it is; " + way_out(problem)});
    if (i.why == "syntax error")
      out.push_back(
          {i.range,
           "syntax error in a file that the model imports: `python3 -m py_compile` has to accept it; what stands here is not followed"});
  }
  return out;
}

std::vector<support::Note> not_followed(const Traced& traced) {
  std::vector<std::pair<std::string, std::string>> reasons;  // the first reason, what it takes away
  for (const auto& l : traced.lost) reasons.emplace_back(first_reason(l.why), kLostResult);
  for (const auto& i : traced.trace.incomplete)
    if (i.why.rfind("loop over an unknown value", 0) == 0 || i.why.rfind("unknown *", 0) == 0)
      reasons.emplace_back(first_reason(i.why), kLostLoop);
  std::vector<support::Note> out;
  std::set<std::string> said;
  for (const auto& [why, lost] : reasons) {
    if (!import_problem(why).empty() || !said.insert(why).second) continue;
    Range where;
    for (const auto& i : traced.trace.incomplete)
      if (!where.valid() && first_reason(i.why) == why) where = i.range;
    for (const auto& l : traced.lost)
      if (!where.valid() && first_reason(l.why) == why) where = l.range;
    out.push_back({where, "not followed from here on: " + why + "; " + lost});
  }
  return out;
}

Expected<std::unique_ptr<Traced>> trace(const Job& job, const Options& options, support::SourceManager& sm) {
  auto out = std::make_unique<Traced>();
  auto src =
      std::make_unique<PythonSource>(options.syntax ? options.syntax : std::make_shared<python::Syntax>(sm), disk(), job.python_path);
  PythonSource& source = *src;
  out->loader = std::move(src);
  place_modules(source.loader().resolver(), options.modules);
  for (program::Module* m : options.programs) source.loader().adopt(m);
  std::optional<Diagnostic> error;
  // On a stack of its own: Python's recursion is the interpreter's, and the caller's stack may be small.
  Coroutine co(
      [&] {
        out->interpreter = std::make_unique<Interpreter>(sm, source, out->trace);
        Interpreter& in = *out->interpreter;
        in.max_steps = options.max_steps;
        in.impl()->stack_limit = co.stack_limit();
        try {
          register_torch(in, options.rules, options.watch, options.rules_dirs);
          for (const auto& [name, text] : options.described) in.modules.source(name, text, "rules/described/" + name);
          Runner(job, *out, source, sm).run();
          model::partition_slices(out->trace);
          if (!in.tensors_only) model::fold_wrappers(out->trace);
        } catch (PyError& e) { error = from_error(in, e); } catch (Abort& a) {
          error = failure(a.message, a.where, "budget");
        } catch (Failed& f) { error = f.d; }
      },
      512u << 20);
  co.resume();
  if (error) {
    for (auto& n : missing_imports(out->trace))  // more often than not the reason
      if (n.range != error->range && error->message.find(n.message.substr(0, n.message.find(", but the model"))) == std::string::npos)
        error->notes.push_back(std::move(n));
    for (const auto& range : hooks(out->trace))
      error->notes.push_back(
          {range, "a hook on a layer's forward is registered here, and what it does is not followed: call it in forward instead"});
    return *error;
  }
  return out;
}

}  // namespace shardwright::eval
