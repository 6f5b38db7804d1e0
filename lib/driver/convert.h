// convert: analysis → files, checked, written. Nothing is written unless everything is right.
#pragma once
#include "driver/analysis.h"

namespace shardwright::driver {

struct ConvertRequest {
  ModelRequest model;
  PlanRequest plan;
  std::string out;           ///< directory
  std::string name;          ///< --name; default: snake case of the class
  std::string target;        ///< rules/targets; "": the job's, else runtime
  std::string recompute;     ///< --recompute: full, selective; "" or none: no recomputation
  std::string train_script;  ///< the user's own training script
  bool diff = false, force = false, strict = false;
  bool update = false;  ///< merge what was changed by hand with what is generated now
};

struct ConvertOutcome {
  std::unique_ptr<Analysis> analysis;
  std::vector<emit::File> files;     ///< all of them
  std::vector<std::string> written;  ///< those whose content changed (or, with --diff, would change)
  std::string diff;                  ///< --diff
  std::string out;
  std::string original;             ///< of targets beside the originals: what was converted, as module:Class
  std::string next;                 ///< what to run next
  std::vector<std::string> merged;  ///< --update: files that keep changes made by hand
  std::vector<std::string> left;    ///< what is a person's to look at: of the training script, with its place
  std::string tables;               ///< files, call chain, registries, boundaries, balance, roles (targets beside the originals)
};

support::Expected<ConvertOutcome> convert(const ConvertRequest&, support::SourceManager&, const Progress&);

/// "VisionTransformer" → "vision_transformer".
std::string snake_case(const std::string& name);

}  // namespace shardwright::driver
