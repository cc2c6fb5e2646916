#include "device_worker.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>

namespace seqmoe {

namespace {

// A layer lasts some hundred microseconds. A device that has been still for a while is looked at less often.
constexpr std::chrono::nanoseconds kGlance = std::chrono::microseconds(20), kRest = std::chrono::milliseconds(1);
constexpr auto kStill = std::chrono::milliseconds(50);

}  // namespace

DeviceWorker::DeviceWorker(Control control, std::shared_ptr<Channel> link, std::shared_ptr<TransferBudget> budget,
                           TaskQueue queue, int32_t keys, int32_t slots)
    : control_(control),
      link_(std::move(link)),
      budget_(std::move(budget)),
      queue_(std::move(queue)),
      slots_(slots),
      landed_(keys, false),
      position_(control_.load(Control::kPosition)),
      tasks_read_(control_.load(Control::kTasks)),
      lent_read_(control_.load(Control::kLandings)),  // every slot that was taken up has come back
      landings_(lent_read_) {
  control_.store(Control::kTaken, tasks_read_);
  control_.store(Control::kFailed, 0);
  for (int64_t landing = control_.load(Control::kConsumed); landing < landings_; ++landing)
    if (const int64_t key = control_.landed_key(landing); known(key)) expect(landing, static_cast<int32_t>(key));
  thread_ = std::thread([this] { run(); });
}

void DeviceWorker::stop() {
  stopping_ = true;
  if (!thread_.joinable()) return;
  thread_.join();
  link_->hold_while({});
}

void DeviceWorker::check() {
  const Lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void DeviceWorker::forget() {
  const Lock lock(mutex_);
  drop_all();
  position_ = control_.load(Control::kPosition);
}

void DeviceWorker::pause(bool paused) { paused_ = paused; }

DeviceWorkerCounts DeviceWorker::counts() {
  const Lock lock(mutex_);
  return counts_;
}

size_t DeviceWorker::queued() {
  const Lock lock(mutex_);
  return queue_.size();
}

void DeviceWorker::run() {
  sharpen_timer();
  link_->hold_while([this] { return missing(); });
  Lock lock(mutex_);
  Clock::time_point moved = Clock::now();
  try {
    while (!stopping_) {
      const int64_t before = position_;
      if (work(lock)) continue;
      if (position_ != before || missing()) moved = Clock::now();
      lock.unlock();
      std::this_thread::sleep_for(Clock::now() - moved < kStill ? kGlance : kRest);
      lock.lock();
    }
    look();
  } catch (...) {
    failure_ = std::current_exception();
  }
  give_back();
  if (failure_) control_.store(Control::kFailed, 1);
}

// Looks around and sends what may be sent; false if that was nothing.
bool DeviceWorker::work(Lock& lock) {
  look();
  if (paused_) give_back();
  if (paused_ || missing()) return false;
  clock_.observe(*budget_, position_, !idle_);
  if (!fresh_) return false;
  const std::optional<Task> task = next();
  fresh_ = task.has_value();
  idle_ = !task;
  if (idle_) return false;
  const LentSlot slot = lent_.front();
  lent_.pop_front();
  send(*task, slot, lock);
  return true;
}

// The order matters: a task that was written before its expert's landing was processed is seen before that is.
void DeviceWorker::look() {
  const int64_t consumed = control_.load(Control::kConsumed);
  move_to(control_.load(Control::kPosition));
  read_tasks();
  for (; !unseen_.empty() && unseen_.front().first < consumed; unseen_.pop_front())
    landed_[unseen_.front().second] = false;
  read_lent();
  control_.hold(Control::kTaken, tasks_read_);
  control_.hold(Control::kLandings, landings_);
}

void DeviceWorker::move_to(int64_t position) {
  if (position < position_) drop_all();
  if (position != position_) {
    const auto overdue = queue_.take([&](const Task& task) { return task.deadline <= position; });
    counts_.overdue += static_cast<int64_t>(overdue.size());
    fresh_ = true;
  }
  position_ = position;
}

void DeviceWorker::read_tasks() {
  const int64_t tasks = control_.load(Control::kTasks);
  if (const int64_t lost = tasks - control_.capacity() - tasks_read_; lost > 0) {
    counts_.overrun += lost;
    tasks_read_ += lost;
  }
  for (; tasks_read_ < tasks; ++tasks_read_) judge(control_.task(tasks_read_));
}

void DeviceWorker::judge(const Task& task) {
  ++counts_.tasks;
  if (!known(task.key) || task.confidence != task.confidence || task.deadline - position_ > Scheduler::kFarthest)
    ++counts_.refused;
  else if (task.deadline <= position_ + 1)  // Algorithm 1, line 4: it could not complete in time
    ++counts_.overdue;
  else if (queue_.contains(task.key) || landed_[task.key])
    ++counts_.duplicate;
  else
    add(task);
}

void DeviceWorker::add(const Task& task) {
  queue_.add(task);
  fresh_ = true;
}

// Tasks still in the ring too: they may be of the request before, and those few of the new one will be asked for again.
void DeviceWorker::drop_all() {
  const int64_t unread = control_.load(Control::kTasks) - tasks_read_;
  const auto queued = queue_.take([](const Task&) { return true; });
  tasks_read_ += unread;
  counts_.tasks += unread;
  counts_.overdue += unread + static_cast<int64_t>(queued.size());
  control_.store(Control::kTaken, tasks_read_);
  clock_.forget();
}

void DeviceWorker::read_lent() {
  const int64_t lent = control_.load(Control::kLent);
  for (; lent_read_ < lent; ++lent_read_) {
    const LentSlot slot = control_.lent(lent_read_);
    if (slot.slot < 0 || slot.slot >= slots_)
      throw std::runtime_error("the device lent slot " + std::to_string(slot.slot) + " of " + std::to_string(slots_));
    lent_.push_back(slot);
    fresh_ = true;
  }
}

std::optional<Task> DeviceWorker::next() {
  if (lent_.empty()) return std::nullopt;
  Task* const task = queue_.next(position_, *budget_);
  return task ? std::optional(queue_.sent(task)) : std::nullopt;
}

void DeviceWorker::send(const Task& task, const LentSlot& slot, Lock& lock) {
  budget_->spend();
  ++counts_.sent;
  const int64_t before = link_->bytes();
  bool arrived = false;
  std::exception_ptr failure;
  lock.unlock();
  try {
    arrived = link_->transfer(task.key, slot.slot, &stopping_);
  } catch (const TransferError&) {
    // The slot comes back empty; what was not prefetched is loaded on demand.
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  if (arrived)
    land(task, link_->bytes() - before);
  else
    ++counts_.failed;
  post(slot, arrived ? task.key : Control::kNothing);
  if (failure) std::rethrow_exception(failure);
}

void DeviceWorker::land(const Task& task, int64_t bytes) {
  const bool late = control_.load(Control::kPosition) >= task.deadline;
  ++counts_.landed;
  counts_.late += late;
  counts_.bytes += bytes;
  if (late) counts_.late_bytes += bytes;
  expect(landings_, task.key);
}

// The expert comes with this landing: no other task for it until the device has processed that.
void DeviceWorker::expect(int64_t landing, int32_t key) {
  landed_[key] = true;
  unseen_.emplace_back(landing, key);
}

void DeviceWorker::post(const LentSlot& slot, int64_t key) {
  control_.write_landing(landings_, slot, key);
  control_.store(Control::kLandings, ++landings_);
}

void DeviceWorker::give_back() {
  counts_.returned += static_cast<int64_t>(lent_.size());
  for (; !lent_.empty(); lent_.pop_front()) post(lent_.front(), Control::kNothing);
}

bool DeviceWorker::known(int64_t key) const { return key >= 0 && static_cast<size_t>(key) < landed_.size(); }

// The device copies misses itself: they have the link for themselves.
bool DeviceWorker::missing() const {
  return control_.load(Control::kMissesBegun) != control_.load(Control::kMissesDone);
}

}  // namespace seqmoe
