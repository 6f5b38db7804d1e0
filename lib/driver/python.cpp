#include "driver/python.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "support/files.h"
#include "support/process.h"

namespace shardwright::driver {
namespace {

namespace fs = std::filesystem;

/// A development tree: the Python package lies beside the build folder's parent.
void add_runtime_to_path() {
  const std::string tree = support::above_program("runtime/python/shardwright/parallel/__init__.py");
  if (tree.empty()) return;
  const char* old = std::getenv("PYTHONPATH");
  const std::string value = tree + "/runtime/python" + (old && *old ? ":" + std::string(old) : "");
  ::setenv("PYTHONPATH", value.c_str(), 1);
}

int run(const std::vector<std::string>& arguments, bool silent) {
  const pid_t child = support::start(arguments, [&] {
    std::signal(SIGINT, SIG_DFL);
    if (silent && (!std::freopen("/dev/null", "w", stdout) || !std::freopen("/dev/null", "w", stderr))) ::_exit(2);
  });
  if (child < 0) return 2;
  // The child is in our process group and gets the terminal's signals itself; we wait for how it ends.
  auto old = std::signal(SIGINT, SIG_IGN);
  const int status = support::wait_for(child);
  std::signal(SIGINT, old);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return WTERMSIG(status) == SIGINT ? 130 : 2;
}

}  // namespace

support::Expected<std::string> find_python(const std::string& wanted) {
  add_runtime_to_path();
  std::vector<std::string> candidates;
  if (!wanted.empty()) {
    candidates.push_back(wanted);
  } else {
    if (const char* venv = std::getenv("VIRTUAL_ENV")) candidates.push_back(std::string(venv) + "/bin/python");
    std::error_code ec;
    for (fs::path p = fs::current_path(ec); !p.empty(); p = p.parent_path()) {
      if (fs::exists(p / ".venv" / "bin" / "python", ec)) {
        candidates.push_back((p / ".venv" / "bin" / "python").string());
        break;
      }
      if (p == p.root_path()) break;
    }
    fs::path self = fs::read_symlink("/proc/self/exe", ec);
    for (fs::path p = self.parent_path(); !p.empty() && p != p.root_path(); p = p.parent_path())
      if (fs::exists(p / ".venv" / "bin" / "python", ec)) candidates.push_back((p / ".venv" / "bin" / "python").string());
    if (const char* conda = std::getenv("CONDA_PREFIX")) candidates.push_back(std::string(conda) + "/bin/python");
    candidates.push_back("python3");
  }
  std::string tried;
  for (const auto& c : candidates) {
    tried += (tried.empty() ? "" : ", ") + c;
    // Finding the packages is enough; importing torch here would cost a second.
    if (run({c, "-c",
             "import importlib.util as u, sys; sys.exit(0 if u.find_spec('torch') and u.find_spec('shardwright.parallel') else 9)"},
            true) == 0)
      return c;
  }
  return support::failure("no Python with torch and shardwright.parallel was found (tried " + tried +
                              "); expected one of --python, $VIRTUAL_ENV, .venv, $CONDA_PREFIX or python3. Run tools/build, or `pip "
                              "install torch` and `pip install .` in an environment and name it with --python",
                          {}, "input");
}

int run_python(const std::vector<std::string>& arguments) {
  int status = run(arguments, false);
  return status == 127 ? 2 : status;
}

}  // namespace shardwright::driver
