// The one operator between routing and experts in the compiled decode step. It knows nothing of slots or weights: it
// calls the function whose address, with that of its first argument, the int64 tensor `target` [2] holds.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <cstring>

using torch::stable::Tensor;

// The same as StepFunction in seqmoe/core/native/step.h.
using StepFunction = void (*)(void* step, int64_t layer, const float* hidden, const int64_t* index,
                              const float* weights, float* out);

// Without a function, as when a cache is filled for tracing, the experts contribute nothing.
Tensor experts(Tensor target, Tensor hidden, Tensor index, Tensor weights, int64_t layer) {
  const int64_t* const address = target.const_data_ptr<int64_t>();
  Tensor out = torch::stable::empty_like(hidden);
  const auto function = reinterpret_cast<StepFunction>(address[0]);
  if (function != nullptr)
    function(reinterpret_cast<void*>(address[1]), layer, hidden.const_data_ptr<float>(),
             index.const_data_ptr<int64_t>(), weights.const_data_ptr<float>(), out.mutable_data_ptr<float>());
  else
    std::memset(out.mutable_data_ptr<float>(), 0, sizeof(float) * out.numel());
  return out;
}

STABLE_TORCH_LIBRARY(seqmoe_graph, library) {
  library.def("experts(Tensor target, Tensor hidden, Tensor index, Tensor weights, int layer) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(seqmoe_graph, CPU, library) { library.impl("experts", TORCH_BOX(&experts)); }
