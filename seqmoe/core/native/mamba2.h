// One range's Mamba2 network (seqmoe.predictor.network), one step at a time for one sequence, and its rollouts.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace seqmoe {

struct Mamba2Shape {
  size_t layers;   // of the range
  size_t experts;  // of a layer
  size_t top_k;
  size_t hidden;
  size_t inner;
  size_t heads;
  size_t state_size;
  size_t taps;  // of the convolution

  size_t width() const { return layers * experts; }
  size_t head_dim() const { return inner / heads; }
  size_t convolved() const { return inner + 2 * state_size; }
  size_t projected() const { return inner + convolved() + heads; }
};

// Row-major float32 arrays that belong to the caller; matrices are [out, in] where not said otherwise.
struct Mamba2Block {
  const float* norm;         // [hidden]
  const float* in_proj;      // [projected, hidden]
  const float* conv_weight;  // [taps, convolved], the newest last
  const float* conv_bias;    // [convolved]
  const float* dt_bias;      // [heads]
  const float* a;            // [heads], negative
  const float* skip;         // [heads]
  const float* gate_norm;    // [inner]
  const float* out_proj;     // [hidden, inner]
};

struct Mamba2Weights {
  const float* enter;  // [width, hidden], of inputs as they come: only the rows of active experts are read
  const float* enter_bias;
  std::vector<Mamba2Block> blocks;
  const float* norm;  // [hidden]
  const float* leave;
  const float* leave_bias;
  const float* use;  // null, with its bias, for networks without a head of discounted use
  const float* use_bias;
};

// What a block remembers: the convolution's inputs [taps, convolved] and the scan [inner, state_size].
struct Mamba2State {
  float* window;
  float* scan;
};

// Slope and offset of a forecast's step: P(active) = sigmoid(slope * log softmax(logits) + offset).
struct PlattLine {
  float slope;
  float offset;
};

struct Mamba2Instructions;

class Mamba2Stepper {
 public:
  // hidden, inner and state_size must be multiples of 16, head_dim of 4, for whole vectors. `instructions` as in moe.h.
  Mamba2Stepper(const Mamba2Shape& shape, Mamba2Weights weights, std::string_view instructions);

  // Takes in a step's activation [width]; logits() and use() then predict the next one.
  void observe(const float* activation);

  // Probabilities out[0] .. out[lookahead], [width] each, of the next step and of those that feeding predictions back
  // gives. The rollout runs on a state of its own, so there is nothing to restore. Steps past the last line use it.
  void forecast(size_t lookahead, const PlattLine* lines, size_t count, float* out);

  void reset();

  const Mamba2Shape& shape() const { return shape_; }
  // State and prediction never move, and may be written: by a prefill that goes another way.
  const std::vector<Mamba2State>& state() const { return state_; }
  float* logits() const { return logits_; }
  float* use() const { return use_; }

 private:
  friend struct Mamba2Instructions;

  // An input other than zero.
  struct Input {
    size_t index;
    float value;
  };

  struct alignas(64) Sixteen {
    float lanes[16];
  };

  std::vector<Mamba2State> carve_state(float*& from) const;

  template <size_t vector>
  void advance(const std::vector<Mamba2State>& from, const std::vector<Mamba2State>& to);
  template <size_t vector>
  void mix(const Mamba2Block& block, const Mamba2State& from, const Mamba2State& to);
  template <size_t vector>
  void predict(const float* matrix, const float* bias, float* out);
  template <size_t vector>
  void feed_back(const float* logits);
  template <size_t vector>
  void calibrate(const float* logits, PlattLine line, float* out);
  template <size_t vector>
  void observe_with();
  template <size_t vector>
  void roll_out(size_t lookahead, const PlattLine* lines, size_t count, float* out);

  const Mamba2Shape shape_;
  const Mamba2Weights weights_;
  const Mamba2Instructions* instructions_;
  std::unique_ptr<Sixteen[]> memory_;
  std::vector<Mamba2State> state_;    // of what was observed
  std::vector<Mamba2State> rollout_;  // of what is being predicted
  std::vector<Input> inputs_;
  size_t numbers_ = 0;  // in state_
  float* logits_ = nullptr;
  float* use_ = nullptr;
  float* ahead_ = nullptr;  // a rollout's logits
  float* hidden_ = nullptr;
  float* normed_ = nullptr;
  float* projected_ = nullptr;
  float* mixed_ = nullptr;  // after the convolution
  float* y_ = nullptr;
  float* row_ = nullptr;  // of one layer's experts
};

}  // namespace seqmoe
