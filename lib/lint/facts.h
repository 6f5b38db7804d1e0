// What a run of a class left behind that other runs are held against: a distributed class against its original, the stages of a
// pipeline, one after another, against the model they were cut from.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lint/placement.h"
#include "model/trace.h"
#include "support/source.h"

namespace shardwright::lint {

/// A tensor that a stage returns, and where it comes from when the stage only hands it on.
struct Sent {
  bool tensor = true;  ///< else None or another value
  std::vector<std::int64_t> shape;
  model::DType dtype = model::DType::F32;
  bool requires_grad = false;
  bool recomputable = false;  ///< depends on no input and no parameter
  int received = -1;          ///< made of nothing but this received tensor (index); -1: of more
  std::string by;             ///< … by this operation, last of all; "": it is the tensor itself
  support::Range by_site;
  model::TensorId id = -1;  ///< in its run's trace
  Placement place;          ///< on the sending rank, which sends to the rank that has the same share; shards by its run's numbers
};

struct Facts {
  bool done = false;
  bool incomplete = false;  ///< something was not followed: what did not happen in this run may happen in a real one
  bool bare = false;        ///< forward returns one tensor, not a tuple
  std::vector<Sent> outputs;
  std::string pair_of;         ///< forward returns what this parallel layer returns, output and bias; ""
  support::Range pair_call;    ///< … the layer's call, where it is the layer that is called
  std::string sharded_output;  ///< the tensor that forward returns is sharded: its placement in words; ""
  struct Named {
    std::string name;
    support::Range where;
    double value = 0;
  };
  std::vector<Named> nonlinear;                   ///< activations, norms and softmaxes, in the order of the run; where: in user code
  std::map<std::string, std::size_t> plain_ops;   ///< operations written in user code themselves, by name
  std::map<std::string, std::size_t> elements;    ///< calls of members of containers, by the container's name
  std::map<std::string, std::size_t> parts;       ///< those of them that are a part of a member that two stages share
  std::map<std::string, support::Range> made_at;  ///< where a container's members are made
  std::vector<std::string> made;                  ///< constructor arguments that were made up, because nobody states them
  std::set<std::string> parameters;               ///< by name
  std::vector<Named> rates;  ///< fractional arguments that modules called were made with ("blocks rate"), in the order of the calls
  double flops = 0;
  std::vector<std::vector<std::string>> tied;  ///< names of parameters that are one
};

/// `received`: the tensors handed to the stage; `returned`: what forward returned; a tuple's elements are sent one by one.
void collect_facts(Facts&, const model::Trace&, const std::vector<model::TensorId>& received, const model::Binding& returned);

}  // namespace shardwright::lint
