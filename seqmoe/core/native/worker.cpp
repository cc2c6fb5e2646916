#include "worker.h"

#include <chrono>
#include <utility>

namespace seqmoe {

PrefetchWorker::PrefetchWorker(std::mutex& mutex, std::shared_ptr<Channel> link,
                               std::shared_ptr<TransferBudget> budget, TaskQueue queue,
                               std::function<bool(Task&)> admit)
    : mutex_(mutex),
      link_(std::move(link)),
      budget_(std::move(budget)),
      queue_(std::move(queue)),
      admit_(std::move(admit)),
      thread_([this] { run(); }) {}

void PrefetchWorker::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// Only a sleeping worker is notified: that costs a system call, several times per layer.
void PrefetchWorker::wake() {
  if (!asleep_ || queue_.empty()) return;
  asleep_ = false;
  work_.notify_all();
}

void PrefetchWorker::hold_back(bool held) {
  held_back_ = held;
  if (!held) wake();
}

void PrefetchWorker::pause(bool paused) {
  paused_ = paused;
  if (!paused) wake();
}

std::vector<Landing> PrefetchWorker::collect() { return std::exchange(landings_, {}); }

void PrefetchWorker::wait_in_flight(Lock& lock) {
  while (!done_.wait_for(lock, kLook, [this] { return !in_flight_; })) {
    lock.unlock();
    try {
      check_interruption();
    } catch (...) {
      lock.lock();
      throw;
    }
    lock.lock();
  }
}

void PrefetchWorker::settle(Lock& lock) {
  done_.wait(lock, [this] { return asleep_ || ended_; });
}

void PrefetchWorker::run() {
  Lock lock(mutex_);
  try {
    while (const std::optional<Task> task = next(lock)) send(*task, lock);
  } catch (...) {
    failure_ = std::current_exception();
  }
  ended_ = true;
  done_.notify_all();
}

// Sleeps until a task can be sent; nothing when the worker is to stop.
std::optional<Task> PrefetchWorker::next(Lock& lock) {
  bool idle = false;
  while (!stopping_) {
    if (!held_back_ && !paused_) {
      // No layer passes while held back, since inference itself waits for the on-demand load.
      clock_.observe(*budget_, position_, !idle);
      if (Task* const task = queue_.next(position_, *budget_); task && admit_(*task)) return queue_.sent(task);
      idle = true;
    }
    asleep_ = true;
    done_.notify_all();
    work_.wait(lock, [this] { return !asleep_ || stopping_; });
    asleep_ = false;
  }
  return std::nullopt;
}

void PrefetchWorker::send(const Task& task, Lock& lock) {
  budget_->spend();
  in_flight_ = true;
  lock.unlock();
  bool arrived = false;
  std::exception_ptr failure;
  try {
    arrived = link_->transfer(task.key, task.slot, &stopping_);
  } catch (const TransferError&) {
    // Counted where it lands; what was not prefetched is loaded on demand.
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  in_flight_ = false;
  landings_.push_back({task, arrived});
  done_.notify_all();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace seqmoe
