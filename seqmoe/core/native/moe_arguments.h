// How Python describes expert weights and their activation, checked.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "bindings.h"
#include "moe.h"

namespace seqmoe {

// Of a type that is looked at when called.
template <size_t dimensions>
using Weights = nb::ndarray<nb::ro, nb::ndim<dimensions>, nb::c_contig, nb::device::cpu>;

inline WeightType type_of(nb::dlpack::dtype type) {
  if (type == nb::dtype<float>()) return WeightType::float32;
  const auto bfloat = static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat);
  if (type == nb::dtype<uint16_t>() || (type.code == bfloat && type.bits == 16 && type.lanes == 1))
    return WeightType::bfloat16;
  throw nb::type_error("expert weights must be float32, bfloat16, or uint16 holding bfloat16's bits");
}

inline Activation activation_of(std::string_view name, float limit, float alpha) {
  const bool swiglu = name == "swiglu", clamped = name == "swiglu_clamped", oai = name == "swiglu_oai";
  check(swiglu || clamped || oai,
        "activation must be swiglu, swiglu_clamped or swiglu_oai, not '" + std::string(name) + "'");
  check(swiglu ? limit == 0.0f : limit > 0.0f,
        swiglu ? "limit belongs to swiglu_clamped and swiglu_oai" : std::string(name) + " needs a limit above 0");
  check(oai ? alpha > 0.0f : alpha == 0.0f,
        oai ? "swiglu_oai needs an alpha above 0" : "alpha belongs to swiglu_oai");
  return swiglu ? Activation::swiglu : clamped ? Activation::swiglu_clamped : Activation::swiglu_oai;
}

using Bias = std::optional<Weights<2>>;

inline const void* bias_of(const Bias& bias, WeightType type, size_t slots, size_t n, const char* shape) {
  if (!bias) return nullptr;
  if (type_of(bias->dtype()) != type) throw nb::type_error("a bias must have the type of the expert weights");
  check(bias->shape(0) == slots && bias->shape(1) == n, shape);
  return bias->data();
}

}  // namespace seqmoe
