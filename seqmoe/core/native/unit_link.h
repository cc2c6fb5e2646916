// The prefetching link under the unit clock: a queue, one transfer in flight, and the budget that learns from them.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "budget.h"
#include "queue.h"
#include "task.h"

namespace seqmoe {

// What PrefetchWorker does with a thread and a real link, in virtual time and from the same queue.
class UnitLink {
 public:
  // `rate` is in experts per layer; for an infinite one, `all` is a number of transfers that is never reached.
  UnitLink(double rate, double alpha, Order order, int32_t layers, double all)
      : rate_(rate), alpha_(alpha), all_(all), queue_(order, layers, static_cast<size_t>(all)) {
    forget();
  }

  void forget() {
    budget_.emplace(unlimited() ? all_ : rate_, alpha_);
    queue_.take([](const Task&) { return true; });
    finished_.clear();
    in_flight_.reset();
    clock_.forget();
    idle_ = false;
  }

  void submit(const std::vector<Task>& tasks) {
    for (const Task& task : tasks) queue_.add(task);
  }

  // Takes back every unsent task for which `wanted(task)` holds.
  template <class Predicate>
  std::vector<Task> take(const Predicate& wanted) {
    return queue_.take(wanted);
  }

  std::optional<Task> withdraw_newest() { return queue_.take_newest(); }

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
      if (!unlimited()) clock_.observe(*budget_, position, !idle_);
      Task* const task = queue_.next(position, *budget_);
      idle_ = !task || !admit(*task);
      if (idle_) return;
      in_flight_ = queue_.sent(task);
      remaining_ = 1;
      budget_->spend();
    }
  }

 private:
  bool unlimited() const { return rate_ > all_; }

  double rate_;
  double alpha_;
  double all_;
  TaskQueue queue_;
  std::optional<TransferBudget> budget_;
  std::vector<Task> finished_;
  std::optional<Task> in_flight_;
  double remaining_ = 0;
  BudgetClock clock_;
  bool idle_ = false;
};

}  // namespace seqmoe
