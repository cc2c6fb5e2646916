#include <string_view>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include "bindings.h"
#include "moe.h"
#include "moe_arguments.h"

namespace seqmoe {

using namespace nb::literals;

namespace {

// noconvert: a conversion would copy a whole pool, or write the result into a copy.
void bind_experts(nb::module_& module) {
  module.def(
      "moe_experts",
      [](Array<const float, 2> x, Weights<3> gate_up, Weights<3> down, Array<const int32_t, 2> slots,
         Array<const float, 2> weights, Array<float, 3> contribution, std::string_view activation, float limit,
         float alpha, Bias gate_up_bias, Bias down_bias, std::string_view instructions) {
        const size_t tokens = x.shape(0), choices = slots.shape(1), hidden = x.shape(1), width = down.shape(2);
        const WeightType type = type_of(gate_up.dtype());
        if (type_of(down.dtype()) != type) throw nb::type_error("gate_up and down must have the same type");
        check(slots.shape(0) == tokens, "slots must be [T, K] for x [T, H]");
        check(weights.shape(0) == tokens && weights.shape(1) == choices, "weights must be [T, K]");
        check(gate_up.shape(1) == 2 * width && gate_up.shape(2) == hidden, "gate_up must be [S, 2I, H]");
        check(down.shape(0) == gate_up.shape(0) && down.shape(1) == hidden, "down must be [S, H, I]");
        check(contribution.shape(0) == tokens && contribution.shape(1) == choices && contribution.shape(2) == hidden,
              "contribution must be [T, K, H]");
        for (size_t i = 0; i < slots.size(); ++i)
          check(slots.data()[i] < static_cast<int64_t>(down.shape(0)), "a slot lies outside the pool");
        const MoeCall call{
            tokens, choices, hidden, width, type, x.data(), gate_up.data(), down.data(),
            bias_of(gate_up_bias, type, down.shape(0), 2 * width, "gate_up_bias must be [S, 2I]"),
            bias_of(down_bias, type, down.shape(0), hidden, "down_bias must be [S, H]"),
            slots.data(), weights.data(), contribution.data(), activation_of(activation, limit, alpha), limit, alpha};
        MoeKernel* const kernel = instruction_set(instructions).kernel;
        nb::gil_scoped_release unlocked;
        kernel(call);
      },
      "x"_a.noconvert(), "gate_up"_a.noconvert(), "down"_a.noconvert(), "slots"_a, "weights"_a,
      "contribution"_a.noconvert(), "activation"_a = "swiglu", "limit"_a = 0.0f, "alpha"_a = 0.0f,
      "gate_up_bias"_a.noconvert() = nb::none(), "down_bias"_a.noconvert() = nb::none(), "instructions"_a = "");
  module.def("instruction_sets", [] {
    nb::list names;
    for (const InstructionSet& set : instruction_sets()) names.append(set.name);
    return names;
  });
}

void bind_reduction(nb::module_& module) {
  module.def(
      "reduce_contributions",
      [](Array<const float, 3> contribution, Array<float, 2> out) {
        const size_t tokens = out.shape(0), choices = contribution.shape(1), hidden = out.shape(1);
        check(choices > 0, "contribution must be [T, K, H] with K at least 1");
        check(contribution.shape(0) == tokens && contribution.shape(2) == hidden, "out must be [T, H]");
        nb::gil_scoped_release unlocked;
        reduce_contributions(tokens, choices, hidden, contribution.data(), out.data());
      },
      "contribution"_a.noconvert(), "out"_a.noconvert());
}

}  // namespace

void bind_moe(nb::module_& module) {
  bind_experts(module);
  bind_reduction(module);
}

}  // namespace seqmoe
