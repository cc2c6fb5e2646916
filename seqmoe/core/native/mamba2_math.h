// What the Mamba2 step computes on vectors of 16 k numbers, beside the matrix products (moe_dot.h).
#pragma once

#include <cmath>
#include <cstring>

#include "moe_activation.h"
#include "moe_dot.h"

namespace seqmoe {

template <size_t width>
SEQMOE_INLINE void load(const float* from, Floats<width>& to) {
  std::memcpy(&to, from, sizeof to);
}
template <size_t width>
SEQMOE_INLINE void store(const Floats<width>& from, float* to) {
  std::memcpy(to, &from, sizeof from);
}

template <size_t width>
SEQMOE_INLINE void silu(Floats<width>& x) {
  Floats<width> decay = -x;
  exponential<width>(decay);
  x = x / (1.0f + decay);
}

SEQMOE_INLINE float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// Sixteen partial sums to four.
template <size_t width>
SEQMOE_INLINE void fold(const Floats<width> (&sums)[kLanes / width], Floats<4>& out) {
  Floats<4> quarters[4];
  std::memcpy(quarters, sums, sizeof quarters);
  out = (quarters[0] + quarters[2]) + (quarters[1] + quarters[3]);
}

// out = x / root mean square(x) * weight; out may be x.
template <size_t width>
SEQMOE_INLINE void normalise(const float* x, const float* weight, size_t n, float epsilon, float* out) {
  Floats<width> sums[kLanes / width] = {};
  for (size_t i = 0; i < n; i += kLanes)
#pragma GCC unroll 4
    for (size_t part = 0; part < kLanes / width; ++part) {
      Floats<width> v;
      load<width>(x + i + part * width, v);
      sums[part] += v * v;
    }
  Floats<4> folded[1];
  float total;
  fold<width>(sums, folded[0]);
  sum_of_each(folded, &total);
  const float scale = 1.0f / std::sqrt(total / static_cast<float>(n) + epsilon);
  for (size_t i = 0; i < n; i += width) {
    Floats<width> v, w;
    load<width>(x + i, v);
    load<width>(weight + i, w);
    store<width>(v * scale * w, out + i);
  }
}

// The window moves on by one input, and its taps are weighted and activated.
template <size_t width>
SEQMOE_INLINE void convolve(const float* from, const float* input, const float* weight, const float* bias, size_t taps,
                            size_t n, float* to, float* out) {
  for (size_t i = 0; i < n; i += width) {
    Floats<width> sum, v, w;
    load<width>(bias + i, sum);
    for (size_t tap = 0; tap < taps; ++tap) {
      load<width>(tap + 1 < taps ? from + (tap + 1) * n + i : input + i, v);
      store<width>(v, to + tap * n + i);
      load<width>(weight + tap * n + i, w);
      sum += v * w;
    }
    silu<width>(sum);
    store<width>(sum, out + i);
  }
}

// One head of the scan: to = from * decay + (x * dt) b, y = to . c + x * skip, four rows of the state at a time.
template <size_t width>
SEQMOE_INLINE void scan_head(const float* from, const float* x, const float* b, const float* c, float dt, float decay,
                             float skip, size_t rows, size_t state_size, float* to, float* y) {
  for (size_t row = 0; row < rows; row += 4) {
    Floats<4> folded[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      const size_t start = (row + i) * state_size;
      const float gained = x[row + i] * dt;
      Floats<width> sums[kLanes / width] = {};
      for (size_t n = 0; n < state_size; n += kLanes)
#pragma GCC unroll 4
        for (size_t part = 0; part < kLanes / width; ++part) {
          const size_t at = n + part * width;
          Floats<width> state, left, right;
          load<width>(from + start + at, state);
          load<width>(b + at, left);
          load<width>(c + at, right);
          state = state * decay + left * gained;
          store<width>(state, to + start + at);
          sums[part] += state * right;
        }
      fold<width>(sums, folded[i]);
    }
    sum_of_each(folded, y + row);
    for (size_t i = 0; i < 4; ++i) y[row + i] += x[row + i] * skip;
  }
}

}  // namespace seqmoe
