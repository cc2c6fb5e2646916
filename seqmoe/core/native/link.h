// The link between the host pool and the slot pool: one channel, really copied bytes, optionally a throttled pace.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#ifdef __linux__
#include <sys/prctl.h>
#endif

namespace seqmoe {

using Clock = std::chrono::steady_clock;

// Expert `key` lies at host + key * bytes, slot `slot` at device + slot * bytes.
struct Part {
  uintptr_t host;
  uintptr_t device;
  size_t bytes;
};

class Link {
 public:
  Link(std::vector<Part> parts, double seconds_per_expert) : parts_(std::move(parts)) {
    if (parts_.empty()) throw std::invalid_argument("a link needs at least one part");
    for (const Part& part : parts_)
      if (!part.host || !part.device || !part.bytes)
        throw std::invalid_argument("a part is (host address, device address, bytes per expert), none of them 0");
    set_seconds_per_expert(seconds_per_expert);
  }

  double seconds_per_expert() const { return seconds_per_expert_; }
  void set_seconds_per_expert(double seconds) {
    if (!(seconds >= 0) || !std::isfinite(seconds))
      throw std::invalid_argument("seconds_per_expert must be finite and not negative");
    seconds_per_expert_ = seconds;
  }

  int64_t transfers() const { return transfers_; }
  double busy_seconds() const { return 1e-9 * static_cast<double>(busy_nanoseconds_); }

  // The addresses are about to become invalid: every later transfer throws.
  void close() {
    std::lock_guard channel(channel_);
    closed_ = true;
  }

  // Copies one expert and occupies the channel for its time. `hurry` cuts the pace short, never the copy.
  void transfer(int32_t key, int32_t slot, const std::atomic<bool>* hurry = nullptr) {
    std::lock_guard channel(channel_);
    if (closed_) throw std::runtime_error("the link is closed");
    const auto start = Clock::now();
    for (const Part& part : parts_)
      std::memcpy(reinterpret_cast<void*>(part.device + slot * part.bytes),
                  reinterpret_cast<const void*>(part.host + key * part.bytes), part.bytes);
    if (const double seconds = seconds_per_expert_; seconds > 0)
      wait_until(start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)), hurry);
    busy_nanoseconds_ += std::chrono::nanoseconds(Clock::now() - start).count();
    ++transfers_;
  }

 private:
  static void wait_until(Clock::time_point end, const std::atomic<bool>* hurry) {
    // Inference waits awake: after a sleep its next layers ran 10 % slower. The worker sleeps almost to the end: its
    // spinning slowed inference on the core beside it by as much.
    const auto spin = std::chrono::microseconds(hurry ? 15 : 2000);
    constexpr auto slice = std::chrono::milliseconds(20);
    sharpen_timer();
    for (auto now = Clock::now(); now + spin < end; now = Clock::now()) {
      if (hurry && *hurry) return;
      std::this_thread::sleep_until(std::min(end - spin, now + slice));
    }
    while (Clock::now() < end) {
    }
  }

  // The kernel's default slack of 50 us is a quarter of an expert's time on a fast link.
  static void sharpen_timer() {
#ifdef __linux__
    thread_local const int done = prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
    (void)done;
#endif
  }

  std::vector<Part> parts_;
  std::mutex channel_;
  bool closed_ = false;
  std::atomic<double> seconds_per_expert_{0};
  std::atomic<int64_t> transfers_{0};
  std::atomic<int64_t> busy_nanoseconds_{0};
};

}  // namespace seqmoe
