#include "emit/training_slice.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <functional>
#include <set>

#include "emit/training_values.h"
#include "program/visit.h"
#include "support/files.h"

namespace shardwright::emit {
namespace {

using program::Expr;
using program::ExprKind;
using program::Stmt;
using program::StmtKind;
using Names = std::set<std::string>;
using Statements = std::vector<const Stmt*>;

Names reads(const Stmt* s) {
  program::NameSet n;
  program::names_read(s, n);
  return {n.names().begin(), n.names().end()};
}
Names writes(const Stmt* s) {
  program::NameSet n;
  program::names_written(s, n);
  return {n.names().begin(), n.names().end()};
}
Names reads(const Expr* e) {
  program::NameSet n;
  program::names_read(e, n);
  return {n.names().begin(), n.names().end()};
}
bool meets(const Names& a, const Names& b) {
  return std::any_of(a.begin(), a.end(), [&](const auto& x) { return b.count(x) != 0; });
}

const Expr* find(const Stmt* s, const std::function<bool(const Expr*)>& is) {
  const Expr* found = nullptr;
  program::walk_exprs({const_cast<Stmt*>(s)}, [&](const Expr* e) {
    if (!found && is(e)) found = e;
    return !found;
  });
  return found;
}

std::string last_of(const Expr* callee) {
  return callee->kind == ExprKind::Name || callee->kind == ExprKind::Attribute ? callee->text : "";
}

class Slicer {
 public:
  Slicer(const program::Module& m, const std::string& model_class, const std::vector<std::string>& parameters,
         support::SourceManager& sources, const std::string& path)
      : m_(m), class_(model_class), parameters_(parameters), sources_(sources), values_(m, sources, path) {}

  support::Expected<TrainingSlice> run() {
    out_.file = sources_.file(m_.file).path;
    if (!find_model()) return fail("no call of " + class_ + " was found: expected model = " + class_ + "(…)");
    if (!find_loop()) return fail("no loop was found that calls the model and backward()");
    if (auto why = take_loop(); !why.empty()) return fail(why);
    take_constructor();
    take_data();
    take_setup();
    if (!problem_.empty()) return fail(problem_);
    take_arguments();
    list_the_rest();
    return std::move(out_);
  }

 private:
  support::Diagnostic fail(const std::string& why) { return support::failure(out_.file + ": " + why, {}, "training"); }
  std::string text(const support::Range& r) const { return std::string(sources_.text(r)); }
  std::string line(const support::Range& r) const {
    return fmt::format("{}:{}", out_.file.substr(out_.file.rfind('/') + 1), sources_.position(r.file, r.begin).line);
  }

  /// Statements at column 0, one after the other, with the comment lines directly above.
  std::string lines(const Statements& list) const {
    std::string out;
    for (const auto* s : list) {
      const std::string& file = sources_.file(m_.file).text;
      std::uint32_t begin = s->range.begin;
      if (s->kind == StmtKind::FunctionDef) begin = s->function->range.begin;
      if (s->kind == StmtKind::ClassDef) begin = s->class_def->range.begin;
      std::uint32_t start = begin;
      while (start > 0 && file[start - 1] != '\n') --start;
      const std::string indent = file.substr(start, begin - start);
      std::uint32_t from = start;
      while (from > 0) {  // comments above
        std::uint32_t up = from - 1;
        while (up > 0 && file[up - 1] != '\n') --up;
        if (file.compare(up, indent.size(), indent) != 0 || file[up + indent.size()] != '#') break;
        from = up;
      }
      std::uint32_t end = s->range.end;
      while (end < file.size() && file[end] != '\n' &&
             (file[end] == ' ' || file[end] == '#' || file.find('#', s->range.end) < file.find('\n', s->range.end)))
        ++end;
      std::string t = file.substr(from, end - from);
      if (indent.find_first_not_of(" \t") != std::string::npos) t = file.substr(begin, s->range.end - begin);  // behind a semicolon
      std::string moved;
      for (std::size_t at = 0; at < t.size();) {
        std::size_t stop = std::min(t.find('\n', at), t.size());
        std::string l = t.substr(at, stop - at);
        moved += (l.rfind(indent, 0) == 0 ? l.substr(indent.size()) : l) + "\n";
        at = stop + 1;
      }
      out += moved;
    }
    return out;
  }

  // ---- where things are ---------------------------------------------------------------------------------------------------

  bool find_model() {
    std::function<void(const std::vector<Stmt*>&, const program::Function*)> look = [&](const std::vector<Stmt*>& body,
                                                                                        const program::Function* f) {
      for (const auto* s : body) {
        if (s->kind == StmtKind::FunctionDef) {
          look(s->function->body, s->function);
          continue;
        }
        if ((s->kind == StmtKind::Assign || s->kind == StmtKind::AnnAssign) && s->value && s->targets.size() == 1 &&
            s->targets[0]->kind == ExprKind::Name &&
            find(s, [&](const Expr* e) { return e->kind == ExprKind::Call && last_of(e->kids[0]) == class_; })) {
          models_.insert(s->targets[0]->text);
          if (!made_) made_ = s, function_ = f;
        }
        look(s->body, f), look(s->orelse, f), look(s->finally, f);
        for (const auto& h : s->handlers) look(h.body, f);
      }
    };
    look(m_.body, nullptr);
    if (!made_) return false;
    // model = model.to(device), ddp = DistributedDataParallel(model, …)
    program::walk(function_ ? function_->body : m_.body, [&](const Stmt* s) {
      if (s->kind != StmtKind::Assign || s->targets.size() != 1 || s->targets[0]->kind != ExprKind::Name ||
          s->value->kind != ExprKind::Call)
        return true;
      const Expr* callee = s->value->kids[0];
      const Expr* root = program::root_name(callee);
      const bool method = callee->kind == ExprKind::Attribute && root && models_.count(root->text) && callee->text != "parameters";
      const bool wrap = !s->value->args.empty() && s->value->args[0].value->kind == ExprKind::Name &&
          models_.count(s->value->args[0].value->text) &&
          (last_of(callee).find("Parallel") != std::string::npos || last_of(callee) == "DDP" || last_of(callee) == "compile");
      if (method || wrap) models_.insert(s->targets[0]->text);
      return true;
    });
    return true;
  }

  bool calls_model(const Expr* e) const {
    return e->kind == ExprKind::Call && e->kids[0]->kind == ExprKind::Name && models_.count(e->kids[0]->text);
  }
  static bool is_backward(const Expr* e) {
    return e->kind == ExprKind::Call && e->kids[0]->kind == ExprKind::Attribute && e->kids[0]->text == "backward";
  }

  bool find_loop() {
    program::walk(function_ ? function_->body : m_.body, [&](const Stmt* s) {
      if (s->kind == StmtKind::For && find(s, [&](const Expr* e) { return calls_model(e); }) && find(s, is_backward)) loops_.push_back(s);
      return s->kind != StmtKind::FunctionDef && s->kind != StmtKind::ClassDef;
    });
    if (loops_.empty()) return false;
    loop_ = loops_.back();
    return true;
  }

  // ---- the loop: batch, model, loss -------------------------------------------------------------------------------------------

  void flatten(const std::vector<Stmt*>& body, Statements& out) {
    for (const auto* s : body) {
      if (s->kind == StmtKind::With && (find(s, [&](const Expr* e) { return calls_model(e) || is_backward(e); }))) {
        out_.left.push_back(line(s->range) + ": `" + text({s->range.file, s->range.begin, s->body.front()->range.begin}).substr(0, 60) +
                            "…`: precision and contexts are arguments of run.sh");
        flatten(s->body, out);
      } else {
        out.push_back(s);
      }
    }
  }

  /// Backward slice: statements of `list` (in order) that the names need; `needed` becomes what is read from before.
  Statements slice(const Statements& list, Names& needed) {
    Statements out;
    for (auto it = list.rbegin(); it != list.rend(); ++it) {
      const Stmt* s = *it;
      Names w = writes(s);
      bool wanted = meets(w, needed);
      if (s->kind == StmtKind::Expression && s->value && s->value->kind == ExprKind::Call) {  // x.clamp_(0)
        const Expr* root = program::root_name(s->value->kids[0]);
        wanted = wanted || (s->value->kids[0]->kind == ExprKind::Attribute && root && needed.count(root->text) && !imported(root->text));
      }
      if ((s->kind == StmtKind::Assign || s->kind == StmtKind::AugAssign) && !s->targets.empty())  // x[0] = …, x.a = …
        if (const Expr* root = program::root_name(s->targets[0]); root && needed.count(root->text)) wanted = true;
      if (!wanted) continue;
      const bool surely =
          s->kind == StmtKind::Assign || s->kind == StmtKind::AnnAssign || s->kind == StmtKind::For || s->kind == StmtKind::With;
      if (surely)
        for (const auto& n : w) needed.erase(n);
      for (const auto& n : reads(s)) needed.insert(n);
      out.push_back(s);
      used_.insert(s);
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

  std::string take_loop() {
    Statements s;
    flatten(loop_->body, s);
    std::size_t at = s.size(), back = s.size();
    for (std::size_t i = 0; i < s.size(); ++i) {
      if (at == s.size() && find(s[i], [&](const Expr* e) { return calls_model(e); })) at = i;
      if (back == s.size() && find(s[i], is_backward)) back = i;
    }
    if (at == s.size() || back == s.size() || back < at)
      return line(loop_->range) + ": the model's call and backward() are not statements of this loop, one after the other";
    if (s[at]->kind == StmtKind::If || s[at]->kind == StmtKind::For)
      return line(s[at]->range) + ": the model is called under a condition or a loop of its own";
    const Expr* call = find(s[at], [&](const Expr* e) { return calls_model(e); });
    call_ = call;
    used_.insert(s[at]), used_.insert(s[back]);
    const Expr* target = loop_->targets[0];
    const Expr* iterable = loop_->value;
    while (iterable->kind == ExprKind::Call && !iterable->args.empty() &&
           (last_of(iterable->kids[0]) == "enumerate" || last_of(iterable->kids[0]) == "tqdm")) {
      if (last_of(iterable->kids[0]) == "enumerate" && target->kind == ExprKind::Tuple && target->kids.size() == 2)
        target = target->kids[1];
      iterable = iterable->args[0].value;
    }
    loader_ = iterable;
    out_.batch = text(target->range);
    program::NameSet of_batch;
    program::target_names(target, of_batch);
    // The loss.
    const Expr* b = find(s[back], is_backward)->kids[0]->kids[0];
    if (b->kind == ExprKind::Call && !b->args.empty()) {  // scaler.scale(loss)
      out_.left.push_back(line(b->range) + ": `" + text(b->range) + "`: loss scaling is Megatron's (--fp16)");
      b = b->args[0].value;
    }
    if (b->kind == ExprKind::Binary && b->text == "/") {
      out_.left.push_back(line(b->range) + ": `" + text(b->range) + "`: gradients are accumulated over micro-batches by the schedule");
      b = b->kids[0];
    }
    out_.loss_value = text(b->range);
    Statements between(s.begin() + static_cast<std::ptrdiff_t>(at) + 1, s.begin() + static_cast<std::ptrdiff_t>(back));
    Names needed = reads(b);
    Statements loss = slice(between, needed);
    std::string first;
    if ((s[at]->kind == StmtKind::Assign) && s[at]->value == call) {
      out_.outputs = text(s[at]->targets[0]->range);
      for (const auto& n : writes(s[at])) needed.erase(n);
    } else {  // loss = criterion(model(x), y)
      out_.outputs = "output";
      std::string t = text(s[at]->range);
      t.replace(call->range.begin - s[at]->range.begin, call->range.end - call->range.begin, "output");
      first = t + "\n";
      for (const auto& n : writes(s[at])) needed.erase(n);
      for (const auto& n : reads(s[at])) needed.insert(n);
    }
    for (const auto& n : models_)
      if (needed.erase(n) && s[at]->value == call) return line(s[back]->range) + ": the loss reads the model itself";
    out_.loss = first + lines(loss);
    // The batch.
    Names wanted;
    for (const auto& a : call->args)
      for (const auto& n : reads(a.value)) wanted.insert(n);
    for (const auto& a : call->args) out_.inputs += (out_.inputs.empty() ? "" : ", ") + text(a.range);
    Names of_loss = needed;
    wanted.insert(needed.begin(), needed.end());
    Statements before(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(at));
    Statements prepare = slice(before, wanted);
    out_.prepare = lines(prepare);
    Names of_prepare;
    for (const auto* p : prepare)
      for (const auto& n : writes(p)) of_prepare.insert(n);
    for (const auto& n : of_loss)
      if (of_prepare.count(n) || of_batch.contains(n)) out_.labels.push_back(n);
    for (const auto& n : wanted)
      if (!of_batch.contains(n)) outer_.insert(n);
    program::NameSet loop_names;
    program::target_names(loop_->targets[0], loop_names);
    for (const auto& n : loop_names.names())
      if (!of_batch.contains(n) && outer_.erase(n)) return line(loop_->range) + ": batch preparation or loss reads the loop's counter " + n;
    return "";
  }

  void take_constructor() {
    const Expr* call = find(made_, [&](const Expr* e) { return e->kind == ExprKind::Call && last_of(e->kids[0]) == class_; });
    std::string out;
    Names needed;
    for (std::size_t i = 0; i < call->args.size(); ++i) {
      const auto& a = call->args[i];
      const std::string name = !a.keyword.empty() ? a.keyword : i < parameters_.size() ? parameters_[i] : "";
      if (a.star || (name.empty() && !a.double_star)) {
        out_.left.push_back(line(call->range) + ": the arguments of " + class_ +
                            " cannot be named: the stages are built as they were converted");
        return;
      }
      out += (out.empty() ? "" : ", ") + (a.double_star ? text(a.range) : name + "=" + text(a.value->range));
      for (const auto& n : reads(a.value)) needed.insert(n);
    }
    out_.constructor = out;
    outer_.insert(needed.begin(), needed.end());
  }

  // ---- what is outside --------------------------------------------------------------------------------------------------------

  const Stmt* import_of(const std::string& name) const {
    for (const auto* s : m_.body)
      if (s->kind == StmtKind::Import || s->kind == StmtKind::ImportFrom)
        for (const auto& i : s->imports)
          if ((!i.asname.empty() ? i.asname : s->kind == StmtKind::Import ? i.name.substr(0, i.name.find('.')) : i.name) == name) return s;
    return nullptr;
  }
  bool imported(const std::string& name) const { return import_of(name) != nullptr; }
  const Stmt* definition_of(const std::string& name) const {
    for (const auto* s : m_.body) {
      if (s->kind == StmtKind::FunctionDef && s->function->name == name) return s;
      if (s->kind == StmtKind::ClassDef && s->class_def->name == name) return s;
    }
    return nullptr;
  }
  static bool main_guard(const Stmt* s) {
    return s->kind == StmtKind::If && s->value && s->value->kind == ExprKind::Compare && !s->value->kids.empty() &&
        s->value->kids[0]->text == "__name__";
  }

  /// Statements that ran before the loop: of the module, of the main guard, of its function; loops around it are opened.
  Statements outside() {
    Statements out;
    auto plain = [](const Stmt* s) {
      return s->kind != StmtKind::FunctionDef && s->kind != StmtKind::ClassDef && s->kind != StmtKind::Import &&
          s->kind != StmtKind::ImportFrom;
    };
    std::function<bool(const std::vector<Stmt*>&)> until = [&](const std::vector<Stmt*>& body) {
      for (const auto* s : body) {
        if (s == loop_) return true;
        if (s->range.contains(loop_->range) && plain(s)) {
          if (until(s->body) || until(s->orelse)) return true;
          continue;
        }
        if (main_guard(s)) {
          if (!function_) {
            if (until(s->body)) return true;
          } else
            for (const auto* k : s->body) out.push_back(k);
          continue;
        }
        if (plain(s)) out.push_back(s);
      }
      return false;
    };
    if (!function_) {
      until(m_.body);
      return out;
    }
    for (const auto* s : m_.body) {
      if (main_guard(s))
        for (const auto* k : s->body) out.push_back(k);
      else if (plain(s)) out.push_back(s);
    }
    until(function_->body);
    return out;
  }

  /// `cfg` of main(cfg): what the call in the main guard gives, or the file that hydra reads.
  void parameters(const Names& needed) {
    if (!function_) return;
    for (std::size_t i = 0; i < function_->parameters.size(); ++i) {
      const auto& p = function_->parameters[i];
      if (!needed.count(p.name)) continue;
      std::string value;
      for (const auto* d : function_->decorators)
        if (d->kind == ExprKind::Call && program::dotted_path(d->kids[0]).value_or("") == "hydra.main") {
          std::string folder = ".", name = "config";
          for (const auto& a : d->args) {
            if (a.keyword == "config_path" && a.value->kind == ExprKind::String) folder = a.value->text;
            if (a.keyword == "config_name" && a.value->kind == ExprKind::String) name = a.value->text;
          }
          if (name.size() < 5 || name.substr(name.size() - 5) != ".yaml") name += ".yaml";
          out_.imports.push_back("from omegaconf import OmegaConf");
          value = "OmegaConf.load(os.path.join(HERE, \"" + support::normal_path(folder + "/" + name) + "\"))";
        }
      if (value.empty())
        program::walk_exprs(m_.body, [&](const Expr* e) {
          if (e->kind == ExprKind::Call && e->kids[0]->kind == ExprKind::Name && e->kids[0]->text == function_->name)
            for (std::size_t k = 0; k < e->args.size(); ++k)
              if (e->args[k].keyword == p.name || (e->args[k].keyword.empty() && k == i)) value = text(e->args[k].value->range);
          return true;
        });
      if (value.empty() && p.default_value) value = text(p.default_value->range);
      if (value.empty())
        problem_ = line(function_->def_range) + ": what " + function_->name + "'s argument " + p.name + " is cannot be told";
      else if (value != p.name) given_ += p.name + " = " + value + "\n", setup_.insert(p.name);
    }
  }

  void take_data() {
    if (loader_->kind != ExprKind::Name) {
      data_names_ = reads(loader_);
      out_.train = "(" + text(loader_->range) + ").dataset";
    } else {
      data_names_ = {loader_->text};
      out_.train = loader_->text + ".dataset";
    }
    for (const auto* s : outside())
      for (const auto& n : writes(s)) {
        std::string low = n;
        std::transform(low.begin(), low.end(), low.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        if (low.find("load") == std::string::npos || n == loader_->text) continue;
        if (low.find("val") != std::string::npos && out_.valid.empty()) out_.valid = n + ".dataset", data_names_.insert(n);
        else if (low.find("test") != std::string::npos && out_.test.empty()) out_.test = n + ".dataset", data_names_.insert(n);
      }
  }

  void take_setup() {
    const Statements all = outside();
    auto keep = [&](Names& names) {  // names of imports and definitions are not sliced
      for (auto it = names.begin(); it != names.end();)
        it = imported(*it) || definition_of(*it) ? (globals_.insert(*it), names.erase(it)) : std::next(it);
    };
    Names data = data_names_, rest = outer_;
    keep(rest);
    Statements setup = slice(all, rest);
    keep(data);
    Statements loaders = slice(all, data);
    // What both need, and all that the data set's statements read from what the setup makes, is setup.
    std::set<const Stmt*> in_setup(setup.begin(), setup.end());
    std::erase_if(loaders, [&](const Stmt* s) { return in_setup.count(s) != 0; });
    Names everything = rest;
    everything.insert(data.begin(), data.end());
    parameters(everything);
    for (const auto* list : {&setup, &loaders})
      for (const auto* s : *list) {
        for (const auto& n : reads(s)) globals_.insert(n);
        if (meets(reads(s), models_) || meets(writes(s), models_))
          problem_ = line(s->range) + ": what the data or the loss needs depends on the model: `" + text(s->range).substr(0, 80) + "`";
      }
    for (const auto* s : setup)
      for (const auto& n : writes(s)) setup_.insert(n);
    for (const auto& n : outer_) globals_.insert(n);
    out_.setup = given_ + lines(setup);
    out_.data = lines(loaders);
    out_.setup_names.assign(setup_.begin(), setup_.end());
    // Functions, classes and imports, and what these use in turn.
    std::set<std::string> seen;
    Statements definitions;
    std::vector<std::string> queue(globals_.begin(), globals_.end());
    for (std::size_t i = 0; i < queue.size(); ++i) {
      const std::string n = queue[i];
      if (!seen.insert(n).second) continue;
      if (const Stmt* d = definition_of(n)) {
        if (d->kind == StmtKind::FunctionDef && d->function == function_) continue;
        definitions.push_back(d);
        used_.insert(d);
        for (const auto& r : reads(d)) queue.push_back(r);
        for (const auto* s : m_.body)  // constants of the module
          if (s->kind == StmtKind::Assign && meets(writes(s), reads(d)) &&
              std::none_of(setup.begin(), setup.end(), [&](const Stmt* k) { return k == s; })) {
            definitions.push_back(s);
            for (const auto& r : reads(s)) queue.push_back(r);
          }
      } else if (const Stmt* s = import_of(n)) {
        for (const auto& i : s->imports) {
          const std::string bound = !i.asname.empty() ? i.asname
              : s->kind == StmtKind::Import           ? i.name.substr(0, i.name.find('.'))
                                                      : i.name;
          if (bound != n) continue;
          const std::string as = i.asname.empty() ? "" : " as " + i.asname;
          out_.imports.push_back(s->kind == StmtKind::Import ? "import " + i.name + as
                                                             : "from " + std::string(static_cast<std::size_t>(s->level), '.') + s->module +
                                         " import " + i.name + as);
        }
      }
    }
    std::sort(definitions.begin(), definitions.end(), [](auto* a, auto* b) { return a->range.begin < b->range.begin; });
    definitions.erase(std::unique(definitions.begin(), definitions.end()), definitions.end());
    for (const auto* d : definitions) out_.definitions += "\n\n" + lines({d});
    std::sort(out_.imports.begin(), out_.imports.end());
    out_.imports.erase(std::unique(out_.imports.begin(), out_.imports.end()), out_.imports.end());
    std::stable_partition(out_.imports.begin(), out_.imports.end(), [](const std::string& l) { return l.rfind("import ", 0) == 0; });
  }

  // ---- what becomes arguments ---------------------------------------------------------------------------------------------------

  void argument(const std::string& name, const Expr* e, const std::string& what) {
    if (!e) return;
    if (auto v = values_.number(e)) {
      out_.arguments.emplace_back(name, *v);
      out_.argument_lines[name] = line(e->range) + " `" + what + "`";
    } else {
      out_.left.push_back(line(e->range) + ": " + what + " = `" + text(e->range) + "` cannot be told from the source: give " + name +
                          " in run.sh");
    }
  }

  void take_arguments() {
    bool clips = false;
    std::string optimizer;
    program::walk(m_.body, [&](const Stmt* s) {
      if (s->kind != StmtKind::Assign && s->kind != StmtKind::Expression) return true;
      const Expr* call = s->value && s->value->kind == ExprKind::Call ? s->value : nullptr;
      if (!call) return true;
      const std::string name = last_of(call->kids[0]);
      auto keyword = [&](const std::string& k) -> const Expr* {
        for (const auto& a : call->args)
          if (a.keyword == k) return a.value;
        return nullptr;
      };
      const bool of_model = !call->args.empty() && find(s, [&](const Expr* e) {
        return e->kind == ExprKind::Call && e->kids[0]->kind == ExprKind::Attribute && e->kids[0]->text == "parameters" &&
            models_.count(e->kids[0]->kids[0]->text);
      });
      if (name == "clip_grad_norm_" && call->args.size() > 1) {
        clips = true;
        used_.insert(s);
        argument("--clip-grad", call->args[1].value, "max_norm");
      } else if (of_model && s->kind == StmtKind::Assign && optimizer.empty()) {
        optimizer = name;
        used_.insert(s);
        if (name != "Adam" && name != "AdamW" && name != "SGD" && name != "FusedAdam")
          out_.left.push_back(line(s->range) + ": the optimizer " + name + " is not Megatron's; run.sh takes adam");
        out_.arguments.emplace_back("--optimizer", name == "SGD" ? "sgd" : "adam");
        argument("--lr",
                 keyword("lr")                                                ? keyword("lr")
                     : call->args.size() > 1 && call->args[1].keyword.empty() ? call->args[1].value
                                                                              : nullptr,
                 "lr");
        if (!keyword("lr") && call->args.size() < 2 && name != "SGD") out_.arguments.emplace_back("--lr", "0.001");
        if (keyword("weight_decay")) {
          argument("--weight-decay", keyword("weight_decay"), "weight_decay");
          if (name == "Adam")
            out_.left.push_back(line(s->range) +
                                ": Adam's weight_decay is added to the gradient; Megatron's adam decays the weights as AdamW does");
        } else {
          out_.arguments.emplace_back("--weight-decay", name == "AdamW" ? "0.01" : "0.0");
        }
        if (const Expr* betas = keyword("betas"); betas && betas->kids.size() == 2) {
          argument("--adam-beta1", betas->kids[0], "betas");
          argument("--adam-beta2", betas->kids[1], "betas");
        } else if (name != "SGD") {
          out_.arguments.emplace_back("--adam-beta2", "0.999");
        }
        if (keyword("momentum")) argument("--sgd-momentum", keyword("momentum"), "momentum");
      } else if (name.size() > 2 &&
                 (name.substr(name.size() - 2) == "LR" || name.find("Scheduler") != std::string::npos ||
                  name.find("LROn") != std::string::npos)) {
        used_.insert(s);
        if (name == "CosineAnnealingLR") out_.arguments.emplace_back("--lr-decay-style", "cosine");
        out_.left.push_back(line(s->range) + ": `" + text(s->range).substr(0, 100) +
                            "`: the schedule is Megatron's: see --lr-decay-style, --lr-warmup-iters, --lr-decay-iters");
      } else if (name == "manual_seed") {
        used_.insert(s);
        if (!call->args.empty() &&
            std::none_of(out_.arguments.begin(), out_.arguments.end(), [](const auto& a) { return a.first == "--seed"; }))
          argument("--seed", call->args[0].value, "seed");
      } else if (name == "DataLoader" && s->kind == StmtKind::Assign && s->targets[0]->kind == ExprKind::Name &&
                 s->targets[0]->text == loader_->text) {
        const Expr* size = keyword("batch_size")                     ? keyword("batch_size")
            : call->args.size() > 1 && call->args[1].keyword.empty() ? call->args[1].value
                                                                     : nullptr;
        argument("--micro-batch-size", size, "batch_size");
        if (const Expr* f = keyword("collate_fn"))
          out_.left.push_back(line(f->range) + ": collate_fn `" + text(f->range) + "`: Megatron's loader puts samples together itself");
        if (const Expr* f = keyword("shuffle"); f && text(f->range) == "False") shuffles_ = false;
      }
      return true;
    });
    if (!clips) out_.arguments.emplace_back("--clip-grad", "0.0");
    if (!shuffles_) out_.arguments.emplace_back("--dataloader-type", "single");
    for (std::size_t i = 0; i + 1 < loops_.size(); ++i) {  // for epoch in range(E)
      const Expr* r = loops_[i]->value;
      if (r->kind == ExprKind::Call && last_of(r->kids[0]) == "range" && !r->args.empty()) {
        if (auto n = values_.number(r->args.size() > 1 ? r->args[1].value : r->args[0].value)) out_.iterations = *n;
        else out_.left.push_back(line(r->range) + ": the number of epochs `" + text(r->range) + "` cannot be told: give --train-iters");
      }
    }
  }

  /// Statements of the training function that no slice took.
  void list_the_rest() {
    auto known = [&](const Stmt* s) {
      if (used_.count(s) || s == made_ || s->kind == StmtKind::Pass || s->kind == StmtKind::Break || s->kind == StmtKind::Continue ||
          s->kind == StmtKind::Return || s->kind == StmtKind::Global)
        return true;
      if (s->kind == StmtKind::Expression && s->value && s->value->kind == ExprKind::String) return true;
      for (const auto& n : writes(s))
        if (models_.count(n)) return true;
      if (s->kind == StmtKind::Expression && s->value && s->value->kind == ExprKind::Call) {
        const std::string n = last_of(s->value->kids[0]);
        for (const char* k : {"zero_grad", "step", "train", "eval", "backward"})
          if (n == k) return true;
      }
      return false;
    };
    std::function<void(const std::vector<Stmt*>&)> rest = [&](const std::vector<Stmt*>& body) {
      for (const auto* s : body) {
        if (s->kind == StmtKind::FunctionDef || s->kind == StmtKind::ClassDef || s->kind == StmtKind::Import ||
            s->kind == StmtKind::ImportFrom || main_guard(s))
          continue;
        if (known(s)) continue;
        const bool open = s->kind == StmtKind::For || s->kind == StmtKind::With || s->kind == StmtKind::If || s->kind == StmtKind::While ||
            s->kind == StmtKind::Try;
        if (open && s->range.contains(loop_->range)) {
          rest(s->body), rest(s->orelse);
          continue;
        }
        std::string t = text(s->range);
        out_.left.push_back(line(s->range) + ": `" + t.substr(0, std::min<std::size_t>(t.find('\n'), 90)) +
                            (t.find('\n') != std::string::npos || t.size() > 90 ? " …" : "") + "`");
      }
    };
    rest(function_ ? function_->body : m_.body);
  }

  const program::Module& m_;
  std::string class_;
  std::vector<std::string> parameters_;
  support::SourceManager& sources_;
  TrainingValues values_;
  TrainingSlice out_;
  Names models_, outer_, data_names_, globals_, setup_;
  const Stmt* made_ = nullptr;
  const program::Function* function_ = nullptr;
  std::vector<const Stmt*> loops_;
  const Stmt* loop_ = nullptr;
  const Expr* loader_ = nullptr;
  const Expr* call_ = nullptr;
  std::set<const Stmt*> used_;
  std::string given_, problem_;
  bool shuffles_ = true;
};

}  // namespace

support::Expected<TrainingSlice> slice_training(const std::string& path, const std::string& model_class,
                                                const std::vector<std::string>& parameters, eval::ModuleSource& loader,
                                                support::SourceManager& sources) {
  auto text = support::read_file(path);
  if (!text) return text.error();
  const program::Module* m = loader.parse("training script", path, *text);
  if (!m || !m->syntax_errors.empty()) return support::failure(path + ": this cannot be read as Python", {}, "syntax");
  return Slicer(*m, model_class, parameters, sources, path).run();
}

}  // namespace shardwright::emit
