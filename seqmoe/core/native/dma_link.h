// The link by the GPU's copy engine: from pinned host memory to the slot pool in device memory, on a stream of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "channel.h"
#include "cuda_handles.h"
#include "target.h"

namespace seqmoe {

class DmaLink final : public Channel {
 public:
  // `sources` are the host addresses of the experts' pieces, [keys, targets]. A transfer moves `piece_bytes` at a time,
  // two of them under way: what else needs the link waits for no more than that.
  DmaLink(std::shared_ptr<const CudaContext> context, std::vector<uintptr_t> sources, std::vector<Target> targets,
          double seconds_per_expert, size_t piece_bytes);

 private:
  class Flight;

  int64_t copy(int32_t key, int32_t slot, const std::atomic<bool>* hurry) override;
  void wait(const CudaEvent& event, const std::atomic<bool>* hurry) const;

  std::shared_ptr<const CudaContext> context_;
  std::vector<uintptr_t> sources_;
  std::vector<Target> targets_;
  size_t piece_bytes_;
  CudaStream stream_;
  std::array<CudaEvent, 2> done_;
};

}  // namespace seqmoe
