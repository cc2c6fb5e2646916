#include "replay.h"

#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

namespace seqmoe {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// For every access, the next unit that needs the same expert.
std::vector<int64_t> next_uses(const Routing& routing) {
  std::vector<int64_t> upcoming(routing.keys, kNever);
  std::vector<int64_t> next(routing.key.size());
  for (size_t unit = routing.units(); unit-- > 0;)
    for (int64_t i = routing.start[unit]; i < routing.start[unit + 1]; ++i) {
      next[i] = upcoming[routing.key[i]];
      upcoming[routing.key[i]] = static_cast<int64_t>(unit);
    }
  return next;
}

// Every policy is a score: the resident expert with the least one goes, ties by the lower key.
class Cache {
 public:
  Cache(size_t keys, size_t slots) : slots_(slots), score_(keys, 0), resident_(keys, false) {}

  bool resident(int32_t key) const { return resident_[key]; }

  // Until it is put back, the expert cannot be evicted.
  void set_aside(int32_t key) {
    if (resident_[key]) order_.erase({score_[key], key});
  }

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

ReplayCounts replay(const Routing& routing, int64_t slots, int64_t count_from, Policy policy,
                    const std::function<void()>& heartbeat) {
  Cache cache(routing.keys, static_cast<size_t>(slots));
  const std::vector<int64_t> next = policy == Policy::belady ? next_uses(routing) : std::vector<int64_t>();
  std::vector<int64_t> uses(routing.keys, 0);
  ReplayCounts counts;
  for (size_t unit = 0; unit < routing.units(); ++unit) {
    if (unit % 65536 == 65535) heartbeat();
    const int64_t first = routing.start[unit];
    const int64_t last = routing.start[unit + 1];
    if (last - first > slots)
      throw std::runtime_error("event " + std::to_string(unit) + " needs " + std::to_string(last - first) +
                               " experts at once, but there are " + std::to_string(slots) + " slots");
    ReplayCounts now;
    for (int64_t i = first; i < last; ++i) {
      now.hits += cache.resident(routing.key[i]);
      cache.set_aside(routing.key[i]);
    }
    now.needed = last - first;
    now.loads = now.needed - now.hits;
    while (cache.make_room(static_cast<size_t>(now.needed))) ++now.evictions;
    for (int64_t i = first; i < last; ++i) {
      const int32_t key = routing.key[i];
      const int64_t recency = static_cast<int64_t>(unit);
      // Equal frequencies are told apart by recency, which never outweighs one more use.
      const int64_t frequency = ++uses[key] * static_cast<int64_t>(routing.units()) + recency;
      cache.put(key, policy == Policy::lru ? recency : policy == Policy::lfu ? frequency : -next[i]);
    }
    if (static_cast<int64_t>(unit) < count_from) continue;
    counts.hits += now.hits;
    counts.needed += now.needed;
    counts.evictions += now.evictions;
    counts.loads += now.loads;
  }
  return counts;
}

}  // namespace seqmoe
