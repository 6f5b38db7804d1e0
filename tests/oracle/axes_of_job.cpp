// axes_of_job JOB.yaml [TP]: the axes of a job's model in the oracle's format, from the interpreter's trace (checked against a second
// batch size). tests/oracle/compare_oracle.py reads it.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "eval/run.h"
#include "sharding/communication.h"
#include "sharding/json.h"
#include "sharding/sharding.h"

using namespace shardwright;

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::ifstream in(argv[1]);
  std::stringstream text;
  text << in.rdbuf();
  support::SourceManager sm;
  auto job = eval::parse_job(text.str(), argv[1]);
  if (!job) {
    std::cerr << support::render(job.error(), sm);
    return 2;
  }
  auto traced = eval::trace(*job, {}, sm);
  if (!traced) {
    std::cerr << support::render(traced.error(), sm);
    return 2;
  }
  const model::Trace& t = (*traced)->trace;
  support::SourceManager sm2;
  auto other = eval::trace(eval::with_batch(*job, 3), {}, sm2);
  if (!other) std::cerr << "second batch: " << support::render(other.error(), sm2);
  sharding::Options o;
  o.tp = argc > 2 ? std::atoi(argv[2]) : 2;
  const sharding::Result r = sharding::analyse(t, o, other ? &(*other)->trace : nullptr);
  for (const auto& i : t.incomplete) std::cerr << sm.describe(i.range) << ": incomplete: " << i.why << "\n";
  for (const auto& op : t.ops)
    if (op.prim == model::Prim::Opaque)
      std::cerr << (op.site != nullptr ? sm.describe(op.site->range) : std::string("?")) << ": opaque: " << op.name << " " << op.note
                << "\n";
  for (const auto& f : r.fallbacks) std::cerr << sm.describe(f.where) << ": " << f.message << "\n";
  if (std::getenv("EXPLAIN") != nullptr) {
    for (const auto& a : r.axes) {
      if (a.parameters.empty()) continue;
      std::cerr << (a.chosen      ? "chosen "
                        : a.legal ? "legal "
                                  : "no ")
                << a.size << " " << a.key << " fwd " << a.forward_elements << " entry " << a.entry_elements << " " << a.why_not << " "
                << (a.where.valid() ? sm.describe(a.where) : "") << "\n";
    }
    for (const auto& c : r.conversions) {
      const char* kinds[] = {"copy", "reduce", "slice", "gather"};
      const auto& op = t.op(c.op);
      std::cerr << kinds[c.kind] << " " << op.name << " operand " << c.operand << (c.on_output ? " out" : "") << " tensor " << c.tensor
                << " " << t.tensor(c.tensor).name << " also " << c.also.size() << " "
                << (op.site != nullptr ? sm.describe(op.site->range) : "?") << (op.module >= 0 ? " " + t.module(op.module).fqn : "")
                << "\n";
    }
  }
  const auto c = sharding::communication(t, r);
  std::cerr << "ops " << t.ops.size() << " all-reduces: forward " << c.count("activation/forward") << " backward "
            << c.count("activation/backward") << " gradients " << c.count("replicated-grad") << "\n";
  std::cout << sharding::to_json(t, r) << "\n";
  return 0;
}
