#include "moe.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#define SEQMOE_INLINE inline __attribute__((always_inline))

namespace seqmoe {
namespace {

// Sixteen partial sums per dot product, written out and folded in one order: the compiler needs no licence to
// reassociate, so neither alignment nor the width of its vectors changes a result.
constexpr size_t kLanes = 16;

template <size_t width>
struct VectorOf {
  typedef float type __attribute__((vector_size(width * sizeof(float))));
};

SEQMOE_INLINE float sum_of(const float* lanes) {
  float half[kLanes / 2];
  for (size_t i = 0; i < kLanes / 2; ++i) half[i] = lanes[i] + lanes[i + kLanes / 2];
  return ((half[0] + half[4]) + (half[2] + half[6])) + ((half[1] + half[5]) + (half[3] + half[7]));
}

// out[r] = matrix[r] . x for `rows` rows of length n, with vectors of `width` floats.
template <size_t width, size_t rows>
SEQMOE_INLINE void dot_rows(const float* matrix, const float* x, size_t n, float* out) {
  using Vector = typename VectorOf<width>::type;
  constexpr size_t parts = kLanes / width;
  Vector sum[rows][parts] = {};
  const size_t whole = n - n % kLanes;
  for (size_t i = 0; i < whole; i += kLanes)
    for (size_t part = 0; part < parts; ++part) {
      Vector right;
      std::memcpy(&right, x + i + part * width, sizeof right);
      for (size_t r = 0; r < rows; ++r) {
        Vector left;
        std::memcpy(&left, matrix + r * n + i + part * width, sizeof left);
        sum[r][part] += left * right;
      }
    }
  for (size_t r = 0; r < rows; ++r) {
    float lanes[kLanes];
    std::memcpy(lanes, sum[r], sizeof lanes);
    float total = sum_of(lanes);
    for (size_t i = whole; i < n; ++i) total += matrix[r * n + i] * x[i];
    out[r] = total;
  }
}

template <size_t width, size_t block>
SEQMOE_INLINE void multiply(const float* matrix, const float* x, size_t rows, size_t n, float* out) {
  size_t row = 0;
  for (; row + block <= rows; row += block) dot_rows<width, block>(matrix + row * n, x, n, out + row);
  for (; row < rows; ++row) dot_rows<width, 1>(matrix + row * n, x, n, out + row);
}

// `block` rows at a time hide the latency of the additions and still fit the registers.
template <size_t width, size_t block>
SEQMOE_INLINE void compute(const Swiglu& call) {
  const size_t matrix = call.width * call.hidden;
  std::vector<float> buffer(2 * call.width);
  float* const gate = buffer.data();
  const float* const up = gate + call.width;
  for (size_t row = 0; row < call.tokens * call.choices; ++row) {
    if (call.slots[row] < 0) continue;
    const size_t slot = static_cast<size_t>(call.slots[row]);
    const float* const hidden = call.x + row / call.choices * call.hidden;
    float* const out = call.contribution + row * call.hidden;
    multiply<width, block>(call.gate_up + slot * 2 * matrix, hidden, 2 * call.width, call.hidden, gate);
    for (size_t i = 0; i < call.width; ++i) gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
    multiply<width, block>(call.down + slot * matrix, gate, call.hidden, call.width, out);
    for (size_t i = 0; i < call.hidden; ++i) out[i] *= call.weights[row];
  }
}

#ifdef __x86_64__
__attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma"))) void compute_avx512(const Swiglu& call) {
  compute<16, 8>(call);
}
__attribute__((target("avx2,fma"))) void compute_avx2(const Swiglu& call) { compute<8, 4>(call); }
#endif
void compute_portable(const Swiglu& call) { compute<4, 2>(call); }

using Kernel = void(const Swiglu&);

Kernel* choose_kernel() {
#ifdef __x86_64__
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    return compute_avx512;
  if (avx2) return compute_avx2;
#endif
  return compute_portable;
}

}  // namespace

void moe_swiglu(const Swiglu& call) {
  static Kernel* const kernel = choose_kernel();
  kernel(call);
}

void reduce_contributions(size_t tokens, size_t choices, size_t hidden, const float* contribution, float* out) {
  for (size_t token = 0; token < tokens; ++token) {
    float* const sum = out + token * hidden;
    const float* const rows = contribution + token * choices * hidden;
    std::copy_n(rows, hidden, sum);
    for (size_t k = 1; k < choices; ++k)
      for (size_t i = 0; i < hidden; ++i) sum[i] += rows[k * hidden + i];
  }
}

}  // namespace seqmoe
