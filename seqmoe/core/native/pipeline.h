// The offloading pipeline: lands prefetches, loads misses, creates prefetch tasks. Owns the prefetch worker.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "slots.h"
#include "statistics.h"
#include "worker.h"

namespace seqmoe {

// All methods are for the one thread that runs inference.
class OffloadPipeline {
 public:
  OffloadPipeline(std::shared_ptr<SlotTable> table, std::shared_ptr<Link> link,
                  std::shared_ptr<TransferBudget> budget, bool evict_after_layer)
      : table_(std::move(table)),
        link_(std::move(link)),
        evict_after_layer_(evict_after_layer),
        unused_(table_->slots(), false),
        worker_(link_, std::move(budget)) {}

  ~OffloadPipeline() { stop(); }
  OffloadPipeline(const OffloadPipeline&) = delete;
  OffloadPipeline& operator=(const OffloadPipeline&) = delete;

  // Steps 1 and 2 of the paper's pipeline. On return slots[i] holds the bytes of experts[i].
  void enter(int32_t layer, int64_t position, const int32_t* experts, size_t count, int32_t* slots) {
    check_running();
    if (count > static_cast<size_t>(table_->slots())) throw_no_room(count);
    table_->begin_event(layer, experts, count);
    forget_left_layer();
    const std::vector<int32_t> unsent = arrive(position);
    land_finished();
    ++statistics_.events;
    statistics_.needed += static_cast<int64_t>(count);
    bool complete = true;
    for (size_t i = 0; i < count; ++i) {
      const int32_t key = table_->key(layer, experts[i]);
      slots[i] = table_->slot_of(key);
      if (slots[i] == kAbsent) {
        ++statistics_.misses;
        statistics_.late_unsent += std::find(unsent.begin(), unsent.end(), key) != unsent.end();
        complete = false;
      } else if (table_->state(slots[i]) == State::fetch) {
        ++statistics_.late;
        complete = false;
      } else {
        ++statistics_.hits;
        note_use(slots[i]);
      }
    }
    if (!complete) complete_event(layer, experts, count, slots);
  }

  // The layer's experts are about to be computed. Their slots stay untouched until the next event begins, so
  // evict_after_layer empties them only then.
  void leave(int32_t layer) {
    table_->release_layer(layer);
    if (evict_after_layer_) left_layer_ = layer;
  }

  // Step 5: tasks for what is neither resident nor under way, the most confident first while slots last.
  int64_t prefetch(const int32_t* keys, const float* confidence, const int64_t* deadline, size_t count) {
    check_running();
    for (size_t i = 0; i < count; ++i) {
      table_->check_key(keys[i]);
      if (confidence[i] != confidence[i]) throw std::invalid_argument("a confidence is not a number");
    }
    land_finished();
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t{0});
    const auto rank = [&](size_t i) { return std::make_tuple(-confidence[i], deadline[i], keys[i], i); };
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank(a) < rank(b); });
    std::vector<SlotTable::Victim> victims = table_->victims();
    std::vector<Task> tasks;
    for (const size_t i : order) {
      if (victims.empty() || table_->fetching() >= table_->fetch_limit()) break;
      // A task due by the next layer can never be selected (Algorithm 1, line 4).
      if (table_->slot_of(keys[i]) != kAbsent || deadline[i] <= position_ + 1) continue;
      const int32_t slot = SlotTable::take(victims);
      const Task task{keys[i], slot, next_tag_++, deadline[i], confidence[i]};
      table_->reserve_at(slot, task.key, task.tag);
      note_reuse(slot);
      tasks.push_back(task);
    }
    statistics_.prefetch_created += static_cast<int64_t>(tasks.size());
    worker_.submit(tasks);
    return static_cast<int64_t>(tasks.size());
  }

  // Ends the worker and leaves no slot in FETCH. Nothing can be entered afterwards.
  void stop() {
    worker_.stop();
    land_finished(/*rethrow=*/false);
    cancel(worker_.arrive(position_, [](const Task&) { return true; }));
  }

  Statistics statistics() const {
    Statistics result = statistics_;
    result.prefetch_sent = worker_.sent() - sent_before_;
    return result;
  }

  void reset_statistics() {
    statistics_ = {};
    sent_before_ = worker_.sent();
  }

 private:
  // Misses and late prefetches: nothing new is prefetched while inference waits for them.
  void complete_event(int32_t layer, const int32_t* experts, size_t count, int32_t* slots) {
    const Stall stall(*this);
    land_finished();
    for (size_t i = 0; i < count; ++i)
      if (slots[i] != kAbsent && table_->state(slots[i]) == State::fetch) land_in_flight();
    for (size_t i = 0; i < count; ++i) {
      const int32_t key = table_->key(layer, experts[i]);
      slots[i] = table_->slot_of(key);
      if (slots[i] == kAbsent)
        slots[i] = load(key, count);
      else
        note_use(slots[i]);
    }
  }

  int32_t load(int32_t key, size_t needed) {
    int32_t slot = table_->load(key);
    while (slot == kAbsent) {
      make_room(needed);
      slot = table_->load(key);
    }
    note_reuse(slot);
    try {
      link_->transfer(key, slot);
    } catch (...) {
      table_->release(slot);
      table_->evict(slot);
      throw;
    }
    ++statistics_.on_demand_transfers;
    return slot;
  }

  // No slot is empty or evictable: give up what costs least. An unsent task has moved no byte yet; a landed
  // prefetch of another layer has; the one in flight must land before its slot can be given away.
  void make_room(size_t needed) {
    if (const auto task = worker_.withdraw_newest()) return cancel({*task});
    int32_t worst = kAbsent;
    for (int32_t slot = 0; slot < table_->slots(); ++slot) {
      if (table_->state(slot) != State::compute || !unused_[slot] || table_->needed(table_->owner(slot))) continue;
      if (worst == kAbsent || table_->victim_at(slot) < table_->victim_at(worst)) worst = slot;
    }
    if (worst != kAbsent) return table_->release(worst);
    if (table_->fetching() == 0) throw_no_room(needed);
    land_in_flight();
  }

  void land_in_flight() {
    worker_.wait_in_flight();
    land_finished();
  }

  void land_finished(bool rethrow = true) {
    for (const Landing& landing : worker_.collect()) {
      const Task& task = landing.task;
      if (!table_->land(task.slot, task.tag, landing.ok) || !landing.ok) continue;
      ++statistics_.prefetch_landed;
      unused_[task.slot] = true;
      // Its layer has passed and would release it only a step later.
      if (task.deadline < position_) table_->release(task.slot);
    }
    if (!rethrow) return;
    if (const std::exception_ptr failure = worker_.failure()) std::rethrow_exception(failure);
  }

  // Moves to `position`, drops expired tasks and takes back unsent ones that this event needs; returns the latter.
  std::vector<int32_t> arrive(int64_t position) {
    const bool restarted = position < position_;
    position_ = position;
    const std::vector<Task> taken = worker_.arrive(position, [&](const Task& task) {
      return restarted || task.deadline <= position || table_->needed(task.key);
    });
    std::vector<int32_t> unsent;
    for (const Task& task : taken)
      if (table_->needed(task.key)) unsent.push_back(task.key);
    cancel(taken);
    return unsent;
  }

  void cancel(const std::vector<Task>& tasks) {
    for (const Task& task : tasks) table_->cancel(task.slot, task.tag);
    statistics_.prefetch_dropped += static_cast<int64_t>(tasks.size());
  }

  void forget_left_layer() {
    if (left_layer_ != kAbsent) table_->evict_layer(left_layer_);
    left_layer_ = kAbsent;
  }

  void note_use(int32_t slot) {
    statistics_.prefetch_used += unused_[slot];
    unused_[slot] = false;
  }

  void note_reuse(int32_t slot) {
    statistics_.prefetch_wasted += unused_[slot];
    unused_[slot] = false;
  }

  void check_running() const {
    if (worker_.stopped()) throw std::runtime_error("the pipeline was stopped");
  }

  [[noreturn]] void throw_no_room(size_t needed) const {
    throw std::runtime_error("an event needs " + std::to_string(needed) + " experts at once, but of the pool's " +
                             std::to_string(table_->slots()) + " slots too few can be freed");
  }

  // Inference waits: prefetches pause, the time counts as a stall.
  class Stall {
   public:
    explicit Stall(OffloadPipeline& pipeline) : pipeline_(pipeline) { pipeline_.worker_.hold_back(true); }
    ~Stall() {
      pipeline_.statistics_.stall_seconds += std::chrono::duration<double>(Clock::now() - start_).count();
      pipeline_.worker_.hold_back(false);
    }

   private:
    OffloadPipeline& pipeline_;
    Clock::time_point start_ = Clock::now();
  };

  std::shared_ptr<SlotTable> table_;
  std::shared_ptr<Link> link_;
  bool evict_after_layer_;
  int32_t left_layer_ = kAbsent;
  int64_t position_ = 0;
  int64_t next_tag_ = 0;
  int64_t sent_before_ = 0;
  Statistics statistics_;
  std::vector<bool> unused_;  // prefetched into this slot and not needed since
  PrefetchWorker worker_;
};

}  // namespace seqmoe
