// The activations between an expert's two matrices, in vectors, with an exponential of our own: the same bits on every
// machine, whatever its C library.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "moe.h"
#include "moe_dot.h"

namespace seqmoe {

// exp(x) within two units in the last place: 2^n * p(r) with x = n ln 2 + r and |r| <= ln 2 / 2. Held within what a
// normal float32 can be, so that an input far below gives 1e-38 instead of 0.
template <size_t width>
SEQMOE_INLINE void exponential(Floats<width>& x) {
  using Words = typename VectorOf<width, uint32_t>::type;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  constexpr float kRound = 12582912.0f;
  x = x < -87.0f ? Floats<width>{} - 87.0f : x;
  x = x > 88.0f ? Floats<width>{} + 88.0f : x;
  const Floats<width> shifted = x * 1.44269504f + kRound;
  const Floats<width> n = shifted - kRound;
  // ln 2 in two parts, the first exact when multiplied by n.
  const Floats<width> r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Floats<width> p = r * 1.9841270e-4f + 1.3888889e-3f;  // Taylor's coefficients: 1/7!, 1/6!, ...
  p = p * r + 8.3333333e-3f;
  p = p * r + 4.1666667e-2f;
  p = p * r + 1.6666667e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  x = reinterpret_cast<Floats<width>>(reinterpret_cast<Words>(p) + (reinterpret_cast<Words>(shifted) << 23));
}

// out[i] = activation(gate[i], up[i]); reads and writes up to kLanes - 1 elements past n. A NaN stays one.
template <size_t width>
SEQMOE_INLINE void activate(const MoeCall& call, const float* gate, const float* up, size_t n, float* out) {
  const bool clamped = call.activation != Activation::swiglu;
  const bool oai = call.activation == Activation::swiglu_oai;
  const float limit = clamped ? call.limit : std::numeric_limits<float>::infinity();
  const float alpha = oai ? call.alpha : 1.0f;
  const float shift = oai ? 1.0f : 0.0f;
  const Floats<width> highest = Floats<width>{} + limit, lowest = Floats<width>{} - limit;
  for (size_t i = 0; i < n; i += width) {
    Floats<width> g, u;
    std::memcpy(&g, gate + i, sizeof g);
    std::memcpy(&u, up + i, sizeof u);
    g = g > highest ? highest : g;
    u = u > highest ? highest : u;
    u = u < lowest ? lowest : u;
    Floats<width> decay = g * -alpha;
    exponential<width>(decay);
    const Floats<width> result = g / (1.0f + decay) * (u + shift);
    std::memcpy(out + i, &result, sizeof result);
  }
}

}  // namespace seqmoe
