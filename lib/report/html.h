// `plan --report`: one HTML file with the plan a person can look at. Inline CSS and SVG, no scripts, nothing loaded from elsewhere.
#pragma once
#include <string>

#include "plan/plan.h"
#include "report/tree.h"

namespace shardwright::report {

std::string html(const plan::Plan&, const Node& tree);

}  // namespace shardwright::report
