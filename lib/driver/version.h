#pragma once
namespace shardwright::driver {
inline constexpr const char* kVersion = "0.1.0";
}  // namespace shardwright::driver
