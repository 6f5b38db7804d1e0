// Numbers that are known and numbers that are not: constant tensors as indices and masks, hints that depend on data, a job's arguments.
#include "torch_support.h"

using namespace shardwright;
using torch_test::trace;

TEST_CASE("numbers of small constant tensors are known: as indices, in masks, as arrays") {
  auto r = trace(R"(
import numpy as np
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.fields = {"a": 2, "b": 0}
        self.embeds = nn.ModuleList([nn.Linear(8, 1 + i) for i in range(3)])
    def forward(self, x):
        ids = torch.from_numpy(np.array([self.fields[n] for n in ("b", "a")]))
        mask = torch.zeros(3, 3).masked_fill(~torch.tensor([[True, False, True]]), 5.0)
        assert mask[0].tolist() == [0.0, 5.0, 0.0]
        assert (torch.tensor([6, 3]) & torch.tensor([3, 3])).tolist() == [2, 3]
        assert torch.arange(3).numpy().sum() == 3
        assert [10, 20, 30][ids[1]] == 30
        return self.embeds[ids[1]](x)
)",
                 {{"x", "f32[2,8]"}});
  REQUIRE(r->error == "");
  CHECK(r->shape() == std::vector<std::int64_t>{2, 3});
}

TEST_CASE("a hint that depends on data loses nothing; what is lost is said") {
  auto r = trace(
      "class M(nn.Module):\n    def forward(self, mask, x):\n        causal = bool((mask == 0).all())\n"
      "        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask, is_causal=causal)\n",
      {{"x", "f32[2,3,8]"}, {"mask", "f32[3,3]"}});
  REQUIRE(r->error == "");
  CHECK(r->shape() == std::vector<std::int64_t>{2, 3, 8});
  CHECK(r->traced->lost.empty());
  auto lost = trace("class M(nn.Module):\n    def forward(self, x):\n        n = int(x.sum())\n        return x.view(n, -1), x\n",
                    {{"x", "f32[2,3,8]"}});
  REQUIRE(lost->error == "");
  REQUIRE(lost->traced->lost.size() == 1);
}

TEST_CASE("PyTorch's own transformer classes are followed where its source is not at hand") {
  auto r = trace(
      "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
      "        self.t = nn.Transformer(8, 2, 1, 1, 16, batch_first=True, activation='gelu')\n    def forward(self, x):\n        return "
      "self.t(x, x)\n",
      {{"x", "f32[2,3,8]"}});
  REQUIRE(r->error == "");
  const model::Op* gelu = r->ops("gelu").at(0);
  CHECK_FALSE(r->t().module(gelu->module).builtin);
  CHECK(r->t().module(gelu->module).fqn == "t.encoder.layers.0");
  CHECK(r->text(gelu->site->range) == "self.activation(self.linear1(x))");
}

TEST_CASE("words in lists and dicts of a job's arguments are strings where they name nothing") {
  const auto job = eval::parse_job(
      "model: m:M\nargs: {fields: [t2m, 10u, M, 2 * 3], kinds: {a: word, b: nn.Linear}}\ninputs: {x: \"f32[2,8]\"}\n", "job.yaml");
  REQUIRE(job);
  auto dir = std::filesystem::temp_directory_path() / ("shardwright-args-" + std::to_string(::getpid()));
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "m.py")
      << "import torch.nn as nn\nclass M(nn.Module):\n    def __init__(self, fields, kinds):\n        super().__init__()\n"
         "        assert fields == ['t2m', '10u', M, 6] and kinds == {'a': 'word', 'b': nn.Linear}, (fields, kinds)\n    def forward(self, "
         "x):\n        return x\n";
  eval::Job here = *job;
  here.python_path = {dir.string()};
  support::SourceManager sm;
  auto traced = eval::trace(here, {}, sm);
  if (!traced) FAIL(support::render(traced.error(), sm));
  CHECK((*traced)->arguments[0].second == "['t2m', '10u', M, 2 * 3]");
  std::filesystem::remove_all(dir);
}
