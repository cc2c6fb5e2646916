#include "mamba2.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "mamba2_math.h"
#include "moe.h"

namespace seqmoe {
namespace {

// Those of torch.nn.functional.rms_norm and of seqmoe.predictor.mamba2.mixer.
constexpr float kEpsilon = std::numeric_limits<float>::epsilon();
constexpr float kGateEpsilon = 1e-5f;

size_t whole(size_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

float* carve(float*& from, size_t n) { return std::exchange(from, from + whole(n)); }

}  // namespace

template <size_t vector>
SEQMOE_INLINE void Mamba2Stepper::advance(const std::vector<Mamba2State>& from, const std::vector<Mamba2State>& to) {
  const size_t hidden = shape_.hidden;
  std::copy_n(weights_.enter_bias, hidden, hidden_);
  for (const Input& input : inputs_) {
    const float* const row = weights_.enter + input.index * hidden;
    for (size_t i = 0; i < hidden; i += vector) {
      Floats<vector> sum, weight;
      load<vector>(hidden_ + i, sum);
      load<vector>(row + i, weight);
      store<vector>(sum + weight * input.value, hidden_ + i);
    }
  }
  for (size_t index = 0; index < weights_.blocks.size(); ++index) {
    const Mamba2Block& block = weights_.blocks[index];
    normalise<vector>(hidden_, block.norm, hidden, kEpsilon, normed_);
    mix<vector>(block, from[index], to[index]);
    for (size_t i = 0; i < hidden; ++i) hidden_[i] += normed_[i];
  }
  normalise<vector>(hidden_, weights_.norm, hidden, kEpsilon, normed_);
}

// A mixer, from normed_ to normed_.
template <size_t vector>
SEQMOE_INLINE void Mamba2Stepper::mix(const Mamba2Block& block, const Mamba2State& from, const Mamba2State& to) {
  const size_t inner = shape_.inner, convolved = shape_.convolved(), rows = shape_.head_dim();
  const size_t scan = rows * shape_.state_size;
  multiply<vector, float, 1>(block.in_proj, shape_.projected(), shape_.hidden, normed_, 0, 1, projected_, 0);
  convolve<vector>(from.window, projected_ + inner, block.conv_weight, block.conv_bias, shape_.taps, convolved,
                   to.window, mixed_);
  for (size_t head = 0; head < shape_.heads; ++head) {
    const float dt = softplus(projected_[inner + convolved + head] + block.dt_bias[head]);
    scan_head<vector>(from.scan + head * scan, mixed_ + head * rows, mixed_ + inner,
                      mixed_ + inner + shape_.state_size, dt, std::exp(dt * block.a[head]), block.skip[head], rows,
                      shape_.state_size, to.scan + head * scan, y_ + head * rows);
  }
  for (size_t i = 0; i < inner; i += vector) {
    Floats<vector> gate, y;
    load<vector>(projected_ + i, gate);
    load<vector>(y_ + i, y);
    silu<vector>(gate);
    store<vector>(y * gate, y_ + i);
  }
  normalise<vector>(y_, block.gate_norm, inner, kGateEpsilon, y_);
  multiply<vector, float, 1>(block.out_proj, shape_.hidden, inner, y_, 0, 1, normed_, 0);
}

template <size_t vector>
SEQMOE_INLINE void Mamba2Stepper::predict(const float* matrix, const float* bias, float* out) {
  multiply<vector, float, 1>(matrix, shape_.width(), shape_.hidden, normed_, 0, 1, out, 0);
  for (size_t i = 0; i < shape_.width(); ++i) out[i] += bias[i];
}

// Psi: the softmax over the top-k logits of each layer, as the next inputs.
template <size_t vector>
SEQMOE_INLINE void Mamba2Stepper::feed_back(const float* logits) {
  inputs_.clear();
  for (size_t layer = 0; layer < shape_.layers; ++layer) {
    const size_t begin = layer * shape_.experts, first = inputs_.size();
    const auto larger = [](const Input& one, const Input& other) { return one.value > other.value; };
    // A heap of the largest so far, the smallest of them in front.
    for (size_t i = begin; i < begin + shape_.experts; ++i) {
      const auto heap = inputs_.begin() + static_cast<std::ptrdiff_t>(first);
      if (inputs_.size() - first < shape_.top_k) {
        inputs_.push_back({i, logits[i]});
        std::push_heap(inputs_.begin() + static_cast<std::ptrdiff_t>(first), inputs_.end(), larger);
      } else if (logits[i] > heap->value) {
        std::pop_heap(heap, inputs_.end(), larger);
        inputs_.back() = {i, logits[i]};
        std::push_heap(heap, inputs_.end(), larger);
      }
    }
    float largest = inputs_[first].value, total = 0;
    for (size_t i = first; i < inputs_.size(); ++i) largest = std::max(largest, inputs_[i].value);
    for (size_t i = first; i < inputs_.size(); ++i) total += inputs_[i].value = std::exp(inputs_[i].value - largest);
    for (size_t i = first; i < inputs_.size(); ++i) inputs_[i].value /= total;
  }
}

template <size_t vector>
SEQMOE_INLINE void Mamba2Stepper::calibrate(const float* logits, PlattLine line, float* out) {
  const size_t experts = shape_.experts, padded = whole(experts);
  for (size_t layer = 0; layer < shape_.layers; ++layer, logits += experts, out += experts) {
    const float largest = *std::max_element(logits, logits + experts);
    for (size_t i = 0; i < experts; ++i) row_[i] = logits[i] - largest;
    std::fill(row_ + experts, row_ + padded, 0.0f);
    float total = 0;
    for (size_t i = 0; i < padded; i += vector) {
      Floats<vector> share;
      load<vector>(row_ + i, share);
      exponential<vector>(share);
      for (size_t lane = 0; lane < vector; ++lane) total += i + lane < experts ? share[lane] : 0.0f;
    }
    const float shift = line.offset - line.slope * std::log(total);
    for (size_t i = 0; i < padded; i += vector) {
      Floats<vector> odds;
      load<vector>(row_ + i, odds);
      odds = -(odds * line.slope + shift);
      exponential<vector>(odds);
      store<vector>(1.0f / (1.0f + odds), row_ + i);
    }
    std::copy_n(row_, experts, out);
  }
}

template <size_t vector>
SEQMOE_INLINE void Mamba2Stepper::observe_with() {
  advance<vector>(state_, state_);
  predict<vector>(weights_.leave, weights_.leave_bias, logits_);
  if (use_ != nullptr) predict<vector>(weights_.use, weights_.use_bias, use_);
}

template <size_t vector>
SEQMOE_INLINE void Mamba2Stepper::roll_out(size_t lookahead, const PlattLine* lines, size_t count, float* out) {
  calibrate<vector>(logits_, lines[0], out);
  for (size_t step = 1; step <= lookahead; ++step) {
    feed_back<vector>(step == 1 ? logits_ : ahead_);
    advance<vector>(step == 1 ? state_ : rollout_, rollout_);
    predict<vector>(weights_.leave, weights_.leave_bias, ahead_);
    calibrate<vector>(ahead_, lines[std::min(step, count - 1)], out + step * shape_.width());
  }
}

struct Mamba2Instructions {
  const char* name;
  void (*observe)(Mamba2Stepper&);
  void (*roll_out)(Mamba2Stepper&, size_t, const PlattLine*, size_t, float*);

  static const Mamba2Instructions& of(std::string_view name);

#ifdef __x86_64__
  __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma"))) static void observe_avx512(Mamba2Stepper& stepper) {
    stepper.observe_with<16>();
  }
  __attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma"))) static void roll_out_avx512(
      Mamba2Stepper& stepper, size_t lookahead, const PlattLine* lines, size_t count, float* out) {
    stepper.roll_out<16>(lookahead, lines, count, out);
  }
  __attribute__((target("avx2,fma"))) static void observe_avx2(Mamba2Stepper& stepper) { stepper.observe_with<8>(); }
  __attribute__((target("avx2,fma"))) static void roll_out_avx2(Mamba2Stepper& stepper, size_t lookahead,
                                                                const PlattLine* lines, size_t count, float* out) {
    stepper.roll_out<8>(lookahead, lines, count, out);
  }
#endif
  static void observe_portable(Mamba2Stepper& stepper) { stepper.observe_with<4>(); }
  static void roll_out_portable(Mamba2Stepper& stepper, size_t lookahead, const PlattLine* lines, size_t count,
                                float* out) {
    stepper.roll_out<4>(lookahead, lines, count, out);
  }
};

const Mamba2Instructions& Mamba2Instructions::of(std::string_view name) {
  static const Mamba2Instructions all[] = {
#ifdef __x86_64__
      {"avx512", observe_avx512, roll_out_avx512},
      {"avx2", observe_avx2, roll_out_avx2},
#endif
      {"portable", observe_portable, roll_out_portable},
  };
  const InstructionSet& set = instruction_set(name);
  return *std::find_if(std::begin(all), std::end(all), [&](const auto& one) {
    return std::string_view(one.name) == set.name;
  });
}

Mamba2Stepper::Mamba2Stepper(const Mamba2Shape& shape, Mamba2Weights weights, std::string_view instructions)
    : shape_(shape), weights_(std::move(weights)), instructions_(&Mamba2Instructions::of(instructions)) {
  const size_t blocks = weights_.blocks.size(), width = whole(shape.width());
  numbers_ = blocks * (whole(shape.taps * shape.convolved()) + whole(shape.inner * shape.state_size));
  const size_t total = 2 * numbers_ + 3 * width + 2 * whole(shape.hidden) + whole(shape.projected()) +
                       whole(shape.convolved()) + whole(shape.inner) + whole(shape.experts);
  memory_.reset(new Sixteen[total / kLanes]());
  float* next = memory_[0].lanes;
  state_ = carve_state(next);
  rollout_ = carve_state(next);
  logits_ = carve(next, width);
  float* const use = carve(next, width);
  use_ = weights_.use == nullptr ? nullptr : use;
  ahead_ = carve(next, width);
  hidden_ = carve(next, shape.hidden);
  normed_ = carve(next, shape.hidden);
  projected_ = carve(next, shape.projected());
  mixed_ = carve(next, shape.convolved());
  y_ = carve(next, shape.inner);
  row_ = carve(next, shape.experts);
  inputs_.reserve(shape.width());
}

std::vector<Mamba2State> Mamba2Stepper::carve_state(float*& from) const {
  std::vector<Mamba2State> states;
  for (size_t block = 0; block < weights_.blocks.size(); ++block) {
    float* const window = carve(from, shape_.taps * shape_.convolved());
    states.push_back({window, carve(from, shape_.inner * shape_.state_size)});
  }
  return states;
}

void Mamba2Stepper::observe(const float* activation) {
  inputs_.clear();
  for (size_t i = 0; i < shape_.width(); ++i)
    if (activation[i] != 0.0f) inputs_.push_back({i, activation[i]});
  instructions_->observe(*this);
}

void Mamba2Stepper::forecast(size_t lookahead, const PlattLine* lines, size_t count, float* out) {
  instructions_->roll_out(*this, lookahead, lines, count, out);
}

void Mamba2Stepper::reset() { std::fill_n(memory_[0].lanes, numbers_, 0.0f); }

}  // namespace seqmoe
