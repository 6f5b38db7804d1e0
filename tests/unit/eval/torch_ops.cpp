// Shapes, labels and size arguments of operations.
#include "torch_support.h"

using namespace torch_test;
using Shape = std::vector<std::int64_t>;

namespace {
Shape shape_of(const std::string& e, const std::map<std::string, std::string>& in) {
  auto r = expression(e, in);
  if (!r->traced) FAIL(e << "\n" << r->error);
  return r->shape();
}
}  // namespace

TEST_CASE("shapes of views and permutations") {
  std::map<std::string, std::string> x{{"x", "f32[2,12,8]"}};
  CHECK(shape_of("x.view(2, 3, 4, -1)", x) == Shape{2, 3, 4, 8});
  CHECK(shape_of("x.reshape(x.size(0), -1)", x) == Shape{2, 96});
  CHECK(shape_of("x.flatten(1)", x) == Shape{2, 96});
  CHECK(shape_of("x.unflatten(-1, (2, 4))", x) == Shape{2, 12, 2, 4});
  CHECK(shape_of("x.permute(2, 0, 1)", x) == Shape{8, 2, 12});
  CHECK(shape_of("x.transpose(1, 2).contiguous().mT", x) == Shape{2, 12, 8});
  CHECK(shape_of("x[:, None, ..., 1:5:2]", x) == Shape{2, 1, 12, 2});
  CHECK(shape_of("x[0, -1]", x) == Shape{8});
  CHECK(shape_of("x.movedim(0, -1)", x) == Shape{12, 8, 2});
  CHECK(shape_of("x.repeat(2, 1, 3)", x) == Shape{4, 12, 24});
  CHECK(shape_of("x.repeat_interleave(3, dim=1)", x) == Shape{2, 36, 8});
  CHECK(shape_of("torch.stack([x, x], dim=-1)", x) == Shape{2, 12, 8, 2});
  CHECK(shape_of("torch.cat((x, x), -1)", x) == Shape{2, 12, 16});
  CHECK(shape_of("x.chunk(3, dim=1)[1]", x) == Shape{2, 4, 8});
  CHECK(shape_of("torch.split(x, [4, 8], dim=1)[1]", x) == Shape{2, 8, 8});
  CHECK(shape_of("x.unbind(1)[0]", x) == Shape{2, 8});
  CHECK(shape_of("x[:, torch.arange(3)]", x) == Shape{2, 3, 8});
  CHECK(shape_of("x.squeeze().unsqueeze(0)", x) == Shape{1, 2, 12, 8});
  CHECK(shape_of("x.expand(5, -1, -1, -1)", x) == Shape{5, 2, 12, 8});
  CHECK(shape_of("torch.einsum('bnc,bmc->bnm', x, x)", x) == Shape{2, 12, 12});
  CHECK(shape_of("x.unfold(1, 4, 2)", x) == Shape{2, 5, 8, 4});
}

TEST_CASE("shapes of layers") {
  CHECK(shape_of("F.conv2d(x, torch.zeros(6, 3, 3, 3), stride=2, padding=1)", {{"x", "f32[2,3,9,9]"}}) == Shape{2, 6, 5, 5});
  CHECK(shape_of("F.max_pool2d(x, 2)", {{"x", "f32[2,3,9,9]"}}) == Shape{2, 3, 4, 4});
  CHECK(shape_of("F.interpolate(x, scale_factor=2)", {{"x", "f32[2,3,9,9]"}}) == Shape{2, 3, 18, 18});
  CHECK(shape_of("F.pad(x, (1, 2, 0, 3))", {{"x", "f32[2,3,9,9]"}}) == Shape{2, 3, 12, 12});
  CHECK(shape_of("F.pixel_shuffle(x, 2)", {{"x", "f32[2,12,4,4]"}}) == Shape{2, 3, 8, 8});
  CHECK(shape_of("torch.fft.rfft2(x)", {{"x", "f32[2,3,8,8]"}}) == Shape{2, 3, 8, 5});
  CHECK(shape_of("torch.fft.irfft2(torch.fft.rfft2(x), s=(8, 8))", {{"x", "f32[2,3,8,8]"}}) == Shape{2, 3, 8, 8});
  CHECK(shape_of("x.topk(2, dim=1).values", {{"x", "f32[2,3,8]"}}) == Shape{2, 2, 8});
  CHECK(shape_of("x.max(dim=1)[0] + x.max(-1, keepdim=True)[0].mean()", {{"x", "f32[2,3,8]"}}) == Shape{2, 8});
  CHECK(shape_of("F.cross_entropy(x.view(-1, 8), torch.zeros(6, dtype=torch.long))", {{"x", "f32[2,3,8]"}}).empty());
}

TEST_CASE("types are promoted as PyTorch does") {
  std::map<std::string, std::string> xi{{"x", "i64[3]"}}, xh{{"x", "bf16[3]"}};
  CHECK(expression("x * 2", xi)->dtype() == model::DType::I64);
  CHECK(expression("x * 2.0", xi)->dtype() == model::DType::F32);
  CHECK(expression("x / 2", xi)->dtype() == model::DType::F32);
  CHECK(expression("x * 2.0", xh)->dtype() == model::DType::BF16);
  CHECK(expression("x + torch.ones(3)", xh)->dtype() == model::DType::F32);
  CHECK(expression("x + torch.ones(())", xh)->dtype() == model::DType::BF16);
  CHECK(expression("x > 1", xh)->dtype() == model::DType::Bool);
  CHECK(expression("x.to(torch.float64)", xh)->dtype() == model::DType::F64);
  CHECK(expression("(x > 0).sum()", xi)->dtype() == model::DType::I64);
}

TEST_CASE("a linear contracts its inner dimension and adds its bias once") {
  auto r = trace(
      "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(8, 6)\n    def forward(self, "
      "x):\n        return self.fc(x)\n",
      {{"x", "f32[2,3,8]"}});
  REQUIRE(r->traced);
  const model::Op& op = r->op("linear");
  REQUIRE(op.inputs.size() == 3);
  CHECK(op.inputs[2].is_bias);
  CHECK(op.linearity == model::Linearity::Bilinear);
  REQUIRE(op.in.size() == 3);
  CHECK(op.in[0].back() == op.in[1][1]);
  CHECK(op.out[0].back() == op.in[1][0]);
  CHECK(op.flops == 2 * 2 * 3 * 8 * 6);
  CHECK(r->t().tensor(op.inputs[1].tensor).name == "fc.weight");
  CHECK(r->t().module(op.module).fqn == "fc");
  CHECK(r->text(op.site->range) == "self.fc(x)");
  CHECK(r->t().tensor(op.outputs[0]).requires_grad);
  CHECK(r->t().tensor(op.outputs[0]).from_input);
  REQUIRE(r->t().modules.size() == 2);
  CHECK(r->t().module(1).type == "torch.nn.Linear");
  CHECK(r->t().calls.size() == 2);
}

TEST_CASE("size arguments carry their expressions and where their numbers came from") {
  auto r = trace(
      "class M(nn.Module):\n    def forward(self, x):\n        B, N, C = x.shape\n        return x.reshape(B, N, 4, C // 4).permute(0, 2, "
      "1, 3)\n",
      {{"x", "f32[2,3,8]"}});
  REQUIRE(r->traced);
  const model::Op& op = r->op("reshape");
  CHECK(op.prim == model::Prim::Reshape);
  REQUIRE(op.size_args.size() == 4);
  CHECK(op.size_args[3].dim == 3);
  CHECK(op.size_args[3].values == Shape{2});
  REQUIRE(op.size_args[3].syms[0]);
  CHECK(op.size_args[3].syms[0]->kind == model::Sym::FloorDiv);
  CHECK(r->text(op.size_args[3].expr->range) == "C // 4");
  CHECK(op.size_args[2].syms[0] == nullptr);
  auto whole =
      trace("class M(nn.Module):\n    def forward(self, x):\n        s = (2, 3, 4, 2)\n        return x.view(s)\n", {{"x", "f32[2,3,8]"}});
  REQUIRE(whole->traced);
  const model::Op& view = whole->op("view");
  REQUIRE(view.size_args.size() == 1);
  CHECK(view.size_args[0].role == model::SizeArg::Shape);
  CHECK(view.size_args[0].values == Shape{2, 3, 4, 2});
}

TEST_CASE("einops patterns become reshapes and permutations") {
  auto r = trace(
      "from einops import rearrange\nclass M(nn.Module):\n    def forward(self, x):\n        return rearrange(x, 'b n (k h d) -> k b h n "
      "d', k=3, h=2)\n",
      {{"x", "f32[2,5,24]"}});
  REQUIRE(r->traced);
  CHECK(r->shape() == Shape{3, 2, 2, 5, 4});
  auto ops = r->ops("rearrange");
  REQUIRE(ops.size() == 2);
  CHECK(ops[0]->prim == model::Prim::Reshape);
  REQUIRE(ops[0]->size_args.size() == 2);
  CHECK(ops[0]->size_args[1].role == model::SizeArg::Factor);
  CHECK(ops[0]->size_args[1].dim == 3);
  CHECK(r->text(ops[0]->size_args[1].expr->range) == "2");
}

TEST_CASE("schedules computed with tensors come out as numbers") {
  auto r = trace(
      "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.rates = [v.item() for v in torch.linspace(0, "
      "0.3, 4)]\n        self.sizes = torch.tensor([2, 3]).cumsum(0).tolist()\n"
      "    def forward(self, x):\n        return x * self.rates[3] + self.sizes[1]\n",
      {{"x", "f32[2]"}});
  REQUIRE(r->traced);
  for (const auto& w : r->t().attr_writes) {
    if (w.name == "rates") CHECK(w.value.items.at(1).second.number == Approx(0.1));
    if (w.name == "sizes") CHECK(w.value.items.at(1).second.integer == 5);
  }
}

TEST_CASE("a constant added is not linear, a factor is") {
  CHECK(expression("x + 1", {{"x", "f32[2]"}})->op("add").linearity == model::Linearity::Nonlinear);
  CHECK(expression("x + x", {{"x", "f32[2]"}})->op("add").linearity == model::Linearity::Linear);
  CHECK(expression("x * 2", {{"x", "f32[2]"}})->op("mul").linearity == model::Linearity::Linear);
  CHECK(expression("x * x", {{"x", "f32[2]"}})->op("mul").linearity == model::Linearity::Bilinear);
  CHECK(expression("1 / x", {{"x", "f32[2]"}})->op("div").linearity == model::Linearity::Nonlinear);
}

TEST_CASE("softmax blocks its dimension, a sum contracts it") {
  auto s = expression("F.softmax(x, dim=-1)", {{"x", "f32[2,3]"}});
  const model::Op& op = s->op("softmax");
  CHECK_FALSE(op.labels[static_cast<std::size_t>(op.in[0][0])].blocked);
  CHECK(op.labels[static_cast<std::size_t>(op.in[0][1])].blocked);
  auto m = expression("x.mean(-1)", {{"x", "f32[2,3]"}});
  CHECK(m->op("mean").mean);
  CHECK_FALSE(m->op("mean").labels[static_cast<std::size_t>(m->op("mean").in[0][1])].blocked);
}

TEST_CASE("in-place operations and slice assignment make new tensors") {
  auto r = trace(
      "class M(nn.Module):\n    def forward(self, x):\n        y = x * 2\n        y += 1\n        y[:, 1:3] = 0\n        y.relu_()\n       "
      " return y\n",
      {{"x", "f32[2,4]"}});
  REQUIRE(r->traced);
  auto ops = r->ops();
  REQUIRE(ops.size() == 4);
  for (std::size_t i = 1; i < 4; ++i) CHECK(ops[i]->inputs[0].tensor == ops[i - 1]->outputs[0]);
  CHECK(ops[2]->labels[static_cast<std::size_t>(ops[2]->in[0][1])].blocked);
  CHECK(model::tensors_of(r->t().output)[0] == ops[3]->outputs[0]);
}

TEST_CASE("wrong shapes are PyTorch's errors, at their place") {
  auto r = expression("x @ x", {{"x", "f32[2,4]"}});
  CHECK(r->error.find("mat1 and mat2 shapes cannot be multiplied (2x4 and 2x4)") != std::string::npos);
  CHECK(expression("x.view(3, -1)", {{"x", "f32[2,4]"}})->error.find("shape '[3, -1]' is invalid for input of size 8") !=
        std::string::npos);
  CHECK(expression("torch.cat([x, x[:1]], 1)", {{"x", "f32[2,4]"}})->error.find("must match except in dimension 1") != std::string::npos);
}

TEST_CASE("attention: heads and batch are free, keys and width are not") {
  auto r = expression("F.scaled_dot_product_attention(x, x, x)", {{"x", "f32[2,4,6,8]"}});
  const model::Op& op = r->op("scaled_dot_product_attention");
  auto blocked = [&](std::size_t operand, std::size_t dim) { return op.labels[static_cast<std::size_t>(op.in[operand][dim])].blocked; };
  CHECK_FALSE(blocked(0, 0));
  CHECK_FALSE(blocked(0, 1));
  CHECK_FALSE(blocked(0, 2));
  CHECK(blocked(0, 3));
  CHECK(blocked(1, 2));
  CHECK_FALSE(blocked(2, 3));
  CHECK(shape_of("F.scaled_dot_product_attention(x, y, y, enable_gqa=True)", {{"x", "f32[2,4,6,8]"}, {"y", "f32[2,2,6,8]"}}) ==
        Shape{2, 4, 6, 8});
}
