// Replays routing through a cache in virtual time: only hits, loads and evictions, no bytes and no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace seqmoe {

enum class Policy { lru, lfu, belady, lfu_resident };

// Event e needs the distinct experts expert[start[e] .. start[e + 1]) of layer[e], all of them at once.
struct Routing {
  size_t events;
  const int32_t* layer;
  const int64_t* start;
  const int32_t* expert;
};

struct ReplayCounts {
  int64_t hits = 0;
  int64_t needed = 0;
  int64_t evictions = 0;
};

// One cold cache through which blocks of events are fed one after another.
class Replay {
 public:
  virtual ~Replay() = default;

  // Counts from event `count_from` of the block on. `heartbeat` is called now and then and may throw to interrupt.
  // Belady knows no event beyond the block.
  virtual void feed(const Routing& block, size_t count_from, const std::function<void()>& heartbeat) = 0;

  const ReplayCounts& counts() const { return counts_; }

 protected:
  ReplayCounts counts_;
};

// With `sequential` every access is an event of its own.
std::unique_ptr<Replay> make_replay(int32_t layers, int32_t experts, size_t slots, Policy policy, bool sequential);

}  // namespace seqmoe
