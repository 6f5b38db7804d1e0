// Other programs, started without a shell.
#pragma once
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace shardwright::support {

/// Starts a program, found on PATH. `in_child` runs in the new process first (redirections, environment). −1: there is no new process.
pid_t start(const std::vector<std::string>& arguments, const std::function<void()>& in_child = nullptr);

/// Waits for the end of a process; what waitpid says of it.
int wait_for(pid_t child);

/// The exit status that a shell would give: 128 + signal of one that was killed; 127: it could not be started.
int status_of(int waited);

/// Waits, and the exit status. `child` −1: 127.
int finish(pid_t child);

}  // namespace shardwright::support
