// One call of the MoE kernel for one type of weights and one width of vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "moe.h"
#include "moe_activation.h"
#include "moe_dot.h"

namespace seqmoe {

// Tokens that go through an expert together; more would push their buffers out of the second-level cache.
constexpr size_t kTogether = 16;

// Buffers start at cache lines: a vector that lies across two is loaded twice.
struct alignas(64) Line {
  float lanes[kLanes];
};

SEQMOE_INLINE size_t whole_lines(size_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// The rows [t, k] in use, those of one slot beside each other.
inline std::vector<std::pair<int32_t, size_t>> rows_by_slot(const MoeCall& call) {
  std::vector<std::pair<int32_t, size_t>> order;
  order.reserve(call.tokens * call.choices);
  for (size_t row = 0; row < call.tokens * call.choices; ++row)
    if (call.slots[row] >= 0) order.emplace_back(call.slots[row], row);
  std::sort(order.begin(), order.end());
  return order;
}

template <class Weight>
SEQMOE_INLINE void add_bias(const void* biases, size_t slot, size_t n, float* out) {
  if (biases == nullptr) return;
  const Weight* const bias = static_cast<const Weight*>(biases) + slot * n;
  for (size_t i = 0; i < n; ++i) out[i] += to_float(bias[i]);
}

// `most_tokens` share a weight once it is in a register: as many as leave room for their sums.
template <size_t width, class Weight, size_t most_tokens>
SEQMOE_INLINE void compute(const MoeCall& call) {
  const size_t matrix = call.width * call.hidden;
  const size_t input = whole_lines(call.hidden), middle = whole_lines(call.width);
  const size_t product = std::max(2 * middle, input);
  const size_t together = std::min(call.tokens, kTogether);
  const std::unique_ptr<Line[]> memory(new Line[(together * (input + middle + product) + middle) / kLanes]);
  float* const inputs = memory[0].lanes;
  float* const activated = inputs + together * input;
  float* const products = activated + together * middle;
  float* const unpacked = products + together * product;

  const Weight* const gate_up = static_cast<const Weight*>(call.gate_up);
  const Weight* const down = static_cast<const Weight*>(call.down);
  const auto order = rows_by_slot(call);
  for (size_t begin = 0, end; begin < order.size(); begin = end) {
    const int32_t owner = order[begin].first;
    end = begin + 1;
    while (end < order.size() && order[end].first == owner && end - begin < together) ++end;
    const size_t slot = static_cast<size_t>(owner), tokens = end - begin;
    for (size_t i = 0; i < tokens; ++i) {
      const size_t token = order[begin + i].second / call.choices;
      pack<Weight>(call.x + token * call.hidden, call.hidden, inputs + i * input);
    }
    multiply<width, Weight, most_tokens>(gate_up + slot * 2 * matrix, 2 * call.width, call.hidden, inputs, input,
                                         tokens, products, product);
    for (size_t i = 0; i < tokens; ++i) {
      float* const gate = products + i * product;
      add_bias<Weight>(call.gate_up_bias, slot, 2 * call.width, gate);
      activate<width>(call, gate, gate + call.width, call.width, unpacked);
      pack<Weight>(unpacked, call.width, activated + i * middle);
    }
    multiply<width, Weight, most_tokens>(down + slot * matrix, call.hidden, call.width, activated, middle, tokens,
                                         products, product);
    for (size_t i = 0; i < tokens; ++i) {
      const size_t row = order[begin + i].second;
      float* const result = products + i * product;
      add_bias<Weight>(call.down_bias, slot, call.hidden, result);
      for (size_t j = 0; j < call.hidden; ++j) call.contribution[row * call.hidden + j] = result[j] * call.weights[row];
    }
  }
}

}  // namespace seqmoe
