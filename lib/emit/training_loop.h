// Where a training script makes its model, and the loop in which that model meets backward().
#pragma once
#include <map>
#include <string>

#include "emit/training_slice.h"

namespace shardwright::emit {

struct TrainingLoop {
  const program::Stmt* made = nullptr;                ///< model = Model(…)
  const program::Function* function = nullptr;        ///< that makes the model; nullptr: the module does
  const program::Function* inner = nullptr;           ///< that has the loop, where it is another one: train_one_epoch(model, loader, …)
  const program::Stmt* inner_call = nullptr;          ///< … which this statement calls
  std::map<std::string, const program::Expr*> given;  ///< … with these arguments
  Names makers;                                       ///< functions that return the model: build_model(cfg)
  const program::Stmt* loop = nullptr;
  std::string model_class;

  bool makes(const program::Expr* e) const;
  /// Of the function that has the loop, or of the module.
  const std::vector<program::Stmt*>& body(const program::Module& m) const {
    return inner ? inner->body : function ? function->body : m.body;
  }
};

/// Fills `parts`' models and loops. Returns what was looked for and not found, or "".
std::string find_training_loop(const TrainingScript& script, const std::string& model_class, TrainingParts& parts, TrainingLoop& out);

bool calls_model(const program::Expr* e, const TrainingParts& parts);
bool is_backward(const program::Expr* e);
/// Neither a definition nor an import.
bool is_plain(const program::Stmt* s);

}  // namespace shardwright::emit
