#include "replay.h"

#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace seqmoe {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// For every access, the next event that needs the same expert.
std::vector<int64_t> next_uses(const Routing& routing) {
  std::vector<int64_t> upcoming(routing.keys, kNever);
  std::vector<int64_t> next(routing.start[routing.events]);
  for (size_t event = routing.events; event-- > 0;)
    for (int64_t i = routing.start[event]; i < routing.start[event + 1]; ++i)
      next[i] = std::exchange(upcoming[routing.key[i]], static_cast<int64_t>(event));
  return next;
}

// Every policy is a score: the resident expert with the least one goes, ties by the lower key.
class Cache {
 public:
  Cache(size_t keys, size_t slots) : slots_(slots), score_(keys, 0), resident_(keys, false) {}

  // Whether the expert is resident; until it is put back, it cannot be evicted.
  bool set_aside(int32_t key) { return resident_[key] && order_.erase({score_[key], key}) > 0; }

  bool make_room(size_t held) {
    if (order_.size() + held <= slots_) return false;
    resident_[order_.begin()->second] = false;
    order_.erase(order_.begin());
    return true;
  }

  void put(int32_t key, int64_t score) {
    score_[key] = score;
    resident_[key] = true;
    order_.insert({score, key});
  }

 private:
  size_t slots_;
  std::vector<int64_t> score_;
  std::vector<bool> resident_;
  std::set<std::pair<int64_t, int32_t>> order_;
};

}  // namespace

ReplayCounts replay(const Routing& routing, size_t slots, size_t count_from, Policy policy,
                    const std::function<void()>& heartbeat) {
  Cache cache(routing.keys, slots);
  const std::vector<int64_t> next = policy == Policy::belady ? next_uses(routing) : std::vector<int64_t>();
  std::vector<int64_t> uses(routing.keys, 0);
  std::vector<size_t> seen(routing.keys, 0);
  ReplayCounts counts;
  for (size_t event = 0; event < routing.events; ++event) {
    if (event % 65536 == 65535) heartbeat();
    const int64_t first = routing.start[event];
    const int64_t last = routing.start[event + 1];
    const size_t needed = static_cast<size_t>(last - first);
    if (needed > slots)
      throw std::runtime_error("event " + std::to_string(event) + " needs " + std::to_string(needed) +
                               " experts at once, but there are " + std::to_string(slots) + " slots");
    ReplayCounts now;
    now.needed = last - first;
    for (int64_t i = first; i < last; ++i) {
      if (std::exchange(seen[routing.key[i]], event + 1) == event + 1)
        throw std::invalid_argument("event " + std::to_string(event) + " names an expert twice");
      now.hits += cache.set_aside(routing.key[i]);
    }
    while (cache.make_room(needed)) ++now.evictions;
    for (int64_t i = first; i < last; ++i) {
      const int32_t key = routing.key[i];
      const int64_t recency = static_cast<int64_t>(event);
      // Equal frequencies are told apart by recency, which never outweighs one more use.
      const int64_t frequency = ++uses[key] * static_cast<int64_t>(routing.events) + recency;
      cache.put(key, policy == Policy::lru ? recency : policy == Policy::lfu ? frequency : -next[i]);
    }
    if (event < count_from) continue;
    counts.hits += now.hits;
    counts.needed += now.needed;
    counts.evictions += now.evictions;
  }
  return counts;
}

}  // namespace seqmoe
