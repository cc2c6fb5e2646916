// The prefetching link under the unit clock: a queue, one transfer in flight, and the budget that learns from them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "budget.h"
#include "orders.h"
#include "schedule.h"
#include "task.h"

namespace seqmoe {

// What PrefetchWorker does with a thread and a real link, in virtual time and in the same order.
class UnitLink {
 public:
  // `rate` is in experts per layer; for an infinite one, `all` is a number of transfers that is never reached.
  UnitLink(double rate, double alpha, Order order, int32_t layers, double all)
      : rate_(rate), alpha_(alpha), order_(order), layers_(layers), all_(all) {
    forget();
  }

  void forget() {
    budget_.emplace(unlimited() ? all_ : rate_, alpha_);
    unsent_.clear();
    finished_.clear();
    in_flight_.reset();
    seen_.reset();
    idle_ = false;
  }

  // The queue is kept in key order, which is how every order breaks its last ties.
  void submit(const std::vector<Task>& tasks) {
    unsent_.insert(unsent_.end(), tasks.begin(), tasks.end());
    std::sort(unsent_.begin(), unsent_.end(), [](const Task& a, const Task& b) { return a.key < b.key; });
  }

  // Takes back every unsent task for which `wanted(task)` holds.
  template <class Predicate>
  std::vector<Task> take(const Predicate& wanted) {
    return take_tasks(unsent_, wanted);
  }

  std::optional<Task> withdraw_newest() {
    return take_newest(unsent_);
  }

  std::vector<Task> collect() { return std::exchange(finished_, {}); }

  // Inference waits for it, outside of the layers' time.
  void finish_in_flight() {
    if (in_flight_) finished_.push_back(*in_flight_);
    in_flight_.reset();
  }

  // One layer computes at `position`. `admit(task)` may fill in the slot; if it refuses, nothing more is sent.
  template <class Admit>
  void run(int64_t position, const Admit& admit) {
    double left = rate_;
    while (left > 0) {
      if (in_flight_) {
        if (remaining_ > left) {
          remaining_ -= left;
          return;
        }
        left -= remaining_;
        finish_in_flight();
        continue;
      }
      observe(position);
      const int32_t index = select(position);
      idle_ = index < 0 || !admit(unsent_[index]);
      if (idle_) return;
      in_flight_ = unsent_[index];
      remaining_ = 1;
      unsent_.erase(unsent_.begin() + index);
      budget_->spend();
    }
  }

 private:
  bool unlimited() const { return rate_ > all_; }

  // The budget learns whenever the link is free to choose, from the layers that passed while it was busy.
  void observe(int64_t position) {
    if (seen_ && position > *seen_ && !unlimited()) budget_->advance(position - *seen_, !idle_);
    seen_ = position;
  }

  int32_t select(int64_t position) {
    deadline_.clear();
    confidence_.clear();
    for (const Task& task : unsent_) {
      deadline_.push_back(task.deadline);
      confidence_.push_back(task.confidence);
    }
    if (order_ == Order::matroid)
      return scheduler_.select(deadline_.data(), confidence_.data(), unsent_.size(),
                               {position, budget_->current(), budget_->average()});
    return first_of({order_, deadline_.data(), confidence_.data(), position, layers_}, unsent_.size(), position + 2);
  }

  double rate_;
  double alpha_;
  Order order_;
  int32_t layers_;
  double all_;
  std::optional<TransferBudget> budget_;
  std::vector<Task> unsent_;
  std::vector<Task> finished_;
  std::optional<Task> in_flight_;
  double remaining_ = 0;
  std::optional<int64_t> seen_;
  bool idle_ = false;
  Scheduler scheduler_;
  std::vector<int64_t> deadline_;
  std::vector<float> confidence_;
};

}  // namespace seqmoe
