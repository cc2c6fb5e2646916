#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "dma_link.h"
#include "mapped_memory.h"

namespace seqmoe {

using namespace nb::literals;

namespace {

const MappedMemory::Chunk& chunk_of(const MappedMemory& memory, size_t index) {
  if (index >= memory.chunks().size())
    throw nb::index_error(("chunk " + std::to_string(index) + " of " + std::to_string(memory.chunks().size())).c_str());
  return memory.chunks()[index];
}

template <class Value>
nb::list each_chunk(const MappedMemory& memory, Value value) {
  nb::list result;
  for (const MappedMemory::Chunk& chunk : memory.chunks()) result.append(value(chunk));
  return result;
}

void bind_mapped_memory(nb::module_& module) {
  nb::class_<MappedMemory>(module, "MappedMemory", "Pinned memory that both sides see; see seqmoe.core.mapped_memory.")
      .def(
          "__init__",
          [](MappedMemory* self, std::shared_ptr<CudaContext> context, const std::vector<size_t>& sizes) {
            nb::gil_scoped_release unlocked;
            new (self) MappedMemory(std::move(context), sizes);
          },
          "context"_a, "sizes"_a)
      .def_prop_ro("host",
                   [](const MappedMemory& self) {
                     return each_chunk(self, [](const auto& chunk) { return reinterpret_cast<uintptr_t>(chunk.host); });
                   },
                   "Each chunk's address for the host.")
      .def_prop_ro("device",
                   [](const MappedMemory& self) {
                     return each_chunk(self, [](const auto& chunk) { return chunk.device; });
                   },
                   "Each chunk's address for the device.")
      .def_prop_ro("sizes",
                   [](const MappedMemory& self) {
                     return each_chunk(self, [](const auto& chunk) { return chunk.bytes; });
                   },
                   "Each chunk's bytes.")
      .def(
          "bytes",
          [](nb::handle self, size_t index) {
            const MappedMemory::Chunk& chunk = chunk_of(nb::cast<const MappedMemory&>(self), index);
            return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(chunk.host, {chunk.bytes}, self);
          },
          "index"_a, "A chunk as uint8 [bytes], which keeps all of the memory alive.")
      .def("first_unfaithful", &MappedMemory::first_unfaithful, nb::call_guard<nb::gil_scoped_release>(),
           "The first chunk through which the device reads other bytes than the host wrote, or None.");
}

}  // namespace

void bind_cuda_memory(nb::module_& module) {
  bind_mapped_memory(module);
  nb::class_<DmaLink, Channel>(module, "DmaLink", "From pinned memory by the GPU's copy engine; see seqmoe.core.link.")
      .def(
          "__init__",
          [](DmaLink* self, std::shared_ptr<CudaContext> context, Array<const int64_t, 2> sources,
             const std::vector<std::tuple<uintptr_t, size_t, size_t>>& targets, double seconds, size_t piece_bytes) {
            check(sources.shape(1) == targets.size(),
                  "sources must be [keys, pieces], with as many pieces as there are targets");
            std::vector<Target> to;
            for (const auto& [device, stride, bytes] : targets) to.push_back({device, stride, bytes});
            new (self) DmaLink(std::move(context), {sources.data(), sources.data() + sources.size()}, std::move(to),
                               seconds, piece_bytes);
          },
          "context"_a, "sources"_a, "targets"_a, "seconds_per_expert"_a = 0.0, "piece_bytes"_a = size_t{2} << 20);
}

}  // namespace seqmoe
