#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

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
  result["prefetch_failed"] = s.prefetch_failed;
  result["prefetch_used"] = s.prefetch_used;
  result["prefetch_wasted"] = s.prefetch_wasted;
  result["prefetch_dropped"] = s.prefetch_dropped;
  result["host_computed"] = s.host_computed;
  result["on_demand_transfers"] = s.on_demand_transfers;
  result["on_demand_failed"] = s.on_demand_failed;
  result["stall_seconds"] = s.stall_seconds;
  result["on_demand_seconds"] = s.on_demand_seconds;
  result["enter_seconds"] = s.enter_seconds;
  return result;
}

constexpr std::array<const char*, 2> kReserveNames{"creation", "selection"};

Order order_of(const std::string& name) { return static_cast<Order>(index_of(kOrderNames, name, "order")); }

}  // namespace

void bind_pipeline(nb::module_& module) {
  nb::class_<OffloadPipeline>(module, "OffloadPipeline",
                              "Lands prefetches, loads misses, creates prefetch tasks; see seqmoe.core.pipeline.")
      .def(
          "__init__",
          [](OffloadPipeline* self, std::shared_ptr<SlotTable> table, std::shared_ptr<Channel> link,
             std::shared_ptr<TransferBudget> budget, bool evict_after_layer, const std::string& order,
             const std::string& reserve) {
            const auto at = static_cast<Reserve>(index_of(kReserveNames, reserve, "reserve"));
            new (self) OffloadPipeline(std::move(table), std::move(link), std::move(budget),
                                       {evict_after_layer, order_of(order), at});
          },
          "table"_a, "link"_a, "budget"_a, "evict_after_layer"_a = false, "order"_a = "matroid",
          "reserve"_a = "selection")
      .def_prop_rw(
          "order", [](OffloadPipeline& self) { return kOrderNames[static_cast<size_t>(self.order())]; },
          [](OffloadPipeline& self, const std::string& order) { self.set_order(order_of(order)); },
          "Which task is sent next, one of seqmoe.core.schedule.ORDERS.")
      .def_prop_ro(
          "reserve",
          [](const OffloadPipeline& self) { return kReserveNames[static_cast<size_t>(self.reserve())]; },
          "When a task takes its slot: at 'creation' or at 'selection'.")
      .def_prop_rw("paused", &OffloadPipeline::paused, &OffloadPipeline::set_paused,
                   "While true, no prefetch is started.")
      .def(
          "enter",
          [](OffloadPipeline& self, int32_t layer, int64_t position, Vector<int32_t> experts,
             std::optional<Vector<int32_t>> loads) {
            check(!loads || loads->size() == experts.size() + 1, "loads must say it for 0 to n misses: int32 [n + 1]");
            std::vector<int32_t> slots(experts.size());
            {
              nb::gil_scoped_release unlocked;
              self.enter(layer, position, experts.data(), experts.size(), slots.data(),
                         loads ? loads->data() : nullptr);
            }
            return to_numpy(std::move(slots));
          },
          "layer"_a, "position"_a, "experts"_a, "loads"_a = nb::none(),
          "Make the distinct `experts` (int32 [n]) of a layer resident; returns their slots, int32 [n]. With `loads` "
          "(int32 [n + 1]) only loads[m] of m misses are loaded; the slots of the others are -1. RuntimeError if the "
          "pool cannot hold them, if a load or the worker has failed, or after stop().")
      .def_prop_ro(
          "last_event",
          [](OffloadPipeline& self) {
            const EventCounts event = self.last_event();
            return std::make_tuple(event.hits, event.late, event.loads, event.host_computed);
          },
          "Of the last enter(): hits, late, loads on demand, and misses that were left to be computed where they are.")
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
          "Create tasks for experts that have neither a slot nor a task; returns how many.")
      .def("settle", &OffloadPipeline::settle, nb::call_guard<nb::gil_scoped_release>(),
           "Wait until the worker has sent whatever it may send now.")
      .def(
          "pool",
          [](OffloadPipeline& self) {
            auto [owner, state] = self.pool();
            return nb::make_tuple(to_numpy(std::move(owner)), to_numpy(std::move(state)));
          },
          "Owner and state of every slot at one moment, int32 [slots] each.")
      .def("statistics", [](OffloadPipeline& self) { return to_dict(self.statistics()); },
           "Counts since the last reset, by name.")
      .def("write_off", &OffloadPipeline::write_off,
           "Prefetches so far that no event has needed count as wasted: a prompt is over, and its layers have passed.")
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
