// Checks of one file's text and syntax tree: one file each in this folder, named after its code, listed in all.cpp by tools/new-check.
//
// Checks of what the program computes (placements, shapes, gradients) are part of the run: lint/placement.h.
#pragma once
#include <vector>

#include "program/program.h"
#include "support/diagnostic.h"
#include "support/source.h"

namespace shardwright::lint {

/// What a check of a file gets, and where its findings go. The tree holds what could be read, even of a file with syntax errors.
struct FileContext {
  const program::Module& module;
  const support::SourceManager& sources;
  std::vector<support::Diagnostic>& found;

  void add(support::Severity severity, const char* code, support::Range where, std::string message,
           std::vector<support::Note> notes = {}) const {
    support::Diagnostic d;
    d.severity = severity;
    d.code = code;
    d.range = where;
    d.message = std::move(message);
    d.notes = std::move(notes);
    found.push_back(std::move(d));
  }
};

/// Runs every check of the folder.
void run_file_checks(const FileContext& file);

}  // namespace shardwright::lint
