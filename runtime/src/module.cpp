// Python bindings: shardwright.parallel._C. Groups are torch.distributed.ProcessGroup objects or None.
#include <torch/csrc/utils/pybind.h>

#include "shardwright/gradients.h"
#include "shardwright/layers.h"

namespace py = pybind11;
namespace sw = shardwright::runtime;
using sw::Group;

PYBIND11_MODULE(_C, m) {
  m.doc() = "Shardwright's LibTorch runtime: collectives, regions, layer functions, gradient helpers";
  using release = py::call_guard<py::gil_scoped_release>;
  m.def("copy_to", &sw::copy_to, release(), py::arg("x"), py::arg("group"), py::arg("tag") = "activation_backward");
  m.def("received", &sw::received);
  m.def("reduce_from", &sw::reduce_from, release());
  m.def("scatter_to", &sw::scatter_to, release());
  m.def("gather_from", &sw::gather_from, release());
  m.def("local_slice", &sw::local_slice, release());
  m.def("column_linear", &sw::column_linear, release());
  m.def("row_linear", &sw::row_linear, release());
  m.def("vocab_embedding", &sw::vocab_embedding, release());
  m.def("gather_sequence", &sw::gather_sequence, release());
  m.def("reduce_scatter_sequence", &sw::reduce_scatter_sequence, release());
  m.def("vocab_cross_entropy", &sw::vocab_cross_entropy, release());
  m.def("all_reduce", &sw::all_reduce, release());
  m.def("all_reduce_max", &sw::all_reduce_max, release());
  m.def("all_gather", &sw::all_gather, release());
  m.def("squared_norm", &sw::squared_norm, release());
  m.def("clip_by_norm", &sw::clip_by_norm, release());
  m.def("all_reduce_coalesced", &sw::all_reduce_coalesced, release());
  m.def("count_payload", &sw::count_payload);
  m.def("payload_bytes", &sw::payload_bytes);
  m.def("reset_payload_bytes", &sw::reset_payload_bytes);
}
