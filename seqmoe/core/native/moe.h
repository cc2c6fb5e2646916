// The MoE of a few tokens on the CPU, reading expert weights through slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace seqmoe {

enum class Activation {
  swiglu,          // silu(gate) * up
  swiglu_clamped,  // the same of gate <= limit and |up| <= limit (DeepSeek-V4)
  swiglu_oai,      // gate * sigmoid(alpha * gate) * (up + 1) of the same (GPT-OSS)
};

enum class WeightType { float32, bfloat16 };

// contribution[t, k] = weights[t, k] * (down[s] @ activation(gate_up[s] @ x[t] + its bias) + its bias), s = slots[t, k];
// rows with a negative slot are left alone. Every row is summed in one fixed order, so neither the slot an expert is in
// nor the grouping of a layer into several calls, nor which tokens share an expert, changes a bit of it.
struct MoeCall {
  size_t tokens;
  size_t choices;  // experts per token
  size_t hidden;
  size_t width;  // of one expert
  WeightType type;
  const float* x;
  const void* gate_up;
  const void* down;
  const void* gate_up_bias;  // may be null
  const void* down_bias;     // may be null
  const int32_t* slots;
  const float* weights;
  float* contribution;
  Activation activation;
  float limit;
  float alpha;
};

using MoeKernel = void(const MoeCall&);

struct InstructionSet {
  const char* name;
  MoeKernel* kernel;
};

// What this machine can run, the fastest first. avx512 and avx2 agree bit for bit; portable, where multiplication and
// addition are not fused, within float32's rounding.
const std::vector<InstructionSet>& instruction_sets();

// One of them by its name, the fastest if it is empty; std::invalid_argument for any other name.
const InstructionSet& instruction_set(std::string_view name);

// out[t] = contribution[t, 0] + contribution[t, 1] + ..., in that order.
void reduce_contributions(size_t tokens, size_t choices, size_t hidden, const float* contribution, float* out);

}  // namespace seqmoe
