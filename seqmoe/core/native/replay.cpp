#include "replay.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "indexes.h"

namespace seqmoe {
namespace {

// Each kind of policy holds the residents. It is told of every needed expert that is not resident, then of all keys of
// the event, which are accesses `first`, first + 1, ... of the block; these it may reorder.

struct Lru {
  explicit Lru(size_t keys) : index(keys) {}
  void miss(int32_t) {}

  // Experts of one event are equally recent: the lower key goes first.
  void put(int32_t* keys, size_t count, int64_t, size_t) {
    if (count > 1) std::sort(keys, keys + count);
    for (size_t i = 0; i < count; ++i) index.append(keys[i]);
  }

  RecencyIndex index;
};

// By the number of events that needed the expert, then recency.
template <bool resident_only>
struct Lfu {
  explicit Lfu(size_t keys) : index(keys), uses(keys, 0) {}

  void miss(int32_t key) {
    if (resident_only) uses[key] = 0;
  }

  void put(const int32_t* keys, size_t count, int64_t event, size_t) {
    for (size_t i = 0; i < count; ++i) index.add(keys[i], ++uses[keys[i]], event);
  }

  ScoreIndex index;
  std::vector<int64_t> uses;
};

// By the nearness of the next event that needs the expert.
struct Belady {
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  explicit Belady(size_t keys) : index(keys), upcoming(keys) {}

  void show(const std::vector<int32_t>& key, const std::vector<int64_t>& event_of) {
    std::fill(upcoming.begin(), upcoming.end(), kNever);
    next.resize(key.size());
    for (size_t i = key.size(); i-- > 0;) next[i] = std::exchange(upcoming[key[i]], event_of[i]);
  }

  void miss(int32_t) {}

  void put(const int32_t* keys, size_t count, int64_t, size_t first) {
    for (size_t i = 0; i < count; ++i) index.add(keys[i], -next[first + i], 0);
  }

  ScoreIndex index;
  std::vector<int64_t> upcoming;
  std::vector<int64_t> next;
};

template <class Kind>
class ReplayOf final : public Replay {
 public:
  ReplayOf(int32_t layers, int32_t experts, size_t slots, bool sequential)
      : experts_(experts),
        slots_(slots),
        sequential_(sequential),
        kind_(static_cast<size_t>(layers) * experts),
        seen_(sequential ? 0 : static_cast<size_t>(layers) * experts, 0) {}

  void feed(const Routing& block, size_t count_from, const std::function<void()>& heartbeat) override {
    foresee(block);
    for (size_t event = 0; event < block.events; ++event) {
      if (event % 65536 == 65535) heartbeat();
      const size_t first = static_cast<size_t>(block.start[event]);
      const size_t last = static_cast<size_t>(block.start[event + 1]);
      const int32_t base = block.layer[event] * experts_;
      ReplayCounts now;
      const size_t size = sequential_ ? 1 : last - first;
      for (size_t begin = first; begin < last; begin += size) {
        keys_.assign(block.expert + begin, block.expert + begin + size);
        need(base, begin, now);
      }
      if (event < count_from) continue;
      counts_.hits += now.hits;
      counts_.needed += static_cast<int64_t>(last - first);
      counts_.evictions += now.evictions;
    }
  }

 private:
  void need(int32_t base, size_t first, ReplayCounts& now) {
    ++clock_;
    for (int32_t& key : keys_) {
      key += base;
      if (!sequential_ && std::exchange(seen_[key], clock_) == clock_)
        throw std::invalid_argument("an event names expert " + std::to_string(key - base) + " twice");
      // Taken out until it is put back: nothing that an event needs is evicted by it.
      if (kind_.index.holds(key)) {
        kind_.index.remove(key);
        ++now.hits;
      } else {
        kind_.miss(key);
      }
    }
    for (; kind_.index.size() + keys_.size() > slots_; ++now.evictions) kind_.index.remove_first();
    kind_.put(keys_.data(), keys_.size(), clock_, first);
  }

  // Only Belady looks ahead.
  void foresee(const Routing& block) {
    if constexpr (std::is_same_v<Kind, Belady>) {
      std::vector<int32_t> key(block.start[block.events]);
      std::vector<int64_t> event_of(key.size());
      for (size_t event = 0; event < block.events; ++event)
        for (int64_t i = block.start[event]; i < block.start[event + 1]; ++i) {
          key[i] = block.layer[event] * experts_ + block.expert[i];
          event_of[i] = sequential_ ? i : static_cast<int64_t>(event);
        }
      kind_.show(key, event_of);
    }
  }

  int32_t experts_;
  size_t slots_;
  bool sequential_;
  Kind kind_;
  std::vector<int64_t> seen_;
  std::vector<int32_t> keys_;
  int64_t clock_ = 0;
};

}  // namespace

std::unique_ptr<Replay> make_replay(int32_t layers, int32_t experts, size_t slots, Policy policy, bool sequential) {
  switch (policy) {
    case Policy::lru:
      return std::make_unique<ReplayOf<Lru>>(layers, experts, slots, sequential);
    case Policy::lfu:
      return std::make_unique<ReplayOf<Lfu<false>>>(layers, experts, slots, sequential);
    case Policy::lfu_resident:
      return std::make_unique<ReplayOf<Lfu<true>>>(layers, experts, slots, sequential);
    case Policy::belady:
      return std::make_unique<ReplayOf<Belady>>(layers, experts, slots, sequential);
  }
  throw std::invalid_argument("unknown policy");
}

}  // namespace seqmoe
