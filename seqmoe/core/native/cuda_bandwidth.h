// What the link between pinned memory and the device really brings, alone and beside another stream's copies.
#pragma once

#include <cstddef>
#include <memory>

#include "cuda_handles.h"

namespace seqmoe {

struct Bandwidth {
  double idle;       // bytes per second of one stream
  double contended;  // the same stream's, while a second one copies without a pause
};

// Copies `bytes` at a time from pinned memory, `rounds` times each way.
Bandwidth measure_bandwidth(const std::shared_ptr<const CudaContext>& context, size_t bytes, int rounds);

}  // namespace seqmoe
