// Replays routing through a cache in virtual time: only hits, loads and evictions, no bytes and no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace seqmoe {

enum class Policy { lru, lfu, belady };

struct ReplayCounts {
  int64_t hits = 0;
  int64_t needed = 0;
  int64_t evictions = 0;
  int64_t loads = 0;
};

// Units of the replay: unit u needs the distinct experts key[start[u] .. start[u + 1]), all of them at once.
struct Routing {
  size_t keys;  // how many different ones there are
  std::vector<int32_t> key;
  std::vector<int64_t> start;

  size_t units() const { return start.size() - 1; }
};

// Counts from unit `count_from` on. `heartbeat` is called now and then and may throw to interrupt.
ReplayCounts replay(const Routing& routing, int64_t slots, int64_t count_from, Policy policy,
                    const std::function<void()>& heartbeat);

}  // namespace seqmoe
