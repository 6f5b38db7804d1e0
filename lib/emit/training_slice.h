// A training script for one GPU, taken apart: what builds the data sets, what prepares a batch, what makes the loss of the outputs,
// and what the optimizer was given. Statements are chosen by backward slices over names and keep their text; what is in no slice is
// listed with its line.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "eval/interpreter.h"
#include "support/result.h"
#include "support/source.h"

namespace shardwright::emit {

struct TrainingSlice {
  std::string file;                      ///< the script
  std::vector<std::string> imports;      ///< lines
  std::string definitions;               ///< its functions and classes that the slices use
  std::string setup;                     ///< statements that both data and loss read, at column 0
  std::vector<std::string> setup_names;  ///< that these bind
  std::string data;                      ///< statements that build the loaders
  std::string train, valid, test;        ///< expressions for data sets; "" where there is none
  std::string batch;                     ///< the loop's target for what the loader gives
  std::string prepare;                   ///< batch → inputs and labels
  std::string constructor;               ///< arguments of the model's constructor, as keywords; "": they cannot be taken over
  std::string inputs;                    ///< arguments of the model's call, as written
  std::vector<std::string> labels;       ///< names of the batch's part that the loss reads
  std::string outputs;                   ///< target of the model's call
  std::string loss;                      ///< statements from outputs to the loss
  std::string loss_value;                ///< the expression whose backward() is called
  std::string iterations;                ///< expression for the number of steps, "" unknown
  std::vector<std::pair<std::string, std::string>> arguments;  ///< of run.sh: --lr, 0.001
  std::map<std::string, std::string> argument_lines;           ///< --lr → "train.py:88"
  std::vector<std::string> left;                               ///< what was not taken over, with its line
};

/// `model_class`: the root's class. An error says what was looked for and not found.
/// `parameters`: of the root's constructor, in order.
support::Expected<TrainingSlice> slice_training(const std::string& path, const std::string& model_class,
                                                const std::vector<std::string>& parameters, eval::ModuleSource& loader,
                                                support::SourceManager& sources);

}  // namespace shardwright::emit
