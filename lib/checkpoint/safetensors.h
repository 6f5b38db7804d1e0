// safetensors files: eight bytes with the header's length, a JSON header, the tensors' bytes. Read and written tensor by tensor.
// (huggingface/safetensors, README "Format".)
#pragma once
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "support/result.h"

namespace shardwright::checkpoint {

struct TensorInfo {
  std::string dtype;  ///< as in the file: "F32", "BF16", …
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0, bytes = 0;  ///< in the file
};

/// Bytes of one element; 0 for a type that is not known.
std::uint64_t element_size(const std::string& dtype);

/// An open file; tensors are read when asked for.
class SafetensorsFile {
 public:
  /// Errors: unreadable, a header that is none, tensors past the end ("truncated").
  static support::Expected<SafetensorsFile> open(const std::string& path);
  SafetensorsFile(SafetensorsFile&& o) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& o) noexcept;
  ~SafetensorsFile();

  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }
  /// A tensor's bytes into `out` (info.bytes long).
  support::Expected<bool> read(const TensorInfo& info, char* out) const;

 private:
  SafetensorsFile() = default;
  std::string path_;
  int fd_ = -1;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// A file under construction: all shapes first, then the bytes in the same order. Counts a CRC-32 on the way.
class SafetensorsWriter {
 public:
  /// `tensors`: offsets are ignored. Writes the header.
  static support::Expected<SafetensorsWriter> create(const std::string& path, std::vector<std::pair<std::string, TensorInfo>> tensors,
                                                     const std::map<std::string, std::string>& metadata);
  SafetensorsWriter(SafetensorsWriter&& o) noexcept;
  ~SafetensorsWriter();
  support::Expected<bool> write(const char* data, std::uint64_t bytes);
  /// Flushes to disk and closes.
  support::Expected<bool> finish();
  std::uint64_t bytes() const { return bytes_; }
  std::uint32_t crc() const { return crc_; }

 private:
  SafetensorsWriter() = default;
  std::string path_;
  std::FILE* file_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::uint32_t crc_ = 0;
};

/// zlib's CRC-32, continued from `crc`.
std::uint32_t crc32(std::uint32_t crc, const char* data, std::size_t n);
/// Of a whole file, as eight hexadecimal digits; an error when it cannot be read.
support::Expected<std::string> crc32_of_file(const std::string& path);

}  // namespace shardwright::checkpoint
