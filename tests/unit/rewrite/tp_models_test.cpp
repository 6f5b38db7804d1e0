// Whole way: source → trace → placements → edits, for kinds of layers and spellings that models use.
#include <unistd.h>

#include <catch2/catch.hpp>

#include "eval/run.h"
#include "tp_source.h"

using namespace tp_test;
using Catch::Contains;

namespace {

const char* kHead = R"(import math
import torch
import torch.nn as nn
import torch.nn.functional as F
)";

const char* kNet = R"(
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 32)
        self.norm = nn.LayerNorm(32)
        self.body = Body(32)
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.body(self.norm(x))
        return self.head(x)
)";

struct Edited {
  std::string text;  ///< of the file, all edits applied
  std::vector<std::string> init, refused;
  std::size_t conversions = 0;
};

Edited edit(const std::string& body, int tp = 2) {
  static int count = 0;
  auto folder = std::filesystem::temp_directory_path() / ("shardwright_tp_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  auto file = folder / ("model" + std::to_string(count++) + ".py");
  std::ofstream(file) << kHead << body << kNet;
  support::SourceManager sm;
  auto job = eval::parse_job("model: " + file.string() + ":Net\ninputs: {x: 'f32[2,8,6]'}\nmode: train\n", (folder / "job.yaml").string());
  REQUIRE(job);
  auto traced = eval::trace(*job, {}, sm);
  if (!traced) FAIL(support::render(traced.error(), sm));
  const auto& t = (*traced)->trace;
  auto rules = rules::Database::load(sm);
  REQUIRE(rules);
  sharding::Options options;
  options.tp = tp;
  auto result = sharding::analyse(t, options);
  auto edits = rewrite::tp_edits(t, result, sm, **rules);
  Edited out;
  out.conversions = result.conversions.size();
  for (const auto& r : edits.refusals) out.refused.push_back(r.message);
  for (const auto& i : edits.init_statements) out.init.push_back(i.text);
  const program::Function* forward = t.frame(t.root_frame).function;
  out.text = Source::apply_verdicts(sm, forward->range.file, forward->module, edits);
  return out;
}

}  // namespace

TEST_CASE("separate projections: one copy where the tensor is made, norms per head summed") {
  auto e = edit(R"(
class Body(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.q_norm = nn.LayerNorm(self.head_dim)
        self.drop = nn.Dropout(0.1)
        self.o = nn.Linear(dim, dim)

    def forward(self, x, context=None):
        context = x if context is None else context
        b, n, _ = x.shape
        q = self.q_norm(self.q(x).view(b, n, self.heads, self.head_dim)).transpose(1, 2)
        k = self.k(context).view(*context.shape[:2], self.heads, -1).transpose(1, 2)
        v = self.v(context).view(*context.shape[:2], self.heads, -1).transpose(1, 2)
        w = q @ k.transpose(2, 3) / math.sqrt(self.head_dim)
        if w.size() != (b, self.heads, n, n):
            raise ValueError("shape")
        y = self.drop(w.softmax(-1)) @ v
        return self.o(y.transpose(1, 2).flatten(2))
)");
  INFO(e.text);
  REQUIRE(e.refused.empty());
  CHECK_THAT(e.text, Contains("x = x + self.body(copy_to_tensor_model_parallel_region(self.norm(x)))"));
  CHECK_THAT(e.text, Contains("ColumnParallelLinear(dim, dim, gather_output=False, disable_grad_reduce=True), Column"));
  CHECK_THAT(e.text, Contains("self.q_norm = sum_gradients_over_tp(nn.LayerNorm(self.head_dim))"));
  CHECK_THAT(e.text, Contains("self.drop = ShardedDropout(0.1)"));
  CHECK_THAT(e.text, Contains("self.q(x)[0].view(b, n, self.heads // tp_size(), self.head_dim)"));
  CHECK_THAT(e.text, Contains("self.k(context)[0].view(*context.shape[:2], self.heads // tp_size(), -1)"));
  CHECK_THAT(e.text, Contains("if w.size() != (b, self.heads // tp_size(), n, n):"));
  CHECK_THAT(e.text, Contains("return self.o(y.transpose(1, 2).flatten(2))[0]"));
}

TEST_CASE("weights consumed functionally are cut in place, the bias is added after the sum") {
  auto e = edit(R"(
class Mine(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype), self.bias)

def attention(x, qkv, proj, bias, heads):
    B, N, C = x.shape
    q, k, v = F.linear(x, qkv).reshape(B, N, 3, heads, C // heads).permute(2, 0, 3, 1, 4)
    scale = (q.shape[1] * q.shape[-1] // heads) ** -0.5
    a = (q * scale) @ k.transpose(-2, -1)
    x = (F.dropout(a.softmax(-1), 0.1) @ v).transpose(1, 2).reshape(B, N, C)
    return F.linear(x, proj, bias)

class Body(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = Mine(dim, dim)

    def forward(self, x):
        return attention(x, self.qkv.weight, self.proj.weight, self.proj.bias, self.heads)
)");
  INFO(e.text);
  REQUIRE(e.refused.empty());
  CHECK_THAT(e.text, Contains("self.qkv = shard_module(nn.Linear(dim, 3 * dim, bias=False), weight=(0, 3))"));
  CHECK_THAT(e.text, Contains("self.proj = shard_module(Mine(dim, dim), weight=(1, None))"));
  CHECK_THAT(e.text, Contains("F.linear(copy_to_tensor_model_parallel_region(x), qkv).reshape(B, N, 3, heads // tp_size(), C // heads)"));
  CHECK_THAT(e.text, Contains("scale = ((q.shape[1] * tp_size()) * q.shape[-1] // heads) ** -0.5"));
  CHECK_THAT(e.text, Contains("sharded_random(F.dropout, a.softmax(-1), 0.1)"));
  CHECK_THAT(e.text, Contains("return row_parallel(F.linear, x, proj, bias)"));
}

TEST_CASE("layers of one loop of which some cannot be divided are replaced after construction") {
  auto e = edit(R"(
class Body(nn.Module):
    def __init__(self, dim):
        super().__init__()
        layers = []
        for i, o in ((dim, 64), (64, dim), (dim, 33), (33, dim)):
            layers += [nn.Linear(i, o), nn.ReLU()]
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x)
)");
  INFO(e.text);
  REQUIRE(e.refused.empty());
  REQUIRE(e.init.size() == 2);
  CHECK(e.init[0] == "self.net[0] = parallel_layer(self.net[0], ColumnParallelLinear, gather_output=False, return_bias=False)");
  CHECK(e.init[1] == "self.net[2] = parallel_layer(self.net[2], RowParallelLinear, input_is_parallel=True, return_bias=False)");
}

TEST_CASE("convolutions, batch norm and created tensors") {
  auto e = edit(R"(
class Body(nn.Module):
    def __init__(self, dim, hidden=64):
        super().__init__()
        self.fc1 = nn.Conv1d(dim, hidden, 1)
        self.dw = nn.Conv1d(hidden, hidden, 3, padding=1, groups=hidden)
        self.bn = nn.BatchNorm1d(hidden)
        self.slope = torch.linspace(0, 1, hidden)
        self.fc2 = nn.Conv1d(hidden, dim, 1)
        self.hidden = hidden

    def forward(self, x):
        x = self.bn(self.dw(self.fc1(x.transpose(1, 2))))
        x = x + x.new_zeros(x.shape[0], self.hidden, x.shape[2])
        x *= self.slope[:, None]
        return self.fc2(F.gelu(x)).transpose(1, 2)
)",
                4);
  INFO(e.text);
  REQUIRE(e.refused.empty());
  CHECK_THAT(e.text, Contains("ColumnParallelConv1d(dim, hidden, 1, gather_output=False)"));
  CHECK_THAT(e.text, Contains("DepthwiseParallelConv1d(hidden, hidden, 3, padding=1, groups=hidden)"));
  CHECK_THAT(
      e.text,
      Contains("shard_module(nn.BatchNorm1d(hidden), weight=(0, None), bias=(0, None), running_mean=(0, None), running_var=(0, None))"));
  CHECK_THAT(e.text, Contains("x.new_zeros(x.shape[0], self.hidden // tp_size(), x.shape[2])"));
  CHECK_THAT(e.text, Contains("self.slope = local_slice(torch.linspace(0, 1, hidden), 0)"));
  CHECK_THAT(e.text, Contains("self.fc2(F.gelu(x))[0].transpose(1, 2)"));
}
