#include <Python.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "moe_arguments.h"
#include "step.h"

namespace seqmoe {

using namespace nb::literals;

namespace {

using Callback = std::optional<nb::callable>;

// PyTorch runs compiled code with the GIL held: other threads of Python would stand still while a layer waits for its
// experts.
void compute(void* step, int64_t layer, const float* hidden, const int64_t* index, const float* weights, float* out) {
  std::optional<nb::gil_scoped_release> unlocked;
  if (PyGILState_Check()) unlocked.emplace();
  DecodeStep::compute(step, layer, hidden, index, weights, out);
}

StepHooks::Hook hook_of(Callback callback) {
  if (!callback) return {};
  return [callback = std::move(*callback)](int32_t layer) {
    nb::gil_scoped_acquire locked;
    callback(layer);
  };
}

template <class T>
auto per_row(DecodeStep& step, T* data) {
  const size_t shape[] = {static_cast<size_t>(step.layers()), step.tokens(), step.choices()};
  return nb::ndarray<nb::numpy, const T, nb::ndim<3>>(data, 3, shape, nb::find(step));
}

void construct(DecodeStep* self, int32_t layers, int32_t experts, size_t tokens, size_t choices, Weights<3> gate_up,
               Weights<3> down, std::shared_ptr<OffloadPipeline> pipeline, std::string_view activation, float limit,
               float alpha, Bias gate_up_bias, Bias down_bias) {
  const size_t slots = down.shape(0), hidden = down.shape(1), width = down.shape(2);
  const WeightType type = type_of(gate_up.dtype());
  if (type_of(down.dtype()) != type) throw nb::type_error("gate_up and down must have the same type");
  check(layers > 0 && experts > 0 && tokens > 0, "layers, experts and tokens must be at least 1");
  check(choices > 0 && choices <= static_cast<size_t>(experts), "choices must be 1 to experts");
  check(gate_up.shape(0) == slots && gate_up.shape(1) == 2 * width && gate_up.shape(2) == hidden,
        "gate_up must be [S, 2I, H] for down [S, H, I]");
  const MoeCall pool{tokens, choices, hidden, width, type, nullptr, gate_up.data(), down.data(),
                     bias_of(gate_up_bias, type, slots, 2 * width, "gate_up_bias must be [S, 2I]"),
                     bias_of(down_bias, type, slots, hidden, "down_bias must be [S, H]"),
                     nullptr, nullptr, nullptr, activation_of(activation, limit, alpha), limit, alpha};
  new (self) DecodeStep(pool, static_cast<int32_t>(slots), layers, experts, std::move(pipeline));
}

}  // namespace

void bind_step(nb::module_& module) {
  nb::class_<DecodeStep>(module, "DecodeStep", "The MoE layers of a decode step, for compiled code; see seqmoe.core.step.")
      .def("__init__", &construct, "layers"_a, "experts"_a, "tokens"_a, "choices"_a, "gate_up"_a.noconvert(),
           "down"_a.noconvert(), "pipeline"_a.none(), "activation"_a = "swiglu", "limit"_a = 0.0f, "alpha"_a = 0.0f,
           "gate_up_bias"_a.noconvert() = nb::none(), "down_bias"_a.noconvert() = nb::none(), nb::keep_alive<1, 6>(),
           nb::keep_alive<1, 7>(), nb::keep_alive<1, 12>(), nb::keep_alive<1, 13>())
      .def_prop_ro(
          "address",
          [](DecodeStep& self) {
            return std::make_tuple(reinterpret_cast<intptr_t>(static_cast<StepFunction>(&compute)),
                                   reinterpret_cast<intptr_t>(&self));
          },
          "Addresses of the function that computes a layer and of its first argument.")
      .def_prop_ro("experts", [](DecodeStep& self) { return per_row(self, self.routed_experts()); },
                   "Experts of the layers passed so far, int32 [layers, tokens, choices].")
      .def_prop_ro("weights", [](DecodeStep& self) { return per_row(self, self.routed_weights()); },
                   "Their weights, float32 [layers, tokens, choices].")
      .def_prop_ro("placing_ns", &DecodeStep::placing_ns,
                   "Nanoseconds of the step from each layer's start to its kernel, stalls and callbacks included.")
      .def("distinct", [](DecodeStep& self) { return to_numpy(std::vector<int32_t>(self.distinct())); },
           "The distinct experts of the layer in progress, int32 [n]; for `needed` and `routed`.")
      .def(
          "begin",
          [](DecodeStep& self, int64_t position, Callback needed, Callback routed, Callback done,
             const std::vector<int32_t>& triggers) {
            StepHooks hooks{hook_of(std::move(needed)), hook_of(std::move(routed)), hook_of(std::move(done)),
                            std::vector<uint8_t>(self.layers(), 0)};
            for (const int32_t layer : triggers) hooks.triggers.at(layer) = 1;
            self.begin(position, std::move(hooks));
          },
          "position"_a, "needed"_a = nb::none(), "routed"_a = nb::none(), "done"_a = nb::none(),
          "triggers"_a = std::vector<int32_t>(), "A step begins whose layer 0 is at `position`.")
      .def("finish", &DecodeStep::finish, "The step is over; raises what failed in it.");
}

}  // namespace seqmoe
