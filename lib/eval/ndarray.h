// Small numpy arrays with concrete values (lib_numpy.cpp). lib/eval/torch reads them for torch.from_numpy and torch.tensor.
#pragma once
#include <vector>

#include "eval/interpreter.h"

namespace shardwright::eval {

struct NdArrayObj : HostObj {
  std::vector<std::int64_t> shape;
  std::vector<double> data;  ///< row-major
  char type = 'f';           ///< 'f' float64, 'i' int64, 'b' bool
  using HostObj::HostObj;
  std::string repr(Interpreter&) const override;
  Value getattr(Interpreter&, std::string_view) override;
  Value truth(Interpreter&) override;
  Value binary(Interpreter&, std::string_view op, const Value& a, const Value& b) override;
  Value compare(Interpreter&, std::string_view op, const Value& a, const Value& b) override;
  Value element(std::size_t i) const;
  Value tolist(Interpreter&) const;
};

}  // namespace shardwright::eval
