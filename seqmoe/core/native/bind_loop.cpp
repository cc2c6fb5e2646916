#include <Python.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <utility>
#include <vector>

#include "bindings.h"
#include "loop.h"

namespace seqmoe {

using namespace nb::literals;

namespace {

template <class T>
using Rows = nb::ndarray<const T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

template <class A>
auto data_or_null(const std::optional<A>& array) {
  return array ? array->data() : nullptr;
}

// The order is that of PLACED in seqmoe/core/loop.py.
nb::tuple to_tuple(const Place& p) {
  return nb::make_tuple(p.hits, p.needed, p.late, p.loads, p.sent, p.used, p.wasted);
}

nb::list to_list(const std::vector<Place>& places) {
  nb::list result;
  for (const Place& place : places) result.append(to_tuple(place));
  return result;
}

nb::dict to_dict(const LoopCounts& c) {
  nb::dict result;
  result["all"] = to_tuple(c.all);
  result["assigned_hits"] = c.assigned_hits;
  result["assigned"] = c.assigned;
  result["created"] = c.created;
  result["landed"] = c.landed;
  result["dropped"] = c.dropped;
  result["evictions"] = c.evictions;
  result["layers"] = to_list(c.layers);
  result["bands"] = to_list(c.bands);
  return result;
}

}  // namespace

// The face in seqmoe/core/simulate.py has checked the arguments.
void bind_loop(nb::module_& module) {
  nb::class_<EventLoop>(module, "EventLoop")
      .def(
          "__init__",
          [](EventLoop* self, int32_t layers, int32_t experts, int32_t slots, bool prefetch, double link, int order,
             bool reserve_at_creation, std::optional<int32_t> fetch_limit, double alpha, bool sequential,
             std::vector<int64_t> bands) {
            std::optional<PrefetchRules> rules;
            if (prefetch)
              rules = PrefetchRules{link, static_cast<Order>(order), reserve_at_creation, fetch_limit, alpha};
            new (self) EventLoop(layers, experts, slots, rules, sequential, std::move(bands));
          },
          "layers"_a, "experts"_a, "slots"_a, "prefetch"_a, "link"_a, "order"_a, "reserve_at_creation"_a,
          "fetch_limit"_a.none(), "alpha"_a, "sequential"_a, "bands"_a)
      .def(
          "feed",
          [](EventLoop& self, Vector<int64_t> step, Vector<int32_t> layer, Vector<int64_t> start,
             Vector<int32_t> expert, bool count, std::optional<Vector<int32_t>> demand,
             std::optional<Vector<float>> accessed,
             std::optional<Rows<float>> used, std::optional<Rows<float>> forecast,
             std::vector<std::pair<int32_t, int32_t>> ranges, std::optional<Rows<int32_t>> task_expert,
             std::optional<Rows<float>> task_confidence) {
            const Block block{step.size(),
                              step.data(),
                              layer.data(),
                              start.data(),
                              expert.data(),
                              data_or_null(demand),
                              data_or_null(accessed),
                              data_or_null(used),
                              data_or_null(forecast),
                              ranges,
                              task_expert ? task_expert->shape(2) : 0,
                              data_or_null(task_expert),
                              data_or_null(task_confidence)};
            nb::gil_scoped_release unlocked;
            self.feed(block, count, [] {
              nb::gil_scoped_acquire locked;
              if (PyErr_CheckSignals() != 0) throw nb::python_error();
            });
          },
          "step"_a, "layer"_a, "start"_a, "expert"_a, "count"_a, "demand"_a.none(), "accessed"_a.none(),
          "used"_a.none(), "forecast"_a.none(), "ranges"_a, "task_expert"_a.none(), "task_confidence"_a.none())
      .def("pool",
           [](EventLoop& self) {
             SlotTable& table = self.table();
             std::vector<int32_t> owner(table.owner_data(), table.owner_data() + table.slots());
             std::vector<int32_t> state;
             for (int32_t slot = 0; slot < table.slots(); ++slot) state.push_back(static_cast<int32_t>(table.state(slot)));
             return nb::make_tuple(to_numpy(std::move(owner)), to_numpy(std::move(state)));
           })
      .def("set_scores", [](EventLoop& self, Array<const float, 2> scores) { self.set_all_scores(scores.data()); },
           "scores"_a)
      .def("counts", [](const EventLoop& self) { return to_dict(self.counts()); })
      .def("forget", &EventLoop::forget)
      .def_prop_ro("position", &EventLoop::position);
}

}  // namespace seqmoe
