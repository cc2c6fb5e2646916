// Dot products of the rows of an expert's matrix with the inputs of a few tokens.
//
// Sixteen partial sums per dot product, written out and folded in one order: the compiler needs no licence to
// reassociate, so neither alignment, the width of its vectors nor the shape of a tile changes a result.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define SEQMOE_INLINE inline __attribute__((always_inline))

namespace seqmoe {

constexpr size_t kLanes = 16;

template <size_t width, class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(width * sizeof(T))));
};
template <size_t width>
using Floats = typename VectorOf<width, float>::type;

// The bits of a bfloat16: the upper half of a float32's.
struct Bfloat16 {
  uint16_t bits;
};

SEQMOE_INLINE float to_float(float value) { return value; }
SEQMOE_INLINE float to_float(Bfloat16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// Weights are read one full vector at a time: kPieces<Weight> * kLanes of them per step. Sixteen 32-bit words hold 32
// bfloat16, and a shift and a mask make their even and their odd elements float32: the input is packed likewise.
template <class Weight>
constexpr size_t kPieces = sizeof(float) / sizeof(Weight);

// The order in which dot_tile reads an input of n elements: per step the even, then the odd ones.
template <class Weight>
SEQMOE_INLINE void pack(const float* from, size_t n, float* to) {
  constexpr size_t step = kPieces<Weight> * kLanes;
  const size_t whole = n - n % step;
  for (size_t i = 0; i < whole; i += step)
    for (size_t piece = 0; piece < kPieces<Weight>; ++piece)
      for (size_t lane = 0; lane < kLanes; ++lane)
        to[i + piece * kLanes + lane] = from[i + lane * kPieces<Weight> + piece];
  std::copy(from + whole, from + n, to + whole);
}

template <size_t width>
SEQMOE_INLINE void load_weights(const float* from, Floats<width> (&pieces)[1]) {
  std::memcpy(&pieces[0], from, sizeof pieces[0]);
}

template <size_t width>
SEQMOE_INLINE void load_weights(const Bfloat16* from, Floats<width> (&pieces)[2]) {
  using Words = typename VectorOf<width, uint32_t>::type;
  Words words;
  std::memcpy(&words, from, sizeof words);
  pieces[0] = reinterpret_cast<Floats<width>>(words << 16);
  pieces[1] = reinterpret_cast<Floats<width>>(words & 0xffff0000u);
}

SEQMOE_INLINE float sum_of(const float* lanes) {
  float half[kLanes / 2];
  for (size_t i = 0; i < kLanes / 2; ++i) half[i] = lanes[i] + lanes[i + kLanes / 2];
  return ((half[0] + half[4]) + (half[2] + half[6])) + ((half[1] + half[5]) + (half[3] + half[7]));
}

// out[token * out_stride + row] = matrix[row] . x[token] for rows of length n; inputs are packed, x_stride apart.
template <size_t width, class Weight, size_t rows, size_t tokens>
SEQMOE_INLINE void dot_tile(const Weight* matrix, const float* x, size_t n, size_t x_stride, float* out,
                            size_t out_stride) {
  constexpr size_t parts = kLanes / width, pieces = kPieces<Weight>, step = pieces * kLanes;
  Floats<width> sum[rows][tokens][parts] = {};
  const size_t whole = n - n % step;
  for (size_t i = 0; i < whole; i += step)
#pragma GCC unroll 4
    for (size_t part = 0; part < parts; ++part) {
      Floats<width> right[tokens][pieces];
#pragma GCC unroll 4
      for (size_t token = 0; token < tokens; ++token)
#pragma GCC unroll 2
        for (size_t piece = 0; piece < pieces; ++piece)
          std::memcpy(&right[token][piece], x + token * x_stride + i + piece * kLanes + part * width,
                      sizeof right[token][piece]);
#pragma GCC unroll 8
      for (size_t row = 0; row < rows; ++row) {
        Floats<width> left[pieces];
        load_weights<width>(matrix + row * n + i + part * width * pieces, left);
#pragma GCC unroll 4
        for (size_t token = 0; token < tokens; ++token)
#pragma GCC unroll 2
          for (size_t piece = 0; piece < pieces; ++piece) sum[row][token][part] += left[piece] * right[token][piece];
      }
    }
  for (size_t token = 0; token < tokens; ++token)
    for (size_t row = 0; row < rows; ++row) {
      float lanes[kLanes];
      std::memcpy(lanes, sum[row][token], sizeof lanes);
      float total = sum_of(lanes);
      for (size_t i = whole; i < n; ++i) total += to_float(matrix[row * n + i]) * x[token * x_stride + i];
      out[token * out_stride + row] = total;
    }
}

// The same for any number of tokens: a block of rows stays in the first-level cache while they take turns.
template <size_t width, class Weight, size_t rows, size_t most_tokens>
SEQMOE_INLINE void dot_block(const Weight* matrix, const float* x, size_t n, size_t x_stride, size_t tokens, float* out,
                             size_t out_stride) {
  size_t token = 0;
  for (; token + most_tokens <= tokens; token += most_tokens)
    dot_tile<width, Weight, rows, most_tokens>(matrix, x + token * x_stride, n, x_stride, out + token * out_stride,
                                               out_stride);
  if constexpr (most_tokens > 1)
    if (token < tokens)
      dot_block<width, Weight, rows, most_tokens - 1>(matrix, x + token * x_stride, n, x_stride, tokens - token,
                                                      out + token * out_stride, out_stride);
}

template <size_t width, class Weight, size_t rows, size_t most_tokens>
SEQMOE_INLINE void multiply(const Weight* matrix, size_t height, size_t n, const float* x, size_t x_stride,
                            size_t tokens, float* out, size_t out_stride) {
  size_t row = 0;
  for (; row + rows <= height; row += rows)
    dot_block<width, Weight, rows, most_tokens>(matrix + row * n, x, n, x_stride, tokens, out + row, out_stride);
  for (; row < height; ++row)
    dot_block<width, Weight, 1, most_tokens>(matrix + row * n, x, n, x_stride, tokens, out + row, out_stride);
}

}  // namespace seqmoe
