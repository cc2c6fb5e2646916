// How many prefetch transfers the link manages per layer: an exponential moving average over busy time.
#pragma once

#include <cmath>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>

namespace seqmoe {

// Algorithm 1, lines 1-3 and 12, with the sign corrected: what is left of a layer's budget lowers the average.
// Shared by the prefetch worker and whoever reads it.
class TransferBudget {
 public:
  TransferBudget(double average, double alpha) : average_(average), alpha_(alpha) {
    if (!(average >= 0) || !std::isfinite(average))
      throw std::invalid_argument("average must be finite and not negative");
    if (!(alpha > 0 && alpha <= 1)) throw std::invalid_argument("alpha must lie in (0, 1]");
  }

  // `layers` layers passed since the last call. Each is granted `average`; what is left over them, per layer, moves
  // the average, with the weight of as many single updates: so a link slower than a layer converges to its true rate.
  // Idle time says nothing about the link.
  void advance(int64_t layers, bool busy) {
    if (layers < 1) throw std::invalid_argument("layers must be at least 1");
    std::lock_guard lock(mutex_);
    const double left = average_ * static_cast<double>(layers) - static_cast<double>(spent_);
    const double weight = 1 - std::pow(1 - alpha_, static_cast<double>(layers));
    if (busy) average_ -= weight * left / static_cast<double>(layers);
    spent_ = 0;
  }

  // One more transfer; the current budget may go below 0.
  void spend() {
    std::lock_guard lock(mutex_);
    ++spent_;
  }

  double average() const {
    std::lock_guard lock(mutex_);
    return average_;
  }

  double current() const {
    std::lock_guard lock(mutex_);
    return average_ - static_cast<double>(spent_);
  }

 private:
  mutable std::mutex mutex_;
  double average_;
  double alpha_;
  int64_t spent_ = 0;
};

// What a budget learns from: the layers that pass between two choices of what to send.
class BudgetClock {
 public:
  // `busy`: since the last call the link had something to send.
  void observe(TransferBudget& budget, int64_t position, bool busy) {
    if (seen_ && position > *seen_) budget.advance(position - *seen_, busy);
    seen_ = position;
  }

  void forget() { seen_.reset(); }

 private:
  std::optional<int64_t> seen_;
};

}  // namespace seqmoe
