#include "dma_link.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace seqmoe {

namespace {

// A device that does not finish is not waited for any longer once the worker is to stop.
constexpr auto kPatience = std::chrono::milliseconds(50);

// A query costs about 1 us and a lock of the driver, which launches need too.
constexpr auto kFirstSleep = std::chrono::microseconds(2), kLongestSleep = std::chrono::microseconds(16);

}  // namespace

// The pieces under way, at most two. None is when it goes: the slot may be given away then.
class DmaLink::Flight {
 public:
  Flight(DmaLink& link, const std::atomic<bool>* hurry) : link_(link), hurry_(hurry) {}
  ~Flight() {
    try {
      end();
    } catch (...) {  // the error that led here is the one that counts
    }
  }

  void send(cuda::Address to, const void* from, size_t bytes) {
    if (sent_ - ended_ == static_cast<int64_t>(link_.done_.size())) wait();
    const CudaDriver& driver = link_.context_->driver();
    driver.memcpy_htod_async(to, from, bytes, link_.stream_.get());
    const cuda::Result recorded = driver.event_record.result(link_.done_[sent_ % 2].get(), link_.stream_.get());
    if (recorded != cuda::kSuccess) driver.stream_synchronize.result(link_.stream_.get());
    driver.event_record.check(recorded);
    ++sent_;
  }

  void end() {
    while (ended_ < sent_) wait();
  }

 private:
  void wait() {
    const int64_t piece = ended_++;  // even if it fails: it is not waited for again
    link_.wait(link_.done_[piece % 2], hurry_);
  }

  DmaLink& link_;
  const std::atomic<bool>* hurry_;
  int64_t sent_ = 0;
  int64_t ended_ = 0;
};

DmaLink::DmaLink(std::shared_ptr<const CudaContext> context, std::vector<uintptr_t> sources,
                 std::vector<Target> targets, double seconds_per_expert, size_t piece_bytes)
    : Channel(seconds_per_expert),
      context_(std::move(context)),
      sources_(std::move(sources)),
      targets_(std::move(targets)),
      piece_bytes_(piece_bytes),
      stream_(context_),
      done_{CudaEvent(context_, cuda::kEventDisableTiming), CudaEvent(context_, cuda::kEventDisableTiming)} {
  check_targets(targets_);
  if (!piece_bytes_) throw std::invalid_argument("piece_bytes must be at least 1");
  if (sources_.empty() || std::count(sources_.begin(), sources_.end(), 0))
    throw std::invalid_argument("sources are host addresses, none of them 0");
}

int64_t DmaLink::copy(int32_t key, int32_t slot, const std::atomic<bool>* hurry) {
  const size_t first = static_cast<size_t>(key) * targets_.size();
  if (key < 0 || first >= sources_.size())
    throw std::out_of_range("expert key " + std::to_string(key) + " has no source");
  const CudaContext::Use use(*context_);
  Flight flight(*this, hurry);
  int64_t copied = 0;
  for (size_t piece = 0; piece < targets_.size(); ++piece) {
    const Target& target = targets_[piece];
    const cuda::Address to = target.device + slot * target.stride;
    for (size_t done = 0; done < target.bytes; done += piece_bytes_) {
      if (copied > 0 && !may_go_on(hurry)) {
        flight.end();
        return -1;
      }
      const size_t bytes = std::min(piece_bytes_, target.bytes - done);
      flight.send(to + done, reinterpret_cast<const void*>(sources_[first + piece] + done), bytes);
      copied += static_cast<int64_t>(bytes);
    }
  }
  flight.end();
  return copied;
}

void DmaLink::wait(const CudaEvent& event, const std::atomic<bool>* hurry) const {
  const auto& query = context_->driver().event_query;
  sharpen_timer();
  std::chrono::nanoseconds sleep = kFirstSleep;
  std::optional<Clock::time_point> give_up;
  for (cuda::Result result = query.result(event.get()); result != cuda::kSuccess; result = query.result(event.get())) {
    if (result != cuda::kNotReady) query.check(result);
    if (!give_up && hurried(hurry)) give_up = Clock::now() + kPatience;
    if (give_up && Clock::now() > *give_up)
      throw std::runtime_error("a transfer to the device does not end: its memory is not safe to use again");
    std::this_thread::sleep_for(sleep);
    sleep = std::min<std::chrono::nanoseconds>(2 * sleep, kLongestSleep);
  }
}

}  // namespace seqmoe
