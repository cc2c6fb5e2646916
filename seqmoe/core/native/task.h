// A prefetch task: which expert is to be in which slot before which position.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace seqmoe {

struct Task {
  int32_t key;
  int32_t slot;
  int64_t tag;
  int64_t deadline;
  float confidence;
};

// Takes out of `tasks` every one for which `wanted(task)` holds; the others keep their order.
template <class Predicate>
std::vector<Task> take_tasks(std::vector<Task>& tasks, const Predicate& wanted) {
  std::vector<Task> taken;
  const auto keep = std::remove_if(tasks.begin(), tasks.end(), [&](const Task& task) {
    if (!wanted(task)) return false;
    taken.push_back(task);
    return true;
  });
  tasks.erase(keep, tasks.end());
  return taken;
}

// Takes out the task that was created last.
inline std::optional<Task> take_newest(std::vector<Task>& tasks) {
  if (tasks.empty()) return std::nullopt;
  const auto newest =
      std::max_element(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) { return a.tag < b.tag; });
  const Task task = *newest;
  tasks.erase(newest);
  return task;
}

}  // namespace seqmoe
