#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "bindings.h"
#include "device_worker.h"

namespace seqmoe {

using namespace nb::literals;

namespace {

nb::dict to_dict(const DeviceWorkerCounts& c) {
  nb::dict result;
  result["tasks"] = c.tasks;
  result["overdue"] = c.overdue;
  result["duplicate"] = c.duplicate;
  result["refused"] = c.refused;
  result["overrun"] = c.overrun;
  result["sent"] = c.sent;
  result["landed"] = c.landed;
  result["late"] = c.late;
  result["failed"] = c.failed;
  result["returned"] = c.returned;
  result["bytes"] = c.bytes;
  result["late_bytes"] = c.late_bytes;
  return result;
}

void make_worker(DeviceWorker* self, Array<int64_t, 1> words, std::shared_ptr<Channel> link,
                 std::shared_ptr<TransferBudget> budget, int32_t layers, int32_t experts, int32_t slots,
                 const std::string& order) {
  check(layers > 0 && experts > 0 && slots > 0, "layers, experts and slots must be at least 1");
  const int64_t keys = int64_t{layers} * experts;
  check(keys <= std::numeric_limits<int32_t>::max(), "layers * experts does not fit an int32 expert key");
  const auto size = static_cast<int64_t>(words.size());
  const int64_t capacity = size > Control::kHeader ? words.data()[Control::kCapacity] : 0;
  check(capacity > 0 && Control::words(capacity) == size, "words: no control region, see seqmoe.core.control.Control");
  const auto kind = static_cast<Order>(index_of(kOrderNames, order, "order"));
  new (self) DeviceWorker({reinterpret_cast<uintptr_t>(words.data()), capacity}, std::move(link), std::move(budget),
                          TaskQueue(kind, layers, static_cast<size_t>(keys)), static_cast<int32_t>(keys), slots);
}

}  // namespace

void bind_device_worker(nb::module_& module) {
  using Unlocked = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<DeviceWorker>(module, "DeviceWorker", "A device's prefetch worker; see seqmoe.core.device_worker.")
      .def("__init__", &make_worker, nb::keep_alive<1, 2>(), "words"_a, "link"_a, "budget"_a, "layers"_a, "experts"_a,
           "slots"_a, "order"_a = "matroid")
      .def_prop_rw("paused", &DeviceWorker::paused, &DeviceWorker::pause,
                   "While true nothing is sent, and lent slots go back at once.")
      .def_prop_ro("queued", &DeviceWorker::queued, "Tasks read and not sent yet.")
      .def("check", &DeviceWorker::check, Unlocked(), "Raise what ended the worker, if it was not stop().")
      .def("forget", &DeviceWorker::forget, Unlocked(),
           "A new request begins and the device is at rest: drop every task so far. The budget stays.")
      .def("statistics", [](DeviceWorker& self) { return to_dict(self.counts()); }, "Counts so far, by name.")
      .def("stop", &DeviceWorker::stop, Unlocked(), "End the thread and give back every lent slot. Safe to call again.")
      .def("__enter__", [](nb::object self) { return self; })
      .def("__exit__", [](DeviceWorker& self, nb::args) {
        nb::gil_scoped_release unlocked;
        self.stop();
      });
}

}  // namespace seqmoe
