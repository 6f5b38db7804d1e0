// What rules/targets/<name>/target.yaml says: the conventions of the library that generated code is written for. Everything that
// differs between targets is here or in the templates beside it; generation asks and knows no target by name.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "support/result.h"
#include "support/source.h"

namespace shardwright::rules {

struct Target {
  std::string name;
  std::string folder = "targets/runtime";  ///< of its templates, below rules/

  std::string like;  ///< another target, whose templates serve where it has none

  // ---- names that generated code uses --------------------------------------------------------------------------------
  std::string support = "shardwright.parallel";  ///< module that offers those not in `imports`
  std::string support_file;                      ///< template that becomes that module; "": it is installed
  std::map<std::string, std::string> imports;    ///< name → module
  std::set<std::string> layers;                  ///< classes that may take the place of torch.nn's; empty: all
  std::string where(const std::string& n) const {
    auto it = imports.find(n);
    return it == imports.end() ? support : it->second;
  }
  bool offers(const std::string& layer) const { return layers.empty() || layers.count(layer) != 0; }

  /// Text in a typed language: parameters are cut (and marked for the sum of their gradients) by statements that another printer
  /// than tp_edits writes, conversions stand at the calls, and a layer is replaced only where nothing names its type.
  bool typed = false;
  /// One copy into a region for several readers of a tensor. Without: each reader copies (more sums of gradients, but the same text
  /// whether two arguments are one tensor or two).
  bool share_copies = true;

  // ---- how a parallel linear is constructed and called ------------------------------------------------------------------
  struct Linear {
    std::map<std::string, std::string> keywords;  ///< constructor arguments under another name: in_features → input_size
    bool keyword_only = false;                    ///< all but the two sizes are given by keyword
    std::set<std::string> arguments;              ///< of torch.nn.Linear that the constructor understands; empty: all
    using Arguments = std::vector<std::pair<std::string, std::string>>;
    Arguments column, row;                    ///< keyword → value, added when not written; "{config}" is the configuration
    bool segments = true;                     ///< takes segments=[…]
    bool reduce_output = true;                ///< takes reduce_output=False
    bool return_bias = true;                  ///< takes return_bias=False
    std::map<std::string, std::string> bare;  ///< class → the class that returns the tensor alone
    int max_rank = 0;                         ///< of the input; 0: any
    std::string any_rank;                     ///< function that calls a layer on an input of a higher rank: any_rank(layer, x)
  } linear;

  // ---- the configuration that layers want -------------------------------------------------------------------------------
  struct Config {
    std::string parameter;  ///< keyword of every constructor on the way: "config"; "": there is none
    std::string otherwise;  ///< where the original has that name already
    std::string elsewhere;  ///< expression where it cannot be passed: "parallel_config()"
    std::vector<std::string> elsewhere_imports;
  } config;

  // ---- names and places -------------------------------------------------------------------------------------------------
  bool in_place = false;                       ///< files lie beside the originals, under new names (else a package of copies)
  std::string word, file_word;                 ///< what makes a name: "Distributed", "distributed"
  std::vector<std::string> types;              ///< what the word is put before, the longest that fits
  std::vector<std::string> generic;            ///< class names that say nothing of the model: Model, Net
  std::string model_folder, model_folder_two;  ///< "models/{model}_distributed_{stages}stage"
  std::string registries;                      ///< files that hold registries: "one*.py"; "": none
  std::vector<std::string> strict_bases;       ///< root classes whose base binds constructor arguments strictly: **kwargs

  // ---- stages -----------------------------------------------------------------------------------------------------------
  std::string stage_members = "stage.py";  ///< template of what every stage class has
  std::vector<std::string> stage_names;    ///< names of ours that it uses
  std::string stage_config;                ///< template: first lines of a stage's __init__
  std::vector<std::string> stage_config_names;
  /// Name of a submodule of the stage → function of the stage, called at the end of __init__, where the library takes it for one of its
  /// own.
  std::map<std::string, std::string> stage_reserved;
  /// Word in a class's name → what forward's first argument, a dict or an object, need not have there: Fuser → mask.
  std::map<std::string, std::string> optional_members;
  bool plain_sends = false;  ///< a stage may return tensors that get a gradient only, and makes them contiguous
  /// Templates of what a stage has that shares parameters with another one, and of the last line of its __init__. With them gradients
  /// of such parameters are summed over the first and the last stage only: no other stages may share one. "": over any stages.
  std::string stage_tied, stage_tied_mark;
  std::vector<std::string> stage_tied_names;
  // ---- training ---------------------------------------------------------------------------------------------------------
  std::string megatron;               ///< package that holds core and training
  std::string shapes_module;          ///< of PipelineTensorShapeConfig
  std::string examples = "examples";  ///< where training directories are

  // ---- steps handed over as files -----------------------------------------------------------------------------------------
  std::string handoff_folder, handoff_skill;  ///< where step files lie, and the skill that this target serves

  bool optional_inputs = false;  ///< later stages accept all of forward's arguments, and ignore most

  /// Module → file with what it is to the analysis (for libraries that are not installed where the analysis runs).
  std::map<std::string, std::string> described;

  /// "WindFuser" → "WindDistributedFuser".
  std::string class_name(const std::string& original) const;
  /// "windfuser" → "winddistributedfuser".
  std::string file_stem(const std::string& original) const;
  /// Text of a template beside target.yaml.
  std::string text(const std::string& file) const;
};

/// Reads rules/targets/<name>/target.yaml. The error lists the targets that exist.
support::Expected<Target> load_target(const std::string& name, support::SourceManager& sm);
std::vector<std::string> target_names();

}  // namespace shardwright::rules
