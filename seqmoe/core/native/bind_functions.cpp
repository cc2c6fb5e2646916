#include <Python.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "bindings.h"
#include "moe.h"
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

void bind_moe(nb::module_& module) {
  // noconvert: a conversion would copy a whole pool, or write the result into a copy.
  module.def(
      "moe_swiglu",
      [](Array<const float, 2> x, Array<const float, 3> gate_up, Array<const float, 3> down,
         Array<const int32_t, 2> slots, Array<const float, 2> weights, Array<float, 3> contribution) {
        const size_t tokens = x.shape(0), choices = slots.shape(1), hidden = x.shape(1), width = down.shape(2);
        check(slots.shape(0) == tokens, "slots must be [T, K] for x [T, H]");
        check(weights.shape(0) == tokens && weights.shape(1) == choices, "weights must be [T, K]");
        check(gate_up.shape(1) == 2 * width && gate_up.shape(2) == hidden, "gate_up must be [S, 2I, H]");
        check(down.shape(0) == gate_up.shape(0) && down.shape(1) == hidden, "down must be [S, H, I]");
        check(contribution.shape(0) == tokens && contribution.shape(1) == choices && contribution.shape(2) == hidden,
              "contribution must be [T, K, H]");
        for (size_t i = 0; i < slots.size(); ++i)
          check(slots.data()[i] < static_cast<int64_t>(down.shape(0)), "a slot lies outside the pool");
        nb::gil_scoped_release unlocked;
        moe_swiglu({tokens, choices, hidden, width, x.data(), gate_up.data(), down.data(), slots.data(),
                    weights.data(), contribution.data()});
      },
      "x"_a.noconvert(), "gate_up"_a.noconvert(), "down"_a.noconvert(), "slots"_a, "weights"_a,
      "contribution"_a.noconvert());
  module.def(
      "reduce_contributions",
      [](Array<const float, 3> contribution, Array<float, 2> out) {
        const size_t tokens = out.shape(0), choices = contribution.shape(1), hidden = out.shape(1);
        check(choices > 0, "contribution must be [T, K, H] with K at least 1");
        check(contribution.shape(0) == tokens && contribution.shape(2) == hidden, "out must be [T, H]");
        nb::gil_scoped_release unlocked;
        reduce_contributions(tokens, choices, hidden, contribution.data(), out.data());
      },
      "contribution"_a.noconvert(), "out"_a.noconvert());
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
  bind_moe(module);
  bind_replay(module);
}

}  // namespace seqmoe
