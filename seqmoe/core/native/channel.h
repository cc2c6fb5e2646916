// One channel between next-level memory and the slot pool: one transfer at a time, at a throttled pace if asked.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stdexcept>

namespace seqmoe {

using Clock = std::chrono::steady_clock;

// The thread's short sleeps become exact to a few microseconds.
void sharpen_timer();

// How often a thread that waits looks whether it should go on.
constexpr std::chrono::milliseconds kLook{20};

// What a thread that waits for long calls now and then, holding no mutex but the channel's: it may throw to end the wait.
// Set once, before anything waits.
void set_interruption(void (*check)());
void check_interruption();

// A transfer that did not bring its bytes; another one may.
struct TransferError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What every kind of link has in common; the kinds differ in how they copy.
class Channel {
 public:
  virtual ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  double seconds_per_expert() const { return seconds_per_expert_; }
  void set_seconds_per_expert(double seconds);

  int64_t transfers() const { return transfers_; }
  int64_t bytes() const { return bytes_; }
  double busy_seconds() const { return 1e-9 * static_cast<double>(busy_nanoseconds_); }

  // The addresses are about to become invalid: every later transfer throws std::runtime_error.
  void close();

  // No piece of a copy but the first is begun while `held()` is true, which takes no time from busy_seconds(). Whoever
  // sets it takes it back, with an empty function, before what it looks at goes.
  virtual void hold_while(std::function<bool()> held);

  // Copies one expert and occupies the channel for its time, which counts from the start of the copy. `hurry` cuts the
  // pace short, and a copy between two of its pieces: false if the bytes have not arrived. Throws TransferError.
  bool transfer(int32_t key, int32_t slot, const std::atomic<bool>* hurry = nullptr);

 protected:
  // At most so many bytes are copied between two looks at `hurry`: a few milliseconds.
  static constexpr size_t kPiece = size_t{4} << 20;

  explicit Channel(double seconds_per_expert) { set_seconds_per_expert(seconds_per_expert); }

  static bool hurried(const std::atomic<bool>* hurry) { return hurry && *hurry; }

  // Between two pieces of a copy: waits while held, and says whether to go on or to end in a hurry.
  bool may_go_on(const std::atomic<bool>* hurry);

 private:
  // Returns the bytes copied, or nothing copied completely: -1. Called by one thread at a time.
  virtual int64_t copy(int32_t key, int32_t slot, const std::atomic<bool>* hurry) = 0;

  static void wait_until(Clock::time_point end, const std::atomic<bool>* hurry);

  std::timed_mutex channel_;
  bool closed_ = false;
  std::function<bool()> held_;
  Clock::duration held_time_{};  // of the transfer in progress
  std::atomic<double> seconds_per_expert_{0};
  std::atomic<int64_t> transfers_{0};
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> busy_nanoseconds_{0};
};

}  // namespace seqmoe
