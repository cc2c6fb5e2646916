// Which queued prefetch is sent next: the paper's order, those of its rivals, and each half of the paper's alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "schedule.h"

namespace seqmoe {

enum class Order { matroid, infinity, promoe, confidence, edf };
constexpr std::array<const char*, 5> kOrderNames{"matroid", "infinity", "promoe", "confidence", "edf"};

// MoE-Infinity's priority (paper, section 3.2): a task loses weight with the layers that are left until it is due.
inline double infinity_priority(float confidence, int64_t deadline, int64_t position, int32_t layers) {
  return confidence * (1 - static_cast<double>(deadline - position) / (layers + 1.0));
}

// Whether task a goes before task b by one of the orders that look at one task at a time.
struct Precedence {
  Order order;
  const int64_t* deadline;
  const float* confidence;
  int64_t position;
  int32_t layers;

  bool operator()(int32_t a, int32_t b) const {
    if (order == Order::infinity) {
      const double left = infinity_priority(confidence[a], deadline[a], position, layers);
      const double right = infinity_priority(confidence[b], deadline[b], position, layers);
      if (left != right) return left > right;
    }
    const bool urgent = order == Order::promoe || order == Order::edf;
    if (urgent && deadline[a] != deadline[b]) return deadline[a] < deadline[b];
    if (order != Order::edf && confidence[a] != confidence[b]) return confidence[a] > confidence[b];
    return deadline[a] != deadline[b] ? deadline[a] < deadline[b] : a < b;
  }
};

// The first of the tasks due at `earliest` or later, or -1.
inline int32_t first_of(const Precedence& before, size_t count, int64_t earliest) {
  int32_t first = -1;
  for (int32_t task = 0; task < static_cast<int32_t>(count); ++task)
    if (before.deadline[task] >= earliest && (first < 0 || before(task, first))) first = task;
  return first;
}

}  // namespace seqmoe
