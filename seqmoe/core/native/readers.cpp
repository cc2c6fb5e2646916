#include "readers.h"

#include <utility>

namespace seqmoe {

Readers::~Readers() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Readers::run(size_t count, const Job& job) {
  const auto batch = std::make_shared<Batch>();
  batch->job = &job;
  batch->count = count;
  if (count > 1) {
    std::lock_guard lock(mutex_);
    while (threads_.size() < static_cast<size_t>(helpers_)) threads_.emplace_back(&Readers::help, this);
    batch_ = batch;
    wake_.notify_all();
  }
  work(*batch, bounce_);
  std::unique_lock lock(batch->mutex);
  batch->finished.wait(lock, [&] { return batch->done == batch->count; });
  if (batch->error) std::rethrow_exception(batch->error);
  return !batch->ended;
}

void Readers::work(Batch& batch, BounceBuffer& bounce) {
  for (size_t index = batch.next++; index < batch.count; index = batch.next++) {
    std::exception_ptr error;
    try {
      if (!batch.ended && !(*batch.job)(index, bounce)) batch.ended = true;
    } catch (...) {
      error = std::current_exception();
      batch.ended = true;
    }
    std::lock_guard lock(batch.mutex);
    if (error && !batch.error) batch.error = std::move(error);
    if (++batch.done == batch.count) batch.finished.notify_one();
  }
}

void Readers::help() {
  BounceBuffer bounce;
  std::shared_ptr<Batch> last;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return closing_ || batch_ != last; });
      if (closing_) return;
      last = batch_;
    }
    work(*last, bounce);
  }
}

}  // namespace seqmoe
