// The prefetch worker: a thread that sends queued tasks over the link, always the one the schedule selects.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "budget.h"
#include "link.h"
#include "schedule.h"
#include "task.h"

namespace seqmoe {

struct Landing {
  Task task;
  bool ok;
};

// The worker never sees the slot table: it copies into slots that were reserved for it and posts landings; the
// owner of the table reserves, lands and cancels. One mutex guards everything the two threads share.
class PrefetchWorker {
 public:
  PrefetchWorker(std::shared_ptr<Link> link, std::shared_ptr<TransferBudget> budget)
      : link_(std::move(link)), budget_(std::move(budget)), thread_([this] { run(); }) {}

  ~PrefetchWorker() { stop(); }
  PrefetchWorker(const PrefetchWorker&) = delete;
  PrefetchWorker& operator=(const PrefetchWorker&) = delete;

  // Ends the thread; a copy under way is finished, its pace is cut short.
  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  bool stopped() const { return stopping_; }

  // `tasks` in any order. The queue is kept in key order, which is how the schedule breaks its last ties.
  void submit(const std::vector<Task>& tasks) {
    if (tasks.empty()) return;
    {
      std::lock_guard lock(mutex_);
      unsent_.insert(unsent_.end(), tasks.begin(), tasks.end());
      std::sort(unsent_.begin(), unsent_.end(), [](const Task& a, const Task& b) { return a.key < b.key; });
    }
    changed_.notify_all();
  }

  // Inference has arrived at `position`: takes back every unsent task for which `wanted(task)` holds.
  template <class Predicate>
  std::vector<Task> arrive(int64_t position, const Predicate& wanted) {
    std::lock_guard lock(mutex_);
    position_ = position;
    return take_tasks(unsent_, wanted);
  }

  std::optional<Task> withdraw_newest() {
    std::lock_guard lock(mutex_);
    return take_newest(unsent_);
  }

  // What finished since the last call.
  std::vector<Landing> collect() {
    std::lock_guard lock(mutex_);
    return std::exchange(landings_, {});
  }

  // While held back, no transfer is started: on-demand loads find the channel free after the one in flight.
  void hold_back(bool held) {
    {
      std::lock_guard lock(mutex_);
      held_back_ = held;
    }
    changed_.notify_all();
  }

  // Returns once nothing is in flight; false if nothing was. Call it held back, or more may be sent.
  bool wait_in_flight() {
    std::unique_lock lock(mutex_);
    if (!in_flight_) return false;
    changed_.wait(lock, [this] { return !in_flight_; });
    return true;
  }

  std::exception_ptr failure() {
    std::lock_guard lock(mutex_);
    return failure_;
  }

  int64_t sent() const { return sent_; }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    try {
      while (const std::optional<Task> task = next(lock)) send(*task, lock);
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  // Sleeps until a task can be sent; nothing when the worker is to stop.
  std::optional<Task> next(std::unique_lock<std::mutex>& lock) {
    bool idle = false;
    while (!stopping_) {
      if (!held_back_) {
        observe(!idle);
        if (const int32_t index = select(); index >= 0) {
          const Task task = unsent_[index];
          unsent_.erase(unsent_.begin() + index);
          return task;
        }
        idle = true;
      }
      changed_.wait(lock);
    }
    return std::nullopt;
  }

  void send(const Task& task, std::unique_lock<std::mutex>& lock) {
    budget_->spend();
    ++sent_;
    in_flight_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      link_->transfer(task.key, task.slot, &stopping_);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    in_flight_ = false;
    landings_.push_back({task, !failure});
    changed_.notify_all();
    if (failure) std::rethrow_exception(failure);
  }

  // The budget learns from the layers that passed while prefetches kept the link busy. None pass while they are held
  // back, since inference itself waits for the on-demand load.
  void observe(bool busy) {
    if (seen_ && position_ > *seen_) budget_->advance(position_ - *seen_, busy);
    seen_ = position_;
  }

  int32_t select() {
    deadline_.clear();
    confidence_.clear();
    for (const Task& task : unsent_) {
      deadline_.push_back(task.deadline);
      confidence_.push_back(task.confidence);
    }
    return scheduler_.select(deadline_.data(), confidence_.data(), unsent_.size(),
                             {position_, budget_->current(), budget_->average()});
  }

  std::shared_ptr<Link> link_;
  std::shared_ptr<TransferBudget> budget_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> unsent_;
  std::vector<Landing> landings_;
  std::exception_ptr failure_;
  int64_t position_ = 0;
  std::optional<int64_t> seen_;
  bool in_flight_ = false;
  bool held_back_ = false;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> sent_{0};
  Scheduler scheduler_;
  std::vector<int64_t> deadline_;
  std::vector<float> confidence_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace seqmoe
