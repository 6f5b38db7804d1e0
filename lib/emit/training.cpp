// The training directory of targets that write beside the originals: the user's own script in pieces (training_slice.h), in the form
// that the target's trainer asks for.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <mustache.hpp>

#include "emit/package.h"
#include "emit/training_slice.h"
#include "rules/target.h"
#include "support/files.h"
#include "support/text.h"

namespace shardwright::emit {
namespace {

namespace fs = std::filesystem;
namespace mustache = kainjow::mustache;
using mustache::data;

/// "@@name@@" in a template is a name of ours that none of the user's may take away: another one where the script says it, too.
/// "@@+name@@" imports it under that name.
std::string fresh(const std::string& name, const Names& taken) {
  std::string n = name;
  while (taken.count(n)) n = "parallel_" + n;
  return n;
}

std::string with_fresh_names(std::string t, const Names& taken) {
  for (std::size_t at = t.find("@@"); at != std::string::npos; at = t.find("@@", at)) {
    const std::size_t end = t.find("@@", at + 2);
    const bool import = t[at + 2] == '+';
    const std::string name = t.substr(at + 2 + import, end - at - 2 - import);
    const std::string as = fresh(name, taken);
    const std::string text = import && as != name ? name + " as " + as : as;
    t.replace(at, end + 2 - at, text);
    at += text.size();
  }
  return t;
}

std::string render(const PackageInput& in, const char* name, const data& d, const Names& taken = {}) {
  mustache::mustache m{with_fresh_names(in.target->text(name), taken)};
  m.set_custom_escape([](const std::string& s) { return s; });
  return m.render(d);
}

std::string indented(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) out += "    " + text.substr(at, end - at);
    out += "\n";
    at = end + 1;
  }
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

data list_of(const std::vector<std::string>& rows) {
  data d{data::type::list};
  for (const auto& r : rows) d << data{r};
  return d;
}

std::string joined(const std::vector<std::string>& list) {
  std::string out;
  for (const auto& s : list) out += (out.empty() ? "" : ", ") + s;
  return out;
}

data truth(bool b) { return b ? data{data::type::bool_true} : data{data::type::bool_false}; }

/// A training script below `folder` that builds the class and trains it; "": none, or not exactly one.
std::string find_script(const std::string& folder, const std::string& model_class) {
  std::vector<std::string> found;
  std::error_code ec;
  for (fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, ec), end; !ec && it != end;
       it.increment(ec)) {
    const std::string path = it->path().string();
    if (it->is_directory(ec) && it->path().filename().string().find("_distributed") != std::string::npos) it.disable_recursion_pending();
    if (it->path().extension() != ".py") continue;
    auto text = support::read_file(path);
    if (text && text->find(model_class + "(") != std::string::npos && text->find(".backward(") != std::string::npos &&
        text->find("import") != std::string::npos)
      found.push_back(path);
  }
  std::sort(found.begin(), found.end());
  if (found.size() > 1)
    for (const auto& f : found)
      if (fs::path(f).filename() == "train.py") return f;
  return found.empty() ? "" : found.front();
}

}  // namespace

support::Expected<std::vector<File>> training_files(const PackageInput& in, const TrainingInput& t, std::vector<std::string>& left) {
  const auto& trace = in.traced.trace;
  const auto& root = trace.module(0);
  const std::string model = root.type.substr(root.type.rfind('.') + 1);
  std::string script = t.script;
  if (script.empty()) script = find_script(support::join_path(t.out, in.target->examples), model);
  std::optional<TrainingSlice> slice;
  std::string why = "No training script was found below " + in.target->examples + "/ (`train: {script: …}` in the job file names one).";
  if (!script.empty()) {
    std::vector<std::string> parameters;
    if (root.init_frame >= 0)
      for (std::size_t i = 1; i < trace.frame(root.init_frame).function->parameters.size(); ++i)
        parameters.push_back(trace.frame(root.init_frame).function->parameters[i].name);
    auto s = slice_training(script, model, parameters, in.loader, in.sources);
    if (s) slice = std::move(*s);
    else why = s.error().message + ".";
  }
  std::error_code ec;
  const std::string suffix = in.layout.init.path.substr(0, in.layout.init.path.rfind('/'));
  const std::string leaf = suffix.substr(suffix.rfind('/') == std::string::npos ? 0 : suffix.rfind('/') + 1);
  const std::string distributed = leaf.substr(std::min(leaf.size(), in.name.size()));  // "_distributed_4stage"
  std::string folder = in.target->examples + "/" + leaf;
  fs::path script_folder;
  if (!script.empty()) {
    script_folder = fs::weakly_canonical(script, ec).parent_path();
    const std::string base = fs::weakly_canonical(t.out, ec).string() + "/";
    folder = script_folder.string().rfind(base, 0) == 0 ? script_folder.string().substr(base.size()) + distributed
                                                        : in.target->examples + "/" + script_folder.filename().string() + distributed;
  }
  const fs::path here = fs::path(t.out) / folder;
  auto relative = [&](const std::string& p) {
    return "\"" + fs::weakly_canonical(p, ec).lexically_relative(fs::weakly_canonical(here, ec)).string() + "\"";
  };

  data d;
  const int world = in.grid.tp * in.grid.pp;
  d.set("model", model);
  d.set("name", leaf);
  d.set("tp", std::to_string(in.grid.tp));
  d.set("pp", std::to_string(in.grid.pp));
  d.set("world", std::to_string(world));
  d.set("version", in.version);
  d.set("spec", in.spec);
  d.set("package", in.layout.init.module);
  d.set("model_file", in.name);
  d.set("recompute", in.recompute.empty() ? data{data::type::bool_false} : data{"how", in.recompute});
  d.set("params", relative(support::join_path(t.out, suffix + "/.shardwright/params.yaml")));
  d.set("support", in.target->support);
  d.set("megatron", in.target->megatron);
  d.set("shapes_module", in.target->shapes_module);
  d.set("no_script", why);
  std::vector<std::string> paths{
      relative(support::join_path(t.out,
                                  in.layout.init.path.substr(0,
                                                             in.layout.init.path.size() >= in.layout.init.module.size() + 12
                                                                 ? in.layout.init.path.size() - in.layout.init.module.size() - 12
                                                                 : 0)))};
  for (const auto& p : in.job.python_path)
    if (p.find("/site-packages") == std::string::npos && p.find("/dist-packages") == std::string::npos) paths.push_back(relative(p));
  if (!script.empty()) paths.push_back(relative(script_folder.string()));
  std::vector<std::string> once;
  for (const auto& p : paths)
    if (std::find(once.begin(), once.end(), p) == once.end()) once.push_back(p);
  d.set("paths", list_of(once));
  // Shapes between the stages; what grows with the batch is written so.
  std::vector<std::string> shapes;
  for (const auto& cut : in.partition.cuts) {
    std::string row;
    for (auto x : cut.live) {
      const auto& shape = trace.tensor(x).shape;
      const auto local = in.sharding.local_shape(trace, x);
      const auto* other =
          t.other && static_cast<std::size_t>(x) < t.other->trace.tensors.size() ? &t.other->trace.tensor(x).shape : nullptr;
      std::string one;
      const std::int64_t batch = t.batch;
      for (std::size_t i = 0; i < shape.size(); ++i) {
        const bool grows = other && other->size() == shape.size() && (*other)[i] == 3 * shape[i] && batch > 0 && shape[i] % batch == 0;
        std::string size = grows ? (local[i] == batch ? "micro_batch_size" : std::to_string(local[i] / batch) + " * micro_batch_size")
                                 : std::to_string(local[i]);
        one += (one.empty() ? "" : ", ") + size;
      }
      row += (row.empty() ? "" : ", ") + ("(" + one + (shape.size() == 1 ? ",)" : ")"));
    }
    shapes.push_back("[" + row + "]");
  }
  d.set("shapes", list_of(shapes));
  d.set("boundaries", truth(!shapes.empty()));
  std::vector<std::string> names, samples;
  for (const auto& [name, spec] : in.job.inputs) {
    names.push_back("\"" + name + "\"");
    std::string sizes;
    for (std::size_t i = 1; i < spec.shape.size(); ++i) sizes += (sizes.empty() ? "" : ", ") + std::to_string(spec.shape[i]);
    samples.push_back(!spec.expression.empty() ? spec.expression
                          : model::is_floating(spec.dtype)
                          ? "torch.randn(" + (sizes.empty() ? "()" : sizes) + ", generator=generator)"
                          : fmt::format("torch.randint({}, {}, ({}{}), generator=generator)", spec.low,
                                        std::max<std::int64_t>(spec.high, 1), sizes, sizes.empty() ? "" : ","));
  }
  d.set("forward_names", "(" + joined(names) + (names.size() == 1 ? ",)" : ")"));
  d.set("samples", list_of(samples));

  std::string micro_batch = "1", global_batch;
  std::vector<std::string> arguments, rows;
  d.set("sliced", truth(slice.has_value()));
  d.set("data_everywhere", truth(t.data_ranks != "needed"));
  const Names taken = slice ? slice->names : Names{};
  const std::string steps =
      "max(" + fresh("steps_per_epoch", taken) + "() // " + fresh("mpu", taken) + ".get_data_parallel_world_size(), 1)";
  auto filled = [&](std::string s) {
    for (const auto& [mark, text] : {std::pair<std::string, std::string>{"{position}", fresh("position", taken)},
                                     {"{here}", fresh("HERE", taken)},
                                     {"{steps}", steps}})
      s = support::replaced(std::move(s), mark, text);
    return s;
  };
  std::vector<std::string> notes;
  if (slice) {
    std::vector<std::string> imports;
    for (const auto& i : slice->imports)
      if (i != "import os" && i != "import sys" && i != "import torch" && i != "from functools import partial") imports.push_back(i);
    d.set("imports", list_of(imports));
    const bool given = !slice->constructor.empty() && t.direct;
    const std::string arguments_of_model = fresh("model_arguments", taken) + "()";
    d.set("constructor", given ? "**" + arguments_of_model : "");
    d.set("comma_constructor", given ? ", **" + arguments_of_model : "");
    d.set("has_constructor", truth(given));
    d.set("model_arguments", slice->constructor);
    d.set("script", fs::path(script).lexically_relative(here).string());
    d.set("and_script", " and `" + relative(script).substr(1, relative(script).size() - 2) + "`");
    d.set("definitions", slice->definitions);
    d.set("has_setup", truth(!slice->setup_names.empty()));
    d.set("setup_names", joined(slice->setup_names));
    d.set("setup", slice->setup.empty() ? std::string("    pass") : indented(filled(slice->setup)));
    d.set("data", indented(filled(slice->data)));
    const std::string taken_over = slice->setup + slice->data + slice->definitions;
    d.set("asks_ranks",
          truth(taken_over.find("get_rank(") != std::string::npos || taken_over.find("get_world_size(") != std::string::npos ||
                taken_over.find("DistributedSampler(") != std::string::npos));
    d.set("train", slice->train);
    d.set("valid", slice->valid.empty() ? "None" : slice->valid);
    d.set("test", slice->test.empty() ? "None" : slice->test);
    // A parameter has one name; what is taken apart is so in the first line.
    auto parameter = [&](const std::string& target, const char* name, std::string& body) {
      const bool simple = target.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == std::string::npos;
      if (simple && name == std::string("batch")) return target;
      const std::string n = fresh(name, taken);
      body = target + " = " + n + "\n" + body;
      return n;
    };
    std::string prepare = slice->prepare, loss = slice->loss;
    d.set("counters", truth(!slice->step.empty() || !slice->epoch.empty()));
    if (!slice->step.empty()) prepare = slice->step + "\n" + prepare;
    if (!slice->epoch.empty()) prepare = slice->epoch + "\n" + prepare;
    d.set("batch_parameter", parameter(slice->batch, "batch", prepare));
    d.set("prepare", indented(filled(prepare)));
    d.set("output_parameter", slice->outputs.empty() ? slice->output_name : parameter(slice->outputs, "output", loss));
    d.set("inputs", slice->inputs + (slice->inputs.empty() ? "" : ","));
    d.set("keywords", slice->keywords);
    std::vector<std::string> dict;
    for (const auto& l : slice->labels) dict.push_back(l + "=" + l);
    d.set("labels_dict", joined(dict));
    d.set("comma_labels", slice->labels.empty() ? "" : ", " + joined(slice->labels));
    d.set("loss", indented(loss));
    d.set("loss_value", slice->loss_value);
    for (const auto& [key, list] : {std::pair("prepare_carries", &slice->prepare_carries), std::pair("loss_carries", &slice->loss_carries),
                                    std::pair("data_carries", &slice->data_carries)})
      d.set(key, list->empty() ? data{data::type::bool_false} : data{key, joined(*list)});
    d.set("drops_last", truth(slice->drops_last));
    std::string seed = "1234";
    for (const auto& [name, value] : slice->arguments) {
      if (name == "--micro-batch-size") micro_batch = value;
      else if (name == "--seed") seed = value, arguments.push_back(name + " " + value);
      else arguments.push_back(name + " " + value);
      auto from = slice->argument_lines.find(name);
      rows.push_back(fmt::format("| `{}` | {} | {} |", name, value,
                                 from == slice->argument_lines.end() ? "what PyTorch does when it is not given" : from->second));
    }
    d.set("has_epochs", truth(!slice->iterations.empty()));
    d.set("epochs", slice->iterations);
    d.set("per_step", slice->accumulate.empty() ? "" : " // " + slice->accumulate);
    d.set("seed", seed);
    d.set("in_order", truth(slice->in_order));
    d.set("drop_batch", slice->drops_last ? micro_batch : "1");
    if (!slice->accumulate.empty())
      global_batch = std::to_string(std::atoll(micro_batch.c_str()) * std::max<long long>(std::atoll(slice->accumulate.c_str()), 1));
    if (slice->iterations.empty()) arguments.push_back("--train-iters 10");
    left = slice->left;
    notes = slice->notes;
  } else {
    d.set("imports", list_of({}));
    d.set("constructor", "");
    d.set("comma_constructor", "");
    d.set("has_constructor", truth(false));
    d.set("definitions", "");
    d.set("and_script", "");
    arguments.push_back("--train-iters 10");
    arguments.push_back("--lr 1.0e-4");
    if (!script.empty()) left.push_back(why + " train.py runs on random data: your data set and loss go where it says");
  }
  d.set("batch_size", micro_batch);
  d.set("micro_batch_size", micro_batch);
  d.set("global_batch_size", global_batch.empty() ? micro_batch : global_batch);
  d.set("arguments", list_of(arguments));
  d.set("argument_rows", list_of(rows));
  d.set("left", list_of(left));
  d.set("has_left", truth(!left.empty()));
  d.set("notes", list_of(notes));
  d.set("has_notes", truth(!notes.empty()));
  std::vector<File> out{{folder + "/train.py", render(in, "train.py.mustache", d, taken), true, false, {}},
                        {folder + "/run.sh", render(in, "run.sh.mustache", d), true, false, {}},
                        {folder + "/run.slurm", render(in, "run.slurm.mustache", d), true, false, {}},
                        {folder + "/serial_checkpoint.py", render(in, "serial_checkpoint.py.mustache", d), true, false, {}},
                        {folder + "/README.md", render(in, "README.md.mustache", d), false, false, {}}};
  // The configuration as it is: nothing in it is changed silently.
  bool config = false;
  if (!script.empty())
    for (const char* sub : {"conf", "config", "configs"})
      for (const auto& f : fs::directory_iterator(script_folder / sub, ec))
        if (f.path().extension() == ".yaml" || f.path().extension() == ".yml") {
          auto text = support::read_file(f.path().string());
          if (!text) return text.error();
          out.push_back({folder + "/" + sub + "/" + f.path().filename().string(), *text, false, false, {}});
          config = true;
        }
  if (!config)
    out.push_back({folder + "/conf/config.yaml",
                   fmt::format("tensor_model_parallel_size: {}\npipeline_model_parallel_size: {}\n", in.grid.tp, in.grid.pp),
                   false,
                   false,
                   {}});
  return out;
}

}  // namespace shardwright::emit
