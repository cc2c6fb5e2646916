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
  const float* accessed;  // [accesses], or null
  const float* used;      // [steps, layers, experts], or null
  const float* forecast;
  const std::vector<std::pair<int32_t, int32_t>>& ranges;
  size_t tasks;  // per layer
  const int32_t* task_expert;  // [steps, layers, tasks], or null
  const float* task_confidence;
};

struct LoopCounts {
  int64_t hits = 0;
  int64_t needed = 0;
  int64_t late = 0;
  int64_t loads = 0;
  int64_t created = 0;
  int64_t sent = 0;
  int64_t landed = 0;
  int64_t used = 0;
  int64_t wasted = 0;
  int64_t dropped = 0;
  int64_t evictions = 0;
  std::vector<int64_t> layer_hits, layer_needed, band_hits, band_needed;
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

  // A new request: an empty pool and clock 0. The counts stay.
  void forget();

 private:
  void check_distinct(const Block& block) const;
  void arrive(int64_t position);
  void need(int32_t layer, const int32_t* experts, size_t count);
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
  void note_hits(int32_t layer, int64_t hits, int64_t needed);
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
  std::vector<LoopCounts*> sent_under_;  // where this slot's last prefetch counts: not where it is used, but sent
  std::vector<bool> queued_;  // has an unsent task
  std::vector<int32_t> missing_;
  std::vector<SlotTable::Victim> victims_;
  int64_t position_ = -1;
  int64_t next_tag_ = 0;
  LoopCounts counts_;
  LoopCounts uncounted_;
  LoopCounts* now_ = &counts_;
};

}  // namespace seqmoe
