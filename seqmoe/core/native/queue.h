// The queue of prefetch tasks that were not sent yet, and which of them goes next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "budget.h"
#include "orders.h"
#include "schedule.h"
#include "task.h"

namespace seqmoe {

// The worker's thread and the unit clock choose from the same queue, so that with equal timing they send the same.
class TaskQueue {
 public:
  // At most one task for each of `keys` experts.
  TaskQueue(Order order, int32_t layers, size_t keys) : order_(order), layers_(layers), queued_(keys, false) {}

  Order order() const { return order_; }
  void set_order(Order order) { order_ = order; }

  bool empty() const { return tasks_.empty(); }
  size_t size() const { return tasks_.size(); }
  bool contains(int32_t key) const { return queued_[key]; }

  void add(const Task& task) {
    tasks_.push_back(task);
    queued_[task.key] = true;
    sorted_ = false;
  }

  // Takes back every task for which `wanted(task)` holds.
  template <class Predicate>
  std::vector<Task> take(const Predicate& wanted) {
    std::vector<Task> taken = take_tasks(tasks_, wanted);
    for (const Task& task : taken) queued_[task.key] = false;
    return taken;
  }

  // Takes back the task that was created last.
  std::optional<Task> take_newest() {
    const std::optional<Task> task = seqmoe::take_newest(tasks_);
    if (task) queued_[task->key] = false;
    return task;
  }

  // The task to send next, or null. It stays in the queue until sent() is called with it.
  Task* next(int64_t position, const TransferBudget& budget) {
    sort();
    deadline_.clear();
    confidence_.clear();
    for (const Task& task : tasks_) {
      deadline_.push_back(task.deadline);
      confidence_.push_back(task.confidence);
    }
    const int32_t index = select(position, budget);
    return index < 0 ? nullptr : &tasks_[index];
  }

  Task sent(Task* task) {
    const Task copy = *task;
    queued_[copy.key] = false;
    tasks_.erase(tasks_.begin() + (task - tasks_.data()));
    return copy;
  }

 private:
  // In the order of their keys: that is how every order breaks its last ties.
  void sort() {
    if (!sorted_) std::sort(tasks_.begin(), tasks_.end(), [](const Task& a, const Task& b) { return a.key < b.key; });
    sorted_ = true;
  }

  int32_t select(int64_t position, const TransferBudget& budget) {
    if (order_ == Order::matroid)
      return scheduler_.select(deadline_.data(), confidence_.data(), tasks_.size(),
                               {position, budget.current(), budget.average()});
    return first_of({order_, deadline_.data(), confidence_.data(), position, layers_}, tasks_.size(), position + 2);
  }

  Order order_;
  int32_t layers_;
  std::vector<Task> tasks_;
  std::vector<bool> queued_;  // by key
  bool sorted_ = true;
  Scheduler scheduler_;
  std::vector<int64_t> deadline_;
  std::vector<float> confidence_;
};

}  // namespace seqmoe
