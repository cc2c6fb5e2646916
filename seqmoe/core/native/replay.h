// Replays routing through a cache in virtual time: only hits, loads and evictions, no bytes and no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace seqmoe {

enum class Policy { lru, lfu, belady };

// Event e needs the distinct experts key[start[e] .. start[e + 1]), all of them at once.
struct Routing {
  size_t keys;  // how many different ones there are
  size_t events;
  const int64_t* start;
  const int32_t* key;
};

struct ReplayCounts {
  int64_t hits = 0;
  int64_t needed = 0;
  int64_t evictions = 0;
};

// Counts from event `count_from` on. `heartbeat` is called now and then and may throw to interrupt.
ReplayCounts replay(const Routing& routing, size_t slots, size_t count_from, Policy policy,
                    const std::function<void()>& heartbeat);

}  // namespace seqmoe
