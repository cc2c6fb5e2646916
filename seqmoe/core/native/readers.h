// Threads that read the blocks of one expert side by side: a disk gives one reader half of its rate.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "disk_file.h"

namespace seqmoe {

class Readers {
 public:
  // Reads block `index` through a buffer of the thread's own; false if it was told to hurry.
  using Job = std::function<bool(size_t index, BounceBuffer& bounce)>;

  explicit Readers(int helpers) : helpers_(helpers) {}
  ~Readers();
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  // Calls `job` for 0 to count - 1, by the caller and the helpers; after the first false or exception for no more.
  // Returns whether all were true, when none is running any more; throws the first exception. One caller at a time.
  bool run(size_t count, const Job& job);

 private:
  // A helper that wakes late finds nothing to claim, and never looks at a job whose caller has gone.
  struct Batch {
    const Job* job;
    size_t count;
    std::atomic<size_t> next{0};
    std::atomic<bool> ended{false};
    std::mutex mutex;
    std::condition_variable finished;
    size_t done = 0;
    std::exception_ptr error;
  };

  static void work(Batch& batch, BounceBuffer& bounce);
  void help();

  const int helpers_;
  BounceBuffer bounce_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::shared_ptr<Batch> batch_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace seqmoe
