#include "support/process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace shardwright::support {

pid_t start(const std::vector<std::string>& arguments, const std::function<void()>& in_child) {
  std::vector<char*> argv;
  for (const auto& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return child;
  if (in_child) in_child();
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

int wait_for(pid_t child) {
  int waited = 0;
  while (::waitpid(child, &waited, 0) < 0 && errno == EINTR) {}
  return waited;
}

int status_of(int waited) { return WIFEXITED(waited) ? WEXITSTATUS(waited) : 128 + WTERMSIG(waited); }

int finish(pid_t child) { return child < 0 ? 127 : status_of(wait_for(child)); }

}  // namespace shardwright::support
