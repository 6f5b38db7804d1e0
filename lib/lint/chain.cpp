// The stages of one model, run one after another as the schedule does, and held together against the model that they were cut from.
#include <algorithm>
#include <cmath>
#include <map>

#include "lint/session.h"
#include "lint/syntax_help.h"
#include "program/visit.h"
#include "support/files.h"

namespace shardwright::lint {

using program::ClassDef;
using program::Expr;
using program::ExprKind;
using program::Stmt;
using program::StmtKind;
using support::Severity;
using namespace syntax;

namespace {

constexpr double kBalance = 1.2;  ///< slowest stage over the mean

/// How many tensors a stage unpacks what it received to; 1 where nothing tells.
std::size_t unpacked(const ClassDef& c) {
  std::size_t n = 1;
  if (const auto* f = method(c, "forward"))
    program::walk(f->body, [&](const Stmt* s) {
      if (s->kind == StmtKind::Assign && self_attribute(s->value) == "input_tensor" && s->targets.size() == 1 &&
          (s->targets[0]->kind == ExprKind::Tuple || s->targets[0]->kind == ExprKind::List))
        n = s->targets[0]->kids.size();
      return true;
    });
  return n;
}

/// Is the depth of the model one of the sizes that were made up?
bool depth_made_up(const Facts& f) {
  return std::any_of(f.made.begin(), f.made.end(), [](const std::string& n) {
    return contains(n, {"depth", "layers", "blocks", "n_layer", "num_layers"});
  });
}

std::string number(double v) {
  std::string s = std::to_string(v);
  while (s.size() > 1 && s.back() == '0') s.pop_back();
  return s.back() == '.' ? s + "0" : s;
}

}  // namespace

void Session::chains(const std::vector<Class>& classes) {
  std::map<std::string, std::map<std::size_t, const Class*>> models;
  for (const auto& c : classes)
    if (auto n = stage_number(c.def->name))
      models[support::parent_path(sources_.file(c.module->file).path) + ":" + c.def->name.substr(0, c.def->name.rfind("_stage"))].emplace(
          *n, &c);
  for (const auto& [key, stages] : models) {
    const std::string model = key.substr(key.rfind(':') + 1);
    const auto original = class_named(model, *stages.begin()->second->module);
    // Parts of a submodule that is cut: no schedule calls them.
    const bool parts = std::none_of(stages.begin(), stages.end(), [&](const auto& s) {
      return contains(sources_.text(s.second->def->range), {"input_tensor", "pre_process"});
    });
    std::vector<std::pair<const Class*, Facts>> ran;
    bool complete = stages.begin()->first == 0;
    std::size_t next = stages.begin()->first;
    std::vector<Sent> sent;
    if (!complete)
      sent.assign(unpacked(*stages.begin()->second->def), Sent{true, {3, 12, 40 * tp_}, model::DType::F32, true, false, -1, "", {}});
    for (const auto& [n, c] : stages) {
      Facts facts;
      const bool ok = n == next++ && (n == 0 ? run_class(*c, &facts) : run_stage(*c, sent, facts));
      covered_.insert(c->def);
      if (!ok || !facts.done) {  // what it returns is not known
        complete = false;
        break;
      }
      sent = facts.outputs;
      if (!parts && n != stages.rbegin()->first && facts.bare && method(*c->def, "forward") &&
          !returns(*method(*c->def, "forward")).empty())
        findings_.add(Severity::Error, "SW204", returns(*method(*c->def, "forward")).back()->range,
                      c->def->name + " is not the last stage and returns a bare value; every stage but the last returns a tuple", {});
      if (n != stages.rbegin()->first) constants(*c, sent);
      else last_output(*c, facts);
      stage_facts_[c->def] = facts;
      ran.emplace_back(c, std::move(facts));
    }
    if (original)
      for (const auto& [n, c] : stages) {
        compare_defaults(*original->def, *c->def);
        compare_masks(*original->def, *c->def);
      }
    for (const auto& [n, c] : stages) strict_base(*c);
    if (ran.empty()) continue;
    complete = complete && ran.size() == stages.size();
    Facts whole;
    planned_for_ = stages.begin()->second->module;
    const bool have = original && run_class(*original, &whole, true);
    planned_for_ = nullptr;
    if (have) compare_chain(whole, ran, complete, model);
    // A plan beside the stages was balanced at the sizes that it was made for, not at the constructor's defaults.
    if (complete && ran.size() > 1 && planned_inputs(*stages.begin()->second->module).empty()) balance(ran);
  }
}

/// SW103, SW105: what the last stage gives to the loss function.
void Session::last_output(const Class& c, const Facts& facts) {
  const auto* f = method(*c.def, "forward");
  if (!f || returns(*f).empty()) return;
  const auto where = returns(*f).back()->range;
  std::optional<support::Fix> fix;
  if (facts.pair_call.valid()) fix = support::Fix{"safe", {{{facts.pair_call.file, facts.pair_call.end, facts.pair_call.end}, "[0]"}}};
  if (!facts.pair_of.empty())
    findings_.add(Severity::Error, "SW103", where,
                  "the pair (output, bias) that " + facts.pair_of +
                      " returns is what the last stage returns; the loss function gets it as it is: take its first element: layer(x)[0]",
                  {{facts.pair_call, "returned here"}}, fix);
  // Megatron has losses over a sharded vocabulary; our runtime has none.
  if (!facts.sharded_output.empty() && contains(sources_.file(c.module->file).text, {"shardwright.parallel"}))
    findings_.add(
        Severity::Error, "SW105", where,
        "the model's output is " + facts.sharded_output + ": the loss function gets this rank's share; gather it (gather_output=True)", {});
}

/// SW211: a base class that binds the constructor's arguments before it runs.
void Session::strict_base(const Class& c) {
  const auto* init = method(*c.def, "__init__");
  if (!init || init->parameters.empty() || std::any_of(init->parameters.begin(), init->parameters.end(), [](const auto& p) {
        return p.kind == program::Parameter::VarKeywords;
      }))
    return;
  for (const auto& b : c.def->bases) {
    if (!b.value || b.value->kind != ExprKind::Name) continue;
    const auto base = class_named(b.value->text, *c.module);
    const auto* make = base ? method(*base->def, "__new__") : nullptr;
    if (!make || !contains(sources_.text(make->range), {".bind(", "bind_partial("})) continue;
    const auto& last = init->parameters.back();
    const auto end = last.default_value ? last.default_value->outer.end : last.range.end;
    support::Fix fix{"safe", {{{last.range.file, end, end}, ", **kwargs"}}};
    findings_.add(
        Severity::Error, "SW211", name_range(*c.def),
        c.def->name + " takes no **kwargs, but " + b.value->text +
            " binds the constructor's arguments and refuses those it does not name; the training framework passes some of its own",
        {{make->def_range, "binds them here"}}, fix);
  }
}

/// SW205: what the next stage can make itself.
void Session::constants(const Class& c, const std::vector<Sent>& sent) {
  const auto* f = method(*c.def, "forward");
  if (!f) return;
  for (std::size_t i = 0; i < sent.size(); ++i)
    for (const auto* r : returns(*f))
      if (sent[i].tensor && sent[i].recomputable && r->kind == ExprKind::Tuple && i < r->kids.size())
        findings_.add(Severity::Warning, "SW205", r->kids[i]->range,
                      "what is sent here depends on no input and no parameter: the next stage can make it itself; it gets no gradient, and "
                      "its sender may wait for one",
                      {});
}

/// SW206, SW208, SW117, SW212: all stages together against their model.
void Session::compare_chain(const Facts& original, const std::vector<std::pair<const Class*, Facts>>& stages, bool complete,
                            const std::string& model) {
  std::map<std::string, std::size_t> plain, elements, parts;
  for (const auto& [c, f] : stages) {
    for (const auto& [name, n] : f.plain_ops) plain[name] += n;
    for (const auto& [name, n] : f.elements) elements[name] += n;
    for (const auto& [name, n] : f.parts) parts[name] += n;
  }
  // Handed on, but not as it came; and the model has no such operation that no stage has.
  bool changed = false;
  for (std::size_t k = 0; k + 1 < stages.size(); ++k)
    for (const auto& s : stages[k].second.outputs) {
      if (s.received < 0 || s.by.empty() || !s.by_site.valid()) continue;
      const auto there = original.plain_ops.find(s.by);
      if (!complete ? there != original.plain_ops.end() : there != original.plain_ops.end() && plain[s.by] <= there->second) continue;
      findings_.add(Severity::Error, "SW206", s.by_site,
                    "a tensor that only passes through " + stages[k].first->def->name + " is changed by " + s.by + ", which " + model +
                        " does not do to it: the stage that reads it gets another one",
                    {});
      changed = true;
    }
  if (!complete) return;
  for (const auto& [name, n] : original.elements) {
    const auto at = elements.find(name);
    if (at == elements.end() || at->second == n) continue;
    if (at->second > n && at->second < n + parts[name]) continue;  // one that two stages run in part counts twice
    support::Range where;
    for (const auto& [c, f] : stages)
      if (auto m = f.made_at.find(name); m != f.made_at.end()) where = m->second;
    const auto m = original.made_at.find(name);
    findings_.add(Severity::Error, "SW208", where,
                  "the stages run " + std::to_string(at->second) + " of " + name + ", " + model + " runs " + std::to_string(n),
                  {{m != original.made_at.end() ? m->second : support::Range{}, "the original's"}});
    changed = true;
  }
  std::map<std::string, std::vector<Facts::Named>> wanted, got;
  for (const auto& r : original.rates) wanted[r.name].push_back(r);
  for (const auto& [c, f] : stages)
    for (const auto& r : f.rates) got[r.name].push_back(r);
  for (const auto& [name, list] : wanted) {
    const auto at = got.find(name);
    if (at == got.end() || at->second.size() != list.size()) continue;
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i].value != at->second[i].value) {
        findings_.add(Severity::Error, "SW208", at->second[i].where,
                      name + " " + std::to_string(i) + " is " + number(at->second[i].value) + " here and " + number(list[i].value) +
                          " in " + model + "; compute the list over the whole depth and take this stage's part",
                      {{list[i].where, "the original's"}});
        changed = true;
        break;
      }
  }
  Facts together;
  for (const auto& [c, f] : stages) {
    together.nonlinear.insert(together.nonlinear.end(), f.nonlinear.begin(), f.nonlinear.end());
    together.incomplete = together.incomplete || f.incomplete;
  }
  if (!changed && !original.incomplete && !together.incomplete &&
      !compare_runs(original, together, "the stages", model, name_range(*stages.back().first->def)))
    for (const char* op : {"mul", "div", "true_divide", "sub", "pow", "neg"}) {
      const auto at = original.plain_ops.find(op);
      const std::size_t n = at == original.plain_ops.end() ? 0 : at->second;
      if (plain[op] == n) continue;
      findings_.add(
          Severity::Warning, "SW117", name_range(*stages.back().first->def),
          "the stages of " + model + " do " + std::to_string(plain[op]) + " times " + op + ", the original " + std::to_string(n) + " times",
          {});
      break;
    }
  for (const auto& names : original.tied) {
    std::vector<const Class*> holders;
    bool shared = false;
    for (const auto& [c, f] : stages) {
      const auto text = sources_.text(c->def->range);
      shared = shared ||
          contains(text, {"share_embeddings_and_output_weights = True", "shared_embedding_or_output_weight", "embedding_group"}) ||
          contains(sources_.file(c->module->file).text, {"from shardwright.parallel"});
      if (std::any_of(names.begin(), names.end(), [&](const std::string& n) { return f.parameters.count(n) > 0; })) holders.push_back(c);
    }
    if (!shared && holders.size() > 1)
      findings_.add(Severity::Error, "SW212", name_range(*holders.back()->def),
                    names[0] + " and " + names[1] + " are one parameter in " + model + "; here " + holders.front()->def->name + " and " +
                        holders.back()->def->name + " hold one each, and nobody shares their gradients",
                    {{name_range(*holders.front()->def), "the other one"}});
  }
}

/// SW210.
void Session::balance(const std::vector<std::pair<const Class*, Facts>>& stages) {
  double all = 0;
  std::size_t slowest = 0;
  for (std::size_t k = 0; k < stages.size(); ++k) {
    if (depth_made_up(stages[k].second)) return;
    all += stages[k].second.flops;
    if (stages[k].second.flops > stages[slowest].second.flops) slowest = k;
  }
  const double mean = all / static_cast<double>(stages.size());
  if (mean <= 0 || stages[slowest].second.flops <= kBalance * mean) return;
  std::string costs;
  for (const auto& [c, f] : stages)
    costs += (costs.empty() ? "" : ", ") + c->def->name + " " + std::to_string(static_cast<int>(std::lround(100 * f.flops / all))) + " %";
  findings_.add(Severity::Warning, "SW210", name_range(*stages[slowest].first->def),
                stages[slowest].first->def->name + " takes " + number(std::round(100 * stages[slowest].second.flops / mean) / 100) +
                    " times the mean of the stages (" + costs + " of the operations, forward, at the sizes lint assumes): move the cut",
                {});
}

}  // namespace shardwright::lint
