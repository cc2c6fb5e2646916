#include "disk_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "channel.h"

namespace seqmoe {

namespace {

// macOS has no such flag: there every file is read through the cache.
#ifdef O_DIRECT
constexpr int kDirect = O_DIRECT;
#else
constexpr int kDirect = 0;
#endif
constexpr size_t kRefused = SIZE_MAX;

}  // namespace

BounceBuffer::BounceBuffer() : data_(static_cast<std::byte*>(std::aligned_alloc(kBlock, kCapacity))) {
  if (!data_) throw std::bad_alloc();
}

BounceBuffer::~BounceBuffer() { std::free(data_); }

DiskFile::DiskFile(std::string path, bool direct) : path_(std::move(path)) {
  if (direct && kDirect) direct_file_ = open(kDirect);
  direct_ = direct_file_ >= 0;
  if (!direct_) cached_file_ = open(0);
}

DiskFile::~DiskFile() {
  for (const int file : {direct_file_, cached_file_.load()})
    if (file >= 0) close(file);
}

// -1 for flags that the file system does not take.
int DiskFile::open(int flags) const {
  const int opened = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (opened < 0 && !(flags && errno == EINVAL)) throw FileError(errno, path_);
  return opened;
}

bool DiskFile::read(int64_t offset, size_t bytes, std::byte* target, BounceBuffer& bounce,
                    const std::atomic<bool>* hurry) {
  for (size_t done = 0; done < bytes;) {
    if (hurry && *hurry) return false;
    const int64_t at = offset + static_cast<int64_t>(done);
    const size_t got = read_block(at, bytes - done, target + done, bounce);
    if (got == 0)
      throw TransferError(path_ + " ends at byte " + std::to_string(at) + ", but an expert needs its bytes " +
                          std::to_string(offset) + " to " + std::to_string(offset + static_cast<int64_t>(bytes)) +
                          ": the file is truncated");
    done += got;
  }
  return true;
}

// At most one buffer's worth; 0 at the end of the file.
size_t DiskFile::read_block(int64_t offset, size_t bytes, std::byte* target, BounceBuffer& bounce) {
  if (direct_) {
    const size_t skipped = static_cast<size_t>(offset) % BounceBuffer::kBlock;
    const size_t wanted = std::min(skipped + bytes, BounceBuffer::kCapacity);
    const size_t whole = (wanted + BounceBuffer::kBlock - 1) / BounceBuffer::kBlock * BounceBuffer::kBlock;
    const size_t got = read_at(direct_file_, offset - static_cast<int64_t>(skipped), whole, bounce.data());
    if (got != kRefused) {
      const size_t useful = std::min(got, wanted);
      if (useful <= skipped) return 0;
      std::memcpy(target, bounce.data() + skipped, useful - skipped);
      return useful - skipped;
    }
  }
  return read_at(cached_file_, offset, std::min(bytes, BounceBuffer::kBytes), target);
}

size_t DiskFile::read_at(int file, int64_t offset, size_t bytes, std::byte* target) {
  for (;;) {
    const ssize_t got = pread(file, target, bytes, offset);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno == EINTR) continue;
    if (refused(file, errno)) return kRefused;
    throw TransferError("cannot read " + std::to_string(bytes) + " bytes of " + path_ + " at byte " +
                        std::to_string(offset) + ": " + std::generic_category().message(errno));
  }
}

// Some file systems open a file for direct reads and refuse the read itself.
bool DiskFile::refused(int file, int code) {
  if (file != direct_file_ || code != EINVAL) return false;
  std::lock_guard lock(refusal_);
  if (cached_file_ < 0) cached_file_ = open(0);
  direct_ = false;
  return true;
}

}  // namespace seqmoe
