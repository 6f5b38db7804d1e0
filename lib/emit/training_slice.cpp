#include "emit/training_slice.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "emit/copies.h"
#include "emit/training_loop.h"
#include "emit/training_options.h"
#include "emit/training_values.h"
#include "program/visit.h"
#include "support/files.h"

namespace shardwright::emit {
namespace {

using program::Expr;
using program::ExprKind;
using program::Stmt;
using program::StmtKind;

std::string joined(const std::string& list, const std::string& one) { return list.empty() ? one : list + ", " + one; }

class Slicer {
 public:
  Slicer(const program::Module& m, const std::string& model_class, const std::vector<std::string>& parameters,
         support::SourceManager& sources, const std::string& path)
      : m_(m), script_(m, sources), class_(model_class), parameters_(parameters), sources_(sources), values_(m, sources, path) {}

  support::Expected<TrainingSlice> run() {
    out_.file = script_.path();
    out_.names = script_.all_names();
    if (auto why = find_training_loop(script_, class_, parts_, at_); !why.empty()) return fail(why);
    if (auto why = find_parts(); !why.empty()) return fail(why);
    take_options(script_, values_, parts_, out_);
    if (auto why = take_loss(); !why.empty()) return fail(why);
    if (auto why = take_batch(); !why.empty()) return fail(why);
    if (auto why = take_counters(); !why.empty()) return fail(why);
    take_constructor();
    take_data();
    take_setup();
    if (problem_.empty()) problem_ = done_again();
    if (!problem_.empty()) return fail(problem_);
    list_the_rest();
    return std::move(out_);
  }

 private:
  support::Diagnostic fail(const std::string& why) { return support::failure(out_.file + ": " + why, {}, "training"); }
  std::string text(const support::Range& r) const { return script_.text(r); }
  std::string line(const support::Range& r) const { return script_.line(r); }

  // ---- the loop: batch, model, loss -------------------------------------------------------------------------------------------

  void flatten(const std::vector<Stmt*>& body, Statements& out) {
    for (const auto* s : body) {
      if (s->kind == StmtKind::With && (find_expr(s, [&](const Expr* e) { return calls_model(e, parts_) || is_backward(e); }))) {
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
      Names w = names_written(s);
      if (!meets(w, needed) && !meets(script_.changed(s), needed)) continue;
      const bool surely = s->kind == StmtKind::Assign || s->kind == StmtKind::AnnAssign;  // a loop may run no time
      if (surely)
        for (const auto& n : w) needed.erase(n);
      for (const auto& n : names_needed(s)) needed.insert(n);
      out.push_back(s);
      parts_.used.insert(s);
    }
    std::reverse(out.begin(), out.end());
    return out;
  }

  /// pbar, where pbar = tqdm(loader) or `with tqdm(loader) as pbar`: that call.
  const Expr* behind_name(const Expr* e) {
    if (e->kind != ExprKind::Name) return e;
    const Expr* found = e;
    const auto wraps = [](const Expr* v) {
      return v && v->kind == ExprKind::Call && !v->args.empty() &&
          (last_name(v->kids[0]) == "tqdm" || last_name(v->kids[0]) == "enumerate");
    };
    program::walk(at_.body(m_), [&](const Stmt* s) {
      if (const Expr* v = value_bound(s, e->text); wraps(v)) found = v, parts_.used.insert(s);
      for (const auto& item : s->items)
        if (item.target && item.target->kind == ExprKind::Name && item.target->text == e->text && wraps(item.value)) found = item.value;
      return is_plain(s);
    });
    return found;
  }

  std::string find_parts() {
    flatten(at_.loop->body, body_);
    call_at_ = back_at_ = body_.size();
    std::size_t calls = 0, backwards = 0;
    for (const auto* s : body_)
      program::walk_exprs({const_cast<Stmt*>(s)}, [&](const Expr* e) {
        backwards += is_backward(e);
        return true;
      });
    if (backwards > 1) return line(at_.loop->range) + ": backward() is called more than once a batch: a pipeline has one loss";
    for (std::size_t i = 0; i < body_.size(); ++i) {
      program::walk_exprs({const_cast<Stmt*>(body_[i])}, [&](const Expr* e) {
        calls += calls_model(e, parts_);
        return true;
      });
      if (call_at_ == body_.size() && find_expr(body_[i], [&](const Expr* e) { return calls_model(e, parts_); })) call_at_ = i;
      if (back_at_ == body_.size() && find_expr(body_[i], is_backward)) back_at_ = i;
      if (back_at_ == i && i < body_.size() && calls > 1)
        return line(at_.loop->range) + ": the model is called more than once before backward(): a pipeline runs it once a batch";
    }
    if (call_at_ == body_.size() || back_at_ == body_.size() || back_at_ < call_at_)
      return line(at_.loop->range) + ": the model's call and backward() are not statements of this loop, one after the other";
    const Stmt* at = body_[call_at_];
    if (at->kind == StmtKind::If || at->kind == StmtKind::For || at->kind == StmtKind::While || at->kind == StmtKind::Try)
      return line(at->range) + ": the model is called under a condition or a loop of its own";
    if (const Stmt* b = body_[back_at_]; b->kind == StmtKind::If || b->kind == StmtKind::Try) {
      const Expr* backward = find_expr(b, is_backward);
      if (meets(names_written(b), names_read(backward)))
        return line(b->range) + ": what backward() is called on is made under a condition: `" + script_.shortened(b->range) + "`";
      out_.left.push_back(line(b->range) + ": `" + script_.shortened(b->range) + "`: here backward always runs");
    }
    call_ = find_expr(at, [&](const Expr* e) { return calls_model(e, parts_); });
    parts_.used.insert(at), parts_.used.insert(body_[back_at_]);
    // What gives the batch: for …, batch in enumerate(tqdm(loader)), or next(iterator) in the loop.
    const Expr* target = at_.loop->targets[0];
    const Expr* iterable = behind_name(at_.loop->value);
    while (iterable->kind == ExprKind::Call && !iterable->args.empty() &&
           (last_name(iterable->kids[0]) == "enumerate" || last_name(iterable->kids[0]) == "tqdm")) {
      if (last_name(iterable->kids[0]) == "enumerate" && target->kind == ExprKind::Tuple && target->kids.size() == 2) {
        const Expr* from = call_argument(iterable, "start", 1);
        if (target->kids[0]->kind == ExprKind::Name) counters_[target->kids[0]->text] = {false, from ? text(from->range) : ""};
        target = target->kids[1];
      }
      iterable = behind_name(iterable->args[0].value);
    }
    if (iterable->kind == ExprKind::Call && last_name(iterable->kids[0]) == "zip")
      return line(iterable->range) + ": `" + text(iterable->range) + "`: batches of several loaders are not put together here";
    if (iterable->kind == ExprKind::Call && last_name(iterable->kids[0]) == "range") {
      if (target->kind == ExprKind::Name && iterable->args.size() == 1) counters_[target->text] = {false, ""};
      target = nullptr;
      for (const auto* s : body_) {
        const Expr* v = s->kind == StmtKind::Assign && s->targets.size() == 1 ? s->value : nullptr;
        if (!v || v->kind != ExprKind::Call || last_name(v->kids[0]) != "next" || v->args.empty()) continue;
        target = s->targets[0], iterable = v->args[0].value;
        parts_.used.insert(s);
        batch_statement_ = s;
        break;
      }
      if (!target) return line(at_.loop->range) + ": where this loop has its batches from was not found";
      if (const Expr* iterator = iterable; iterator->kind == ExprKind::Name)
        program::walk(at_.body(m_), [&](const Stmt* s) {
          const Expr* v = value_bound(s, iterator->text);
          if (v && v->kind == ExprKind::Call && last_name(v->kids[0]) == "iter" && !v->args.empty()) {
            parts_.used.insert(s);
            iterable = v->args[0].value;
          }
          return is_plain(s);
        });
    }
    // A function that hands on the loader's batches.
    while (iterable->kind == ExprKind::Call && last_name(iterable->kids[0]).find("DataLoader") == std::string::npos &&
           iterable->kids[0]->kind == ExprKind::Name && !iterable->args.empty() && iterable->args[0].value->kind == ExprKind::Name) {
      out_.left.push_back(line(iterable->range) + ": `" + text(iterable->range) + "`: what it does with a batch is not done here");
      iterable = iterable->args[0].value;
    }
    if (iterable->kind == ExprKind::Name)
      if (auto it = at_.given.find(iterable->text); it != at_.given.end()) iterable = it->second;
    parts_.loader = iterable;
    out_.batch = text(target->range);
    of_batch_ = target_names(target);
    for (std::size_t i = 0; i + 1 < parts_.loops.size(); ++i) {
      const Stmt* l = parts_.loops[i];
      const Expr* r = counting_call(l);
      if (parts_.loops.size() != 2 || l->targets[0]->kind != ExprKind::Name || !r || r->args.size() > 2) continue;
      counters_[l->targets[0]->text] = {true, r->args.size() == 2 && r->args[1].keyword.empty() ? text(r->args[0].value->range) : ""};
    }
    return "";
  }

  std::string take_loss() {
    const Stmt* at = body_[call_at_];
    const Expr* backward = find_expr(body_[back_at_], is_backward);
    const Expr* b = backward->kids[0]->kids[0];
    const bool given = !backward->args.empty() && backward->args[0].keyword.empty();
    const Expr* object = program::root_name(b);
    const bool of_loop = object && names_written_in_loop().count(object->text);
    if (given && of_loop && b->kind == ExprKind::Name)
      return line(backward->range) + ": `" + text(backward->range) + "` is given a gradient: a pipeline begins with the loss itself";
    if (given && !of_loop && object) {
      out_.left.push_back(line(backward->range) + ": `" + text(backward->range) + "`: backward, precision and scaling are Megatron's");
      b = backward->args[0].value;  // accelerator.backward(loss)
    } else if (b->kind == ExprKind::Call && b->args.size() == 1 && last_name(b->kids[0]) == "scale") {
      out_.left.push_back(line(b->range) + ": `" + text(b->range) + "`: loss scaling is Megatron's (--fp16)");
      b = b->args[0].value;
    }
    Statements between(body_.begin() + static_cast<std::ptrdiff_t>(call_at_) + 1, body_.begin() + static_cast<std::ptrdiff_t>(back_at_));
    bool divided = false;
    if (!out_.accumulate.empty()) {
      if (b->kind == ExprKind::Binary && b->text == "/" && values_.number(b->kids[1]) == out_.accumulate) b = b->kids[0], divided = true;
      std::erase_if(between, [&](const Stmt* s) {  // loss = loss / N: Megatron averages over the micro-batches
        const Expr* by = s->kind == StmtKind::AugAssign && s->op == "/" ? s->value
            : s->kind == StmtKind::Assign && s->value->kind == ExprKind::Binary && s->value->text == "/" &&
                text(s->value->kids[0]->range) == text(s->targets[0]->range)
            ? s->value->kids[1]
            : nullptr;
        if (!by || values_.number(by) != out_.accumulate) return false;
        parts_.used.insert(s);
        return divided = true;
      });
    }
    out_.loss_value = text(b->range);
    if (!out_.accumulate.empty() && !divided) out_.loss_value = "(" + out_.loss_value + ") * " + out_.accumulate;
    Names needed = names_read(b);
    const Statements loss = slice(between, needed);
    for (const auto* s : loss)
      if (const Expr* e = find_expr(s, [](const Expr* x) { return x->kind == ExprKind::Call && last_name(x->kids[0]) == "grad"; }))
        out_.left.push_back(
            line(e->range) + ": `" + script_.shortened(e->range) +
            "`: the loss differentiates by what went in, which the last stage does not have: this trains with one stage only");
    for (const auto* s : loss)
      if (jumps(s)) return line(s->range) + ": the loss leaves the loop on the way: `" + script_.shortened(s->range) + "`";
    std::string first;
    const bool direct = at->kind == StmtKind::Assign && at->value == call_;
    if (direct) {
      for (const auto* t : at->targets) out_.outputs += (out_.outputs.empty() ? "" : " = ") + text(t->range);
    } else {  // loss = criterion(model(x), y)
      out_.output_name = "output";
      while (out_.names.count(out_.output_name)) out_.output_name = "model_" + out_.output_name;
      std::string t = text(at->range);
      t.replace(call_->range.begin - at->range.begin, call_->range.end - call_->range.begin, out_.output_name);
      first = t + "\n";
    }
    for (const auto& n : names_written(at)) needed.erase(n);
    if (!direct) {
      Names of_call;
      for (const auto& n : names_read(call_)) of_call.insert(n);
      Names others;  // what the statement reads beside the call
      program::walk_exprs({const_cast<Stmt*>(at)}, [&](const Expr* e) {
        if (e == call_) return false;
        if (e->kind == ExprKind::Name) others.insert(e->text);
        return true;
      });
      const Names read = names_read(at);
      for (const auto& n : others)
        if (read.count(n)) needed.insert(n);
    }
    for (const auto& n : parts_.models)
      if (needed.count(n)) return line(body_[back_at_]->range) + ": the loss reads the model itself";
    out_.loss = first + script_.lines(loss);
    for (const auto* s : loss)
      for (const auto& n : names_written(s)) loss_writes_.insert(n);
    of_loss_ = needed;
    return "";
  }

  Names names_written_in_loop() const {
    Names out;
    for (const auto* s : body_)
      for (const auto& n : names_written(s)) out.insert(n);
    for (const auto* l : parts_.loops)
      for (const auto& n : target_names(l->targets[0])) out.insert(n);
    return out;
  }

  /// Statements of the loops around that depend on their counters: they run with every batch.
  Statements every_epoch() const {
    Statements out;
    Names dependent;
    for (const auto& [name, how] : counters_) dependent.insert(name);
    std::function<bool(const std::vector<Stmt*>&)> until = [&](const std::vector<Stmt*>& body) {
      for (const auto* s : body) {
        if (s == at_.loop || s == at_.inner_call) return true;
        if (s->range.contains(at_.loop->range) || (at_.inner_call && s->range.contains(at_.inner_call->range)))
          return until(s->body) || until(s->orelse);
        if (!is_plain(s) || !meets(names_read(s), dependent)) continue;
        out.push_back(s);
        for (const auto& n : names_written(s)) dependent.insert(n);
      }
      return true;
    };
    for (const auto* l : parts_.loops)
      if (l != at_.loop &&
          (l == parts_.loops.front() ||
           (at_.inner && !at_.inner_call->range.contains(l->range) && !l->range.contains(at_.inner_call->range))))
        until(l->body);
    return out;
  }

  std::string take_batch() {
    Names wanted;
    for (const auto& a : call_->args) {
      if (a.star) return line(a.range) + ": `" + text(a.range) + "`: what the model is given cannot be told";
      for (const auto& n : names_read(a.value)) wanted.insert(n);
      if (a.keyword.empty() && !a.double_star) out_.inputs = joined(out_.inputs, text(a.range));
      else out_.keywords = joined(out_.keywords, text(a.range));
    }
    const Names of_call = wanted;
    wanted.insert(of_loss_.begin(), of_loss_.end());
    Statements before = every_epoch();
    for (std::size_t i = 0; i < call_at_; ++i)
      if (body_[i] != batch_statement_) before.push_back(body_[i]);
    const Names at_call = wanted;
    Statements prepare = slice(before, wanted);
    // What the preparation of the next batch reads of this one's is prepared, too.
    for (Names again = at_call;;) {
      const std::size_t size = again.size();
      for (const auto* s : before)
        if (!parts_.used.count(s))
          for (const auto& n : names_written(s))
            if (wanted.count(n) && !of_batch_.count(n) && !counters_.count(n)) again.insert(n);
      if (again.size() == size) break;
      wanted = again;
      prepare = slice(before, wanted);
    }
    for (const auto* s : prepare)
      if (jumps(s))
        return line(s->range) + ": the preparation of a batch leaves the loop on the way: `" + script_.shortened(s->range) + "`";
    out_.prepare = script_.lines(prepare);
    Names of_prepare;
    for (const auto* s : prepare)
      for (const auto& n : names_written(s)) of_prepare.insert(n);
    // Not the batch's, nor the model's result: from before the loop.
    for (const auto& n : wanted)
      if (!of_batch_.count(n)) outer_.insert(n);
    for (const auto& n : of_loss_)
      if (of_prepare.count(n) || of_batch_.count(n) || counters_.count(n)) out_.labels.push_back(n);
    for (const auto& n : of_prepare)
      if (outer_.count(n)) out_.prepare_carries.push_back(n);
    for (const auto& n : loss_writes_)
      if (outer_.count(n) && !of_prepare.count(n)) out_.loss_carries.push_back(n);
    // What another statement of the loop binds for the next batch would stay what it was before the first.
    for (const auto* s : body_) {
      if (parts_.used.count(s)) continue;
      for (const auto& n : names_written(s))
        if (outer_.count(n) && !counters_.count(n))
          return line(s->range) + ": `" + script_.shortened(s->range) + "` makes " + n + " for the next batch, which reads it";
    }
    return "";
  }

  /// epoch and step, where batch preparation or loss reads them.
  std::string take_counters() {
    for (const auto* l : parts_.loops)
      for (const auto& n : target_names(l->targets[0])) {
        if (of_batch_.count(n) || (!outer_.count(n) && std::find(out_.labels.begin(), out_.labels.end(), n) == out_.labels.end())) continue;
        auto it = counters_.find(n);
        if (it == counters_.end()) return line(l->range) + ": batch preparation or loss reads the loop's " + n;
        const auto& [epoch, from] = it->second;
        (epoch ? out_.epoch : out_.step) =
            n + " = " + (from.empty() ? "" : from + " + ") + "{position} " + (epoch ? "//" : "%") + " {steps}";
        outer_.erase(n);
      }
    return "";
  }

  void take_constructor() {
    const Expr* call = find_expr(at_.made, [&](const Expr* e) { return at_.makes(e); });
    if (last_name(call->kids[0]) != class_) {
      out_.left.push_back(line(call->range) + ": `" + text(call->range) +
                          "` builds the model: the stages are built as they were converted");
      return;
    }
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
      out = joined(out, a.double_star ? text(a.range) : name + "=" + text(a.value->range));
      for (const auto& n : names_read(a.value)) needed.insert(n);
    }
    out_.constructor = out;
    of_constructor_ = needed;
  }

  // ---- what is outside --------------------------------------------------------------------------------------------------------

  /// Statements of a body that ran before `end`; loops and conditions around it are opened.
  bool until(const std::vector<Stmt*>& body, const Stmt* end, Statements& out) const {
    for (const auto* s : body) {
      if (s == end) return true;
      if (s->range.contains(end->range) && is_plain(s)) {
        const bool in_body =
            !s->body.empty() && s->body.front()->range.begin <= end->range.begin && end->range.end <= s->body.back()->range.end;
        if (until(in_body ? s->body : s->orelse, end, out)) return true;
        continue;
      }
      if (TrainingScript::main_guard(s)) {
        for (const auto* k : s->body) out.push_back(k);
        continue;
      }
      if (is_plain(s) || &body != &m_.body) out.push_back(s);  // a function's own definitions and imports, too
    }
    return false;
  }

  /// What ran before the function that makes the model was called: of the module, of the main guard. Without one: before the loop.
  Statements outside_of_function() const {
    Statements out;
    const Stmt* end = at_.inner ? at_.inner_call : at_.loop;
    if (!at_.function) {
      until(m_.body, end, out);
      return out;
    }
    for (const auto* s : m_.body) {  // behind the function, too: it is called from there
      if (TrainingScript::main_guard(s)) out.insert(out.end(), s->body.begin(), s->body.end());
      else if (is_plain(s)) out.push_back(s);
    }
    return out;
  }

  /// What ran before the loop, or before the call of the function that has it.
  Statements outside() const {
    Statements out = outside_of_function();
    if (at_.function) until(at_.function->body, at_.inner ? at_.inner_call : at_.loop, out);
    return out;
  }

  /// Statements that give what is needed, as text in the order in which they run. `skip`: those that are elsewhere already.
  std::string before(Names& needed, const std::set<const Stmt*>& skip, Statements& taken) {
    std::string inside, bound;
    if (at_.inner) {
      Statements list;
      until(at_.inner->body, at_.loop, list);
      std::erase_if(list, [&](const Stmt* s) { return per_epoch_.count(s) != 0; });
      Statements in = slice(list, needed);
      std::erase_if(in, [&](const Stmt* s) { return skip.count(s) != 0; });
      inside = script_.lines(in);
      Names inner_names;
      for (const auto* s : in)
        for (const auto& n : names_written(s)) inner_names.insert(n);
      for (const auto& p : at_.inner->parameters) {
        if (!needed.count(p.name)) continue;
        auto it = at_.given.find(p.name);
        const Expr* value = it != at_.given.end() ? it->second : p.default_value;
        if (!value) {
          problem_ = line(at_.inner->def_range) + ": what " + at_.inner->name + "'s argument " + p.name + " is cannot be told";
          continue;
        }
        if (text(value->range) == p.name) continue;
        bound += p.name + " = " + text(value->range) + "\n";
        bound_.insert(p.name);
        inner_names.insert(p.name);
        needed.erase(p.name);
        for (const auto& n : names_read(value)) needed.insert(n);
      }
      taken.insert(taken.end(), in.begin(), in.end());
      if (meets(inner_names, needed))
        problem_ = line(at_.inner->def_range) + ": " + at_.inner->name + " and its caller call different things by one name";
    }
    std::string of_function, of_parameters;
    auto take = [&](Statements list) {
      std::erase_if(list, [&](const Stmt* s) { return per_epoch_.count(s) != 0; });
      Statements out = slice(list, needed);
      std::erase_if(out, [&](const Stmt* s) { return skip.count(s) != 0; });
      taken.insert(taken.begin(), out.begin(), out.end());
      return script_.lines(out);
    };
    if (at_.function) {
      Statements list;
      until(at_.function->body, at_.inner ? at_.inner_call : at_.loop, list);
      of_function = take(list);
      of_parameters = parameters(needed);
    }
    const std::string outermost = take(outside_of_function());
    return outermost + of_parameters + of_function + bound + inside;
  }

  /// `cfg` of main(cfg): what the call in the main guard gives, or the file that hydra reads. What that reads is needed in its place.
  std::string parameters(Names& needed) {
    std::string out;
    for (std::size_t i = 0; i < at_.function->parameters.size(); ++i) {
      const auto& p = at_.function->parameters[i];
      if (!needed.count(p.name)) continue;
      needed.erase(p.name);
      if (bound_.count(p.name)) continue;  // the set-up has it
      std::string value;
      const Expr* given = nullptr;
      for (const auto* d : at_.function->decorators)
        if (d->kind == ExprKind::Call && program::dotted_path(d->kids[0]).value_or("") == "hydra.main") {
          std::string folder = ".", name = "config";
          for (const auto& a : d->args) {
            if (a.keyword == "config_path" && a.value->kind == ExprKind::String) folder = a.value->text;
            if (a.keyword == "config_name" && a.value->kind == ExprKind::String) name = a.value->text;
          }
          if (name.size() < 5 || name.substr(name.size() - 5) != ".yaml") name += ".yaml";
          out_.imports.push_back("from omegaconf import OmegaConf");
          value = "OmegaConf.load(os.path.join({here}, \"" + support::normal_path(folder + "/" + name) + "\"))";
        }
      if (value.empty())
        program::walk_exprs(m_.body, [&](const Expr* e) {
          if (e->kind == ExprKind::Call && e->kids[0]->kind == ExprKind::Name && e->kids[0]->text == at_.function->name)
            given = call_argument(e, p.name, static_cast<int>(i));
          return true;
        });
      if (value.empty() && !given) given = p.default_value;
      if (value.empty() && given) {
        value = text(given->range);
        for (const auto& n : names_read(given)) needed.insert(n);
      }
      if (value.empty())
        problem_ = line(at_.function->def_range) + ": what " + at_.function->name + "'s argument " + p.name + " is cannot be told";
      else if (value != p.name) out += p.name + " = " + value + "\n", bound_.insert(p.name);
    }
    return out;
  }

  void take_data() {
    if (parts_.loader->kind != ExprKind::Name) {
      data_names_ = names_read(parts_.loader);
      out_.train = "(" + text(parts_.loader->range) + ").dataset";
    } else {
      data_names_ = {parts_.loader->text};
      out_.train = parts_.loader->text + ".dataset";
    }
    for (const auto* s : outside()) {
      // Another loader: what a loop goes over, or what is built as a DataLoader is.
      const Expr* v = s->kind == StmtKind::Assign ? s->value : nullptr;
      if (!v || v->kind != ExprKind::Call || last_name(v->kids[0]) == "dict") continue;
      for (const auto& n : names_written(s)) {
        std::string low = "_";
        for (char c : n) {  // val_loader and valLoader, not interval_loader
          if (std::isupper(static_cast<unsigned char>(c))) low += '_';
          low += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        }
        const auto says = [&](const char* word) { return low.find(std::string("_") + word) != std::string::npos; };
        if ((low.find("load") == std::string::npos && last_name(v->kids[0]).find("DataLoader") == std::string::npos) ||
            n == out_.train.substr(0, out_.train.find(".dataset")))
          continue;
        if ((says("val") || says("dev") || says("eval")) && out_.valid.empty()) out_.valid = n + ".dataset", data_names_.insert(n);
        else if (says("test") && out_.test.empty()) out_.test = n + ".dataset", data_names_.insert(n);
      }
    }
  }

  void take_setup() {
    auto keep = [&](Names& names) {  // names of imports and definitions are not sliced
      for (auto it = names.begin(); it != names.end();)
        it = script_.imported(*it) || script_.definition_of(*it) ? (globals_.insert(*it), names.erase(it)) : std::next(it);
    };
    Names data = data_names_, rest = outer_;
    rest.insert(of_constructor_.begin(), of_constructor_.end());
    const Names read_outside = rest;
    keep(rest);
    keep(data);
    Statements taken;
    for (const auto* s : every_epoch())
      if (parts_.used.count(s)) per_epoch_.insert(s);
    const std::string setup = before(rest, {}, taken);
    const std::set<const Stmt*> in_setup(taken.begin(), taken.end());
    for (const auto* s : taken)
      for (const auto& n : names_written(s)) bound_.insert(n);
    Statements loaders;
    const std::string data_text = before(data, in_setup, loaders);
    Names everything = rest;
    everything.insert(data.begin(), data.end());
    for (const auto* s : loaders)
      for (const auto& n : names_written(s))
        if (bound_.count(n) && std::find(out_.data_carries.begin(), out_.data_carries.end(), n) == out_.data_carries.end())
          out_.data_carries.push_back(n);
    for (const auto* list : {&taken, &loaders})
      for (const auto* s : *list) {
        for (const auto& n : names_read(s)) globals_.insert(n);
        if (meets(names_read(s), parts_.models) || meets(names_written(s), parts_.models))
          problem_ = line(s->range) + ": what the data or the loss needs depends on the model: `" + script_.shortened(s->range) + "`";
        if (jumps(s))
          problem_ = line(s->range) + ": what the data or the loss needs returns on the way: `" + script_.shortened(s->range) + "`";
      }
    globals_.insert(read_outside.begin(), read_outside.end());
    for (const auto& n : bound_) globals_.insert(n);
    for (const auto& n : everything) globals_.insert(n);
    out_.setup = setup;
    out_.data = data_text;
    out_.setup_names.assign(bound_.begin(), bound_.end());
    set_up_ = in_setup;
    set_up_.insert(loaders.begin(), loaders.end());
    unknown_ = everything;
    take_definitions(in_setup);
    check_arguments();
  }

  /// Functions, classes and imports, and what these use in turn.
  void take_definitions(const std::set<const Stmt*>& in_setup) {
    std::set<std::string> seen;
    Statements definitions;
    std::vector<std::string> queue(globals_.begin(), globals_.end());
    for (std::size_t i = 0; i < queue.size(); ++i) {
      const std::string n = queue[i];
      if (!seen.insert(n).second) continue;
      if (const Stmt* d = script_.definition_of(n)) {
        if (d->kind == StmtKind::FunctionDef && (d->function == at_.function || d->function == at_.inner)) continue;
        definitions.push_back(d);
        parts_.used.insert(d);
        const Names wanted = names_read(d);
        queue.insert(queue.end(), wanted.begin(), wanted.end());
        for (const auto* s : m_.body)  // constants of the module
          if (is_plain(s) && !TrainingScript::main_guard(s) && !s->range.contains(at_.loop->range) && !in_setup.count(s) &&
              (meets(names_written(s), wanted) || meets(script_.changed(s), wanted))) {
            definitions.push_back(s);
            parts_.used.insert(s);
            for (const auto& r : names_read(s)) queue.push_back(r);
          }
      } else if (const Stmt* s = script_.import_of(n)) {
        for (const auto& i : s->imports) {
          if (program::bound_name(*s, i) != n) continue;
          const std::string as = i.asname.empty() ? "" : " as " + i.asname;
          out_.imports.push_back(s->kind == StmtKind::Import ? "import " + i.name + as
                                                             : "from " + std::string(static_cast<std::size_t>(s->level), '.') + s->module +
                                         " import " + i.name + as);
        }
      } else {
        for (const auto* s : m_.body)  // try: import h5py
          if ((s->kind == StmtKind::Try || s->kind == StmtKind::If) && !TrainingScript::main_guard(s) && names_written(s).count(n) &&
              !in_setup.count(s) && !s->range.contains(at_.loop->range)) {
            definitions.push_back(s);
            parts_.used.insert(s);
            unknown_.erase(n);
            for (const auto& r : names_read(s)) queue.push_back(r);
          }
      }
    }
    static const Names kOfModules{"__file__", "__name__", "__doc__"};
    for (const auto& n : unknown_)
      if (problem_.empty() && !script_.imported(n) && !script_.definition_of(n) && !python_builtins().count(n) && !kOfModules.count(n) &&
          !bound_.count(n))
        problem_ = line(at_.loop->range) + ": where " + n + ", which the data or the loss reads, comes from cannot be told";
    std::sort(definitions.begin(), definitions.end(), [](auto* a, auto* b) { return a->range.begin < b->range.begin; });
    definitions.erase(std::unique(definitions.begin(), definitions.end()), definitions.end());
    for (const auto* d : definitions) out_.definitions += "\n\n" + script_.lines({d});
    std::sort(out_.imports.begin(), out_.imports.end());
    out_.imports.erase(std::unique(out_.imports.begin(), out_.imports.end()), out_.imports.end());
    std::stable_partition(out_.imports.begin(), out_.imports.end(), [](const std::string& l) { return l.rfind("import ", 0) == 0; });
  }

  /// A statement of the loops around the batch's was taken once: what it makes anew every epoch is lost.
  std::string done_again() const {
    for (const auto* l : parts_.loops) {
      if (l == at_.loop) continue;
      Names bound = target_names(l->targets[0]);
      Statements inside;
      until(l->body, at_.inner && l->range.contains(at_.inner_call->range) ? at_.inner_call : at_.loop, inside);
      for (const auto* s : inside)
        for (const auto& n : names_written(s)) bound.insert(n);
      for (const auto* s : inside) {
        if (!set_up_.count(s)) continue;
        const bool draws = find_expr(s, [](const Expr* e) {
                             const std::string n = e->kind == ExprKind::Call ? last_name(e->kids[0]) : "";
                             return n.find("rand") != std::string::npos || n.find("normal") != std::string::npos ||
                                 n.find("shuffle") != std::string::npos || n == "choice" || n == "sample" || n == "uniform";
                           }) != nullptr;
        if (draws || meets(names_read(s), bound))
          return line(s->range) + ": `" + script_.shortened(s->range) + "` is done anew every epoch";
      }
    }
    return "";
  }

  /// The script's own command line: its arguments have their defaults here.
  void check_arguments() {
    if ((out_.setup + out_.data + out_.definitions).find("sys.argv") != std::string::npos)
      out_.left.push_back(line(at_.loop->range) + ": sys.argv is read by what was taken over: it is the trainer's command line here");
    for (const std::string& t : {out_.setup, out_.data, out_.definitions})
      if (t.find("parse_args([])") != std::string::npos || t.find("parse_known_args([])") != std::string::npos) {
        support::Range at{};
        program::walk_exprs(m_.body, [&](const Expr* e) {
          if (e->kind != ExprKind::Call || e->kids[0]->kind != ExprKind::Attribute) return true;
          if (e->kids[0]->text == "parse_args" || e->kids[0]->text == "parse_known_args") at = e->range;
          const Expr* required = call_argument(e, "required");
          const bool positional = !e->args.empty() && e->args[0].value->kind == ExprKind::String && !e->args[0].value->text.empty() &&
              e->args[0].value->text[0] != '-' && !call_argument(e, "nargs");
          if (e->kids[0]->text == "add_argument" && ((required && text(required->range) == "True") || positional))
            problem_ = line(e->range) + ": `" + script_.shortened(e->range) + "` has no default: give the argument one";
          return true;
        });
        out_.notes.push_back(line(at) + ": the script's own command-line arguments have their defaults; train.py says them");
        return;
      }
  }

  /// Statements of the script that no slice took.
  void list_the_rest() {
    auto known = [&](const Stmt* s) {
      if (parts_.used.count(s) || s == at_.made || s->kind == StmtKind::Pass || s->kind == StmtKind::Break ||
          s->kind == StmtKind::Continue || s->kind == StmtKind::Return || s->kind == StmtKind::Global)
        return true;
      if (s->kind != StmtKind::Expression) return false;
      if (s->value && s->value->kind == ExprKind::String) return true;
      if (!s->value || s->value->kind != ExprKind::Call) return false;
      const std::string n = last_name(s->value->kids[0]);
      const Expr* root = program::root_name(s->value->kids[0]);
      if (!root) return false;
      if (at_.function && s->value->kids[0]->kind == ExprKind::Name && root->text == at_.function->name) return true;  // main()
      // Names of parameters stand for what the call gives.
      auto it = at_.given.find(root->text);
      const std::string who = it != at_.given.end() && it->second->kind == ExprKind::Name ? it->second->text : root->text;
      if (n == "step" || n == "zero_grad" || n == "update" || n == "unscale_")
        return parts_.optimizers.count(who) || parts_.scalers.count(who) || parts_.schedulers.count(who) || parts_.models.count(who);
      return (n == "train" || n == "eval" || n == "backward") && parts_.models.count(who) &&
          s->value->kids[0]->kids[0]->kind == ExprKind::Name;
    };
    std::function<void(const std::vector<Stmt*>&)> rest = [&](const std::vector<Stmt*>& body) {
      for (const auto* s : body) {
        if (!is_plain(s)) continue;
        if (TrainingScript::main_guard(s)) {
          rest(s->body);
          continue;
        }
        const bool around =
            s->range.contains(at_.loop->range) || (at_.inner_call && s != at_.inner_call && s->range.contains(at_.inner_call->range));
        const bool open = s->kind == StmtKind::For || s->kind == StmtKind::With || s->kind == StmtKind::If || s->kind == StmtKind::While ||
            s->kind == StmtKind::Try;
        if (open && around) {
          rest(s->body), rest(s->orelse), rest(s->finally);
          for (const auto& h : s->handlers) rest(h.body);
          continue;
        }
        if (known(s)) continue;
        if (s->kind == StmtKind::If && s->orelse.empty() && std::all_of(s->body.begin(), s->body.end(), known) &&
            find_expr(s, [](const Expr* e) { return e->kind == ExprKind::Call && last_name(e->kids[0]) == "step"; }))
          continue;
        out_.left.push_back(line(s->range) + ": `" + script_.shortened(s->range) + "`");
      }
    };
    rest(m_.body);
    if (at_.function) rest(at_.function->body);
    if (at_.inner) rest(at_.inner->body);
  }

  const program::Module& m_;
  TrainingScript script_;
  std::string class_;
  std::vector<std::string> parameters_;
  support::SourceManager& sources_;
  TrainingValues values_;
  TrainingSlice out_;
  TrainingParts parts_;
  Names outer_, of_batch_, of_loss_, of_constructor_, loss_writes_, data_names_, globals_, bound_;
  TrainingLoop at_;
  Statements body_;  ///< of the loop
  std::size_t call_at_ = 0, back_at_ = 0;
  const Stmt* batch_statement_ = nullptr;  ///< batch = next(iterator)
  const Expr* call_ = nullptr;
  std::map<std::string, std::pair<bool, std::string>> counters_;  ///< name → does it count epochs (else batches)? from what on
  std::set<const Stmt*> set_up_;                                  ///< statements that run once, before training
  std::set<const Stmt*> per_epoch_;                               ///< of the loops around, which run with every batch here
  Names unknown_;                                                 ///< names that no statement before the loop binds
  std::string problem_;
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
