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

// Tiles are `rows` rows by up to `most_tokens` tokens: enough independent sums to hide the latency of an addition, few
// enough to stay in registers.
template <size_t width, class Weight, size_t rows, size_t most_tokens>
SEQMOE_INLINE void compute(const MoeCall& call) {
  const size_t matrix = call.width * call.hidden;
  // Rounded up, since the activation works on whole vectors.
  const size_t middle = (call.width + kLanes - 1) / kLanes * kLanes;
  const size_t product = std::max(2 * call.width, call.hidden) + kLanes;
  const size_t together = std::min(call.tokens, kTogether);
  const std::unique_ptr<float[]> memory(new float[together * (call.hidden + middle + product) + middle]);
  float* const inputs = memory.get();
  float* const activated = inputs + together * call.hidden;
  float* const products = activated + together * middle;
  float* const unpacked = products + together * product;

  const auto order = rows_by_slot(call);
  for (size_t begin = 0, end; begin < order.size(); begin = end) {
    const int32_t owner = order[begin].first;
    end = begin + 1;
    while (end < order.size() && order[end].first == owner && end - begin < together) ++end;
    const size_t slot = static_cast<size_t>(owner), tokens = end - begin;
    for (size_t i = 0; i < tokens; ++i)
      pack<Weight>(call.x + order[begin + i].second / call.choices * call.hidden, call.hidden,
                   inputs + i * call.hidden);
    multiply<width, Weight, rows, most_tokens>(static_cast<const Weight*>(call.gate_up) + slot * 2 * matrix,
                                               2 * call.width, call.hidden, inputs, call.hidden, tokens, products,
                                               product);
    for (size_t i = 0; i < tokens; ++i) {
      float* const gate = products + i * product;
      add_bias<Weight>(call.gate_up_bias, slot, 2 * call.width, gate);
      activate<width>(call, gate, gate + call.width, call.width, unpacked);
      pack<Weight>(unpacked, call.width, activated + i * middle);
    }
    multiply<width, Weight, rows, most_tokens>(static_cast<const Weight*>(call.down) + slot * matrix, call.hidden,
                                               call.width, activated, middle, tokens, products, product);
    for (size_t i = 0; i < tokens; ++i) {
      const size_t row = order[begin + i].second;
      float* const down = products + i * product;
      add_bias<Weight>(call.down_bias, slot, call.hidden, down);
      for (size_t j = 0; j < call.hidden; ++j) call.contribution[row * call.hidden + j] = down[j] * call.weights[row];
    }
  }
}

}  // namespace seqmoe
