// A file that experts are read from: past the page cache where the file system allows it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace seqmoe {

// A file that could not be opened: `code` is the errno.
struct FileError : std::runtime_error {
  FileError(int errno_code, const std::string& file)
      : std::runtime_error("cannot open " + file), code(errno_code), path(file) {}
  int code;
  std::string path;
};

// Where direct reads go first: they need aligned memory, whole blocks, and offsets at block boundaries.
class BounceBuffer {
 public:
  static constexpr size_t kBlock = 4096;      // the largest logical block in use
  static constexpr size_t kBytes = 1 << 20;  // reads of this size reached the disk's rate

  BounceBuffer();
  ~BounceBuffer();
  BounceBuffer(const BounceBuffer&) = delete;
  BounceBuffer& operator=(const BounceBuffer&) = delete;
  std::byte* data() { return data_; }

 private:
  std::byte* data_;
};

class DiskFile {
 public:
  // Throws FileError. A file system that refuses direct reads, now or at the first one, is read through its cache.
  DiskFile(std::string path, bool direct);
  ~DiskFile();
  DiskFile(DiskFile&& other) noexcept
      : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), direct_(other.direct_.load()) {}
  DiskFile& operator=(DiskFile&&) = delete;

  bool direct() const { return direct_; }

  // Reads `bytes` from `offset` into `target`; false if `hurry` stopped it on the way. TransferError, naming the file
  // and the place, if the file ends before, or cannot be read.
  bool read(int64_t offset, size_t bytes, std::byte* target, BounceBuffer& bounce, const std::atomic<bool>* hurry);

 private:
  size_t read_block(int64_t offset, size_t bytes, std::byte* target, BounceBuffer& bounce);
  size_t read_at(int64_t offset, size_t bytes, std::byte* target);
  bool refused(int code);
  void open(bool direct);

  std::string path_;
  int file_ = -1;
  std::atomic<bool> direct_;
};

}  // namespace seqmoe
