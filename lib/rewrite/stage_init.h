// Text of __init__ (and the methods it calls) of a module that a stage holds in part. Internal to the stage slicer.
//
// Work in rounds: statements that only make what the stage does not hold are dropped; so are those that read dropped things,
// unless what they make is needed, in which case the thing is built after all and dropped at the end (drop_unused). Where
// one constructor call makes some objects that are held and some that are not, it becomes `… if 4 <= i < 8 else Absent()`.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rewrite/stage_forward.h"
#include "rewrite/stage_use.h"

namespace shardwright::rewrite::stage {

class InitSlice {
 public:
  InitSlice(const Context& c, const Use& use, int stage, ModuleId m);
  /// nullopt: unchanged.
  std::optional<std::string> text(const Function* f, const RenderText& render, Uses& uses) const;
  /// Variable that counts the iterations of a loop in the new text, "" when nothing there counts them.
  std::string counter(const void* loop) const;

 private:
  struct Counter {
    std::string name;
    std::vector<Edit> edits;
  };
  struct Place {
    const Function* function = nullptr;
    const Stmt* stmt = nullptr;
  };

  void collect();
  void leave_bases();
  void rounds();
  bool made_elsewhere(model::ModuleId m) const;
  bool round();
  void sites();
  void calls_that_build();
  void guards();

  std::vector<model::Clock> times_of(const Function* f, const Stmt* s) const;
  bool unheld(const model::AttrWrite& w) const;
  bool reads_dropped(const Function* f, const Stmt* s, std::vector<std::pair<ModuleId, std::string>>* which) const;
  bool does_more(const Function* f, const Stmt* s) const;
  bool touches_held(const Function* f, const Stmt* s) const;
  bool needed_later(const Function* f, const Stmt* s) const;
  bool needed_later(const Function* f, const Stmt* s, std::set<const Stmt*>& seen) const;
  bool dropped(const Stmt* s) const { return drop_.count(s) != 0; }
  bool whole() const { return c_.built_whole.count(stage_) != 0; }
  bool live_frame(FrameId f) const;
  void site(const Function* f, const Expr* e, bool absent_allowed);
  void visit_sites(const Function* f, const Stmt* s, const Expr* e, bool absent_allowed);
  bool container_call(const Expr* call) const;
  std::string condition(const std::set<int>& held, int total, const std::string& var) const;
  const Counter* counter_for(const Function* f, const void* loop, int clause);
  std::vector<std::string> keep_list() const;
  void keep_list(ModuleId m, const std::string& prefix, std::vector<std::string>& out) const;

  const Context& c_;
  const Use& use_;
  int stage_;
  ModuleId module_;
  std::vector<const Function*> functions_;  ///< of this module's class, run while it was built
  std::map<const Function*, std::vector<FrameId>> frames_;
  std::set<const Stmt*> drop_;
  std::map<const Stmt*, const Function*> absent_;    ///< `self.x = Absent()`
  std::set<std::pair<ModuleId, std::string>> late_;  ///< built whole, dropped at the end
  bool narrow_ = false;                              ///< drop_unused is needed
  std::map<const Function*, std::vector<Edit>> edits_;
  std::map<const void*, Counter> counters_;
  std::set<const void*> used_counters_;
  bool uses_absent_ = false;
};

}  // namespace shardwright::rewrite::stage
