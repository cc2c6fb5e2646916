// A prefetch task: which expert is to be in which slot before which position.
#pragma once

#include <cstdint>

namespace seqmoe {

struct Task {
  int32_t key;
  int32_t slot;
  int64_t tag;
  int64_t deadline;
  float confidence;
};

}  // namespace seqmoe
