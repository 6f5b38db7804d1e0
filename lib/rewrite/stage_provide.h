// How a stage gets, at its beginning, the values that its part of the frames needs: sent, rebuilt from what was sent, or computed
// again. Internal to the stage slicer.
#pragma once
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rewrite/stage_slice.h"

namespace shardwright::rewrite::stage {

/// The expression that a call passes for a parameter of the called frame.
struct ArgumentAt {
  const Expr* expr = nullptr;
  std::string keyword;
  bool unclear = false;   ///< star arguments
  bool variadic = false;  ///< the parameter is *args or **kwargs
};

ArgumentAt argument(const Trace& t, FrameId f, const std::string& param);

/// An iterator half way through what it iterates over: it cannot be made again.
bool is_iterator(const Binding& b);

/// Fills StageSlice::frames[…].provided and the boundary's own values for one stage. stage_cross.cpp: what is sent and how containers
/// and sizes are rebuilt from it; stage_provide.cpp: what is computed again, and the result.
class Resolver {
 public:
  Resolver(const Context& c, StageSlice& stage, CutView& lo, CutView* hi);

  void run(const std::function<std::set<std::string>(FrameId)>& live_out);

 private:
  using State = std::vector<Provided>;

  const Boundary& at(std::size_t l) const { return lo_.levels[l]; }
  FrameId frame(std::size_t l) const { return lo_.levels[l].frame; }
  const model::VarWrite& write(int w) const { return c_.trace.var_writes[static_cast<std::size_t>(w)]; }
  int current(std::size_t l, const std::string& name) const { return c_.facts.version(frame(l), name, clock_); }
  bool is_self(std::size_t l, const std::string& name) const;
  void fail(const std::string& why);

  std::vector<std::string> ordered(std::size_t l) const;

  // ---- what crosses --------------------------------------------------------------------------------------------------

  void tensors(std::size_t l);

  bool is_temp(std::size_t l, const std::string& name) const;

  /// The value that flows between the two children of a container.
  std::optional<Binding> between_children() const;

  void carry(std::size_t l, const std::string& name, int w, const Binding& v);

  /// Puts a variable's tensors among what crosses; containers are taken apart and built again.
  bool carry_value(std::size_t l, const std::string& name, const std::string& produce, const Binding& v);

  std::optional<std::string> rebuild(std::size_t l, const std::string& base, const std::string& stem, const std::string& produce,
                                     const Binding& v, int& n);

  /// Is a class known by this name where the frame's function is written? `def`: its definition, when it stands there.
  bool names_class(std::size_t l, const std::string& cls, const program::ClassDef** def = nullptr) const;
  std::optional<std::string> object(std::size_t l, const std::string& base, const std::string& produce, const Binding& v, int& n);

  /// Plain values inside containers, and sizes.
  std::optional<std::string> plain(std::size_t l, const Binding& v);

  // ---- sizes ---------------------------------------------------------------------------------------------------------

  struct AtHand {
    std::string name;
    TensorId tensor;
  };
  /// Tensors that the frame holds under a name after unpacking.
  std::vector<AtHand> at_hand(std::size_t l) const;
  std::set<std::string> names_at(std::size_t l) const;

  std::optional<std::string> dim_text(std::size_t l, TensorId t, int d) const;

  /// A size by what it has to do with the sizes of tensors at hand: the same, a constant more, a constant times as much.
  std::optional<std::string> poly_text(std::size_t l, const Dims::Poly& want) const;

  std::optional<std::string> size_text(std::size_t l, const Sym* s) const;

  /// `x.shape[1]`, `x.device` … of a tensor that is not at hand, written with one that is. nullopt: the whole value is needed.
  std::optional<Edit> metadata(std::size_t l, const Expr* name, TensorId t) const;
  std::optional<Edit> stand_in(std::size_t l, const Expr* name, TensorId t, Clock when) const;

  // ---- what is computed again ------------------------------------------------------------------------------------------

  template <class F>
  bool attempt(F f) {
    State saved = state_;
    const auto intervals = stage_.recomputed;
    if (f()) return true;
    state_ = std::move(saved);
    stage_.recomputed = intervals;
    return false;
  }

  void input(const std::string& name, int w);

  /// Makes version `w` of a variable available at level l under its name. `more_inputs`: inputs of forward may be read for it
  /// that nothing else reads.
  bool changed_input(const std::string& name, int w) const;
  bool provide(std::size_t l, int w, bool more_inputs);

  /// Gives the inner frame's parameter its original argument.
  bool pass(std::size_t l, const std::string& name, int w, bool more_inputs);

  /// Bound by a loop around the boundary whose header is written again.
  bool header_target(std::size_t l, const std::string& name) const;

  /// Keeps the statement that made version `w`, with what it needs.
  bool reads_what_forward_set(std::size_t l, const Stmt* unit, Clock before) const;
  bool by_statement(std::size_t l, int w, bool more_inputs, bool flows_allowed);

  /// Keeps the statement that made version `w` in front of the unpacking, where the inputs' names still hold the inputs.
  /// By a statement before what crossed is unpacked. `flows_allowed`: it may compute with inputs itself (the caller has looked at
  /// its operations); what it reads may not.
  bool early(std::size_t l, int w, bool flows_allowed);

  bool read(std::size_t l, const Stmt* unit, const Read& r, Clock when, bool more_inputs);

  void others(std::size_t l);

  bool scalar(std::size_t l, const std::string& name, int w);

  // ---- headers around the boundary -------------------------------------------------------------------------------------

  void headers(std::size_t l, std::vector<Piece>& pieces);
  Clock last_entry(std::size_t l, const Stmt* s) const;
  bool header_read(std::size_t l, const Stmt* s, const Read& r, Clock when);

  // ---- the result --------------------------------------------------------------------------------------------------------

  /// May a name of the inner frame be used in this one?
  bool name_free(std::size_t l, const std::string& name) const;

  void finish();

  const Context& c_;
  StageSlice& stage_;
  CutView& lo_;
  CutView* hi_;
  Clock clock_;
  std::set<TensorId> recompute_;
  State state_;
  std::vector<std::set<std::string>> live_;
  std::string error_;
  int depth_ = 0;
  bool v_in_sequence_ = false;
  std::vector<std::pair<std::string, std::string>> fields_;
};

}  // namespace shardwright::rewrite::stage
