// A training script for one GPU, taken apart: what builds the data sets, what prepares a batch, what makes the loss of the outputs,
// and what the optimizer was given. Statements are chosen by backward slices over names and keep their text; what is in no slice is
// listed with its line.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "emit/training_script.h"
#include "eval/interpreter.h"
#include "support/result.h"
#include "support/source.h"

namespace shardwright::emit {

struct TrainingSlice {
  std::string file;                                        ///< the script
  Names names;                                             ///< every name that it says: what is generated beside its text uses others
  std::vector<std::string> imports;                        ///< lines
  std::string definitions;                                 ///< its functions and classes that the slices use
  std::string setup;                                       ///< statements that both data and loss read, at column 0
  std::vector<std::string> setup_names;                    ///< that these bind
  std::string data;                                        ///< statements that build the loaders
  std::vector<std::string> data_carries;                   ///< names of the set-up that these bind anew
  std::string train, valid, test;                          ///< expressions for data sets; "" where there is none
  std::string batch;                                       ///< the loop's target for what the loader gives
  std::string prepare;                                     ///< batch → inputs and labels
  std::vector<std::string> prepare_carries, loss_carries;  ///< names of the set-up that these bind anew, for the next batch
  std::string step, epoch;          ///< lines that bind the loops' counters from {position} and {steps}; "": nothing reads them
  std::string constructor;          ///< arguments of the model's constructor, as keywords; "": they cannot be taken over
  std::string inputs;               ///< positional arguments of the model's call, as written
  std::string keywords;             ///< its keyword arguments, as written
  std::vector<std::string> labels;  ///< names of the batch's part that the loss reads
  std::string outputs;              ///< target of the model's call; "": the expression says `output_name`
  std::string output_name;          ///< stands for the model's call in `loss`
  std::string loss;                 ///< statements from outputs to the loss
  std::string loss_value;           ///< the expression whose backward() is called
  std::string iterations;           ///< number of epochs, "" unknown
  std::string accumulate;           ///< micro-batches a step, "" one
  bool in_order = false;            ///< the loader does not shuffle
  bool drops_last = false;          ///< … and leaves out what fills no batch
  std::vector<std::pair<std::string, std::string>> arguments;  ///< of run.sh: --lr, 0.001
  std::map<std::string, std::string> argument_lines;           ///< --lr → "train.py:88"
  std::vector<std::string> left;                               ///< what was not taken over, with its line
  std::vector<std::string> notes;                              ///< where Megatron's ways differ from the script's, with the line
};

/// What the slices found, for those who read the rest.
struct TrainingParts {
  Names models, optimizers, schedulers, scalers;
  const program::Expr* loader = nullptr;
  std::vector<const program::Stmt*> loops;  ///< around the batch's, outermost first; the last is the batch's
  std::set<const program::Stmt*> used;      ///< statements that a slice or an argument took
};

/// `model_class`: the root's class. An error says what was looked for and not found.
/// `parameters`: of the root's constructor, in order.
support::Expected<TrainingSlice> slice_training(const std::string& path, const std::string& model_class,
                                                const std::vector<std::string>& parameters, eval::ModuleSource& loader,
                                                support::SourceManager& sources);

}  // namespace shardwright::emit
