// Checks of training code that need no run: collectives, sends and receives under conditions, losses off the last stage, launchers.
// They read the syntax tree and where names come from; each is a function of its own in scripts.cpp.
#pragma once
#include <string_view>

#include "lint/findings.h"
#include "program/program.h"
#include "support/source.h"

namespace shardwright::lint {

/// Could check_scripts find anything in a file whose only parallel library is torch.distributed?
bool communicates(std::string_view text);

void check_scripts(const program::Module&, const support::SourceManager&, Found&);

/// Pipeline stage classes, and the stages of one file against each other (stage_classes.cpp).
void check_stages(const program::Module&, const support::SourceManager&, Found&);

/// Could check_training find anything in such a file?
bool trains(std::string_view text);

/// Data sets, forward step, loss, seeds (training.cpp).
void check_training(const program::Module&, const support::SourceManager&, Found&);

}  // namespace shardwright::lint
