#include "eval/npy.h"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string_view>

namespace shardwright::eval {
namespace {

/// What stands behind 'key': in the header, a Python dict literal; "" where it does not say it.
std::string_view entry(std::string_view header, const std::string& key) {
  const auto at = header.find("'" + key + "':");
  if (at == std::string_view::npos) return {};
  auto rest = header.substr(at + key.size() + 3);
  return rest.substr(std::min(rest.find_first_not_of(' '), rest.size()));
}

template <class T>
double number(const char* at) {
  T x;
  std::memcpy(&x, at, sizeof x);
  return static_cast<double>(x);
}

struct Kind {
  std::size_t size;
  char type;
  double (*read)(const char*);
};

const std::map<std::string, Kind>& kinds() {
  static const std::map<std::string, Kind> all{
      {"|b1", {1, 'b', number<std::uint8_t>}},  {"|u1", {1, 'i', number<std::uint8_t>}},  {"|i1", {1, 'i', number<std::int8_t>}},
      {"<i2", {2, 'i', number<std::int16_t>}},  {"<u2", {2, 'i', number<std::uint16_t>}}, {"<i4", {4, 'i', number<std::int32_t>}},
      {"<u4", {4, 'i', number<std::uint32_t>}}, {"<i8", {8, 'i', number<std::int64_t>}},  {"<u8", {8, 'i', number<std::uint64_t>}},
      {"<f4", {4, 'f', number<float>}},         {"<f8", {8, 'f', number<double>}}};
  return all;
}

}  // namespace

std::optional<NpyArray> read_npy(const std::string& path, std::size_t most) {
  static_assert(std::endian::native == std::endian::little);
  std::ifstream in(path, std::ios::binary);
  char magic[8];
  if (!in.read(magic, 8) || std::string_view(magic, 6) != "\x93NUMPY") return std::nullopt;
  const bool small = magic[6] == 1;
  std::uint32_t length = 0;
  if (!in.read(reinterpret_cast<char*>(&length), small ? 2 : 4) || length > 1 << 16) return std::nullopt;
  std::string header(length, 0);
  if (!in.read(header.data(), static_cast<std::streamsize>(length))) return std::nullopt;
  const auto descr = entry(header, "descr"), shape = entry(header, "shape");
  if (descr.size() < 5 || shape.empty() || entry(header, "fortran_order").substr(0, 5) != "False") return std::nullopt;
  const auto kind = kinds().find(std::string(descr.substr(1, 3)));
  if (kind == kinds().end()) return std::nullopt;
  NpyArray out;
  out.type = kind->second.type;
  std::size_t count = 1;
  for (std::size_t at = 1; at < shape.size() && shape[at] != ')';) {
    const auto end = shape.find_first_of(",)", at);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string one(shape.substr(at, end - at));
    if (one.find_first_of("0123456789") != std::string::npos) {
      out.shape.push_back(std::atoll(one.c_str()));
      if (out.shape.back() < 0 || (out.shape.back() > 0 && count > most / static_cast<std::size_t>(out.shape.back()))) return std::nullopt;
      count *= static_cast<std::size_t>(out.shape.back());
    }
    at = shape[end] == ')' ? end : end + 1;
  }
  std::string bytes(count * kind->second.size, 0);
  if (!in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) return std::nullopt;
  out.data.reserve(count);
  for (std::size_t i = 0; i < count; ++i) out.data.push_back(kind->second.read(bytes.data() + i * kind->second.size));
  return out;
}

}  // namespace shardwright::eval
