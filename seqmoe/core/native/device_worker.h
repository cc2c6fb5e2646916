// The prefetch worker of a device: a thread that takes tasks and slots from a control region and answers with landings.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "budget.h"
#include "channel.h"
#include "control.h"
#include "queue.h"

namespace seqmoe {

// Each task read is one of overdue, duplicate, refused, sent, or still queued; of those sent each landed or failed.
struct DeviceWorkerCounts {
  int64_t tasks = 0;      // read from the ring
  int64_t overdue = 0;    // dropped: the deadline passed, or a new request began, before they were sent
  int64_t duplicate = 0;  // dropped: queued already, or landed and the device had not seen it
  int64_t refused = 0;    // dropped: no expert's key, or no confidence
  int64_t overrun = 0;    // lost, not among the tasks: the ring was written over before they were read
  int64_t sent = 0;
  int64_t landed = 0;
  int64_t late = 0;      // landed, but when the deadline had passed
  int64_t failed = 0;    // the bytes did not arrive
  int64_t returned = 0;  // lent slots that came back unused
  int64_t bytes = 0;     // of what landed
  int64_t late_bytes = 0;
};

// Methods but stop() may be called by any thread. Where a PrefetchWorker is woken, this one looks again and again: a
// device cannot wake a thread.
class DeviceWorker {
 public:
  // Takes up a region where another worker left it: tasks from before are of no interest, slots lent since are.
  DeviceWorker(Control control, std::shared_ptr<Channel> link, std::shared_ptr<TransferBudget> budget, TaskQueue queue,
               int32_t keys, int32_t slots);
  ~DeviceWorker() { stop(); }
  DeviceWorker(const DeviceWorker&) = delete;
  DeviceWorker& operator=(const DeviceWorker&) = delete;

  // Ends the thread within 100 ms and gives back every slot that was lent. Safe to call again.
  void stop();

  // Throws what ended the thread, if it was not stop().
  void check();

  // A new request begins; the device is at rest. Every task so far is dropped, the budget stays.
  void forget();

  // While paused nothing is sent, and lent slots go back at once.
  void pause(bool paused);
  bool paused() const { return paused_; }

  DeviceWorkerCounts counts();
  size_t queued();

 private:
  using Lock = std::unique_lock<std::mutex>;

  void run();
  bool work(Lock& lock);
  void look();
  void move_to(int64_t position);
  void read_tasks();
  void judge(const Task& task);
  void add(const Task& task);
  void drop_all();
  void read_lent();
  std::optional<Task> next();
  void send(const Task& task, const LentSlot& slot, Lock& lock);
  void land(const Task& task, int64_t bytes);
  void expect(int64_t landing, int32_t key);
  void post(const LentSlot& slot, int64_t key);
  void give_back();
  bool known(int64_t key) const;
  bool missing() const;

  Control control_;
  std::shared_ptr<Channel> link_;
  std::shared_ptr<TransferBudget> budget_;
  TaskQueue queue_;
  int32_t slots_;
  std::vector<bool> landed_;  // by key: posted, and the device has not processed it
  std::deque<std::pair<int64_t, int32_t>> unseen_;  // the same, by number of the landing
  std::deque<LentSlot> lent_;
  DeviceWorkerCounts counts_;
  BudgetClock clock_;
  std::mutex mutex_;
  std::exception_ptr failure_;
  int64_t position_ = 0;
  int64_t tasks_read_;
  int64_t lent_read_;
  int64_t landings_;
  bool idle_ = false;
  bool fresh_ = true;  // something has changed since a task was last looked for
  std::atomic<bool> paused_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace seqmoe
