#include <Python.h>

#include <numeric>

#include "bindings.h"
#include "moe.h"
#include "replay.h"
#include "schedule.h"

namespace seqmoe {

using namespace nb::literals;

namespace {

void check_tasks(const Vector<int64_t>& deadline, const Vector<float>& confidence) {
  check(deadline.size() == confidence.size(), "deadline and confidence must be equally long");
}

Capacity capacity_of(int64_t position, double current, double average) {
  check(position >= 0 && position < (int64_t{1} << 62), "position must not be negative");
  check(average >= 0 && std::isfinite(average), "budget_average must be finite and not negative");
  check(std::isfinite(current), "budget_current must be finite");
  return {position, current, average};
}

auto sorted(std::vector<int32_t> indices) {
  std::sort(indices.begin(), indices.end());
  return to_numpy(std::move(indices));
}

void bind_schedule(nb::module_& module) {
  module.def(
      "feasible_set",
      [](Vector<int64_t> deadline, Vector<float> confidence, int64_t position, double current, double average) {
        check_tasks(deadline, confidence);
        const Capacity capacity = capacity_of(position, current, average);
        Scheduler scheduler;
        return sorted(scheduler.feasible(deadline.data(), confidence.data(), deadline.size(), position, capacity));
      },
      "deadline"_a, "confidence"_a, "position"_a, "budget_current"_a, "budget_average"_a);
  module.def(
      "feasible_within",
      [](Vector<int64_t> deadline, Vector<float> confidence, Vector<int64_t> capacity) {
        check_tasks(deadline, confidence);
        int64_t before = 0;
        for (size_t i = 0; i < capacity.size(); ++i) {
          check(capacity.data()[i] >= before, "capacity must not be negative nor decrease with the deadline");
          before = capacity.data()[i];
        }
        for (size_t i = 0; i < deadline.size(); ++i)
          check(deadline.data()[i] >= 0 && static_cast<size_t>(deadline.data()[i]) < capacity.size(),
                "every deadline must have a capacity");
        Scheduler scheduler;
        return sorted(scheduler.feasible(
            deadline.data(), confidence.data(), deadline.size(), -2,
            [&](int64_t due) { return static_cast<double>(capacity.data()[due]); }));
      },
      "deadline"_a, "confidence"_a, "capacity"_a);
  module.def(
      "select",
      [](Vector<int64_t> deadline, Vector<float> confidence, int64_t position, double current, double average) {
        check_tasks(deadline, confidence);
        const Capacity capacity = capacity_of(position, current, average);
        return Scheduler().select(deadline.data(), confidence.data(), deadline.size(), capacity);
      },
      "deadline"_a, "confidence"_a, "position"_a, "budget_current"_a, "budget_average"_a);
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

// Checks a trace and lays it out as units: whole events, or every access alone.
Routing routing_of(int32_t layers, int32_t experts, const Vector<int32_t>& event_layer,
                   const Vector<int64_t>& event_start, const Vector<int32_t>& expert, bool sequential) {
  check(layers > 0 && experts > 0, "layers and experts must be at least 1");
  check(event_start.size() == event_layer.size() + 1, "event_start must have one entry more than event_layer");
  const int64_t* const start = event_start.data();
  check(start[0] == 0 && start[event_layer.size()] == static_cast<int64_t>(expert.size()),
        "event_start must begin at 0 and end at the number of accesses");
  Routing routing{static_cast<size_t>(layers) * experts, std::vector<int32_t>(expert.size()), {}};
  std::vector<size_t> last_event(routing.keys, 0);
  for (size_t event = 0; event < event_layer.size(); ++event) {
    const int32_t layer = event_layer.data()[event];
    check(start[event] <= start[event + 1], "event_start must not decrease");
    check(layer >= 0 && layer < layers, "event " + std::to_string(event) + " has an unknown layer");
    for (int64_t i = start[event]; i < start[event + 1]; ++i) {
      const int32_t index = expert.data()[i];
      check(index >= 0 && index < experts, "event " + std::to_string(event) + " has an unknown expert");
      const int32_t key = layer * experts + index;
      check(last_event[key] != event + 1, "event " + std::to_string(event) + " names an expert twice");
      last_event[key] = event + 1;
      routing.key[i] = key;
    }
  }
  if (sequential) {
    routing.start.resize(expert.size() + 1);
    std::iota(routing.start.begin(), routing.start.end(), int64_t{0});
  } else {
    routing.start.assign(start, start + event_start.size());
  }
  return routing;
}

void bind_replay(nb::module_& module) {
  nb::enum_<Policy>(module, "Policy")
      .value("LRU", Policy::lru)
      .value("LFU", Policy::lfu)
      .value("BELADY", Policy::belady);
  module.def(
      "replay",
      [](int32_t layers, int32_t experts, int32_t slots, Vector<int32_t> event_layer, Vector<int64_t> event_start,
         Vector<int32_t> expert, int64_t count_from_event, Policy policy, bool sequential) {
        check(slots > 0, "slots must be at least 1");
        check(count_from_event >= 0 && count_from_event <= static_cast<int64_t>(event_layer.size()),
              "count_from_event must name an event, or their number");
        const Routing routing = routing_of(layers, experts, event_layer, event_start, expert, sequential);
        const int64_t count_from = sequential ? event_start.data()[count_from_event] : count_from_event;
        ReplayCounts counts;
        {
          nb::gil_scoped_release unlocked;
          counts = replay(routing, slots, count_from, policy, [] {
            nb::gil_scoped_acquire locked;
            if (PyErr_CheckSignals() != 0) throw nb::python_error();
          });
        }
        return nb::make_tuple(counts.hits, counts.needed, counts.evictions, counts.loads);
      },
      "layers"_a, "experts"_a, "slots"_a, "event_layer"_a, "event_start"_a, "expert"_a, "count_from_event"_a,
      "policy"_a, "sequential"_a);
}

}  // namespace

void bind_functions(nb::module_& module) {
  bind_schedule(module);
  bind_moe(module);
  bind_replay(module);
}

}  // namespace seqmoe
