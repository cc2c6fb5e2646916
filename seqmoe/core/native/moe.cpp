#include "moe.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#if defined(__GNUC__) && defined(__x86_64__)
#define SEQMOE_X86 1
#endif
#define SEQMOE_INLINE inline __attribute__((always_inline))

namespace seqmoe {
namespace {

// Sixteen partial sums per dot product, written out: the compiler may use vectors of any size without being allowed
// to reassociate, so alignment and length never change a result.
constexpr size_t kLanes = 16;
constexpr size_t kRows = 4;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));
typedef float Half __attribute__((vector_size(kLanes * sizeof(float) / 2)));

SEQMOE_INLINE float sum_of(const Lanes& lanes) {
  Half half[2];
  std::memcpy(half, &lanes, sizeof lanes);
  half[0] += half[1];
  const Half& h = half[0];
  return ((h[0] + h[4]) + (h[2] + h[6])) + ((h[1] + h[5]) + (h[3] + h[7]));
}

// out[r] = matrix[r] . x for `count` (at most kRows) rows of length n.
template <size_t count>
SEQMOE_INLINE void dot_rows(const float* matrix, const float* x, size_t n, float* out) {
  Lanes sum[count] = {};
  const size_t whole = n - n % kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    Lanes right;
    std::memcpy(&right, x + i, sizeof right);
    for (size_t r = 0; r < count; ++r) {
      Lanes left;
      std::memcpy(&left, matrix + r * n + i, sizeof left);
      sum[r] += left * right;
    }
  }
  for (size_t r = 0; r < count; ++r) {
    float total = sum_of(sum[r]);
    for (size_t i = whole; i < n; ++i) total += matrix[r * n + i] * x[i];
    out[r] = total;
  }
}

SEQMOE_INLINE void multiply(const float* matrix, const float* x, size_t rows, size_t n, float* out) {
  size_t row = 0;
  for (; row + kRows <= rows; row += kRows) dot_rows<kRows>(matrix + row * n, x, n, out + row);
  for (; row < rows; ++row) dot_rows<1>(matrix + row * n, x, n, out + row);
}

SEQMOE_INLINE void compute(const MoeShape& shape, const float* x, const float* gate_up, const float* down,
                           const int32_t* slots, const float* weights, float* contribution) {
  const size_t matrix = shape.width * shape.hidden;
  std::vector<float> buffer(2 * shape.width);
  float* const gate = buffer.data();
  const float* const up = gate + shape.width;
  for (size_t row = 0; row < shape.tokens * shape.choices; ++row) {
    if (slots[row] < 0) continue;
    const size_t slot = static_cast<size_t>(slots[row]);
    const float* const hidden = x + row / shape.choices * shape.hidden;
    float* const out = contribution + row * shape.hidden;
    multiply(gate_up + slot * 2 * matrix, hidden, 2 * shape.width, shape.hidden, gate);
    for (size_t i = 0; i < shape.width; ++i) gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
    multiply(down + slot * matrix, gate, shape.hidden, shape.width, out);
    for (size_t i = 0; i < shape.hidden; ++i) out[i] *= weights[row];
  }
}

using Kernel = void(const MoeShape&, const float*, const float*, const float*, const int32_t*, const float*, float*);

#ifdef SEQMOE_X86
__attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma"))) void compute_avx512(
    const MoeShape& shape, const float* x, const float* gate_up, const float* down, const int32_t* slots,
    const float* weights, float* contribution) {
  compute(shape, x, gate_up, down, slots, weights, contribution);
}

__attribute__((target("avx2,fma"))) void compute_avx2(const MoeShape& shape, const float* x, const float* gate_up,
                                                      const float* down, const int32_t* slots, const float* weights,
                                                      float* contribution) {
  compute(shape, x, gate_up, down, slots, weights, contribution);
}
#endif

void compute_portable(const MoeShape& shape, const float* x, const float* gate_up, const float* down,
                      const int32_t* slots, const float* weights, float* contribution) {
  compute(shape, x, gate_up, down, slots, weights, contribution);
}

Kernel* choose_kernel() {
#ifdef SEQMOE_X86
  __builtin_cpu_init();
  const bool fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (fma && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    return compute_avx512;
  if (fma) return compute_avx2;
#endif
  return compute_portable;
}

}  // namespace

void moe_swiglu(const MoeShape& shape, const float* x, const float* gate_up, const float* down, const int32_t* slots,
                const float* weights, float* contribution) {
  static Kernel* const kernel = choose_kernel();
  kernel(shape, x, gate_up, down, slots, weights, contribution);
}

void reduce_contributions(const MoeShape& shape, const float* contribution, float* out) {
  for (size_t token = 0; token < shape.tokens; ++token) {
    float* const sum = out + token * shape.hidden;
    const float* const rows = contribution + token * shape.choices * shape.hidden;
    std::copy_n(rows, shape.hidden, sum);
    for (size_t k = 1; k < shape.choices; ++k)
      for (size_t i = 0; i < shape.hidden; ++i) sum[i] += rows[k * shape.hidden + i];
  }
}

}  // namespace seqmoe
