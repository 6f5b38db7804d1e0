#include "lint/session.h"

#include <algorithm>
#include <map>
#include <optional>

#include "eval/coroutine.h"
#include "eval/impl.h"
#include "eval/torch/domain.h"
#include "eval/torch_link.h"
#include "lint/files.h"
#include "lint/placement.h"
#include "lint/run_scripts.h"
#include "lint/syntax_help.h"
#include "program/visit.h"

namespace shardwright::lint {

using eval::Kind;
using eval::Value;

/// What is thought of one parameter of forward.
struct Session::Guess {
  std::string name;
  bool none = false;  ///< None: a mask that may be left out
  bool integers = false;
  bool told = false;  ///< its number of dimensions is known
  std::vector<std::int64_t> shape;
  std::set<int> sharded;
  std::map<int, std::int64_t> settled;  ///< sizes that a run asked for
};

/// An interpreter with the modules that it has imported.
struct Session::Evaluator {
  model::Trace trace;
  eval::Interpreter in;
  Evaluator(support::SourceManager& sources, eval::PythonSource& loader) : in(sources, loader, trace) {}
};

struct Session::Attempt {
  bool built = false, done = false, again = false;
  bool whole_defaults = false;  ///< the constructor has defaults that another attempt would make up
  std::string error;
  support::Range error_at;  ///< where it was raised
  std::vector<model::Incomplete> incomplete;
  std::vector<const program::ClassDef*> covered;
  Facts facts;
};

Session::Session(const Request& request, const Tree& tree, ClassesNamed class_files, std::shared_ptr<python::Syntax> syntax,
                 const rules::Database& rules, Found& findings)
    : request_(request),
      tree_(tree),
      sources_(syntax->sources()),
      rules_(std::shared_ptr<const rules::Database>(), &rules),
      findings_(findings),
      syntax_(std::move(syntax)),
      loader_(std::make_unique<eval::PythonSource>(syntax_, request.files ? *request.files : disk(), tree.roots)),
      class_files_(std::move(class_files)),
      tp_(request.tp > 0 ? request.tp : 2) {
  for (const auto* more : {&request.python_path, &tree.beside})
    for (const auto& path : *more) loader_->loader().resolver().add_search_path(path);
}

Session::~Session() = default;

const program::Module* Session::load(const std::string& path) {
  auto m = loader_->loader().load_file(path);
  if (m) loaded_.push_back(*m);
  return m ? *m : nullptr;
}

void Session::wiring(const std::vector<Registry>& registries, const std::vector<const program::Module*>& asking) {
  check_wiring(
      registries, asking, [&](const std::string& dotted) { return loader_->load(dotted); },
      [&](const std::string& dotted, std::string_view name) {
        auto& resolver = loader_->loader().resolver();
        const auto& at = resolver.find(dotted);
        const auto text = at.kind == python::ModuleLocation::Source ? resolver.files().read(at.path) : support::Expected<std::string>("");
        return text && syntax::contains(*text, {name, "from . import", "from .. import", "from ... import"});
      },
      sources_, findings_);
}

void Session::run_script(support::FileId script) {
  check_run_script(
      script, sources_,
      [&](const std::string& path) {
        auto m = loader_->loader().load_file(path);
        return m ? *m : nullptr;
      },
      findings_);
}

void Session::run(const std::vector<Class>& classes) {
  chains(classes);
  for (const auto& c : classes)
    if (!covered_.count(c.def) && c.relevant) run_class(c);
  originals(classes);
}

namespace {

std::vector<std::int64_t> shape_of_rank(std::size_t rank, std::int64_t width) {
  switch (rank) {
    case 1: return {12};
    case 2: return {12, width};
    case 4: return {3, 6, 8, width};
    case 5: return {3, 2, 6, 8, width};
    default: return {3, 12, width};
  }
}

/// Something that cannot be a module of torch's, by the names of its bases.
bool may_be_module(const program::ClassDef& c, const support::SourceManager& sources) {
  return std::any_of(c.bases.begin(), c.bases.end(), [&](const program::Argument& b) {
    if (!b.keyword.empty()) return false;
    if (!b.value) return true;
    const auto text = sources.text(b.value->range);
    return text != "object" && text != "ABC" && text != "abc.ABC" && text != "Protocol" && text != "torch.autograd.Function" &&
        text != "autograd.Function";
  });
}

bool has(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* w) { return text.find(w) != std::string::npos; });
}

}  // namespace

bool Session::run_class(const Class& c, Facts* facts, bool quiet) {
  if (!may_be_module(*c.def, sources_)) return false;
  const std::size_t mark = findings_.mark();
  const bool ranks = sources_.text(c.def->range).find("rank") != std::string_view::npos;
  bool made_defaults_too = true;
  const auto* planned =
      syntax::stage_number(c.def->name) || planned_for_ ? &planned_inputs(planned_for_ ? *planned_for_ : *c.module) : nullptr;
  for (bool made_defaults : {false, true}) {
    std::vector<Guess> inputs;
    Attempt last;
    std::string name_error;  // of the first run that missed a name: the later ones fail for other reasons
    support::Range name_error_at;
    std::size_t next_rank = 0;
    static constexpr std::size_t other_ranks[] = {2, 4, 5};
    for (int i = 0; i < 16; ++i) {
      findings_.back_to(mark);
      last = {};
      attempt(c, inputs, {0, made_defaults, nullptr, planned}, last);
      if (last.again) continue;
      if (name_error.empty() && (last.error.starts_with("AttributeError") || last.error.starts_with("NameError")))
        name_error = last.error, name_error_at = last.error_at;
      if (last.done || !last.built) break;
      // Another number of dimensions, where nothing tells it.
      auto open = std::find_if(inputs.begin(), inputs.end(), [](const Guess& g) { return !g.told && !g.none; });
      if (open == inputs.end() || next_rank >= std::size(other_ranks)) break;
      const std::size_t rank = other_ranks[next_rank++];
      for (auto& g : inputs)
        if (!g.told && !g.none) g.shape = shape_of_rank(rank, g.shape.empty() ? 40 : g.shape.back()), g.settled.clear(), g.sharded.clear();
    }
    if (!last.built && last.error.empty()) return false;  // no module of torch's: other arguments do not make it one
    if (!last.done && (!last.whole_defaults || last.error.starts_with("step budget"))) made_defaults_too = false;
    if (last.done && facts) *facts = std::move(last.facts);
    if (last.done && quiet) {
      findings_.back_to(mark);
      return true;
    }
    if (last.done) {
      covered_.insert(last.covered.begin(), last.covered.end());
      covered_.insert(c.def);
      for (const auto& i : last.incomplete) findings_.add(support::Severity::Info, "SW902", i.range, "not followed: " + i.why);
      if (ranks) {
        // What only one rank does (a bias that rank 0 adds) is no fault of all.
        const std::vector<support::Diagnostic> first(findings_.all().begin() + static_cast<std::ptrdiff_t>(mark), findings_.all().end());
        Found& f = findings_;
        f.back_to(mark);
        Attempt other;
        attempt(c, inputs, {tp_ - 1, made_defaults, nullptr, planned}, other);
        const std::vector<support::Diagnostic> second(f.all().begin() + static_cast<std::ptrdiff_t>(mark), f.all().end());
        f.back_to(mark);
        for (const auto& d : first) f.add(d.severity, d.code, d.range, d.message, d.notes, d.fix);
        if (other.done) f.keep_common(mark, "SW110", second);
      }
      return true;
    }
    // What was seen before the run ended: only what does not depend on made-up sizes.
    const bool last_try = made_defaults || last.built || !made_defaults_too;
    findings_.back_to(mark, {"SW103", "SW116", "SW112"});
    if (quiet) findings_.back_to(mark);
    if (last_try && !quiet) misspelt(name_error, name_error_at);
    if (last_try && !quiet && !last.error.empty())
      findings_.add(support::Severity::Info, "SW902", syntax::name_range(*c.def),
                    c.def->name + " could not be followed to its end: " + last.error, {{last.error_at, "here"}});
    if (last_try) return false;
  }
  return false;
}

/// A stage that gets these tensors from the one before it.
bool Session::run_stage(const Class& c, const std::vector<Sent>& received, Facts& facts) {
  const std::size_t mark = findings_.mark();
  Attempt last;
  for (bool made_defaults : {false, true}) {
    findings_.back_to(mark);
    std::vector<Guess> inputs;
    last = {};
    attempt(c, inputs, {0, made_defaults, &received, nullptr}, last);
    if (last.done || last.built) break;
  }
  if (last.done) {
    covered_.insert(last.covered.begin(), last.covered.end());
    covered_.insert(c.def);
    facts = std::move(last.facts);
    return true;
  }
  findings_.back_to(mark, {"SW103", "SW116", "SW112"});
  misspelt(last.error, last.error_at);
  const bool counted =
      last.error.find("values to unpack") != std::string::npos || last.error.find("not enough values") != std::string::npos;
  if (counted && last.error_at.valid())
    findings_.add(support::Severity::Error, "SW203", last.error_at,
                  c.def->name + " unpacks another number of tensors than the " + std::to_string(received.size()) +
                      " that the stage before it returns");
  return false;
}

bool Session::attempt(const Class& c, std::vector<Guess>& inputs, const Given& given_to_it, Attempt& out) {
  const bool made_defaults = given_to_it.made_defaults;
  eval::Coroutine co(
      [&] {
        // Modules stay imported from one run to the next, unless a run was broken off in the middle of one.
        std::unique_ptr<Evaluator> evaluator;
        if (given_to_it.rank == 0) evaluator = std::move(evaluator_);
        const bool again = evaluator != nullptr;
        if (!again) evaluator = std::make_unique<Evaluator>(sources_, *loader_);
        struct Keep {
          std::unique_ptr<Evaluator>&from, &to;
          bool whole;
          ~Keep() {
            constexpr std::size_t kTensors = 10'000;  // those of earlier runs stay: a new start is cheaper then
            if (whole && from->trace.tensors.size() < kTensors) to = std::move(from);
          }
        } keep{evaluator, evaluator_, given_to_it.rank == 0};
        model::Trace& trace = evaluator->trace;
        eval::Interpreter& in = evaluator->in;
        Propagator watcher(sources_, findings_, tp_);
        in.max_steps = request_.max_steps;
        in.tensors_only = true;
        in.impl()->stack_limit = co.stack_limit();
        eval::Watch watch{&watcher, tp_, given_to_it.rank, true};
        eval::Env& env = *in.impl()->new_env(nullptr, nullptr);
        eval::ActiveFrame frame;
        frame.env = &env;
        frame.name = "lint";
        try {
          if (again) eval::start_over(in, watch);
          else eval::register_torch(in, rules_, watch);
          auto& domain = eval::torch::domain(in);
          struct Unwatched {
            eval::torch::Domain& domain;
            ~Unwatched() { domain.observer = nullptr; }
          } unwatched{domain};
          if (in.modules.sources.count(c.module->name)) return;  // the described library itself
          eval::ModuleObj* module = in.import(c.module->name);
          if (!module) return;
          env.globals = module;
          eval::FrameScope scope(eval::StackAccess::of(in), &frame);
          Value cls = in.module_attr(module, c.def->name);
          if (!cls.is(Kind::Class) || !cls.as<eval::ClassObj>()->derives_from(domain.module_class)) return;
          Value argument = in.import_name("_made.argument");
          auto made = [&](const std::string& name) { return in.call(argument, {in.str(name)}); };
          // The constructor.
          eval::CallInfo info;
          if (Value init = cls.as<eval::ClassObj>()->lookup("__init__"); init.is(Kind::Function)) {
            const auto* f = init.as<eval::FunctionObj>();
            for (std::size_t i = 1; i < f->def->parameters.size(); ++i) {
              const auto& p = f->def->parameters[i];
              if (p.name.empty() || p.kind == program::Parameter::VarArgs || p.kind == program::Parameter::VarKeywords) continue;
              const Value given = f->defaults[i];
              const bool whole_number = given.is(Kind::Int);
              out.whole_defaults = out.whole_defaults || whole_number;
              if (given.set() && !given.is_none() && !(made_defaults && whole_number)) continue;
              Value v = made(p.name);
              out.facts.made.push_back(p.name);
              if (given.is_none() && (v.is_number() || v.is_none())) continue;  // None means something of its own
              if (p.annotation && !given.set()) {
                const auto text = sources_.text(p.annotation->range);
                if (text == "bool") v = Value::boolean(false);
                else if (text == "float" && v.is(Kind::Int)) v = Value::real(static_cast<double>(v.as_int()));
                else if (text == "str") v = in.str("");
              }
              if (p.kind == program::Parameter::KeywordOnly || info.args.size() + 1 != i || !info.kwargs.empty())
                info.kwargs.push_back({p.name, v, nullptr});
              else info.add(v);
            }
          }
          Value model = in.call(cls, info);
          if (!model.is(Kind::Instance) || model.as<eval::InstanceObj>()->module_id < 0) return;
          out.built = true;
          in.init_phase = false;
          // The inputs.
          Value forward = in.type_of(model)->lookup("forward");
          if (!forward.is(Kind::Function)) return;
          const auto* f = forward.as<eval::FunctionObj>();
          if (inputs.empty()) {
            const Value width = made("dim");
            static const std::map<std::string, std::vector<std::int64_t>> none;
            const auto& planned = given_to_it.planned ? *given_to_it.planned : none;
            for (std::size_t i = 1; i < f->def->parameters.size() && !given_to_it.received; ++i) {
              const auto& p = f->def->parameters[i];
              if (p.name.empty() || p.kind == program::Parameter::VarArgs || p.kind == program::Parameter::VarKeywords ||
                  f->defaults[i].set())
                continue;
              Guess g;
              g.name = p.name;
              std::size_t dims = rank_of(*f->def, p.name);
              g.told = dims > 0;
              g.integers = has(p.name, {"ids", "tokens", "index", "idx", "position", "labels"});
              const std::string annotation = p.annotation ? std::string(sources_.text(p.annotation->range)) : "";
              g.none = dims == 0 && (has(p.name, {"mask", "bias"}) || has(annotation, {"Optional", "None"}));
              g.shape = g.integers && dims == 0 ? std::vector<std::int64_t>{3, 12}
                                                : shape_of_rank(dims == 0 ? 3 : dims, width.is(Kind::Int) ? width.as_int() : 40);
              if (const auto at = planned.find(p.name); at != planned.end()) g.shape = at->second, g.told = true, g.none = false;
              if (dims > 5) return;
              inputs.push_back(std::move(g));
            }
          }
          eval::CallInfo call;
          for (std::size_t i = 0; i < inputs.size(); ++i) {
            const Guess& g = inputs[i];
            Value v = Value::none();
            if (!g.none) {
              eval::InputSpec spec;
              spec.shape = g.shape;
              spec.free.assign(g.shape.size(), false);
              spec.dtype = g.integers ? model::DType::I64 : model::DType::F32;
              v = eval::make_input(in, g.name, spec);
              trace.tensors.back().requires_grad = !g.integers;
              watcher.input(trace.tensors.back().id, static_cast<int>(i), g.sharded);
            }
            call.kwargs.push_back({g.name, v, nullptr});
          }
          std::vector<model::TensorId> received;
          if (given_to_it.received) {
            std::vector<Value> tensors;
            for (const Sent& sent : *given_to_it.received) {
              if (!sent.tensor) {
                tensors.push_back(Value::none());
                continue;
              }
              eval::InputSpec spec;
              spec.shape = sent.shape;
              spec.free.assign(sent.shape.size(), false);
              spec.dtype = sent.dtype;
              tensors.push_back(eval::make_input(in, "received " + std::to_string(tensors.size()), spec));
              trace.tensors.back().requires_grad = trace.tensors.back().from_parameter = sent.requires_grad;
              received.push_back(trace.tensors.back().id);
              watcher.received(received.back(), sent.place);
            }
            if (Value set = in.getattr_or(model, "set_input_tensor"); set.set()) in.call(set, {in.list(tensors)});
            else in.setattr(model, "input_tensor", in.list(tensors));
          }
          trace.forward_begin = in.tick();
          watcher.begin();
          watcher.ranks_guessed = std::any_of(inputs.begin(), inputs.end(), [](const Guess& g) { return !g.told && !g.none; });
          std::optional<eval::PyError> error;
          Value returned;
          try {
            returned = in.call(model, call);
          } catch (eval::PyError& e) { error = e; }
          if (std::getenv("SHARDWRIGHT_LINT_DEBUG"))
            for (const auto& w : watcher.wanted)
              std::fprintf(stderr, "lint: wants input %d dim %d size %lld %s\n", w.input, w.dim, static_cast<long long>(w.size),
                           w.sharded ? "sharded" : "");
          for (const auto& w : watcher.wanted) {
            Guess& g = inputs[static_cast<std::size_t>(w.input)];
            if (g.shape[static_cast<std::size_t>(w.dim)] == w.size && !w.sharded && !g.settled.count(w.dim)) continue;
            auto [at, fresh] = g.settled.emplace(w.dim, w.size);
            if (!fresh && at->second == w.size && g.sharded.count(w.dim) == static_cast<std::size_t>(w.sharded)) continue;
            if (!fresh) {
              out.again = false;
              break;  // two places want different sizes: the guess cannot be right for both
            }
            g.shape[static_cast<std::size_t>(w.dim)] = w.size;
            if (w.sharded) g.sharded.insert(w.dim);
            out.again = true;
          }
          if (watcher.wants_rank && watcher.wanted_input >= 0) {
            Guess& g = inputs[static_cast<std::size_t>(watcher.wanted_input)];
            if (!g.told) {
              g.told = true;
              g.shape = shape_of_rank(watcher.wanted_rank, g.shape.back());
              out.again = true;
            }
          }
          if (out.again) return;
          if (error) {
            out.error = in.describe(*error);
            if (!error->trace.empty()) out.error_at = error->trace[0].first;
            // Sizes of one rank met the whole's before, and fitted then: what comes after such a fault may well not fit.
            out.done = watcher.repairs > 0;
            return;
          }
          watcher.end();
          out.done = true;
          out.incomplete = trace.incomplete;
          if (request_.values && given_to_it.rank == 0) note_values(trace, watcher);
          eval::finish_model(in, model, true);  // names of modules and parameters
          const auto summary = in.bind_summary(returned);
          in.tensors_only = false;  // containers in containers, too
          watcher.returned(in.bind_summary(returned));
          in.tensors_only = true;
          collect_facts(out.facts, trace, received, summary);
          for (Sent& sent : out.facts.outputs)
            if (sent.tensor) sent.place = watcher.place(sent.id);
          if (const auto* pair =
                  dynamic_cast<const eval::LayerResultObj*>(returned.is(Kind::Tuple) ? returned.as<eval::SeqObj>() : nullptr)) {
            out.facts.pair_of = pair->layer >= 0 ? trace.module(pair->layer).attr : "a layer";
            if (pair->own_call && pair->site.expr) out.facts.pair_call = pair->site.expr->outer;
          }
          if (summary.kind == model::Binding::Tensor && watcher.any_sharded(watcher.place(summary.tensor)))
            out.facts.sharded_output = watcher.describe(summary.tensor);
          for (const auto& m : trace.calls)
            if (m.end > 0 && m.module >= 0)
              for (const auto* def : trace.module(m.module).mro)
                if (method(*def, "forward")) {
                  out.covered.push_back(def);
                  break;
                }
        } catch (eval::PyError& e) {
          out.error = in.describe(e);
          if (!e.trace.empty()) out.error_at = e.trace[0].first;
        } catch (eval::Abort& a) {
          out.error = a.message;
          out.error_at = a.where;
          keep.whole = false;
        }
      },
      256u << 20);
  co.resume();
  if (const char* debug = std::getenv("SHARDWRIGHT_LINT_DEBUG"); debug && *debug) {
    std::string shapes;
    for (const auto& g : inputs) {
      shapes += " " + g.name + "=";
      for (auto n : g.shape) shapes += std::to_string(n) + ",";
      if (g.none) shapes += "None";
    }
    std::fprintf(stderr, "lint: %s:%s built=%d done=%d again=%d%s %s\n", c.module->name.c_str(), c.def->name.c_str(), out.built, out.done,
                 out.again, shapes.c_str(), out.error.c_str());
  }
  return out.done;
}

}  // namespace shardwright::lint
