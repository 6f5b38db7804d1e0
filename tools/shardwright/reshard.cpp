// shardwright reshard: checkpoints between the single-GPU file and any tensor x pipeline grid.
#include "checkpoint/reshard.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli.h"

namespace shardwright::cli {
namespace {

struct Options : Common {
  checkpoint::ReshardRequest request;
  std::string from, to;
  bool no_check = false;
};

bool two_numbers(const std::string& text, int& tp, int& pp) {
  char end = 0;
  return std::sscanf(text.c_str(), "%d,%d%c", &tp, &pp, &end) == 2 && tp > 0 && pp > 0;
}

int run(Options& o) {
  support::SourceManager sm;
  auto usage = [&](const std::string& what, const std::string& text) {
    return report(support::failure(fmt::format("{} {}: expected tp,pp, for instance 2,4", what, text), {}, "usage"), sm, o);
  };
  if (!o.from.empty() && !two_numbers(o.from, o.request.from_tp, o.request.from_pp)) return usage("--from", o.from);
  if (!two_numbers(o.to, o.request.to_tp, o.request.to_pp)) return usage("--to", o.to);
  o.request.check = !o.no_check;
  auto r = checkpoint::reshard(o.request);
  if (!r) return report(r.error(), sm, o);
  if (o.json) {
    fmt::print("{}\n",
               nlohmann::ordered_json{
                   {"out", r->out}, {"files", r->files}, {"tensors", r->tensors}, {"bytes", r->bytes}, {"largest_tensor_bytes", r->largest}}
                   .dump(2));
    return kDone;
  }
  if (!o.quiet)
    fmt::print("{}: {} tensors in {} files, {:.1f} MiB\n", r->out, r->tensors, r->files, static_cast<double>(r->bytes) / (1 << 20));
  return kDone;
}

}  // namespace

Run add_reshard(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("reshard", "a checkpoint at another tensor x pipeline grid, or from and to the single-GPU file");
  c->add_option("IN", o->request.in,
                "a folder that training wrote with --save (or one checkpoint in it), or the single-GPU model's state dict (.safetensors)")
      ->required();
  c->add_option("OUT", o->request.out, "folder of the new checkpoint; with --to 1,1 a .safetensors file")->required();
  c->add_option("--params", o->request.params, "params.yaml of the package that reads OUT (or, for 1,1, that wrote IN)")->required();
  c->add_option("--from", o->from, "tp,pp of IN (default: as found)");
  c->add_option("--to", o->to, "tp,pp of OUT; 1,1 is the single-GPU file")->required();
  c->add_flag("--no-check", o->no_check, "do not compare checksums first");
  add_output_options(*c, *o);
  return [o] { return run(*o); };
}

}  // namespace shardwright::cli
