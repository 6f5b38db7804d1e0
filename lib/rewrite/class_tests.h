// What a program asks about the classes of its modules. Generated classes are others than the original's.
#pragma once
#include <set>
#include <string>

#include "model/trace.h"

namespace shardwright::rewrite {

struct ClassTests {
  /// Names in `isinstance(m, (Attention, Mlp))` and `m.__class__ is Mlp`: a generated class can answer these as the original's would.
  std::set<std::string> asked;
  /// Names in `type(m) is Linear`, `type(m) in (Linear, Conv2d)`, `m.__class__.__name__ == "Linear"`: only the very class does.
  std::set<std::string> exact;
  /// Is a class asked for its `__module__`?
  bool module = false;
};

/// Of all functions of the program that ran.
ClassTests class_tests(const model::Trace&);

}  // namespace shardwright::rewrite
