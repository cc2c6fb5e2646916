#include "disk_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

#include "channel.h"

namespace seqmoe {

namespace {

// macOS has no such flag: there every file is read through the cache.
#ifdef O_DIRECT
constexpr int kDirect = O_DIRECT;
#else
constexpr int kDirect = 0;
#endif

}  // namespace

BounceBuffer::BounceBuffer() : data_(static_cast<std::byte*>(std::aligned_alloc(kBlock, kBytes))) {
  if (!data_) throw std::bad_alloc();
}

BounceBuffer::~BounceBuffer() { std::free(data_); }

DiskFile::DiskFile(std::string path, bool direct) : path_(std::move(path)), direct_(false) {
  open(direct && kDirect);
}

DiskFile::~DiskFile() {
  if (file_ >= 0) close(file_);
}

void DiskFile::open(bool direct) {
  int opened = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | (direct ? kDirect : 0));
  if (opened < 0 && direct && errno == EINVAL) return open(false);
  if (opened < 0) throw FileError(errno, path_);
  if (file_ >= 0) close(file_);
  file_ = opened;
  direct_ = direct;
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
    const size_t wanted = std::min(skipped + bytes, BounceBuffer::kBytes);
    const size_t whole = (wanted + BounceBuffer::kBlock - 1) / BounceBuffer::kBlock * BounceBuffer::kBlock;
    const size_t got = read_at(offset - static_cast<int64_t>(skipped), whole, bounce.data());
    if (direct_) {
      const size_t useful = std::min(got, wanted);
      if (useful <= skipped) return 0;
      std::memcpy(target, bounce.data() + skipped, useful - skipped);
      return useful - skipped;
    }
  }
  return read_at(offset, std::min(bytes, BounceBuffer::kBytes), target);
}

size_t DiskFile::read_at(int64_t offset, size_t bytes, std::byte* target) {
  for (;;) {
    const ssize_t got = pread(file_, target, bytes, offset);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno == EINTR) continue;
    if (refused(errno)) return 0;
    throw TransferError("cannot read " + std::to_string(bytes) + " bytes of " + path_ + " at byte " +
                        std::to_string(offset) + ": " + std::generic_category().message(errno));
  }
}

// Some file systems open a file for direct reads and refuse the read itself.
bool DiskFile::refused(int code) {
  if (!direct_ || code != EINVAL) return false;
  open(false);
  return true;
}

}  // namespace seqmoe
