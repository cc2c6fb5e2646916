// The slot table: which expert each slot of the shared pool holds, in which of four states, and who must go next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace seqmoe {

enum class State : uint8_t { empty = 0, used = 1, fetch = 2, compute = 3 };

constexpr int32_t kAbsent = -1;
constexpr int64_t kNoTag = -1;

// One thread owns a table. Only plain arrays, so that a device-side table can share the layout.
class SlotTable {
 public:
  // A slot that may be taken; the least of all candidates is taken first.
  struct Victim {
    float score;
    int32_t key;
    int32_t slot;
    bool operator<(const Victim& other) const {
      if (score != other.score) return score < other.score;
      return key != other.key ? key < other.key : slot < other.slot;
    }
  };

  SlotTable(int32_t layers, int32_t experts, int32_t slots, int32_t fetch_limit)
      : layers_(layers), experts_(experts), fetch_limit_(fetch_limit) {
    if (layers < 1 || experts < 1 || slots < 1)
      throw std::invalid_argument("layers, experts and slots must be at least 1");
    if (fetch_limit < 0) throw std::invalid_argument("fetch_limit must not be negative");
    if (static_cast<int64_t>(layers) * experts > std::numeric_limits<int32_t>::max())
      throw std::invalid_argument("layers * experts does not fit an int32 expert key");
    state_.assign(slots, State::empty);
    owner_.assign(slots, kAbsent);
    tag_.assign(slots, kNoTag);
    slot_of_.assign(static_cast<size_t>(layers) * experts, kAbsent);
    score_.assign(slot_of_.size(), 0.0f);
    event_of_.assign(slot_of_.size(), 0);
  }

  int32_t layers() const { return layers_; }
  int32_t experts() const { return experts_; }
  int32_t slots() const { return static_cast<int32_t>(state_.size()); }
  int32_t fetch_limit() const { return fetch_limit_; }
  int32_t fetching() const { return fetching_; }
  // What is in FETCH stays there, even if it is more.
  void limit_fetch(int32_t limit) { fetch_limit_ = limit; }

  State state(int32_t slot) const { return state_[slot]; }
  int32_t owner(int32_t slot) const { return owner_[slot]; }
  int32_t slot_of(int32_t key) const { return slot_of_[key]; }
  float score(int32_t key) const { return score_[key]; }
  bool needed(int32_t key) const { return event_of_[key] == event_; }

  // The arrays behind the views.
  State* state_data() { return state_.data(); }
  int32_t* owner_data() { return owner_.data(); }
  int64_t* tag_data() { return tag_.data(); }
  int32_t* slot_of_data() { return slot_of_.data(); }
  float* score_data() { return score_.data(); }

  int32_t key(int32_t layer, int32_t expert) const {
    if (layer < 0 || layer >= layers_ || expert < 0 || expert >= experts_)
      throw std::out_of_range("expert (" + std::to_string(layer) + ", " + std::to_string(expert) + ") is outside " +
                              std::to_string(layers_) + " layers of " + std::to_string(experts_) + " experts");
    return layer * experts_ + expert;
  }

  void check_key(int32_t key) const {
    if (key < 0 || static_cast<size_t>(key) >= slot_of_.size())
      throw std::out_of_range("expert key " + std::to_string(key) + " is outside 0.." +
                              std::to_string(slot_of_.size() - 1));
  }

  // Nothing this event needs is evicted until the next event begins.
  void begin_event(int32_t layer, const int32_t* experts, size_t count) {
    ++event_;
    for (size_t i = 0; i < count; ++i) {
      const int32_t wanted = key(layer, experts[i]);
      if (needed(wanted)) throw std::invalid_argument("expert " + std::to_string(experts[i]) + " appears twice");
      event_of_[wanted] = event_;
    }
  }

  Victim victim_at(int32_t slot) const {
    constexpr float lowest = -std::numeric_limits<float>::infinity();
    if (state_[slot] == State::empty) return {lowest, kAbsent, slot};
    const float score = score_[owner_[slot]];
    // NaN has no order; it counts as the lowest score.
    return {score == score ? score : lowest, owner_[slot], slot};
  }

  // The slot to take next, or kAbsent: empty ones first, then the lowest score, ties by the lower key.
  int32_t victim() const {
    Victim best{0.0f, 0, kAbsent};
    for (int32_t slot = 0; slot < slots(); ++slot) {
      if (state_[slot] == State::empty) return slot;
      if (!evictable(slot)) continue;
      const Victim candidate = victim_at(slot);
      if (best.slot == kAbsent || candidate < best) best = candidate;
    }
    return best.slot;
  }

  // The next `count` slots to take, in order, or fewer if no more may be taken: one search for several.
  void victims(size_t count, std::vector<Victim>& next) const {
    next.clear();
    for (int32_t slot = 0; slot < slots(); ++slot) {
      if (state_[slot] != State::empty && !evictable(slot)) continue;
      const Victim candidate = victim_at(slot);
      if (next.size() == count) {
        if (!(candidate < next.back())) continue;
        next.pop_back();
      }
      next.insert(std::upper_bound(next.begin(), next.end(), candidate), candidate);
    }
  }

  // All slots that may be taken, as a heap with the next one in front: for taking many in one go.
  std::vector<Victim> victims() const {
    std::vector<Victim> heap;
    for (int32_t slot = 0; slot < slots(); ++slot)
      if (state_[slot] == State::empty || evictable(slot)) heap.push_back(victim_at(slot));
    std::make_heap(heap.begin(), heap.end(), later);
    return heap;
  }

  static int32_t take(std::vector<Victim>& heap) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const int32_t slot = heap.back().slot;
    heap.pop_back();
    return slot;
  }

  int32_t reserve(int32_t key, int64_t tag) {
    check_absent(key);
    if (fetching_ >= fetch_limit_) return kAbsent;
    const int32_t slot = victim();
    if (slot != kAbsent) reserve_at(slot, key, tag);
    return slot;
  }

  void reserve_at(int32_t slot, int32_t key, int64_t tag) {
    if (tag < 0) throw std::invalid_argument("tag must not be negative");
    occupy(slot, key, State::fetch);
    tag_[slot] = tag;
    ++fetching_;
  }

  int32_t load(int32_t key) {
    check_absent(key);
    const int32_t slot = victim();
    if (slot != kAbsent) load_at(slot, key);
    return slot;
  }

  void load_at(int32_t slot, int32_t key) { occupy(slot, key, State::compute); }

  // A landing counts only if its tag is the one the slot expects; a stale one changes nothing.
  bool land(int32_t slot, int64_t tag, bool ok) {
    if (!expects(slot, tag)) return false;
    if (!ok) return cancel(slot, tag);
    state_[slot] = State::compute;
    tag_[slot] = kNoTag;
    --fetching_;
    return true;
  }

  bool cancel(int32_t slot, int64_t tag) {
    if (!expects(slot, tag)) return false;
    clear(slot);
    --fetching_;
    return true;
  }

  void release(int32_t slot) {
    expect_state(slot, State::compute, "release");
    state_[slot] = State::used;
  }

  void evict(int32_t slot) {
    expect_state(slot, State::used, "evict");
    clear(slot);
  }

  void release_layer(int32_t layer) { move_layer(layer, State::compute, &SlotTable::release); }
  void evict_layer(int32_t layer) { move_layer(layer, State::used, &SlotTable::evict); }

 private:
  static bool later(const Victim& a, const Victim& b) { return b < a; }

  bool evictable(int32_t slot) const { return state_[slot] == State::used && !needed(owner_[slot]); }

  void move_layer(int32_t layer, State from, void (SlotTable::*move)(int32_t)) {
    const int32_t first = key(layer, 0);
    for (int32_t key = first; key < first + experts_; ++key)
      if (const int32_t slot = slot_of_[key]; slot != kAbsent && state_[slot] == from) (this->*move)(slot);
  }

  void occupy(int32_t slot, int32_t key, State next) {
    if (state_[slot] == State::used)
      clear(slot);
    else
      expect_state(slot, State::empty, "take");
    state_[slot] = next;
    owner_[slot] = key;
    slot_of_[key] = slot;
  }

  void clear(int32_t slot) {
    slot_of_[owner_[slot]] = kAbsent;
    state_[slot] = State::empty;
    owner_[slot] = kAbsent;
    tag_[slot] = kNoTag;
  }

  // A slot expects a tag only while in FETCH, so a matching tag implies the state.
  bool expects(int32_t slot, int64_t tag) const {
    check_slot(slot);
    return tag != kNoTag && tag_[slot] == tag;
  }

  void check_slot(int32_t slot) const {
    if (slot < 0 || slot >= slots())
      throw std::out_of_range("slot " + std::to_string(slot) + " is outside 0.." + std::to_string(slots() - 1));
  }

  void check_absent(int32_t key) const {
    if (slot_of_[key] != kAbsent)
      throw std::runtime_error("expert key " + std::to_string(key) + " already has slot " +
                               std::to_string(slot_of_[key]));
  }

  void expect_state(int32_t slot, State wanted, const char* verb) const {
    static const char* const names[] = {"EMPTY", "USED", "FETCH", "COMPUTE"};
    check_slot(slot);
    if (state_[slot] != wanted)
      throw std::runtime_error(std::string("cannot ") + verb + " slot " + std::to_string(slot) + ": it is " +
                               names[static_cast<int>(state_[slot])]);
  }

  int32_t layers_;
  int32_t experts_;
  int32_t fetch_limit_;
  int32_t fetching_ = 0;
  int64_t event_ = 1;
  std::vector<State> state_;
  std::vector<int32_t> owner_;
  std::vector<int64_t> tag_;
  std::vector<int32_t> slot_of_;
  std::vector<float> score_;
  std::vector<int64_t> event_of_;
};

}  // namespace seqmoe
