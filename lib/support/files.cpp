#include "support/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace shardwright::support {

namespace fs = std::filesystem;

namespace {

std::string reason() { return std::generic_category().message(errno); }

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

Expected<std::string> read_file(const std::string& path, std::size_t limit) {
  Descriptor d{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // not blocking: a FIFO would wait for a writer
  if (d.fd < 0) return failure("cannot read '" + path + "': " + reason(), {}, "input");
  struct stat info {};
  if (::fstat(d.fd, &info) != 0) return failure("cannot read '" + path + "': " + reason(), {}, "input");
  if (S_ISDIR(info.st_mode)) return failure("cannot read '" + path + "': it is a folder, a file is expected", {}, "input");
  if (!S_ISREG(info.st_mode)) return failure("cannot read '" + path + "': it is not a regular file", {}, "input");
  const auto too_large = [&](std::size_t size) {
    return failure("'" + path + "' is too large to be source code (" + std::to_string(size >> 10) + " KiB, at most " +
                       std::to_string(limit >> 10) + " KiB are read)",
                   {}, "input");
  };
  if (static_cast<std::size_t>(info.st_size) > limit) return too_large(static_cast<std::size_t>(info.st_size));
  std::string text;
  text.resize(static_cast<std::size_t>(info.st_size));
  std::size_t got = 0;
  while (true) {
    if (got == text.size()) text.resize(std::max<std::size_t>(4096, text.size() + text.size() / 2));
    const ssize_t n = ::read(d.fd, text.data() + got, text.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failure("cannot read '" + path + "': " + reason(), {}, "input");
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
    if (got > limit) return too_large(got);
  }
  text.resize(got);
  if (std::memchr(text.data(), 0, text.size()))
    return failure("'" + path + "' is a binary file (it holds a NUL byte), text is expected", {}, "input");
  return text;
}

Uninterrupted::Uninterrupted() {
  sigset_t held;
  ::sigemptyset(&held);
  for (int s : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&held, s);
  ::pthread_sigmask(SIG_BLOCK, &held, &before_);
}

Uninterrupted::~Uninterrupted() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

Expected<bool> write_file(const std::string& path, std::string_view text, bool executable) {
  const Uninterrupted whole;  // no temporary file is left behind
  const auto failed = [&](const std::string& why) { return failure("cannot write '" + path + "': " + why, {}, "output"); };
  std::error_code ec;
  const std::string parent = parent_path(path);
  if (!parent.empty()) {
    fs::create_directories(parent, ec);
    if (ec) return failed("cannot make the folder '" + parent + "': " + ec.message());
  }
  if (is_directory(path)) return failed("it is a folder");
  struct stat old {};
  mode_t mode = 0666;
  const bool exists = ::stat(path.c_str(), &old) == 0;
  if (exists) mode = old.st_mode & 07777;
  if (executable) mode |= exists ? (mode & 0444) >> 2 : 0111;

  std::string temporary;
  Descriptor d;
  for (int attempt = 0; attempt < 100 && d.fd < 0; ++attempt) {
    temporary = path + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(attempt);
    d.fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (d.fd < 0 && errno != EEXIST) return failed(reason());
  }
  if (d.fd < 0) return failed("no free name for a temporary file");
  const auto give_up = [&](const std::string& why) {
    ::unlink(temporary.c_str());
    return failed(why);
  };
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(d.fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return give_up(reason());
    done += static_cast<std::size_t>(n);
  }
  if (exists && ::fchmod(d.fd, mode) != 0) return give_up(reason());
  if (::fsync(d.fd) != 0) return give_up(reason());
  if (::rename(temporary.c_str(), path.c_str()) != 0) return give_up(reason());
  return true;
}

Expected<std::vector<std::string>> walk(const std::string& folder, const std::function<bool(const std::string&)>& enter) {
  std::error_code ec;
  if (!fs::is_directory(folder, ec)) return failure("'" + folder + "' is not a folder", {}, "input");
  std::vector<std::string> out, pending{""};
  while (!pending.empty()) {
    const std::string at = std::move(pending.back());
    pending.pop_back();
    fs::directory_iterator it(join_path(folder, at), fs::directory_options::skip_permission_denied, ec), end;
    if (ec) return failure("cannot list '" + join_path(folder, at) + "': " + ec.message(), {}, "input");
    for (; it != end; it.increment(ec)) {
      if (ec) break;
      const std::string name = join_path(at, it->path().filename().string());
      if (it->is_directory(ec) && !it->is_symlink(ec)) {
        if (!enter || enter(name)) pending.push_back(name);
      } else if (it->is_regular_file(ec)) {
        out.push_back(name);
      }
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

bool is_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::string normal_path(const std::string& path) {
  std::string out = fs::path(path).lexically_normal().generic_string();
  if (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

std::string join_path(std::string_view folder, std::string_view name) {
  if (folder.empty()) return std::string(name);
  if (name.empty()) return std::string(folder);
  if (name.front() == '/') return std::string(name);
  std::string out(folder);
  if (out.back() != '/') out += '/';
  return out += name;
}

std::string parent_path(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return "";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string stem(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const std::size_t dot = name.find_last_of('.');
  return dot == std::string::npos || dot == 0 ? name : name.substr(0, dot);
}

std::string content_hash(std::string_view text) {
  std::uint64_t h = 1469598103934665603ULL;
  for (unsigned char c : text) h = (h ^ c) * 1099511628211ULL;
  return fmt::format("{:016x}", h);
}

std::string above_program(const std::string& path) {
  std::error_code ec;
  for (fs::path p = fs::read_symlink("/proc/self/exe", ec).parent_path(); !p.empty() && p != p.root_path(); p = p.parent_path())
    if (fs::exists(p / path, ec)) return p.string();
  return "";
}

}  // namespace shardwright::support
