// The pipeline's side of prefetching: tasks are created, taken back and landed, and the worker is told what to do.
#include <algorithm>
#include <exception>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "pipeline.h"

namespace seqmoe {

int64_t OffloadPipeline::prefetch(const int32_t* keys, const float* confidence, const int64_t* deadline,
                                  size_t count) {
  Lock lock(table_->mutex());
  check_running();
  const std::vector<size_t> order = ranked(keys, confidence, deadline, count);
  table_->publish_scores();
  land_finished();
  rethrow_failure();
  const bool at_creation = rules_.reserve == Reserve::creation;
  std::vector<SlotTable::Victim> victims;
  if (at_creation) victims = table_->victims();
  int64_t created = 0;
  for (const size_t i : order) {
    // A task due by the next layer can never be selected (Algorithm 1, line 4).
    if (deadline[i] <= position_ + 1) continue;
    if (table_->slot_of(keys[i]) != kAbsent || worker_.queue().contains(keys[i])) continue;
    if (at_creation && (victims.empty() || !prefetches_.below_limit())) break;
    Task task{keys[i], kAbsent, next_tag_++, deadline[i], confidence[i]};
    if (at_creation) prefetches_.reserve(task, SlotTable::take(victims));
    worker_.queue().add(task);
    ++created;
  }
  statistics_.prefetch_created += created;
  worker_.wake();
  return created;
}

// What was computed where it is crosses the link after all forecasts, if its score is higher than what it would replace.
void OffloadPipeline::fetch_later() {
  for (const int32_t key : std::exchange(on_host_, {})) {
    if (table_->slot_of(key) != kAbsent || worker_.queue().contains(key)) continue;
    const int32_t victim = table_->victim();
    if (victim == kAbsent) break;
    if (table_->state(victim) != State::empty && !(table_->victim_at(victim).score < table_->score_of(key))) continue;
    Task task{key, kAbsent, next_tag_++, position_ + table_->layers(), 0.0f};
    if (rules_.reserve == Reserve::creation) {
      if (!prefetches_.below_limit()) break;
      prefetches_.reserve(task, victim);
    }
    worker_.queue().add(task);
    ++statistics_.prefetch_created;
  }
}

// The indices of the tasks, the most confident first, after checking them.
std::vector<size_t> OffloadPipeline::ranked(const int32_t* keys, const float* confidence, const int64_t* deadline,
                                            size_t count) const {
  for (size_t i = 0; i < count; ++i) {
    table_->check_key(keys[i]);
    if (confidence[i] != confidence[i]) throw std::invalid_argument("a confidence is not a number");
    if (deadline[i] - position_ > Scheduler::kFarthest)
      throw std::invalid_argument("a deadline lies more than 2^20 positions ahead");
  }
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto rank = [&](size_t i) { return std::make_tuple(-confidence[i], deadline[i], keys[i], i); };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank(a) < rank(b); });
  return order;
}

void OffloadPipeline::land_in_flight(Lock& lock) {
  worker_.wait_in_flight(lock);
  land_finished();
  rethrow_failure();
}

void OffloadPipeline::land_finished() {
  for (const Landing& landing : worker_.collect()) prefetches_.land(landing.task, landing.arrived, position_);
}

void OffloadPipeline::rethrow_failure() const {
  if (const std::exception_ptr failure = worker_.failure()) std::rethrow_exception(failure);
}

// Moves to `position`, drops expired tasks and takes back unsent ones that this event needs; returns the latter.
std::vector<int32_t> OffloadPipeline::arrive(int64_t position) {
  const bool restarted = position < position_;
  position_ = position;
  worker_.arrive(position);
  const std::vector<Task> taken = worker_.queue().take([&](const Task& task) {
    return restarted || task.deadline <= position || table_->needed(task.key);
  });
  std::vector<int32_t> unsent;
  for (const Task& task : taken)
    if (table_->needed(task.key)) unsent.push_back(task.key);
  prefetches_.cancel(taken);
  return unsent;
}

void OffloadPipeline::settle() {
  Lock lock(table_->mutex());
  check_running();
  worker_.settle(lock);
  rethrow_failure();
}

void OffloadPipeline::stop() {
  worker_.stop();
  std::lock_guard lock(table_->mutex());
  land_finished();
  prefetches_.cancel(worker_.queue().take([](const Task&) { return true; }));
  table_->share_scores(false);
}

Order OffloadPipeline::order() {
  std::lock_guard lock(table_->mutex());
  return worker_.queue().order();
}

void OffloadPipeline::set_order(Order order) {
  std::lock_guard lock(table_->mutex());
  worker_.queue().set_order(order);
}

bool OffloadPipeline::paused() {
  std::lock_guard lock(table_->mutex());
  return worker_.paused();
}

void OffloadPipeline::set_paused(bool paused) {
  std::lock_guard lock(table_->mutex());
  worker_.pause(paused);
}

Statistics OffloadPipeline::statistics() {
  std::lock_guard lock(table_->mutex());
  return statistics_;
}

void OffloadPipeline::reset_statistics() {
  std::lock_guard lock(table_->mutex());
  statistics_ = {};
}

EventCounts OffloadPipeline::last_event() {
  std::lock_guard lock(table_->mutex());
  return last_event_;
}

void OffloadPipeline::write_off() {
  std::lock_guard lock(table_->mutex());
  prefetches_.write_off(next_tag_);
}

std::pair<std::vector<int32_t>, std::vector<int32_t>> OffloadPipeline::pool() {
  std::lock_guard lock(table_->mutex());
  std::pair<std::vector<int32_t>, std::vector<int32_t>> pool;
  for (int32_t slot = 0; slot < table_->slots(); ++slot) {
    pool.first.push_back(table_->owner(slot));
    pool.second.push_back(static_cast<int32_t>(table_->state(slot)));
  }
  return pool;
}

}  // namespace seqmoe
