// What the binding files share: array types and argument checks.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace seqmoe {

namespace nb = nanobind;

template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T, size_t dimensions>
using Array = nb::ndarray<T, nb::ndim<dimensions>, nb::c_contig, nb::device::cpu>;

inline void check(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument(message);
}

// An int32 array that owns its memory.
inline nb::ndarray<nb::numpy, int32_t, nb::ndim<1>> to_numpy(std::vector<int32_t>&& values) {
  auto* const kept = new std::vector<int32_t>(std::move(values));
  nb::capsule owner(kept, [](void* pointer) noexcept { delete static_cast<std::vector<int32_t>*>(pointer); });
  return {kept->data(), {kept->size()}, owner};
}

// Which of `names` an argument is; std::invalid_argument names them all.
template <size_t count>
size_t index_of(const std::array<const char*, count>& names, const std::string& name, const char* argument) {
  std::string known;
  for (size_t i = 0; i < count; ++i) {
    if (name == names[i]) return i;
    known += (i ? ", " : "") + std::string(names[i]);
  }
  throw std::invalid_argument(std::string(argument) + " '" + name + "': must be one of " + known);
}

void bind_slots(nb::module_& module);
void bind_link(nb::module_& module);
void bind_pipeline(nb::module_& module);
void bind_functions(nb::module_& module);
void bind_loop(nb::module_& module);
void bind_step(nb::module_& module);
void bind_moe(nb::module_& module);
void bind_mamba2(nb::module_& module);
void bind_cuda(nb::module_& module);
void bind_cuda_memory(nb::module_& module);
void bind_device_worker(nb::module_& module);

}  // namespace seqmoe
