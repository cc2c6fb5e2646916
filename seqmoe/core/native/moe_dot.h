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

// The four sums of four partial sums each.
SEQMOE_INLINE void sum_of_each(const Floats<4> (&of)[4], float* out) {
  typedef int32_t Index __attribute__((vector_size(16)));
  const Index low = {0, 4, 1, 5}, high = {2, 6, 3, 7}, first = {0, 1, 4, 5}, second = {2, 3, 6, 7};
  const Floats<4> a = __builtin_shuffle(of[0], of[1], low) + __builtin_shuffle(of[0], of[1], high);
  const Floats<4> b = __builtin_shuffle(of[2], of[3], low) + __builtin_shuffle(of[2], of[3], high);
  const Floats<4> total = __builtin_shuffle(a, b, first) + __builtin_shuffle(a, b, second);
  std::memcpy(out, &total, sizeof total);
}

SEQMOE_INLINE void sum_of_each(const Floats<4> (&of)[1], float* out) {
  *out = (of[0][0] + of[0][2]) + (of[0][1] + of[0][3]);
}

// One row of each of two matrices with each token: four partial sums of every dot product.
template <size_t width, class Weight, size_t tokens>
SEQMOE_INLINE void dot_two(const Weight* const (&lines)[2], const float* x, size_t whole, size_t x_stride,
                           Floats<4> (&out)[2][tokens]) {
  constexpr size_t parts = kLanes / width, pieces = kPieces<Weight>, step = pieces * kLanes;
  Floats<width> sum[2][tokens][pieces][parts] = {};
#pragma GCC unroll 4
  for (size_t i = 0; i < whole; i += step)
#pragma GCC unroll 4
    for (size_t part = 0; part < parts; ++part) {
      Floats<width> left[2][pieces];
      for (size_t line = 0; line < 2; ++line)
        load_weights<width>(lines[line] + i + part * width * pieces, left[line]);
#pragma GCC unroll 4
      for (size_t token = 0; token < tokens; ++token)
#pragma GCC unroll 2
        for (size_t piece = 0; piece < pieces; ++piece) {
          Floats<width> right;
          std::memcpy(&right, x + token * x_stride + i + piece * kLanes + part * width, sizeof right);
          for (size_t line = 0; line < 2; ++line) sum[line][token][piece][part] += left[line][piece] * right;
        }
    }
#pragma GCC unroll 2
  for (size_t line = 0; line < 2; ++line)
#pragma GCC unroll 4
    for (size_t token = 0; token < tokens; ++token) {
#pragma GCC unroll 4
      for (size_t part = 0; part < parts; ++part)
        if constexpr (pieces == 2) sum[line][token][0][part] += sum[line][token][1][part];
      Floats<4> lanes[4];
      std::memcpy(lanes, sum[line][token][0], sizeof lanes);
      out[line][token] = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
    }
}

// out[line][token * out_stride + row] = matrices[line][row] . x[token] for rows of length n; inputs are packed,
// x_stride apart.
template <size_t width, class Weight, size_t rows, size_t tokens>
SEQMOE_INLINE void dot_tile(const Weight* const (&matrices)[2], const float* x, size_t n, size_t x_stride,
                            float* const (&out)[2], size_t out_stride) {
  const size_t whole = n - n % (kPieces<Weight> * kLanes);
  Floats<4> partial[2][tokens][rows];
#pragma GCC unroll 4
  for (size_t row = 0; row < rows; ++row) {
    const Weight* const lines[2] = {matrices[0] + row * n, matrices[1] + row * n};
    Floats<4> of_row[2][tokens];
    dot_two<width>(lines, x, whole, x_stride, of_row);
    for (size_t line = 0; line < 2; ++line)
      for (size_t token = 0; token < tokens; ++token) partial[line][token][row] = of_row[line][token];
  }
  for (size_t line = 0; line < 2; ++line)
    for (size_t token = 0; token < tokens; ++token) {
      float* const dots = out[line] + token * out_stride;
      sum_of_each(partial[line][token], dots);
      for (size_t row = 0; row < rows; ++row)
        for (size_t i = whole; i < n; ++i)
          dots[row] += to_float(matrices[line][row * n + i]) * x[token * x_stride + i];
    }
}

// The same for any number of tokens: a block of rows stays in the first-level cache while they take turns.
template <size_t width, class Weight, size_t rows, size_t most_tokens>
SEQMOE_INLINE void dot_block(const Weight* const (&matrices)[2], const float* x, size_t n, size_t x_stride,
                             size_t tokens, float* const (&out)[2], size_t out_stride) {
  size_t token = 0;
  for (; token + most_tokens <= tokens; token += most_tokens)
    dot_tile<width, Weight, rows, most_tokens>(matrices, x + token * x_stride, n, x_stride,
                                               {out[0] + token * out_stride, out[1] + token * out_stride}, out_stride);
  if constexpr (most_tokens > 1)
    if (token < tokens)
      dot_block<width, Weight, rows, most_tokens - 1>(
          matrices, x + token * x_stride, n, x_stride, tokens - token,
          {out[0] + token * out_stride, out[1] + token * out_stride}, out_stride);
}

// out[token * out_stride + row] = matrix[row] . x[token] for all `height` rows.
//
// The matrix is read in two streams, from its start and from its middle, each row from one end to the other: what the
// prefetchers of a CPU follow best. On an AMD EPYC 9004, experts from memory took 2.7 times the floor in float32 and 4
// times in bfloat16 with eight neighbouring rows side by side (1.2 to 1.6 with prefetch instructions), 1.0 and 1.3 in one
// stream (1.3 and 1.5 with such instructions), 1.0 and 1.1 in two. Of an odd number of rows, both streams have the one in
// the middle, and write the same twice.
template <size_t width, class Weight, size_t most_tokens>
SEQMOE_INLINE void multiply(const Weight* matrix, size_t height, size_t n, const float* x, size_t x_stride,
                            size_t tokens, float* out, size_t out_stride) {
  constexpr size_t rows = 4;
  const size_t half = (height + 1) / 2, rest = height - half;
  size_t row = 0;
  for (; row + rows <= half; row += rows)
    dot_block<width, Weight, rows, most_tokens>({matrix + row * n, matrix + (rest + row) * n}, x, n, x_stride, tokens,
                                                {out + row, out + rest + row}, out_stride);
  for (; row < half; ++row)
    dot_block<width, Weight, 1, most_tokens>({matrix + row * n, matrix + (rest + row) * n}, x, n, x_stride, tokens,
                                             {out + row, out + rest + row}, out_stride);
}

}  // namespace seqmoe
