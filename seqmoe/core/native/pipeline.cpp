// The pipeline's events: experts are made resident for one layer after the other.
#include "pipeline.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <string>

namespace seqmoe {

namespace {

// A failed load on demand is tried again twice: one fault of a link is survived, a dead one is not waited for.
constexpr int kAttempts = 3;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The mutex is free while this lives.
class Unlocked {
 public:
  explicit Unlocked(PrefetchWorker::Lock& lock) : lock_(lock) { lock_.unlock(); }
  ~Unlocked() { lock_.lock(); }

 private:
  PrefetchWorker::Lock& lock_;
};

}  // namespace

// Inference waits: prefetches are held back, the time counts as a stall.
class OffloadPipeline::Stall {
 public:
  explicit Stall(OffloadPipeline& pipeline) : pipeline_(pipeline) { pipeline_.worker_.hold_back(true); }
  ~Stall() {
    pipeline_.statistics_.stall_seconds += seconds_since(start_);
    pipeline_.worker_.hold_back(false);
  }

 private:
  OffloadPipeline& pipeline_;
  Clock::time_point start_ = Clock::now();
};

OffloadPipeline::OffloadPipeline(std::shared_ptr<SlotTable> table, std::shared_ptr<Channel> link,
                                 std::shared_ptr<TransferBudget> budget, const PipelineRules& rules)
    : table_(std::move(table)),
      link_(std::move(link)),
      rules_(rules),
      prefetches_(*table_, statistics_),
      worker_(table_->mutex(), link_, std::move(budget),
              TaskQueue(rules.order, table_->layers(), static_cast<size_t>(table_->layers()) * table_->experts()),
              [this](Task& task) { return prefetches_.admit(task); }) {
  std::lock_guard lock(table_->mutex());
  table_->share_scores(true);
}

void OffloadPipeline::enter(int32_t layer, int64_t position, const int32_t* experts, size_t count, int32_t* slots,
                            const int32_t* loads) {
  const auto start = Clock::now();
  Lock lock(table_->mutex());
  check_running();
  table_->key(layer, 0);  // throws for an unknown layer
  if (count > static_cast<size_t>(table_->slots())) throw_no_room(count);
  const double stalled = statistics_.stall_seconds;
  table_->publish_scores();
  table_->begin_event(layer, experts, count);
  try {
    begin(layer, position, experts, count, slots, loads, lock);
  } catch (...) {
    table_->release_layer(layer);  // nothing will be computed: what was loaded must not stay held
    throw;
  }
  statistics_.enter_seconds += seconds_since(start) - (statistics_.stall_seconds - stalled);
}

void OffloadPipeline::begin(int32_t layer, int64_t position, const int32_t* experts, size_t count, int32_t* slots,
                            const int32_t* loads, Lock& lock) {
  if (left_layer_ != kAbsent) table_->evict_layer(std::exchange(left_layer_, kAbsent));
  const std::vector<int32_t> unsent = arrive(position);
  land_finished();
  rethrow_failure();
  ++statistics_.events;
  statistics_.needed += static_cast<int64_t>(count);
  last_event_ = {};
  on_host_.clear();
  std::vector<int32_t> missing;
  for (size_t i = 0; i < count; ++i) {
    const int32_t key = table_->key(layer, experts[i]);
    slots[i] = table_->slot_of(key);
    if (slots[i] == kAbsent) {
      ++statistics_.misses;
      statistics_.late_unsent += std::find(unsent.begin(), unsent.end(), key) != unsent.end();
      missing.push_back(key);
    } else if (table_->state(slots[i]) == State::fetch) {
      ++last_event_.late;
    } else {
      ++last_event_.hits;
      prefetches_.note_use(slots[i]);
    }
  }
  statistics_.hits += last_event_.hits;
  statistics_.late += last_event_.late;
  const size_t misses = missing.size();
  if (loads) leave_on_host(std::move(missing), static_cast<size_t>(std::max(loads[misses], 0)));
  last_event_.loads = static_cast<int64_t>(misses - on_host_.size());
  last_event_.host_computed = static_cast<int64_t>(on_host_.size());
  statistics_.host_computed += last_event_.host_computed;
  if (last_event_.late + last_event_.loads > 0) complete(layer, experts, count, slots, lock);
}

// All but the `loads` misses that are likeliest to be of use again stay where they are.
void OffloadPipeline::leave_on_host(std::vector<int32_t> misses, size_t loads) {
  if (loads >= misses.size()) return;
  const auto higher = [&](int32_t a, int32_t b) { return table_->score_of(b) < table_->score_of(a); };
  std::stable_sort(misses.begin(), misses.end(), higher);
  on_host_.assign(misses.begin() + static_cast<std::ptrdiff_t>(loads), misses.end());
}

void OffloadPipeline::leave(int32_t layer) {
  std::lock_guard lock(table_->mutex());
  table_->publish_scores();
  table_->release_layer(layer);
  fetch_later();
  if (rules_.evict_after_layer) left_layer_ = layer;
  worker_.wake();
}

// Misses and late prefetches: nothing new is prefetched while inference waits for them.
void OffloadPipeline::complete(int32_t layer, const int32_t* experts, size_t count, int32_t* slots, Lock& lock) {
  const Stall stall(*this);
  for (size_t i = 0; i < count; ++i)
    if (slots[i] != kAbsent && table_->state(slots[i]) == State::fetch) land_in_flight(lock);
  for (size_t i = 0; i < count; ++i) {
    const int32_t key = table_->key(layer, experts[i]);
    slots[i] = table_->slot_of(key);
    if (std::find(on_host_.begin(), on_host_.end(), key) != on_host_.end()) continue;
    if (slots[i] == kAbsent)
      slots[i] = load(key, count, lock);
    else
      prefetches_.note_use(slots[i]);
  }
}

int32_t OffloadPipeline::load(int32_t key, size_t needed, Lock& lock) {
  int32_t slot = table_->load(key);
  while (slot == kAbsent) {
    make_room(needed, lock);
    slot = table_->load(key);
  }
  prefetches_.note_reuse(slot);
  const auto start = Clock::now();
  try {
    transfer(key, slot, lock);
  } catch (...) {
    table_->release(slot);
    table_->evict(slot);
    throw;
  }
  statistics_.on_demand_seconds += seconds_since(start);
  ++statistics_.on_demand_transfers;
  return slot;
}

// The slot is in COMPUTE meanwhile: the worker leaves it alone.
void OffloadPipeline::transfer(int32_t key, int32_t slot, Lock& lock) {
  for (int attempt = 1;; ++attempt) {
    try {
      const Unlocked unlocked(lock);
      link_->transfer(key, slot);
      return;
    } catch (const TransferError&) {
      ++statistics_.on_demand_failed;
      if (attempt == kAttempts) throw;
    }
  }
}

// No slot is empty or evictable: give up what costs least. An unsent task has moved no byte yet; a landed
// prefetch of another layer has; the one in flight must land before its slot can be given away.
void OffloadPipeline::make_room(size_t needed, Lock& lock) {
  if (rules_.reserve == Reserve::creation)
    if (const auto task = worker_.queue().take_newest()) return prefetches_.cancel({*task});
  if (prefetches_.give_up_one()) return;
  if (table_->fetching() == 0) throw_no_room(needed);
  land_in_flight(lock);
}

void OffloadPipeline::check_running() const {
  if (worker_.stopped()) throw std::runtime_error("the pipeline was stopped");
}

void OffloadPipeline::throw_no_room(size_t needed) const {
  throw std::runtime_error("an event needs " + std::to_string(needed) + " experts at once, but of the pool's " +
                           std::to_string(table_->slots()) + " slots too few can be freed");
}

}  // namespace seqmoe
