#include "driver/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "support/process.h"

namespace shardwright::driver {

Captured capture(const std::vector<std::string>& arguments) {
  constexpr std::size_t kMost = 1u << 20;
  Captured out;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {127, ""};
  const pid_t child = support::start(arguments, [&] {
    std::signal(SIGINT, SIG_DFL);
    const int nothing = ::open("/dev/null", O_RDWR);
    ::dup2(nothing, 0);
    ::dup2(ends[1], 1);
    ::dup2(nothing, 2);
  });
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return {127, ""};
  }
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(ends[0], buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    if (out.output.size() < kMost) out.output.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  out.status = support::finish(child);
  return out;
}

std::vector<std::string> uncommitted(const std::vector<std::string>& files) {
  std::vector<std::string> out;
  for (const auto& file : files) {
    std::error_code ec;
    const auto path = std::filesystem::weakly_canonical(file, ec);
    const Captured status = capture({"git", "-C", path.parent_path().string(), "status", "--porcelain", "--", path.filename().string()});
    if (status.status == 0 && !status.output.empty()) out.push_back(file);
  }
  return out;
}

}  // namespace shardwright::driver
