#include "driver/doctor.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "driver/process.h"
#include "driver/python.h"
#include "driver/version.h"
#include "rules/embedded.h"

namespace shardwright::driver {
namespace {

// Asks one interpreter for everything at once; each answer by itself, so that one failure hides no other.
constexpr const char* kQuestions = R"PY(
import json, sys
out = {"python": sys.version.split()[0], "executable": sys.executable}
def ask(name, f):
    try:
        out[name] = f()
    except BaseException as e:
        out[name + "_error"] = f"{type(e).__name__}: {e}".splitlines()[0][:200]
def torch_():
    import torch
    out["cuda"] = torch.version.cuda or ""
    return torch.__version__
def gpus():
    import torch
    return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
def nccl():
    import torch
    return ".".join(map(str, torch.cuda.nccl.version())) if torch.distributed.is_nccl_available() else ""
def gloo():
    import torch
    return torch.distributed.is_gloo_available()
def runtime():
    import shardwright.parallel as p
    return p.__file__
def megatron():
    import importlib.metadata as m
    return m.version("megatron-core")
for name, f in (("torch", torch_), ("gpus", gpus), ("nccl", nccl), ("gloo", gloo), ("runtime", runtime), ("megatron", megatron)):
    ask(name, f)
print("\n" + json.dumps(out))
)PY";

std::string first_line(const std::string& s) { return s.substr(0, s.find('\n')); }

Found program(const std::string& what, const std::vector<std::vector<std::string>>& candidates, const std::string& otherwise) {
  for (const auto& c : candidates) {
    const Captured r = capture(c);
    if (r.status == 0) return {what, true, c[0] + ": " + first_line(r.output)};
  }
  return {what, false, otherwise};
}

}  // namespace

Health examine(const std::string& wanted) {
  Health h;
  h.found.push_back(
      {"shardwright", true, std::string(kVersion) + ", " + std::to_string(rules::embedded_files().size()) + " rule files in it"});
  auto python = find_python(wanted);
  nlohmann::json a;
  const std::string executable = python ? *python : wanted.empty() ? "python3" : wanted;
  const Captured said = capture({executable, "-c", kQuestions});
  if (const std::size_t at = said.output.rfind("\n{"); said.status == 0 && at != std::string::npos)
    a = nlohmann::json::parse(said.output.substr(at + 1), nullptr, false);
  if (!a.is_object()) a = nlohmann::json::object();
  auto text = [&](const char* key) { return a.contains(key) && a[key].is_string() ? a[key].get<std::string>() : std::string(); };
  auto add = [&](const std::string& what, const char* key, const std::string& otherwise) {
    const std::string value = text(key), error = text((std::string(key) + "_error").c_str());
    h.found.push_back({what, !value.empty(), !value.empty() ? value : error.empty() ? otherwise : error + "; " + otherwise});
  };
  h.found.push_back({"Python", !text("python").empty(),
                     text("python").empty() ? "'" + executable + "' does not run; name one with --python"
                                            : text("python") + " (" + text("executable") + ")"});
  add("PyTorch", "torch", "tools/build, or pip install torch");
  if (!text("cuda").empty()) h.found.back().detail += ", CUDA " + text("cuda");
  add("runtime", "runtime", "tools/build, or pip install . where torch is installed");
  h.found.push_back({"Gloo", a.value("gloo", false), a.value("gloo", false) ? "in PyTorch" : "a PyTorch with distributed support"});
  add("NCCL", "nccl", "a PyTorch with CUDA");
  std::string names;
  if (a.contains("gpus") && a["gpus"].is_array())
    for (const auto& g : a["gpus"]) names += (names.empty() ? "" : ", ") + g.get<std::string>();
  h.found.push_back(
      {"GPUs", !names.empty(), names.empty() ? "none that PyTorch can use" : std::to_string(a["gpus"].size()) + ": " + names});
  add("Megatron-Core", "megatron", "pip install megatron-core");
  h.found.push_back(program("C++ compiler", {{"c++", "--version"}, {"g++", "--version"}, {"clang++", "--version"}}, "apt-get install g++"));
  h.found.push_back(program("CMake", {{"cmake", "--version"}}, "apt-get install cmake"));
  h.found.push_back(program("Ninja", {{"ninja", "--version"}}, "apt-get install ninja-build"));
  h.found.push_back(program("git", {{"git", "--version"}}, "apt-get install git"));

  auto there = [&](const std::string& what) {
    return std::any_of(h.found.begin(), h.found.end(), [&](const Found& f) { return f.what == what && f.there; });
  };
  auto need = [&](std::string command, const std::vector<std::string>& wants, std::string note = "") {
    Need n{std::move(command), {}, std::move(note)};
    for (const auto& w : wants)
      if (!there(w)) n.missing.push_back(w);
    h.commands.push_back(std::move(n));
  };
  need("tree, plan, convert, explain, lsp", {});
  need("lint", {}, there("git") ? "" : "--fix cannot tell uncommitted changes without git");
  need("verify", {"Python", "PyTorch", "runtime", "Gloo"});
  need("verify --device cuda", {"Python", "PyTorch", "runtime", "NCCL", "GPUs"});
  need("a generated run.sh", {"Python", "PyTorch", "runtime", "Gloo"}, there("GPUs") && there("NCCL") ? "" : "on CPU only");
  need("building from source", {"C++ compiler", "CMake", "Ninja", "Python"});
  return h;
}

}  // namespace shardwright::driver
