#include "channel.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#ifdef __linux__
#include <sys/prctl.h>
#endif

namespace seqmoe {

// The kernel's default slack of 50 us is a quarter of an expert's time on a fast link.
void sharpen_timer() {
#ifdef __linux__
  thread_local const int done = prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  (void)done;
#endif
}

void Channel::set_seconds_per_expert(double seconds) {
  if (!(seconds >= 0) || !std::isfinite(seconds))
    throw std::invalid_argument("seconds_per_expert must be finite and not negative");
  seconds_per_expert_ = seconds;
}

void Channel::close() {
  std::lock_guard channel(channel_);
  closed_ = true;
}

void Channel::hold_while(std::function<bool()> held) {
  std::lock_guard channel(channel_);
  held_ = std::move(held);
}

bool Channel::may_go_on(const std::atomic<bool>* hurry) {
  if (!held_ || !held_()) return !hurried(hurry);
  const auto start = Clock::now();
  sharpen_timer();
  while (!hurried(hurry) && held_()) std::this_thread::sleep_for(std::chrono::microseconds(5));
  held_time_ += Clock::now() - start;
  return !hurried(hurry);
}

bool Channel::transfer(int32_t key, int32_t slot, const std::atomic<bool>* hurry) {
  std::unique_lock channel(channel_, std::defer_lock);
  if (hurry) channel.lock();
  while (!channel.owns_lock() && !channel.try_lock_for(kLook)) check_interruption();
  if (closed_) throw std::runtime_error("the link is closed");
  const auto start = Clock::now();
  held_time_ = {};
  const int64_t copied = copy(key, slot, hurry);
  if (copied < 0) return false;
  if (const double seconds = seconds_per_expert_; seconds > 0)
    wait_until(start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)), hurry);
  busy_nanoseconds_ += std::chrono::nanoseconds(Clock::now() - start - held_time_).count();
  bytes_ += copied;
  ++transfers_;
  return true;
}

namespace {

void (*interruption)() = nullptr;

}  // namespace

void set_interruption(void (*check)()) { interruption = check; }

void check_interruption() {
  if (interruption) interruption();
}

void Channel::wait_until(Clock::time_point end, const std::atomic<bool>* hurry) {
  // Inference waits awake: after a sleep its next layers ran 10 % slower. The worker sleeps almost to the end: its
  // spinning slowed inference on the core beside it by as much.
  const auto spin = std::chrono::microseconds(hurry ? 15 : 2000);
  sharpen_timer();
  for (auto now = Clock::now(); now + spin < end; now = Clock::now()) {
    if (hurried(hurry)) return;
    std::this_thread::sleep_until(std::min(end - spin, now + kLook));
    if (!hurry && now + kLook < end) check_interruption();
  }
  while (Clock::now() < end) {
  }
}

}  // namespace seqmoe
