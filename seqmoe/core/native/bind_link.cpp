#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "budget.h"
#include "disk_link.h"
#include "failing_link.h"
#include "link.h"

namespace seqmoe {

using namespace nb::literals;

namespace {

void bind_channel(nb::module_& module) {
  nb::exception<TransferError>(module, "TransferError", PyExc_RuntimeError);
  nb::class_<Channel>(module, "Channel", "What every link has in common; see seqmoe.core.link.")
      .def_prop_rw("seconds_per_expert", &Channel::seconds_per_expert, &Channel::set_seconds_per_expert,
                   "The time that one expert occupies the channel; 0 for as fast as the copy goes.")
      .def_prop_ro("transfers", &Channel::transfers, "Experts moved so far.")
      .def_prop_ro("bytes", &Channel::bytes, "Bytes moved so far.")
      .def_prop_ro("busy_seconds", &Channel::busy_seconds, "Time in which the channel was occupied.")
      .def(
          "transfer", [](Channel& self, int32_t key, int32_t slot) { self.transfer(key, slot); }, "key"_a, "slot"_a,
          nb::call_guard<nb::gil_scoped_release>(),
          "Copy expert `key` into `slot`, waiting for the channel first. TransferError if the bytes did not arrive, "
          "RuntimeError once closed.")
      .def("close", &Channel::close, nb::call_guard<nb::gil_scoped_release>(),
           "The addresses are about to become invalid: every later transfer raises RuntimeError.");
}

void make_disk_link(DiskLink* self, const std::vector<std::string>& files, Array<const int64_t, 3> sources,
                    const std::vector<std::tuple<uintptr_t, size_t, size_t>>& targets, double seconds, bool direct) {
  check(sources.shape(1) == targets.size() && sources.shape(2) == 2,
        "sources must be [keys, pieces, 2], with as many pieces as there are targets");
  std::vector<Source> from;
  for (size_t i = 0; i < sources.size(); i += 2) from.push_back({sources.data()[i], sources.data()[i + 1]});
  std::vector<Target> to;
  for (const auto& [device, stride, bytes] : targets) to.push_back({device, stride, bytes});
  try {
    new (self) DiskLink(files, std::move(from), std::move(to), seconds, direct);
  } catch (const FileError& error) {
    errno = error.code;
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, error.path.c_str());
    throw nb::python_error();
  }
}

void bind_links(nb::module_& module) {
  nb::class_<Link, Channel>(module, "Link", "From the host pool to the slot pool; see seqmoe.core.link.")
      .def(
          "__init__",
          [](Link* self, const std::vector<std::tuple<uintptr_t, uintptr_t, size_t>>& parts, double seconds) {
            std::vector<Part> native;
            for (const auto& [host, device, bytes] : parts) native.push_back({host, device, bytes});
            new (self) Link(std::move(native), seconds);
          },
          "parts"_a, "seconds_per_expert"_a = 0.0);
  nb::class_<DiskLink, Channel>(module, "DiskLink", "From files to the slot pool; see seqmoe.core.link.")
      .def("__init__", &make_disk_link, "files"_a, "sources"_a, "targets"_a, "seconds_per_expert"_a = 0.0,
           "direct"_a = true)
      .def_prop_ro("direct", &DiskLink::direct, "Whether all files are read past the page cache.");
  nb::class_<FailingLink, Channel>(module, "FailingLink", "A link with faults; see seqmoe.core.link.")
      .def(nb::init<std::shared_ptr<Channel>, int64_t>(), "link"_a, "every"_a);
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

void bind_link(nb::module_& module) {
  bind_channel(module);
  bind_links(module);
  bind_budget(module);
}

}  // namespace seqmoe
