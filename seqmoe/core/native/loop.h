// The event loop: routing through the slot table under the unit clock, over scores and tasks that are given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "slots.h"
#include "unit_link.h"

namespace seqmoe {

struct PrefetchRules {
  double link;
  Order order;
  bool reserve_at_creation;
  std::optional<int32_t> fetch_limit;
  double alpha;
};

// Events in order, and per step what becomes of scores and tasks; see seqmoe.core.simulate. The caller has checked it.
struct Block {
  size_t events;
  const int64_t* step;
  const int32_t* layer;
  const int64_t* start;
  const int32_t* expert;
  const int32_t* demand;  // [accesses], or null: one each
  const float* accessed;  // [accesses], or null
  const float* used;      // [steps, layers, experts], or null
  const float* forecast;
  const std::vector<std::pair<int32_t, int32_t>>& ranges;
  size_t tasks;  // per layer
  const int32_t* task_expert;  // [steps, layers, tasks], or null
  const float* task_confidence;
};

// What is counted for each layer and each band as well. Of prefetches: the expert's layer, the band it was sent in.
struct Place {
  int64_t hits = 0;
  int64_t needed = 0;
  int64_t late = 0;
  int64_t loads = 0;
  int64_t sent = 0;
  int64_t used = 0;
  int64_t wasted = 0;
};

struct LoopCounts {
  Place all;
  int64_t assigned_hits = 0;
  int64_t assigned = 0;
  int64_t created = 0;
  int64_t landed = 0;
  int64_t dropped = 0;
  int64_t evictions = 0;
  std::vector<Place> layers, bands;

  // `band` is -1 before the first.
  void add(int64_t Place::*what, int32_t layer, int32_t band, int64_t count = 1) {
    all.*what += count;
    layers[layer].*what += count;
    if (band >= 0) bands[band].*what += count;
  }
};

class EventLoop {
 public:
  EventLoop(int32_t layers, int32_t experts, int32_t slots, const std::optional<PrefetchRules>& rules,
            bool sequential, std::vector<int64_t> bands);

  // `heartbeat` is called now and then and may throw to interrupt.
  void feed(const Block& block, bool count, const std::function<void()>& heartbeat);

  const LoopCounts& counts() const { return counts_; }
  int64_t position() const { return position_; }
  SlotTable& table() { return table_; }

  // Every expert's score becomes scores[layer * experts + expert].
  void set_all_scores(const float* scores);

  // A new request: an empty pool and clock 0. The counts stay.
  void forget();

 private:
  void check_distinct(const Block& block) const;
  void arrive(int64_t position);
  void need(int32_t layer, const int32_t* experts, const int32_t* demand, size_t count);
  void complete(int32_t layer, const int32_t* experts, size_t count);
  void load(int32_t key, int32_t slot);
  void make_room();
  void land_finished();
  void set_scores(const Block& block, size_t event);
  void trigger(const Block& block, int64_t step, int32_t first, int32_t last);
  void create(std::vector<Task>& wanted);
  void compute(int32_t layer);
  bool admit(Task& task);
  void drop(const std::vector<Task>& tasks);
  void take_slot(int32_t slot);
  void note_use(int32_t slot);
  int32_t layer_in(int32_t slot) const { return table_.owner(slot) / experts_; }
  SlotTable new_table() const { return SlotTable(layers_, experts_, slots_, fetch_limit()); }
  int32_t fetch_limit() const;

  int32_t layers_;
  int32_t experts_;
  int32_t slots_;
  std::optional<PrefetchRules> rules_;
  bool sequential_;
  std::vector<int64_t> bands_;
  int32_t largest_ = 0;  // event so far
  SlotTable table_;
  std::optional<UnitLink> link_;
  std::vector<bool> unused_;  // prefetched into this slot and not needed since
  // Where this slot's last prefetch counts: not where it is used, but sent.
  std::vector<LoopCounts*> sent_under_;
  std::vector<int32_t> sent_in_;  // band
  std::vector<LoopCounts*> queued_under_;  // where the expert's unsent task was created, null without one
  std::vector<int32_t> missing_;
  std::vector<SlotTable::Victim> victims_;
  int64_t position_ = -1;
  int32_t band_ = -1;
  int64_t next_tag_ = 0;
  LoopCounts counts_;
  LoopCounts uncounted_;
  LoopCounts* now_ = &counts_;
};

}  // namespace seqmoe
