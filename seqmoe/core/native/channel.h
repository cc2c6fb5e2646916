// One channel between next-level memory and the slot pool: one transfer at a time, at a throttled pace if asked.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <stdexcept>

namespace seqmoe {

using Clock = std::chrono::steady_clock;

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

  // Copies one expert and occupies the channel for its time, which counts from the start of the copy. `hurry` cuts the
  // pace short, and a copy between two of its pieces: false if the bytes have not arrived. Throws TransferError.
  bool transfer(int32_t key, int32_t slot, const std::atomic<bool>* hurry = nullptr);

 protected:
  // At most so many bytes are copied between two looks at `hurry`: a few milliseconds.
  static constexpr size_t kPiece = size_t{4} << 20;

  explicit Channel(double seconds_per_expert) { set_seconds_per_expert(seconds_per_expert); }

  static bool hurried(const std::atomic<bool>* hurry) { return hurry && *hurry; }

 private:
  // Returns the bytes copied, or nothing copied completely: -1. Called by one thread at a time.
  virtual int64_t copy(int32_t key, int32_t slot, const std::atomic<bool>* hurry) = 0;

  static void wait_until(Clock::time_point end, const std::atomic<bool>* hurry);

  std::mutex channel_;
  bool closed_ = false;
  std::atomic<double> seconds_per_expert_{0};
  std::atomic<int64_t> transfers_{0};
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> busy_nanoseconds_{0};
};

}  // namespace seqmoe
