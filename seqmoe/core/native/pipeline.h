// The offloading pipeline: lands prefetches, loads misses, creates prefetch tasks. Owns the prefetch worker.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "prefetch_slots.h"
#include "slots.h"
#include "statistics.h"
#include "worker.h"

namespace seqmoe {

struct PipelineRules {
  bool evict_after_layer = false;
  Order order = Order::matroid;
  Reserve reserve = Reserve::selection;
};

// All methods are for the one thread that runs inference. It and the worker share the table's mutex.
class OffloadPipeline {
 public:
  OffloadPipeline(std::shared_ptr<SlotTable> table, std::shared_ptr<Channel> link,
                  std::shared_ptr<TransferBudget> budget, const PipelineRules& rules);
  ~OffloadPipeline() { stop(); }
  OffloadPipeline(const OffloadPipeline&) = delete;
  OffloadPipeline& operator=(const OffloadPipeline&) = delete;

  // Steps 1 and 2 of the paper's pipeline. On return slots[i] holds the bytes of experts[i]. With `loads`, int32
  // [count + 1], only loads[m] of m misses are loaded, those of the highest scores; the others' slots are kAbsent, and
  // leave() asks for those that deserve one.
  void enter(int32_t layer, int64_t position, const int32_t* experts, size_t count, int32_t* slots,
             const int32_t* loads = nullptr);

  // The layer's experts are about to be computed. Their slots stay untouched until the next event begins, so
  // evict_after_layer empties them only then.
  void leave(int32_t layer);

  // Step 5: tasks for what is neither resident nor under way; the most confident ones where slots limit them.
  int64_t prefetch(const int32_t* keys, const float* confidence, const int64_t* deadline, size_t count);

  // Waits until the worker has sent whatever it may send now.
  void settle();

  // Ends the worker and leaves no slot in FETCH. Nothing can be entered afterwards.
  void stop();

  Order order();
  void set_order(Order order);
  Reserve reserve() const { return rules_.reserve; }
  bool paused();
  void set_paused(bool paused);

  Statistics statistics();
  void reset_statistics();
  // Of the last enter().
  EventCounts last_event();
  void write_off();

  // Owner and state of every slot at one moment.
  std::pair<std::vector<int32_t>, std::vector<int32_t>> pool();

 private:
  using Lock = PrefetchWorker::Lock;
  class Stall;

  void begin(int32_t layer, int64_t position, const int32_t* experts, size_t count, int32_t* slots,
             const int32_t* loads, Lock& lock);
  void leave_on_host(std::vector<int32_t> misses, size_t loads);
  void complete(int32_t layer, const int32_t* experts, size_t count, int32_t* slots, Lock& lock);
  int32_t load(int32_t key, size_t needed, Lock& lock);
  void transfer(int32_t key, int32_t slot, Lock& lock);
  void make_room(size_t needed, Lock& lock);
  void land_in_flight(Lock& lock);
  void land_finished();
  void rethrow_failure() const;
  void fetch_later();
  std::vector<int32_t> arrive(int64_t position);
  std::vector<size_t> ranked(const int32_t* keys, const float* confidence, const int64_t* deadline, size_t count) const;
  void check_running() const;
  [[noreturn]] void throw_no_room(size_t needed) const;

  std::shared_ptr<SlotTable> table_;
  std::shared_ptr<Channel> link_;
  PipelineRules rules_;
  int32_t left_layer_ = kAbsent;
  int64_t position_ = 0;
  int64_t next_tag_ = 0;
  Statistics statistics_;
  EventCounts last_event_;
  std::vector<int32_t> on_host_;  // keys of this event that are computed where they are
  PrefetchSlots prefetches_;
  PrefetchWorker worker_;
};

}  // namespace seqmoe
