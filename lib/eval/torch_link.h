// What lib/eval asks of lib/eval/torch (which implements these); run.cpp is the caller.
#pragma once
#include <string>

#include "eval/interpreter.h"
#include "eval/run.h"

namespace shardwright::eval {

/// Registers torch's native and hybrid modules and sets Interpreter::tensors. `rules` null: the embedded ones; `rules_dirs`: see Options.
void register_torch(Interpreter&, std::shared_ptr<const rules::Database> rules = nullptr, const Watch& = {},
                    const std::vector<std::string>& rules_dirs = {});

/// Another run by an interpreter that register_torch has seen, with the modules as they are: they are imported, and what their top levels
/// made stays valid (tensors of earlier runs are constants now). The trace is empty but for these, nothing else of earlier runs counts.
void start_over(Interpreter&, const Watch&);

/// A tensor for an input of forward: Tensor::origin Input, named, appended to Trace::tensors.
Value make_input(Interpreter&, const std::string& name, const InputSpec&);

/// Called between building and running: `model` must be an nn.Module (raise TypeError otherwise). Makes it modules[0]
/// or relabels (parent, attr, fqn, Tensor::name of parameters and buffers), sets training mode everywhere.
void finish_model(Interpreter&, const Value& model, bool training);

}  // namespace shardwright::eval
