#include "mapped_memory.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace seqmoe {

namespace {

constexpr size_t kCanary = 4096;

// No two places of a pattern nearby, and no two patterns, are alike.
std::vector<std::byte> pattern(size_t bytes, uint64_t seed) {
  std::vector<std::byte> result(bytes);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::byte& value : result) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    value = static_cast<std::byte>(state >> 32);
  }
  return result;
}

}  // namespace

MappedMemory::MappedMemory(std::shared_ptr<const CudaContext> context, const std::vector<size_t>& sizes)
    : context_(std::move(context)) {
  const CudaContext::Use use(*context_);
  size_t pinned = 0;
  try {
    for (const size_t bytes : sizes) {
      add(bytes);
      pinned += bytes;
    }
  } catch (const CudaError& error) {
    free();
    throw PinningError(error, pinned);
  } catch (...) {
    free();
    throw;
  }
}

void MappedMemory::add(size_t bytes) {
  if (!bytes) throw std::invalid_argument("a chunk needs at least one byte");
  const CudaDriver& driver = context_->driver();
  void* host = nullptr;
  driver.mem_host_alloc(&host, bytes, cuda::kHostMapped | cuda::kHostPortable);
  chunks_.push_back({static_cast<std::byte*>(host), 0, bytes});
  driver.mem_host_get_device_pointer(&chunks_.back().device, host, 0);
  std::memset(host, 0, bytes);
}

void MappedMemory::free() {
  const CudaContext::Use use(*context_, std::nothrow);
  for (const Chunk& chunk : chunks_) context_->driver().mem_free_host.result(chunk.host);
  chunks_.clear();
}

std::optional<size_t> MappedMemory::first_unfaithful() const {
  const CudaContext::Use use(*context_);
  const DeviceMemory scratch(context_, kCanary);
  const CudaStream stream(context_);
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const size_t bytes = std::min(kCanary, chunks_[i].bytes);
    for (const size_t offset : {size_t{0}, chunks_[i].bytes - bytes})
      if (!faithful(chunks_[i], offset, bytes, scratch, stream)) return i;
  }
  return std::nullopt;
}

bool MappedMemory::faithful(const Chunk& chunk, size_t offset, size_t bytes, const DeviceMemory& scratch,
                            const CudaStream& stream) const {
  const CudaDriver& driver = context_->driver();
  std::byte* const place = chunk.host + offset;
  const std::vector<std::byte> before(place, place + bytes);
  const std::vector<std::byte> written = pattern(bytes, reinterpret_cast<uintptr_t>(place));
  const auto comes_back = [&](bool mapped) {
    std::vector<std::byte> read(bytes);
    driver.memset_d8_async(scratch.get(), 0xA5, bytes, stream.get());
    if (mapped)
      driver.memcpy_dtod_async(scratch.get(), chunk.device + offset, bytes, stream.get());
    else
      driver.memcpy_htod_async(scratch.get(), place, bytes, stream.get());
    driver.memcpy_dtoh_async(read.data(), scratch.get(), bytes, stream.get());
    driver.stream_synchronize(stream.get());
    return read == written;
  };
  std::copy(written.begin(), written.end(), place);
  const auto restore = [&] { std::copy(before.begin(), before.end(), place); };
  try {
    const bool good = comes_back(false) && comes_back(true);
    restore();
    return good;
  } catch (...) {
    restore();
    throw;
  }
}

}  // namespace seqmoe
