#include "cuda_bandwidth.h"

#include <cstring>
#include <stdexcept>

namespace seqmoe {

namespace {

// Pinned memory for the time of a measurement.
class PinnedBuffer {
 public:
  PinnedBuffer(const CudaContext& context, size_t bytes) : context_(context) {
    context_.driver().mem_host_alloc(&data_, bytes, cuda::kHostPortable);
    std::memset(data_, 1, bytes);
  }
  ~PinnedBuffer() { context_.driver().mem_free_host.result(data_); }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  const void* data() const { return data_; }

 private:
  const CudaContext& context_;
  void* data_ = nullptr;
};

// A stream and what it copies to.
struct Lane {
  Lane(const std::shared_ptr<const CudaContext>& context, const PinnedBuffer& from, size_t size)
      : driver(context->driver()), source(from), bytes(size), target(context, size), stream(context) {}

  void copy() const { driver.memcpy_htod_async(target.get(), source.data(), bytes, stream.get()); }

  const CudaDriver& driver;
  const PinnedBuffer& source;
  size_t bytes;
  DeviceMemory target;
  CudaStream stream;
};

// The other lane's copies are begun in turn with the lane's, for engines that serve all streams in that order.
double rate(const std::shared_ptr<const CudaContext>& context, const Lane& lane, const Lane* other, int rounds) {
  const CudaDriver& driver = context->driver();
  const CudaEvent start(context, cuda::kEventDefault), end(context, cuda::kEventDefault);
  const auto copy = [&] {
    if (other) other->copy();
    lane.copy();
  };
  copy();  // the first one wakes the link
  driver.event_record(start.get(), lane.stream.get());
  for (int round = 0; round < rounds; ++round) copy();
  driver.event_record(end.get(), lane.stream.get());
  driver.stream_synchronize(lane.stream.get());
  float milliseconds = 0;
  driver.event_elapsed_time(&milliseconds, start.get(), end.get());
  if (other) driver.stream_synchronize(other->stream.get());
  if (!(milliseconds > 0)) throw std::runtime_error("the driver measured no time for a copy");
  return static_cast<double>(lane.bytes) * rounds / (1e-3 * milliseconds);
}

}  // namespace

Bandwidth measure_bandwidth(const std::shared_ptr<const CudaContext>& context, size_t bytes, int rounds) {
  if (!bytes || rounds < 1) throw std::invalid_argument("bytes and rounds must be at least 1");
  const CudaContext::Use use(*context);
  const PinnedBuffer source(*context, bytes);
  const Lane lane(context, source, bytes), other(context, source, bytes);
  const double idle = rate(context, lane, nullptr, rounds);
  return {idle, rate(context, lane, &other, rounds)};
}

}  // namespace seqmoe
