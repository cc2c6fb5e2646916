// Indexes of what a cache holds, by who must go next: in constant time for LRU, in logarithmic time for any score.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace seqmoe {

// The residents as a ring of links, the least recently used one first.
class RecencyIndex {
 public:
  explicit RecencyIndex(size_t keys) : end_(static_cast<int32_t>(keys)), node_(keys + 1, Node{kNone, kNone}) {
    node_[end_] = {end_, end_};
  }

  bool holds(int32_t key) const { return node_[key].next != kNone; }
  size_t size() const { return size_; }

  void remove(int32_t key) {
    const Node node = node_[key];
    node_[node.before].next = node.next;
    node_[node.next].before = node.before;
    node_[key].next = kNone;
    --size_;
  }

  void remove_first() { remove(node_[end_].next); }

  void append(int32_t key) {
    const int32_t last = node_[end_].before;
    node_[key] = {last, end_};
    node_[last].next = key;
    node_[end_].before = key;
    ++size_;
  }

 private:
  static constexpr int32_t kNone = -1;
  struct Node {
    int32_t before;
    int32_t next;
  };

  int32_t end_;
  size_t size_ = 0;
  std::vector<Node> node_;
};

// The lower score goes first, then the earlier time, then the lower key.
class ScoreIndex {
 public:
  explicit ScoreIndex(size_t keys) : place_(keys), resident_(keys, false) {}

  bool holds(int32_t key) const { return resident_[key]; }
  size_t size() const { return order_.size(); }

  void remove(int32_t key) {
    spare_.push_back(order_.extract(place_[key]));
    resident_[key] = false;
  }

  void remove_first() { remove(std::get<2>(*order_.begin())); }

  void add(int32_t key, int64_t score, int64_t time) {
    resident_[key] = true;
    if (spare_.empty()) {
      place_[key] = order_.emplace(score, time, key).first;
      return;
    }
    spare_.back().value() = {score, time, key};
    place_[key] = order_.insert(std::move(spare_.back())).position;
    spare_.pop_back();
  }

 private:
  using Order = std::set<std::tuple<int64_t, int64_t, int32_t>>;

  Order order_;
  std::vector<Order::node_type> spare_;  // allocating anew took a third of the time
  std::vector<Order::iterator> place_;
  std::vector<bool> resident_;
};

}  // namespace seqmoe
