// A trace as JSON, for people who debug the interpreter and for tests that compare it with the real library.
#pragma once
#include <string>

#include "model/trace.h"
#include "support/source.h"

namespace shardwright::model {

/// Everything but syntax: expressions and frames appear as "path:line:col". `sm` may be nullptr (ranges are byte offsets then).
std::string dump_json(const Trace& t, const support::SourceManager* sm = nullptr);

/// One line per operation: "17 torch.matmul labelled f32[2,4,8]·f32[2,8,4] -> f32[2,4,4]  in=abc,acd out=abd  module blocks.0.attn".
std::string dump_ops(const Trace& t, const support::SourceManager* sm = nullptr);

/// "f32[2,4,8]"
std::string describe(const Tensor& t);

}  // namespace shardwright::model
