#include "checkpoint/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace shardwright::checkpoint {

using support::Expected;
using support::failure;

std::uint64_t element_size(const std::string& dtype) {
  static const std::map<std::string, std::uint64_t> sizes{{"F64", 8},  {"F32", 4},     {"F16", 2},     {"BF16", 2}, {"I64", 8}, {"I32", 4},
                                                          {"I16", 2},  {"I8", 1},      {"U64", 8},     {"U32", 4},  {"U16", 2}, {"U8", 1},
                                                          {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"C64", 8}};
  auto it = sizes.find(dtype);
  return it == sizes.end() ? 0 : it->second;
}

Expected<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile f;
  f.path_ = path;
  f.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat st {};
  if (f.fd_ < 0 || fstat(f.fd_, &st) != 0) return failure(fmt::format("{}: {}", path, std::strerror(errno)), {}, "input");
  const auto size = static_cast<std::uint64_t>(st.st_size);
  std::array<unsigned char, 8> first{};
  if (size < 8 || pread(f.fd_, first.data(), 8, 0) != 8)
    return failure(path + ": no safetensors file: it is shorter than a header", {}, "input");
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | first[static_cast<std::size_t>(i)];
  if (length > size - 8 || length > 100'000'000)
    return failure(path + ": no safetensors file, or a truncated one: its header does not fit", {}, "input");
  std::string text(length, '\0');
  if (pread(f.fd_, text.data(), length, 8) != static_cast<ssize_t>(length))
    return failure(path + ": the header cannot be read", {}, "input");
  const auto j = nlohmann::json::parse(text, nullptr, false);
  if (!j.is_object()) return failure(path + ": no safetensors file: its header is no JSON object", {}, "input");
  for (const auto& [name, value] : j.items()) {
    if (name == "__metadata__") {
      for (const auto& [k, v] : value.items())
        if (v.is_string()) f.metadata_[k] = v.get<std::string>();
      continue;
    }
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") || !value.contains("data_offsets") ||
        !value["dtype"].is_string() || !value["shape"].is_array() || !value["data_offsets"].is_array() || value["data_offsets"].size() != 2)
      return failure(fmt::format("{}: the header's entry for {} is damaged", path, name), {}, "input");
    TensorInfo t;
    t.dtype = value["dtype"].get<std::string>();
    std::uint64_t elements = 1;
    for (const auto& s : value["shape"]) {
      t.shape.push_back(s.is_number_integer() ? s.get<std::int64_t>() : -1);
      if (t.shape.back() < 0) return failure(fmt::format("{}: the header's entry for {} is damaged", path, name), {}, "input");
      elements *= static_cast<std::uint64_t>(t.shape.back());
    }
    const auto& o = value["data_offsets"];
    if (!o[0].is_number_unsigned() || !o[1].is_number_unsigned())
      return failure(fmt::format("{}: the header's entry for {} is damaged", path, name), {}, "input");
    const auto begin = o[0].get<std::uint64_t>(), end = o[1].get<std::uint64_t>();
    if (element_size(t.dtype) == 0)
      return failure(fmt::format("{}: {} has the type {}, which is not known here", path, name, t.dtype), {}, "input");
    if (end < begin || end - begin != elements * element_size(t.dtype))
      return failure(fmt::format("{}: {} has a shape that does not fit its bytes", path, name), {}, "input");
    if (end > size - 8 - length) return failure(fmt::format("{}: truncated: {} ends past the end of the file", path, name), {}, "input");
    t.offset = 8 + length + begin;
    t.bytes = end - begin;
    f.tensors_[name] = std::move(t);
  }
  return Expected<SafetensorsFile>(std::move(f));
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& o) noexcept
    : path_(std::move(o.path_)), fd_(std::exchange(o.fd_, -1)), tensors_(std::move(o.tensors_)), metadata_(std::move(o.metadata_)) {}
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& o) noexcept {
  std::swap(fd_, o.fd_);
  path_ = std::move(o.path_);
  tensors_ = std::move(o.tensors_);
  metadata_ = std::move(o.metadata_);
  return *this;
}
SafetensorsFile::~SafetensorsFile() {
  if (fd_ >= 0) ::close(fd_);
}

Expected<bool> SafetensorsFile::read(const TensorInfo& info, char* out) const {
  for (std::uint64_t done = 0; done < info.bytes;) {
    const ssize_t n = pread(fd_, out + done, std::min<std::uint64_t>(info.bytes - done, 1u << 30), static_cast<off_t>(info.offset + done));
    if (n <= 0) return failure(fmt::format("{}: cannot be read: {}", path_, n == 0 ? "it ended early" : std::strerror(errno)), {}, "input");
    done += static_cast<std::uint64_t>(n);
  }
  return true;
}

Expected<SafetensorsWriter> SafetensorsWriter::create(const std::string& path, std::vector<std::pair<std::string, TensorInfo>> tensors,
                                                      const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json j = nlohmann::ordered_json::object();
  if (!metadata.empty()) j["__metadata__"] = metadata;
  std::uint64_t at = 0;
  for (const auto& [name, t] : tensors) {
    j[name] = {{"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {at, at + t.bytes}}};
    at += t.bytes;
  }
  std::string header = j.dump();
  while (header.size() % 8) header += ' ';
  SafetensorsWriter w;
  w.path_ = path;
  w.file_ = std::fopen(path.c_str(), "wb");
  if (!w.file_) return failure(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)), {}, "input");
  std::array<char, 8> first{};
  for (std::size_t i = 0; i < 8; ++i) first[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  if (auto r = w.write(first.data(), 8); !r) return r.error();
  if (auto r = w.write(header.data(), header.size()); !r) return r.error();
  return Expected<SafetensorsWriter>(std::move(w));
}

SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&& o) noexcept
    : path_(std::move(o.path_)), file_(std::exchange(o.file_, nullptr)), bytes_(o.bytes_), crc_(o.crc_) {}
SafetensorsWriter::~SafetensorsWriter() {
  if (file_) std::fclose(file_);
}

Expected<bool> SafetensorsWriter::write(const char* data, std::uint64_t bytes) {
  if (std::fwrite(data, 1, bytes, file_) != bytes)
    return failure(fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)), {}, "input");
  crc_ = crc32(crc_, data, bytes);
  bytes_ += bytes;
  return true;
}

Expected<bool> SafetensorsWriter::finish() {
  const bool flushed = std::fflush(file_) == 0 && fsync(fileno(file_)) == 0;
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (!flushed || !closed) return failure(fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)), {}, "input");
  return true;
}

std::uint32_t crc32(std::uint32_t crc, const char* data, std::size_t n) {
  // Eight bytes a step ("slicing by 8"); the tables are those of the reflected polynomial 0xEDB88320.
  static const auto tables = [] {
    std::array<std::array<std::uint32_t, 256>, 8> t{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
      t[0][i] = c;
    }
    for (std::size_t s = 1; s < 8; ++s)
      for (std::size_t i = 0; i < 256; ++i) t[s][i] = t[0][t[s - 1][i] & 0xff] ^ (t[s - 1][i] >> 8);
    return t;
  }();
  crc = ~crc;
  const auto* p = reinterpret_cast<const unsigned char*>(data);
  for (; n >= 8; n -= 8, p += 8) {
    const std::uint32_t a = crc ^
        (static_cast<std::uint32_t>(p[0]) | static_cast<std::uint32_t>(p[1]) << 8 | static_cast<std::uint32_t>(p[2]) << 16 |
         static_cast<std::uint32_t>(p[3]) << 24);
    crc = tables[7][a & 0xff] ^ tables[6][a >> 8 & 0xff] ^ tables[5][a >> 16 & 0xff] ^ tables[4][a >> 24] ^ tables[3][p[4]] ^
        tables[2][p[5]] ^ tables[1][p[6]] ^ tables[0][p[7]];
  }
  for (; n; --n, ++p) crc = tables[0][(crc ^ *p) & 0xff] ^ (crc >> 8);
  return ~crc;
}

Expected<std::string> crc32_of_file(const std::string& path) {
  std::FILE* f = std::fopen(path.c_str(), "rb");
  if (!f) return failure(fmt::format("{}: {}", path, std::strerror(errno)), {}, "input");
  std::vector<char> block(1u << 20);
  std::uint32_t crc = 0;
  for (std::size_t n; (n = std::fread(block.data(), 1, block.size(), f)) > 0;) crc = crc32(crc, block.data(), n);
  std::fclose(f);
  return fmt::format("{:08x}", crc);
}

}  // namespace shardwright::checkpoint
