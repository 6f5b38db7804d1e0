// Independent pieces of work on the machine's cores.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace shardwright::support {

/// How many threads `pieces` of work are worth.
inline std::size_t workers_for(std::size_t pieces) {
  return std::max<std::size_t>(1, std::min<std::size_t>(pieces, std::max(1u, std::thread::hardware_concurrency())));
}

/// Calls work(piece, worker) for every piece in [0, pieces), each worker in a thread of its own (the last one in the caller's), pieces in
/// ascending order as workers become free. The first exception is thrown again when all have ended.
inline void parallel(std::size_t pieces, std::size_t workers, const std::function<void(std::size_t, std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr error;
  std::mutex guard;
  const auto run = [&](std::size_t worker) {
    try {
      for (std::size_t i = next++; i < pieces; i = next++) work(i, worker);
    } catch (...) {
      next = pieces;
      const std::lock_guard lock(guard);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w + 1 < workers; ++w) threads.emplace_back(run, w);
  run(workers - 1);
  for (auto& t : threads) t.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace shardwright::support
