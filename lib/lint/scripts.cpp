#include "lint/scripts.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "lint/syntax_help.h"
#include "program/visit.h"

namespace shardwright::lint {

using program::Expr;
using program::ExprKind;
using program::Function;
using program::Stmt;
using program::StmtKind;
using support::Severity;
using namespace syntax;

namespace {

constexpr std::string_view kImported = "from torch.distributed import";

struct Script {
  const program::Module& module;
  const support::SourceManager& sources;
  Found& findings;
  std::string_view text;
  bool from_distributed;  ///< names are imported from torch.distributed
  std::string_view of(const Expr* e) const { return e ? sources.text(e->range) : std::string_view(); }
};

/// Is the callee `module.name` of torch.distributed, or imported from it?
bool of_distributed(const Script& f, const Expr* call) {
  const Expr* c = call->kids[0];
  if (c->kind == ExprKind::Attribute) {
    const auto base = f.of(c->kids[0]);
    return base == "dist" || base == "torch.distributed" || base == "distributed" || base == "c10d";
  }
  return f.from_distributed;
}

/// Statements of one function in order, those of nested definitions left out, with the conditions around each.
struct Placed {
  const Stmt* stmt;
  std::vector<const Stmt*> ifs;
  std::vector<char> branch;
};
void place(const std::vector<Stmt*>& body, std::vector<const Stmt*>& ifs, std::vector<char>& branch, std::vector<Placed>& out) {
  for (const Stmt* s : body) {
    out.push_back({s, ifs, branch});
    if (s->kind == StmtKind::FunctionDef || s->kind == StmtKind::ClassDef) continue;
    if (s->kind == StmtKind::If) {
      ifs.push_back(s);
      branch.push_back(1);
      place(s->body, ifs, branch, out);
      branch.back() = 0;
      place(s->orelse, ifs, branch, out);
      ifs.pop_back();
      branch.pop_back();
      continue;
    }
    for (const auto* b : {&s->body, &s->orelse, &s->finally}) place(*b, ifs, branch, out);
    for (const auto& h : s->handlers) place(h.body, ifs, branch, out);
  }
}
std::vector<Placed> placed(const Function& f) {
  std::vector<const Stmt*> ifs;
  std::vector<char> branch;
  std::vector<Placed> out;
  place(f.body, ifs, branch, out);
  return out;
}

bool collective(std::string_view name) {
  for (auto n : {"all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "broadcast", "barrier",
                 "all_to_all", "all_to_all_single", "reduce", "_all_gather_base"})
    if (name == n) return true;
  return false;
}

enum class Group { Default, Tensor, Pipeline, Other };
Group group_of(const Script& f, const Expr* call) {
  const Expr* g = argument(call, "group", 99);
  if (!g) return Group::Default;
  const auto text = f.of(g);
  if (contains(text, {"pipeline", "pp_group"})) return Group::Pipeline;
  if (contains(text, {"tensor_model_parallel", "tp_group", "get_tensor_and"})) return Group::Tensor;
  return Group::Other;
}

/// Can a function with this text have a collective that only some ranks reach? Holds every word that the conditions below are known by.
/// `imported`: names may be torch.distributed's without saying so.
bool may_hang(std::string_view text, bool imported) {
  static const support::WordSearch kCollectives{"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                                "barrier",    "all_to_all", "reduce("};
  static const support::WordSearch kConditions{
      "pipeline_model_parallel_rank", "is_pipeline", "pp_rank",        "pp_group",        "is_last_stage", "is_first_stage", "tp_rank",
      "model_parallel_rank",          "get_rank()",  "global_rank ==", "is_main_process", "is_rank_zero",  "rank == 0"};
  const bool asks = kConditions.in(text) || (contains(text, {"group"}) && contains(text, {"pipeline"}));
  return asks && kCollectives.in(text) && (imported || contains(text, {"dist.", "distributed.", "c10d."}));
}

bool mirrored(std::string_view text) {
  return contains(text, {"1 - rank", "rank ^ 1", "1 ^ rank", "1 - get_rank", "1 - self.rank", "1 - dist.get_rank()"});
}

/// Can a function with this text send wrongly?
bool may_send(std::string_view text) {
  return contains(text, {"send("}) &&
      (mirrored(text) || contains(text, {"transpose", "permute", "swapaxes", "movedim", ".t()", ".T", ".mT"}));
}

bool asks_stage(std::string_view condition) {
  return contains(
      condition,
      {"is_pipeline_last_stage", "is_pipeline_first_stage", "pipeline_model_parallel_rank", "pp_rank", "is_last_stage", "is_first_stage"});
}
bool asks_tensor_rank(std::string_view condition) {
  return contains(condition, {"tensor_model_parallel_rank", "tp_rank", "get_model_parallel_rank"});
}
bool asks_rank(std::string_view condition) {
  return contains(condition, {"get_rank()", "global_rank ==", "is_main_process", "is_rank_zero", "rank == 0"});
}

/// SW115 / SW215: a collective that some ranks of its group never reach.
void conditional_collectives(const Script& f) {
  for (const Function* fn : functions(f.module, f.sources, [&](std::string_view t) { return may_hang(t, f.from_distributed); })) {
    const auto all = placed(*fn);
    for (const auto& at : all)
      calls_of(at.stmt, [&](const Expr* call) {
        if (!collective(callee(call)) || !of_distributed(f, call)) return;
        const Group group = group_of(f, call);
        for (std::size_t i = 0; i < at.ifs.size(); ++i) {
          const auto condition = f.of(at.ifs[i]->value);
          const bool stage = asks_stage(condition), tensor = asks_tensor_rank(condition), rank = !stage && !tensor && asks_rank(condition);
          const bool hangs = (group == Group::Pipeline && stage) || (group == Group::Tensor && tensor) ||
              (group == Group::Default && (stage || tensor || rank));
          if (!hangs) continue;
          // The other branch may hold its own part of the collective.
          bool matched = false;
          for (const auto& other : all)
            for (std::size_t k = 0; k < other.ifs.size(); ++k)
              if (other.ifs[k] == at.ifs[i] && other.branch[k] != at.branch[i])
                calls_of(other.stmt, [&](const Expr* c) { matched = matched || collective(callee(c)); });
          // Ranks that are told apart by their global number may have their part in another function.
          if (rank && !matched)
            program::walk_exprs(f.module.body, [&](const Expr* c) {
              matched = matched ||
                  (c != call && c->kind == ExprKind::Call && callee(c) == callee(call) && of_distributed(f, c) &&
                   !at.ifs[i]->range.contains(c->range));
              return true;
            });
          if (matched) continue;
          const std::string what(callee(call));
          f.findings.add(Severity::Error, stage && group != Group::Tensor ? "SW215" : "SW115", call->range,
                         what + " is reached under '" + std::string(condition) +
                             "' only: the other ranks of its group never enter it and this one waits for ever; let every rank take part "
                             "(with zeros, say) or send from one to the others",
                         {{at.ifs[i]->value->range, "the condition differs between the ranks of the group"}});
          return;
        }
        // An early return before it that only some stages take.
        if (group != Group::Pipeline) return;
        for (const auto& before : all) {
          if (before.stmt == at.stmt || before.stmt->range.begin > at.stmt->range.begin) break;
          if (before.stmt->kind != StmtKind::Return || before.ifs.empty()) continue;
          const bool around = std::find(at.ifs.begin(), at.ifs.end(), before.ifs.back()) != at.ifs.end();
          const auto condition = f.of(before.ifs.back()->value);
          if (around || contains(condition, {"world_size", "is_initialized", "size()", "is_available", "config"})) continue;
          f.findings.add(Severity::Warning, "SW215", call->range,
                         std::string(callee(call)) + " is not reached where '" + std::string(condition) +
                             "' holds: if that differs between the ranks of its group, the others wait for ever",
                         {{before.stmt->range, "returns before it"}});
          return;
        }
      });
  }
}

/// SW215: both neighbours send first.
void sends_first(const Script& f) {
  for (const Function* fn : functions(f.module, f.sources, may_send)) {
    const Expr* sent = nullptr;
    std::string peer;
    bool symmetric = false;
    for (const auto& at : placed(*fn)) {
      if (at.stmt->kind == StmtKind::Assign && at.stmt->targets.size() == 1 && at.stmt->targets[0]->kind == ExprKind::Name) {
        if (mirrored(f.of(at.stmt->value))) {
          symmetric = true;
          peer = at.stmt->targets[0]->text;
        }
      }
      calls_of(at.stmt, [&](const Expr* call) {
        if (!of_distributed(f, call)) return;
        const bool by_rank = std::any_of(at.ifs.begin(), at.ifs.end(), [&](const Stmt* i) {
          return contains(f.of(i->value), {"rank", "stage", "% 2"});
        });
        if (callee(call) == "send" && !by_rank && !sent) {
          if (const Expr* to = argument(call, "dst", 1); to && symmetric && f.of(to) == peer) sent = call;
        } else if (callee(call) == "recv" && sent && !by_rank) {
          const Expr* from = argument(call, "src", 1);
          if (from && f.of(from) == peer)
            f.findings.add(Severity::Error, "SW215", sent->range,
                           "both neighbours send before they receive: neither send returns until the other receives (as soon as sends do "
                           "not buffer); use batch_isend_irecv, or order the two by rank",
                           {{call->range, "the receive comes after"}});
        }
      });
    }
  }
}

/// SW216: a view that is not contiguous handed to a send.
void strided_sends(const Script& f) {
  auto strided = [&](const Expr* e) {
    if (!e) return false;
    if (e->kind == ExprKind::Call) return contains(callee(e), {"transpose", "permute", "swapaxes", "movedim"}) || callee(e) == "t";
    return e->kind == ExprKind::Attribute && (e->text == "T" || e->text == "mT");
  };
  for (const Function* fn : functions(f.module, f.sources, may_send)) {
    std::vector<std::string> views;
    for (const auto& at : placed(*fn)) {
      if (at.stmt->kind == StmtKind::Assign && at.stmt->targets.size() == 1 && at.stmt->targets[0]->kind == ExprKind::Name) {
        std::erase(views, at.stmt->targets[0]->text);
        if (strided(at.stmt->value)) views.push_back(at.stmt->targets[0]->text);
      }
      calls_of(at.stmt, [&](const Expr* call) {
        if ((callee(call) != "send" && callee(call) != "isend") || !of_distributed(f, call)) return;
        const Expr* x = argument(call, "tensor", 0);
        if (!strided(x) && !(x && x->kind == ExprKind::Name && std::find(views.begin(), views.end(), x->text) != views.end())) return;
        support::Fix fix{"safe", {{{x->outer.file, x->outer.end, x->outer.end}, ".contiguous()"}}};
        f.findings.add(
            Severity::Error, "SW216", call->range,
            "a view that is not contiguous is sent: its memory arrives in another order than the receiver's buffer has; send .contiguous()",
            {}, fix);
      });
    }
  }
}

/// SW305: a loss that only the last stage has, used on all.
void loss_off_the_last_stage(const Script& f) {
  if (!contains(f.text, {"pipeline"})) return;
  static const support::WordSearch kReads{".item("};
  for (const Function* fn : functions(f.module, f.sources, kReads)) {
    std::vector<std::string> losses;
    std::vector<support::Range> from;
    for (const auto& at : placed(*fn)) {
      const bool guarded = std::any_of(at.ifs.begin(), at.ifs.end(), [&](const Stmt* i) {
        return asks_stage(f.of(i->value)) || contains(f.of(i->value), {"is not None"});
      });
      if (at.stmt->kind == StmtKind::Assign && at.stmt->targets.size() == 1 && at.stmt->targets[0]->kind == ExprKind::Name &&
          at.stmt->value->kind == ExprKind::Call) {
        const auto name = callee(at.stmt->value);
        const auto text = f.of(at.stmt->value->kids[0]);
        if ((name == "step" && contains(text, {"schedule", "pipe"})) || name == "forward_backward_func") {
          losses.push_back(at.stmt->targets[0]->text);
          from.push_back(at.stmt->range);
        }
      }
      if (guarded) continue;
      calls_of(at.stmt, [&](const Expr* call) {
        if (callee(call) != "item" || call->kids[0]->kind != ExprKind::Attribute) return;
        const Expr* x = call->kids[0]->kids[0];
        auto it = std::find(losses.begin(), losses.end(), std::string(f.of(x)));
        if (x->kind != ExprKind::Name || it == losses.end()) return;
        f.findings.add(Severity::Warning, "SW305", call->range,
                       x->text +
                           " is read on every rank, but only the last pipeline stage has a loss; ask is_pipeline_last_stage() first, or "
                           "broadcast it over the pipeline group",
                       {{from[static_cast<std::size_t>(it - losses.begin())], "the schedule's result"}});
      });
    }
  }
}

/// Expressions of the top level and of functions whose text holds one of the words.
void walk_where(const Script& f, const support::WordSearch& words, const std::function<bool(const Expr*)>& visit) {
  program::walk(f.module.body, [&](const Stmt* s) {
    if (s->kind == StmtKind::FunctionDef && !words.in(f.sources.text(s->range))) return false;
    program::for_each_expr(s, [&](const Expr* e) { program::walk(e, visit); });
    return true;
  });
}

bool may_clip(std::string_view text) {
  return contains(text, {"clip_grad_norm_"}) &&
      contains(text, {"tensor_model_parallel", "tensor_parallel", "parallel_state", "model_parallel"});
}

/// SW121: the gradient norm of one rank's parameters.
void local_clipping(const Script& f) {
  if (!may_clip(f.text)) return;
  static const support::WordSearch kClips{"clip_grad_norm_"};
  walk_where(f, kClips, [&](const Expr* e) {
    if (e->kind != ExprKind::Call || !contains(callee(e), {"clip_grad_norm_"}) || callee(e) != "clip_grad_norm_") return true;
    const Expr* c = e->kids[0];
    const bool torchs = c->kind == ExprKind::Attribute
        ? contains(f.of(c->kids[0]), {"nn.utils", "torch.nn.utils"})
        : contains(f.text, {"from torch.nn.utils import", "from torch.nn.utils.clip_grad import"});
    if (torchs)
      f.findings.add(Severity::Warning, "SW121", e->range,
                     "torch's clip_grad_norm_ sees this rank's parameters only: ranks clip by different factors; use a norm over the "
                     "tensor-parallel group (sharded parameters summed, replicated ones counted once) and over the pipeline stages",
                     {});
    return true;
  });
}

/// SW309: torchrun passes the local rank in the environment.
void local_rank_argument(const Script& f) {
  if (!contains(f.text, {"--local"}) || contains(f.text, {"LOCAL_RANK"})) return;
  static const support::WordSearch kOptions{"add_argument"};
  walk_where(f, kOptions, [&](const Expr* e) {
    if (e->kind != ExprKind::Call || callee(e) != "add_argument") return true;
    for (const auto& a : e->args)
      if (a.value && a.value->kind == ExprKind::String && (a.value->text == "--local_rank" || a.value->text == "--local-rank")) {
        const Expr* required = argument(e, "required", 99);
        if (required && required->kind == ExprKind::True)
          f.findings.add(Severity::Error, "SW309", e->range,
                         a.value->text +
                             " is required, but torchrun does not pass it: it sets LOCAL_RANK in the environment; read "
                             "int(os.environ[\"LOCAL_RANK\"]) and keep the option optional",
                         {});
        else if (contains(f.text, {"set_device"}))
          f.findings.add(
              Severity::Warning, "SW309", e->range,
              a.value->text + " is not passed by torchrun, which sets LOCAL_RANK in the environment: every rank takes the default device",
              {});
      }
    return true;
  });
}

}  // namespace

bool communicates(std::string_view text) {
  if (may_clip(text) || (contains(text, {".item("}) && contains(text, {"pipeline"}))) return true;
  // Function by function: a collective here and a question for the rank there are no fault.
  const bool imported = contains(text, {kImported});
  const auto faulty = [&](std::string_view part) { return may_hang(part, imported) || may_send(part); };
  const auto each = [](std::string_view all, std::string_view separator, const std::function<bool(std::string_view)>& any) {
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t end = std::min(all.find(separator, at + 1), all.size());
      if (any(all.substr(at, end - at))) return true;
      at = end;
    }
    return false;
  };
  return faulty(text) && each(text, "\ndef ", [&](std::string_view top) {
           return faulty(top) && each(top, "\nclass ", [&](std::string_view block) {
                    return faulty(block) && (!block.starts_with("\nclass ") || each(block, "\n    def ", faulty));
                  });
         });
}

void check_scripts(const program::Module& m, const support::SourceManager& sources, Found& findings) {
  if (m.file < 0) return;
  const std::string_view text = sources.file(m.file).text;
  const Script f{m, sources, findings, text, contains(text, {kImported})};
  conditional_collectives(f);
  sends_first(f);
  strided_sends(f);
  loss_off_the_last_stage(f);
  local_clipping(f);
  local_rank_argument(f);
}

}  // namespace shardwright::lint
