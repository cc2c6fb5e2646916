// The link from the host pool to the slot pool: really copied bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "channel.h"

namespace seqmoe {

// Expert `key` lies at host + key * bytes, slot `slot` at device + slot * bytes.
struct Part {
  uintptr_t host;
  uintptr_t device;
  size_t bytes;
};

class Link final : public Channel {
 public:
  Link(std::vector<Part> parts, double seconds_per_expert) : Channel(seconds_per_expert), parts_(std::move(parts)) {
    if (parts_.empty()) throw std::invalid_argument("a link needs at least one part");
    for (const Part& part : parts_)
      if (!part.host || !part.device || !part.bytes)
        throw std::invalid_argument("a part is (host address, device address, bytes per expert), none of them 0");
  }

 private:
  int64_t copy(int32_t key, int32_t slot, const std::atomic<bool>* hurry) override {
    int64_t copied = 0;
    for (const Part& part : parts_) {
      const uintptr_t from = part.host + key * part.bytes, to = part.device + slot * part.bytes;
      for (size_t done = 0; done < part.bytes; done += kPiece) {
        if ((done > 0 || copied > 0) && !may_go_on(hurry)) return -1;
        std::memcpy(reinterpret_cast<void*>(to + done), reinterpret_cast<const void*>(from + done),
                    std::min(kPiece, part.bytes - done));
      }
      copied += static_cast<int64_t>(part.bytes);
    }
    return copied;
  }

  std::vector<Part> parts_;
};

}  // namespace seqmoe
