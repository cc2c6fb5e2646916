// Where the pieces of a slot lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace seqmoe {

// One piece of every slot: that of slot `slot` at device + slot * stride.
struct Target {
  uintptr_t device;
  size_t stride;
  size_t bytes;
};

inline void check_targets(const std::vector<Target>& targets) {
  if (targets.empty()) throw std::invalid_argument("a link needs at least one piece");
  for (const Target& target : targets)
    if (!target.device || !target.bytes || target.stride < target.bytes)
      throw std::invalid_argument(
          "a target is (device address, bytes from slot to slot, bytes), none of them 0, the last not the larger");
}

}  // namespace seqmoe
