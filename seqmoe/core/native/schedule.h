// Prefetch scheduling as Job Sequencing with Deadlines: matroid greedy, then the earliest deadline first.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace seqmoe {

// The transfers that fit before `deadline`: what is left of this layer's budget and that of the layers between.
struct Capacity {
  int64_t position;
  double current;
  double average;

  double operator()(int64_t deadline) const {
    return std::floor(std::max(1.0, current) + average * static_cast<double>(deadline - position - 1));
  }
};

// Holds its buffers, so that deciding costs no allocation. Ties everywhere: higher confidence, then earlier
// deadline, then lower index.
class Scheduler {
 public:
  // Positions that a deadline may lie ahead.
  static constexpr int64_t kFarthest = int64_t{1} << 20;

  // The most confident set of tasks that all meet their deadlines (Algorithm 1, lines 4-10), in no special order.
  // Tasks due by the next layer are no candidates. Capacity must not decrease with the deadline.
  template <class CapacityAt>
  const std::vector<int32_t>& feasible(const int64_t* deadline, const float* confidence, size_t count,
                                       int64_t position, const CapacityAt& capacity) {
    deadline_ = deadline;
    confidence_ = confidence;
    sort_by_deadline(count, position);
    const auto worst_first = [this](int32_t a, int32_t b) { return better(a, b); };
    kept_.clear();
    for (const int32_t task : order_) {
      if (static_cast<double>(kept_.size()) + 1 > capacity(deadline[task])) {
        // The least confident goes, this one or another; most queued tasks end here.
        if (kept_.empty() || better(kept_.front(), task)) continue;
        std::pop_heap(kept_.begin(), kept_.end(), worst_first);
        kept_.pop_back();
      }
      kept_.push_back(task);
      std::push_heap(kept_.begin(), kept_.end(), worst_first);
    }
    return kept_;
  }

  // The task to send next (line 11), or -1.
  int32_t select(const int64_t* deadline, const float* confidence, size_t count, const Capacity& capacity) {
    int32_t next = -1;
    for (const int32_t task : feasible(deadline, confidence, count, capacity.position, capacity))
      if (next < 0 || deadline[task] < deadline[next] || (deadline[task] == deadline[next] && better(task, next)))
        next = task;
    return next;
  }

 private:
  bool better(int32_t a, int32_t b) const {
    if (confidence_[a] != confidence_[b]) return confidence_[a] > confidence_[b];
    if (deadline_[a] != deadline_[b]) return deadline_[a] < deadline_[b];
    return a < b;
  }

  // Deadlines are few layers apart: counting sort took 3 us for 500 tasks where a comparison sort took 46.
  void sort_by_deadline(size_t count, int64_t position) {
    const int64_t first = position + 2;
    bucket_.clear();
    size_t candidates = 0;
    for (size_t i = 0; i < count; ++i) {
      if (confidence_[i] != confidence_[i]) throw std::invalid_argument("a confidence is not a number");
      if (deadline_[i] < first) continue;
      if (deadline_[i] >= first + kFarthest)
        throw std::invalid_argument("a deadline lies more than 2^20 positions ahead");
      const size_t ahead = static_cast<size_t>(deadline_[i] - first);
      if (ahead >= bucket_.size()) bucket_.resize(ahead + 1, 0);
      ++bucket_[ahead];
      ++candidates;
    }
    int32_t start = 0;
    for (int32_t& entry : bucket_) {
      const int32_t size = entry;
      entry = start;
      start += size;
    }
    order_.resize(candidates);
    for (size_t i = 0; i < count; ++i)
      if (deadline_[i] >= first) order_[bucket_[deadline_[i] - first]++] = static_cast<int32_t>(i);
  }

  const int64_t* deadline_ = nullptr;
  const float* confidence_ = nullptr;
  std::vector<int32_t> bucket_;
  std::vector<int32_t> order_;
  std::vector<int32_t> kept_;
};

}  // namespace seqmoe
