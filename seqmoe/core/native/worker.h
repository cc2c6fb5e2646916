// The prefetch worker: a thread that sends queued tasks over the link, always the one its order selects.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "budget.h"
#include "channel.h"
#include "queue.h"

namespace seqmoe {

struct Landing {
  Task task;
  bool arrived;
};

// What it shares with inference is guarded by `mutex`, which it holds while it chooses a task and lets `admit` give it
// a slot, not while bytes move. All methods but the constructor, stop() and stopped() are called with the mutex held.
class PrefetchWorker {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // `admit(task)` may fill in the slot; if it refuses, the worker sleeps until wake() or allow() is called.
  PrefetchWorker(std::mutex& mutex, std::shared_ptr<Channel> link, std::shared_ptr<TransferBudget> budget,
                 TaskQueue queue, std::function<bool(Task&)> admit);
  ~PrefetchWorker() { stop(); }
  PrefetchWorker(const PrefetchWorker&) = delete;
  PrefetchWorker& operator=(const PrefetchWorker&) = delete;

  // Ends the thread; of a transfer under way the pace is cut short, and a long copy is abandoned.
  void stop();
  bool stopped() const { return stopping_; }

  TaskQueue& queue() { return queue_; }
  void arrive(int64_t position) { position_ = position; }

  // There may be something to send: a new task, or room for an old one.
  void wake();

  // While held back or paused, no transfer is started: on-demand loads find the channel free after the one in flight.
  void hold_back(bool held);
  void pause(bool paused);
  bool paused() const { return paused_; }

  // What finished since the last call.
  std::vector<Landing> collect();

  // Returns once nothing is in flight. Call it held back, or more may be sent.
  void wait_in_flight(Lock& lock);

  // Returns once the worker sleeps: nothing is in flight, and nothing queued may be sent now.
  void settle(Lock& lock);

  // What ended the thread, if it was not stop().
  std::exception_ptr failure() const { return failure_; }

 private:
  void run();
  std::optional<Task> next(Lock& lock);
  void send(const Task& task, Lock& lock);

  std::mutex& mutex_;
  std::shared_ptr<Channel> link_;
  std::shared_ptr<TransferBudget> budget_;
  TaskQueue queue_;
  std::function<bool(Task&)> admit_;
  std::condition_variable work_;  // the worker waits for it
  std::condition_variable done_;  // inference waits for it
  std::vector<Landing> landings_;
  std::exception_ptr failure_;
  int64_t position_ = 0;
  BudgetClock clock_;
  bool in_flight_ = false;
  bool held_back_ = false;
  bool paused_ = false;
  bool asleep_ = false;
  bool ended_ = false;
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace seqmoe
