// The slots of prefetches: taken when a task is created or when it is sent, landed or given back, used or wasted.
#pragma once

#include <cstdint>
#include <vector>

#include "slots.h"
#include "statistics.h"
#include "task.h"

namespace seqmoe {

// When a task takes its slot: as the paper has it, or only when its transfer begins.
enum class Reserve { creation, selection };

// Whoever calls holds the table's mutex.
class PrefetchSlots {
 public:
  PrefetchSlots(SlotTable& table, Statistics& statistics)
      : table_(table), statistics_(statistics), unused_(table.slots(), false) {}

  bool below_limit() const { return table_.fetching() < table_.fetch_limit(); }

  void reserve(Task& task, int32_t slot) {
    note_reuse(slot);
    table_.reserve_at(slot, task.key, task.tag);
    task.slot = slot;
  }

  // A task is about to be sent: by now at the latest it needs a slot. False if none may be taken.
  bool admit(Task& task) {
    if (task.slot == kAbsent) {
      const int32_t slot = below_limit() ? table_.victim() : kAbsent;
      if (slot == kAbsent) return false;
      reserve(task, slot);
    }
    ++statistics_.prefetch_sent;
    return true;
  }

  void land(const Task& task, bool arrived, int64_t position) {
    if (!table_.land(task.slot, task.tag, arrived)) return;
    if (!arrived) {
      ++statistics_.prefetch_failed;
      return;
    }
    ++statistics_.prefetch_landed;
    unused_[task.slot] = task.tag >= counted_from_;
    // Its layer has passed and would release it only a step later.
    if (task.deadline < position) table_.release(task.slot);
  }

  void cancel(const std::vector<Task>& tasks) {
    for (const Task& task : tasks)
      if (task.slot != kAbsent) table_.cancel(task.slot, task.tag);
    statistics_.prefetch_dropped += static_cast<int64_t>(tasks.size());
  }

  // Lets go of the landed prefetch of another layer with the lowest score; false if there is none.
  bool give_up_one() {
    int32_t worst = kAbsent;
    for (int32_t slot = 0; slot < table_.slots(); ++slot) {
      if (table_.state(slot) != State::compute || !unused_[slot] || table_.needed(table_.owner(slot))) continue;
      if (worst == kAbsent || table_.victim_at(slot) < table_.victim_at(worst)) worst = slot;
    }
    if (worst != kAbsent) table_.release(worst);
    return worst != kAbsent;
  }

  // An event needs what the slot holds.
  void note_use(int32_t slot) {
    statistics_.prefetch_used += unused_[slot];
    unused_[slot] = false;
  }

  // What was asked for before task `tag` and was not needed so far is of no use any more: it counts as wasted where it
  // has landed, and will count as neither used nor wasted where it has not.
  void write_off(int64_t tag) {
    for (int32_t slot = 0; slot < table_.slots(); ++slot) note_reuse(slot);
    counted_from_ = tag;
  }

  // The slot gets another owner.
  void note_reuse(int32_t slot) {
    statistics_.prefetch_wasted += unused_[slot];
    unused_[slot] = false;
  }

 private:
  SlotTable& table_;
  Statistics& statistics_;
  int64_t counted_from_ = 0;
  std::vector<bool> unused_;  // prefetched into this slot and not needed since
};

}  // namespace seqmoe
