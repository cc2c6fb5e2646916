// A file that experts are read from: past the page cache where the file system allows it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>

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
  static constexpr size_t kBlock = 4096;     // the largest logical block in use
  static constexpr size_t kBytes = 1 << 20;  // reads of this size reached the disk's rate
  // So many useful bytes fit in one read from whatever offset.
  static constexpr size_t kCapacity = kBytes + kBlock;

  BounceBuffer();
  ~BounceBuffer();
  BounceBuffer(const BounceBuffer&) = delete;
  BounceBuffer& operator=(const BounceBuffer&) = delete;
  std::byte* data() { return data_; }

 private:
  std::byte* data_;
};

// Read by several threads at a time.
class DiskFile {
 public:
  // Throws FileError. A file system that refuses direct reads, now or at the first one, is read through its cache.
  DiskFile(std::string path, bool direct);
  ~DiskFile();
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  bool direct() const { return direct_; }

  // Reads `bytes` from `offset` into `target`; false if `hurry` stopped it on the way. TransferError, naming the file
  // and the place, if the file ends before, or cannot be read.
  bool read(int64_t offset, size_t bytes, std::byte* target, BounceBuffer& bounce, const std::atomic<bool>* hurry);

 private:
  size_t read_block(int64_t offset, size_t bytes, std::byte* target, BounceBuffer& bounce);
  size_t read_at(int file, int64_t offset, size_t bytes, std::byte* target);
  bool refused(int file, int code);
  int open(int flags) const;

  const std::string path_;
  // Both stay open to the end, since another thread may be reading.
  int direct_file_ = -1;
  std::atomic<int> cached_file_{-1};
  std::atomic<bool> direct_{false};
  std::mutex refusal_;
};

}  // namespace seqmoe
