// The MoE of a few tokens on the CPU, reading expert weights through slots.
#pragma once

#include <cstddef>
#include <cstdint>

namespace seqmoe {

// contribution[t, k] = weights[t, k] * down[s] @ (silu(gate[s] @ x[t]) * (up[s] @ x[t])) with s = slots[t, k];
// rows with a negative slot are left alone. Every row is computed alone and in one fixed order, so neither the slot
// an expert is in nor the grouping of a layer into several calls changes a bit of it.
struct Swiglu {
  size_t tokens;
  size_t choices;  // experts per token
  size_t hidden;
  size_t width;  // of one expert
  const float* x;
  const float* gate_up;
  const float* down;
  const int32_t* slots;
  const float* weights;
  float* contribution;
};

void moe_swiglu(const Swiglu& call);

// out[t] = contribution[t, 0] + contribution[t, 1] + ..., in that order.
void reduce_contributions(size_t tokens, size_t choices, size_t hidden, const float* contribution, float* out);

}  // namespace seqmoe
