// Pinned host memory that the device reads and writes in place, in chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cuda_handles.h"

namespace seqmoe {

// Not all of the memory could be pinned.
struct PinningError : CudaError {
  PinningError(const CudaError& error, size_t pinned_bytes) : CudaError(error), pinned(pinned_bytes) {}
  size_t pinned;  // bytes that were pinned before
};

class MappedMemory {
 public:
  struct Chunk {
    std::byte* host;
    cuda::Address device;
    size_t bytes;
  };

  // One chunk of each size; all are zero. Throws PinningError.
  MappedMemory(std::shared_ptr<const CudaContext> context, const std::vector<size_t>& sizes);
  ~MappedMemory() { free(); }
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  const std::vector<Chunk>& chunks() const { return chunks_; }

  // Writes a pattern to both ends of every chunk, reads it back through the device, by a copy from the host's address
  // and by one from the device's, and restores what was there. The first chunk of which other bytes came back.
  std::optional<size_t> first_unfaithful() const;

 private:
  void add(size_t bytes);
  void free();
  bool faithful(const Chunk& chunk, size_t offset, size_t bytes, const DeviceMemory& scratch,
                const CudaStream& stream) const;

  std::shared_ptr<const CudaContext> context_;
  std::vector<Chunk> chunks_;
};

}  // namespace seqmoe
