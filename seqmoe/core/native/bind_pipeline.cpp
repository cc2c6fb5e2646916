#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <tuple>

#include "bindings.h"
#include "pipeline.h"

namespace seqmoe {

using namespace nb::literals;

namespace {

nb::dict to_dict(const Statistics& s) {
  nb::dict result;
  result["events"] = s.events;
  result["needed"] = s.needed;
  result["hits"] = s.hits;
  result["late"] = s.late;
  result["misses"] = s.misses;
  result["late_unsent"] = s.late_unsent;
  result["prefetch_created"] = s.prefetch_created;
  result["prefetch_sent"] = s.prefetch_sent;
  result["prefetch_landed"] = s.prefetch_landed;
  result["prefetch_used"] = s.prefetch_used;
  result["prefetch_wasted"] = s.prefetch_wasted;
  result["prefetch_dropped"] = s.prefetch_dropped;
  result["on_demand_transfers"] = s.on_demand_transfers;
  result["stall_seconds"] = s.stall_seconds;
  return result;
}

void bind_link(nb::module_& module) {
  nb::class_<Link>(module, "Link", "One channel from the host pool to the slot pool; see seqmoe.core.link.")
      .def(
          "__init__",
          [](Link* self, const std::vector<std::tuple<uintptr_t, uintptr_t, size_t>>& parts, double seconds) {
            std::vector<Part> native;
            for (const auto& [host, device, bytes] : parts) native.push_back({host, device, bytes});
            new (self) Link(std::move(native), seconds);
          },
          "parts"_a, "seconds_per_expert"_a = 0.0)
      .def_prop_rw("seconds_per_expert", &Link::seconds_per_expert, &Link::set_seconds_per_expert,
                   "The time that one expert occupies the channel; 0 for as fast as the copy goes.")
      .def_prop_ro("transfers", &Link::transfers, "Experts moved so far.")
      .def_prop_ro("busy_seconds", &Link::busy_seconds, "Time in which the channel was occupied.")
      .def(
          "transfer", [](Link& self, int32_t key, int32_t slot) { self.transfer(key, slot); }, "key"_a, "slot"_a,
          nb::call_guard<nb::gil_scoped_release>(),
          "Copy expert `key` into `slot`, waiting for the channel first. RuntimeError once closed.")
      .def("close", &Link::close, nb::call_guard<nb::gil_scoped_release>(),
           "The addresses are about to become invalid: every later transfer raises RuntimeError.");
}

void bind_budget(nb::module_& module) {
  nb::class_<TransferBudget>(module, "TransferBudget",
                             "Prefetch transfers per layer that the link manages; see seqmoe.core.budget.")
      .def(nb::init<double, double>(), "average"_a, "alpha"_a = 0.1)
      .def("advance", &TransferBudget::advance, "layers"_a, "busy"_a = true,
           "`layers` layers have passed: move the average if the link was busy with prefetches, and refill `current`.")
      .def("spend", &TransferBudget::spend, "One more transfer.")
      .def_prop_ro("current", &TransferBudget::current, "What is left of the current layer's budget; may be negative.")
      .def_prop_ro("average", &TransferBudget::average, "Transfers per layer.");
}

}  // namespace

void bind_pipeline(nb::module_& module) {
  bind_link(module);
  bind_budget(module);
  nb::class_<OffloadPipeline>(module, "OffloadPipeline",
                              "Lands prefetches, loads misses, creates prefetch tasks; see seqmoe.core.pipeline.")
      .def(nb::init<std::shared_ptr<SlotTable>, std::shared_ptr<Link>, std::shared_ptr<TransferBudget>, bool>(),
           "table"_a, "link"_a, "budget"_a, "evict_after_layer"_a = false)
      .def(
          "enter",
          [](OffloadPipeline& self, int32_t layer, int64_t position, Vector<int32_t> experts) {
            std::vector<int32_t> slots(experts.size());
            {
              nb::gil_scoped_release unlocked;
              self.enter(layer, position, experts.data(), experts.size(), slots.data());
            }
            return to_numpy(std::move(slots));
          },
          "layer"_a, "position"_a, "experts"_a,
          "Make the distinct `experts` (int32 [n]) of a layer resident; returns their slots, int32 [n]. RuntimeError "
          "if the pool cannot hold them, if the worker has failed, or after stop().")
      .def("leave", &OffloadPipeline::leave, "layer"_a,
           "The layer is about to be computed: its COMPUTE slots become USED, untouched until the next enter().")
      .def(
          "prefetch",
          [](OffloadPipeline& self, Vector<int32_t> keys, Vector<float> confidence, Vector<int64_t> deadline) {
            check(keys.size() == confidence.size() && keys.size() == deadline.size(),
                  "keys, confidence and deadline must be equally long");
            nb::gil_scoped_release unlocked;
            return self.prefetch(keys.data(), confidence.data(), deadline.data(), keys.size());
          },
          "keys"_a, "confidence"_a, "deadline"_a,
          "Create tasks for experts that have no slot, the most confident first, within fetch_limit; returns how many.")
      .def("statistics", [](const OffloadPipeline& self) { return to_dict(self.statistics()); },
           "Counts since the last reset, by name.")
      .def("reset_statistics", &OffloadPipeline::reset_statistics, "Start counting from 0.")
      .def("stop", &OffloadPipeline::stop, nb::call_guard<nb::gil_scoped_release>(),
           "End the prefetch worker and cancel what is queued. Safe to call again.")
      .def("__enter__", [](nb::object self) { return self; })
      .def(
          "__exit__",
          [](OffloadPipeline& self, nb::args) {
            nb::gil_scoped_release unlocked;
            self.stop();
          });
}

}  // namespace seqmoe
