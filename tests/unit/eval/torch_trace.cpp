// Not a test by itself: with SHARDWRIGHT_JOB=job.yaml it traces the job and writes SHARDWRIGHT_OUT as JSON (or the operations
// as text when that ends in .txt). tests/oprules and people who debug use it: unit_eval "[.trace]".
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "eval/run.h"
#include "model/dump.h"

using namespace shardwright;

TEST_CASE("trace a job", "[.trace]") {
  const char* path = std::getenv("SHARDWRIGHT_JOB");
  const char* out = std::getenv("SHARDWRIGHT_OUT");
  REQUIRE(path);
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  auto job = eval::parse_job(text.str(), path);
  support::SourceManager sm;
  if (!job) {
    std::cerr << support::render(job.error(), sm);
    FAIL("job");
  }
  auto traced = eval::trace(*job, {}, sm);
  if (!traced) {
    std::cerr << support::render(traced.error(), sm);
    FAIL("trace");
  }
  const model::Trace& t = (*traced)->trace;
  for (const auto& i : t.incomplete) std::cerr << "incomplete: " << sm.describe(i.range) << ": " << i.why << "\n";
  std::cerr << t.modules.size() << " modules, " << t.ops.size() << " operations, " << t.tensors.size() << " tensors, " << t.steps.size()
            << " steps, " << t.incomplete.size() << " incomplete\n";
  if (out) {
    std::string name(out);
    std::ofstream(name) << (name.ends_with(".txt") ? model::dump_ops(t, &sm) : model::dump_json(t, &sm));
  }
}
