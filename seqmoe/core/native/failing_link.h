// A link with faults, for tests of what happens then.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "channel.h"

namespace seqmoe {

// Every n-th transfer brings nothing; the others go over `link`, at its pace.
class FailingLink final : public Channel {
 public:
  FailingLink(std::shared_ptr<Channel> link, int64_t every) : Channel(0.0), link_(std::move(link)), every_(every) {
    if (every < 1) throw std::invalid_argument("every must be at least 1");
  }

  void hold_while(std::function<bool()> held) override { link_->hold_while(std::move(held)); }

 private:
  int64_t copy(int32_t key, int32_t slot, const std::atomic<bool>* hurry) override {
    if (++attempts_ % every_ == 0) throw TransferError("transfer " + std::to_string(attempts_) + " fails on purpose");
    const int64_t before = link_->bytes();
    return link_->transfer(key, slot, hurry) ? link_->bytes() - before : -1;
  }

  std::shared_ptr<Channel> link_;
  int64_t every_;
  int64_t attempts_ = 0;
};

}  // namespace seqmoe
