// The call-chain tree in its formats, and the HTML report.
#include "report/tree.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "../pipeline/builder.h"
#include "report/html.h"

using namespace shardwright;
using model::ModuleId;
using model::Origin;
using model::TensorId;
using shardwright::testing::TraceBuilder;

namespace {

struct Example {
  TraceBuilder b;
  Example() {
    const TensorId x = b.tensor({2, 8}, Origin::Input, "x");
    const ModuleId head = b.module("head", "torch.nn.Linear", 0, true), list = b.module("blocks", "torch.nn.ModuleList", 0, true);
    const TensorId hw = b.parameter(head, {4, 8}, "weight");
    TensorId h = x;
    for (int i = 0; i < 12; ++i) {
      const std::string name = "blocks." + std::to_string(i);
      const ModuleId block = b.module(name, "pkg.Block", list), lin = b.module(name + ".lin", "torch.nn.Linear", block, true);
      const TensorId w = b.parameter(lin, {8, 8}, "weight");
      b.statement([&] {
        b.call(block, [&] {
          b.statement([&] {
            b.call(
                lin,
                [&] {
                  h = b.op({h, w}, {2, 8}, 256);
                },
                true);
          });
        });
      });
    }
    b.statement([&] {
      b.call(
          head,
          [&] {
            h = b.op({h, hw}, {2, 4}, 128);
          },
          true);
    });
    b.output({h});
    // The same table under two names.
    b.t.modules[0].children.push_back({"alias", head});
  }
};

}  // namespace

TEST_CASE("counts, order of calls, shared modules") {
  const Example e;
  support::SourceManager sm;
  const report::Node n = report::tree(e.b.t, sm);
  CHECK(n.name == "Net");
  CHECK(n.parameters == 12 * 64 + 32);
  CHECK(n.flops == 12 * 256 + 128);
  REQUIRE(n.children.size() == 3);
  CHECK(n.children[0].name == "blocks");  // registered after head, called before it
  CHECK(n.children[1].name == "head");
  CHECK(n.children[2].shared_with == "head");
  CHECK(n.children[0].children.size() == 12);
  CHECK(n.children[0].children[3].calls == 1);
}

TEST_CASE("identical siblings fold, different ones do not") {
  Example e;
  e.b.t.ops[5].flops += 1;
  support::SourceManager sm;
  const report::Node n = report::tree(e.b.t, sm);
  const std::string text = report::to_text(n);
  INFO(text);
  CHECK(text.find("│  ├─ 0–4, 6–11 (11×)") != std::string::npos);
  CHECK(text.find("│  └─ 5 ") != std::string::npos);
  CHECK(text.find("└─ alias") != std::string::npos);
  CHECK(text.find("= head") != std::string::npos);
  const std::string all = report::to_text(n, {false, 1000, true});
  CHECK(std::count(all.begin(), all.end(), '\n') == 1 + 1 + 1 + 24 + 2);
  CHECK(report::to_text(n, {true, 2, false}).find("\x1b[36m") != std::string::npos);
}

TEST_CASE("JSON has every module, the graphs are well formed") {
  const Example e;
  support::SourceManager sm;
  const report::Node n = report::tree(e.b.t, sm);
  const auto j = report::to_json(n);
  CHECK(j["children"][0]["children"].size() == 12);
  CHECK(j["parameters"] == 800);
  CHECK(j["file"].is_null());
  const std::string m = report::to_mermaid(n), d = report::to_dot(n);
  CHECK(m.find("graph TD\n  n0[\"Net<br/>800 parameters") == 0);
  CHECK(m.find("n1 --> n2") != std::string::npos);
  CHECK(d.find("n1 -> n2;") != std::string::npos);
  CHECK(d.find("0–11 (12×): Block") != std::string::npos);
  CHECK(std::count(d.begin(), d.end(), '{') == std::count(d.begin(), d.end(), '}'));
}

TEST_CASE("the report stands alone and escapes what it shows") {
  const Example e;
  support::SourceManager sm;
  pipeline::Options o;
  o.stages = 3;
  const auto partition = pipeline::partition(e.b.t, o);
  plan::Inputs in;
  in.trace = &e.b.t;
  in.sources = &sm;
  in.partition = &partition;
  in.model = "a<b>.py:Net";
  in.grid = {1, 3, 1, 4, 1, "1f1b"};
  plan::Plan p = plan::make(in);
  p.warnings.push_back("x < y & \"z\"");
  report::TreeOptions to;
  to.partition = &partition;
  const std::string h = report::html(p, report::tree(e.b.t, sm, to));
  CHECK(h.find("a&lt;b&gt;.py:Net") != std::string::npos);
  CHECK(h.find("x &lt; y &amp; &quot;z&quot;") != std::string::npos);
  CHECK(h.find("<svg") != std::string::npos);
  for (const char* outside : {"http://", "https://", "<script", "src=", "@import", "url("}) CHECK(h.find(outside) == std::string::npos);
  CHECK(h.find("after blocks.3") != std::string::npos);
  CHECK(h.find("stage 2</text>") != std::string::npos);
}
