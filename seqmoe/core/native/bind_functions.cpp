#include <Python.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "bindings.h"
#include "orders.h"
#include "replay.h"
#include "schedule.h"

namespace seqmoe {

using namespace nb::literals;

namespace {

auto sorted(std::vector<int32_t> indices) {
  std::sort(indices.begin(), indices.end());
  return to_numpy(std::move(indices));
}

// The faces in seqmoe/core/schedule.py have checked the arguments.
void bind_schedule(nb::module_& module) {
  module.def(
      "feasible_set",
      [](Vector<int64_t> deadline, Vector<float> confidence, int64_t position, double current, double average) {
        const Capacity capacity{position, current, average};
        Scheduler scheduler;
        return sorted(scheduler.feasible(deadline.data(), confidence.data(), deadline.size(), position, capacity));
      },
      "deadline"_a, "confidence"_a, "position"_a, "budget_current"_a, "budget_average"_a);
  module.def(
      "feasible_within",
      [](Vector<int64_t> deadline, Vector<float> confidence, Vector<int64_t> capacity) {
        Scheduler scheduler;
        const auto capacity_at = [&](int64_t due) { return static_cast<double>(capacity.data()[due]); };
        return sorted(scheduler.feasible(deadline.data(), confidence.data(), deadline.size(), -2, capacity_at));
      },
      "deadline"_a, "confidence"_a, "capacity"_a);
  module.def(
      "select",
      [](Vector<int64_t> deadline, Vector<float> confidence, int64_t position, double current, double average) {
        const Capacity capacity{position, current, average};
        return Scheduler().select(deadline.data(), confidence.data(), deadline.size(), capacity);
      },
      "deadline"_a, "confidence"_a, "position"_a, "budget_current"_a, "budget_average"_a);
  module.def(
      "first_task",
      [](int order, Vector<int64_t> deadline, Vector<float> confidence, int64_t position, int32_t layers,
         int64_t earliest) {
        const Precedence before{static_cast<Order>(order), deadline.data(), confidence.data(), position, layers};
        return first_of(before, deadline.size(), earliest);
      },
      "order"_a, "deadline"_a, "confidence"_a, "position"_a, "layers"_a, "earliest"_a);
}

// The face in seqmoe/core/simulate.py has checked the arguments.
void bind_replay(nb::module_& module) {
  nb::class_<Replay>(module, "Replay")
      .def(
          "feed",
          [](Replay& self, Vector<int32_t> layer, Vector<int64_t> start, Vector<int32_t> expert, size_t count_from) {
            const Routing block{layer.size(), layer.data(), start.data(), expert.data()};
            nb::gil_scoped_release unlocked;
            self.feed(block, count_from, [] {
              nb::gil_scoped_acquire locked;
              if (PyErr_CheckSignals() != 0) throw nb::python_error();
            });
          },
          "layer"_a, "start"_a, "expert"_a, "count_from"_a)
      .def("counts", [](const Replay& self) {
        const ReplayCounts& counts = self.counts();
        return nb::make_tuple(counts.hits, counts.needed, counts.evictions);
      });
  module.def(
      "make_replay",
      [](int32_t layers, int32_t experts, size_t slots, int policy, bool sequential) {
        return make_replay(layers, experts, slots, static_cast<Policy>(policy), sequential);
      },
      "layers"_a, "experts"_a, "slots"_a, "policy"_a, "sequential"_a);
}

}  // namespace

void bind_functions(nb::module_& module) {
  bind_schedule(module);
  bind_replay(module);
}

}  // namespace seqmoe
