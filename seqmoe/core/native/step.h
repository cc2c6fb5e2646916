// The MoE layers of one decode step, called one after another by compiled code: no Python between them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "moe.h"
#include "pipeline.h"

namespace seqmoe {

// What compiled code calls, by address: seqmoe/runtime/graph/experts_op.cpp declares the same type. `hidden` and `out`
// are [tokens, hidden], `index` and `weights` [tokens, choices]. It never throws: failures wait for finish().
using StepFunction = void (*)(void* step, int64_t layer, const float* hidden, const int64_t* index,
                              const float* weights, float* out);

// Called back inside a layer, with the layer's number.
struct StepHooks {
  using Hook = std::function<void(int32_t layer)>;
  Hook needed;                    // before any of the layer's experts is made resident: scores that depend on use
  Hook routed;                    // when all are, at the trigger layers only: forecasts, tasks
  Hook done;                      // after the layer's work
  std::vector<uint8_t> triggers;  // by layer
};

// At full load (no pipeline) the pool is the host pool, and an expert's slot is its key.
class DecodeStep {
 public:
  // `pool` describes weights, activation, tokens and choices; its other pointers are set per layer.
  DecodeStep(const MoeCall& pool, int32_t slots, int32_t layers, int32_t experts,
             std::shared_ptr<OffloadPipeline> pipeline)
      : call_(pool),
        slots_(slots),
        layers_(layers),
        experts_(experts),
        pipeline_(std::move(pipeline)),
        kernel_(instruction_sets().front().kernel),
        routed_experts_(layers * rows()),
        routed_weights_(layers * rows()),
        slot_of_row_(rows()),
        slot_of_expert_(experts, kAbsent),
        contribution_(rows() * pool.hidden) {
    if (!pipeline_ && static_cast<int64_t>(layers) * experts > slots)
      throw std::invalid_argument("full load needs a slot for every expert of every layer");
  }

  size_t tokens() const { return call_.tokens; }
  size_t choices() const { return call_.choices; }
  int32_t layers() const { return layers_; }
  // From each layer's start to its kernel, in the step so far: stalls and callbacks included.
  int64_t placing_ns() const { return std::chrono::nanoseconds(placing_).count(); }

  // Routing of the layers that this step has passed, [layers, tokens, choices].
  int32_t* routed_experts() { return routed_experts_.data(); }
  float* routed_weights() { return routed_weights_.data(); }
  // Distinct experts of the layer in progress.
  const std::vector<int32_t>& distinct() const { return distinct_; }

  void begin(int64_t position, StepHooks hooks) {
    hooks_ = std::move(hooks);
    position_ = position;
    passed_ = 0;
    placing_ = {};
    failure_ = nullptr;
  }

  // Ends the step and raises what failed in it.
  void finish() {
    hooks_ = {};
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    if (passed_ != layers_)
      throw std::runtime_error("the compiled step passed " + std::to_string(passed_) + " of " +
                               std::to_string(layers_) + " MoE layers");
  }

  static void compute(void* self, int64_t layer, const float* hidden, const int64_t* index, const float* weights,
                      float* out) {
    static_cast<DecodeStep*>(self)->compute(layer, hidden, index, weights, out);
  }

 private:
  size_t rows() const { return call_.tokens * call_.choices; }

  void compute(int64_t layer, const float* hidden, const int64_t* index, const float* weights, float* out) noexcept {
    try {
      if (!failure_) return compute_layer(layer, hidden, index, weights, out);
    } catch (...) {
      failure_ = std::current_exception();
    }
    std::fill_n(out, call_.tokens * call_.hidden, 0.0f);
  }

  void compute_layer(int64_t number, const float* hidden, const int64_t* index, const float* weights, float* out) {
    if (number != passed_ || number >= layers_)
      throw std::runtime_error("the compiled step came to MoE layer " + std::to_string(number) + " where layer " +
                               std::to_string(passed_) + " was expected");
    const Clock::time_point start = Clock::now();
    const int32_t layer = passed_++;
    int32_t* const experts = routed_experts_.data() + layer * rows();
    for (size_t row = 0; row < rows(); ++row) {
      if (index[row] < 0 || index[row] >= experts_)
        throw std::out_of_range("expert " + std::to_string(index[row]) + " of " + std::to_string(experts_));
      experts[row] = static_cast<int32_t>(index[row]);
    }
    std::copy_n(weights, rows(), routed_weights_.data() + layer * rows());
    call_.x = hidden;
    call_.weights = weights;
    call_.slots = slot_of_row_.data();
    call_.contribution = contribution_.data();
    if (pipeline_)
      through_pool(layer, experts, start);
    else
      at_full_load(layer, experts, start);
    reduce_contributions(call_.tokens, call_.choices, call_.hidden, contribution_.data(), out);
    if (hooks_.done) hooks_.done(layer);
  }

  void at_full_load(int32_t layer, const int32_t* experts, Clock::time_point start) {
    for (size_t row = 0; row < rows(); ++row) slot_of_row_[row] = layer * experts_ + experts[row];
    placing_ += Clock::now() - start;
    kernel_(call_);
  }

  // An event that needs more experts than the pool has slots is computed in groups, as outside of compiled code.
  void through_pool(int32_t layer, const int32_t* experts, Clock::time_point start) {
    distinct_.assign(experts, experts + rows());
    if (call_.tokens > 1) {
      std::sort(distinct_.begin(), distinct_.end());
      distinct_.erase(std::unique(distinct_.begin(), distinct_.end()), distinct_.end());
    }
    if (hooks_.needed) hooks_.needed(layer);
    for (size_t begin = 0; begin < distinct_.size(); begin += slots_) {
      const size_t end = std::min(begin + slots_, distinct_.size());
      group_.assign(distinct_.begin() + begin, distinct_.begin() + end);
      slot_of_group_.resize(group_.size());
      pipeline_->enter(layer, position_ + layer, group_.data(), group_.size(), slot_of_group_.data());
      if (hooks_.routed && hooks_.triggers[layer] && end == distinct_.size()) hooks_.routed(layer);
      pipeline_->leave(layer);
      for (size_t i = 0; i < group_.size(); ++i) slot_of_expert_[group_[i]] = slot_of_group_[i];
      for (size_t row = 0; row < rows(); ++row) slot_of_row_[row] = slot_of_expert_[experts[row]];
      for (const int32_t expert : group_) slot_of_expert_[expert] = kAbsent;
      placing_ += Clock::now() - start;
      kernel_(call_);
      start = Clock::now();
    }
  }

  MoeCall call_;
  size_t slots_;
  int32_t layers_;
  int32_t experts_;
  std::shared_ptr<OffloadPipeline> pipeline_;
  MoeKernel* kernel_;
  StepHooks hooks_;
  int64_t position_ = 0;
  int32_t passed_ = 0;
  Clock::duration placing_{};
  std::exception_ptr failure_;
  std::vector<int32_t> routed_experts_;
  std::vector<float> routed_weights_;
  std::vector<int32_t> slot_of_row_;
  std::vector<int32_t> slot_of_expert_;
  std::vector<int32_t> slot_of_group_;
  std::vector<int32_t> distinct_;
  std::vector<int32_t> group_;
  std::vector<float> contribution_;
};

}  // namespace seqmoe
