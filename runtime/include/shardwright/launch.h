// Process groups for programs in C++, from the variables that torchrun sets: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
#pragma once
#include <chrono>
#include <cstdlib>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "shardwright/parallel.h"

namespace shardwright {

inline std::int64_t environment(const char* name, std::int64_t otherwise) {
  const char* v = std::getenv(name);
  return v && *v ? std::atoll(v) : otherwise;
}

/// All ranks are one tensor-parallel group over Gloo. One process: nothing is made.
inline void init_process_group() {
  const auto world = environment("WORLD_SIZE", 1), rank = environment("RANK", 0);
  if (world <= 1) return;
  const char* address = std::getenv("MASTER_ADDR");
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(environment("MASTER_PORT", 29500));
  options.isServer = rank == 0 && !std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  options.numWorkers = static_cast<std::size_t>(world);
  options.waitWorkers = false;
  auto store = c10::make_intrusive<c10d::TCPStore>(address ? address : "127.0.0.1", options);
  auto gloo = c10d::ProcessGroupGloo::Options::create(std::chrono::milliseconds(300000));
  gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(rank), static_cast<int>(world), gloo);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, static_cast<int>(rank), static_cast<int>(world));
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  set_group(group);
}

}  // namespace shardwright
