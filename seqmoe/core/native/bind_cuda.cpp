#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <array>
#include <memory>
#include <string>

#include "bindings.h"
#include "cuda_bandwidth.h"
#include "cuda_driver.h"
#include "cuda_handles.h"
#include "mapped_memory.h"

namespace seqmoe {

using namespace nb::literals;

namespace {

// With what failed as attributes; nanobind's own would carry the message alone.
struct ErrorTypes {
  PyObject* error;
  PyObject* pinning;
};

void raise(PyObject* type, const CudaError& error, const size_t* pinned) {
  nb::object value = nb::borrow(type)(error.what());
  value.attr("call") = error.call;
  value.attr("name") = error.name;
  value.attr("code") = error.code;
  if (pinned) value.attr("pinned") = *pinned;
  PyErr_SetObject(type, value.ptr());
}

void bind_errors(nb::module_& module) {
  nb::exception<CudaMissing>(module, "CudaMissingError", PyExc_RuntimeError);
  PyObject* const error = PyErr_NewException("seqmoe.core._native.CudaError", PyExc_RuntimeError, nullptr);
  PyObject* const pinning = PyErr_NewException("seqmoe.core._native.PinningError", error, nullptr);
  module.attr("CudaError") = nb::borrow(error);
  module.attr("PinningError") = nb::borrow(pinning);
  nb::register_exception_translator(
      [](const std::exception_ptr& pointer, void* payload) {
        const auto* const types = static_cast<const ErrorTypes*>(payload);
        try {
          std::rethrow_exception(pointer);
        } catch (const PinningError& failure) {
          raise(types->pinning, failure, &failure.pinned);
        } catch (const CudaError& failure) {
          raise(types->error, failure, nullptr);
        }
      },
      new ErrorTypes{error, pinning});  // for as long as the module: for ever
}

nb::dict describe(const CudaDriver& driver, int index) {
  cuda::Device device;
  driver.device_get(&device, index);
  std::array<char, 256> name{};
  driver.device_get_name(name.data(), name.size() - 1, device);
  std::array<char, 32> bus{};
  driver.device_get_pci_bus_id(bus.data(), bus.size() - 1, device);
  size_t memory = 0;
  driver.device_total_mem(&memory, device);
  const auto attribute = [&](cuda::Attribute which) { return driver.attribute(which, device); };
  nb::dict result;
  result["index"] = index;
  result["name"] = std::string(name.data());
  result["pci_bus_id"] = std::string(bus.data());
  result["memory_bytes"] = memory;
  result["compute_capability"] = nb::make_tuple(attribute(cuda::kCapabilityMajor), attribute(cuda::kCapabilityMinor));
  result["multiprocessors"] = attribute(cuda::kMultiprocessors);
  result["copy_engines"] = attribute(cuda::kCopyEngines);
  result["maps_host_memory"] = attribute(cuda::kCanMapHostMemory) && attribute(cuda::kUnifiedAddressing);
  result["host_atomics"] = attribute(cuda::kHostNativeAtomics) != 0;
  return result;
}

void bind_driver(nb::module_& module) {
  nb::class_<CudaDriver>(module, "CudaDriver", "The driver's library, initialised; see seqmoe.core.driver.")
      .def(nb::init<const std::string&>(), "library"_a = CudaDriver::kLibrary)
      .def_prop_ro(
          "version",
          [](const CudaDriver& self) {
            int version = 0;
            self.driver_get_version(&version);
            return nb::make_tuple(version / 1000, version % 1000 / 10);
          },
          "The CUDA version that the driver speaks: major, minor.")
      .def("devices", [](const CudaDriver& self) {
        int count = 0;
        self.device_get_count(&count);
        nb::list result;
        for (int index = 0; index < count; ++index) result.append(describe(self, index));
        return result;
      });
  nb::class_<CudaContext>(module, "CudaContext", "The primary context of a device; see seqmoe.core.driver.")
      .def(
          "__init__",
          [](CudaContext* self, std::shared_ptr<CudaDriver> driver, int index) {
            new (self) CudaContext(std::move(driver), index);
          },
          "driver"_a, "index"_a = 0);
  module.def(
      "measure_bandwidth",
      [](const std::shared_ptr<CudaContext>& context, size_t bytes, int rounds) {
        Bandwidth bandwidth;
        {
          nb::gil_scoped_release unlocked;
          bandwidth = measure_bandwidth(context, bytes, rounds);
        }
        return nb::make_tuple(bandwidth.idle, bandwidth.contended);
      },
      "context"_a, "bytes"_a, "rounds"_a);
}

}  // namespace

void bind_cuda(nb::module_& module) {
  bind_errors(module);
  bind_driver(module);
}

}  // namespace seqmoe
