// The slot table: which expert each slot of the shared pool holds, in which of four states, and who must go next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

namespace seqmoe {

enum class State : uint8_t { empty = 0, used = 1, fetch = 2, compute = 3 };

constexpr int32_t kAbsent = -1;
constexpr int64_t kNoTag = -1;

// Only plain arrays, so that a device-side table can share the layout. One thread owns a table; once a pipeline drives
// it, whoever works on it holds mutex().
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

  SlotTable(int32_t layers, int32_t experts, int32_t slots, int32_t fetch_limit);

  std::mutex& mutex() { return *mutex_; }

  int32_t layers() const { return layers_; }
  int32_t experts() const { return experts_; }
  int32_t slots() const { return static_cast<int32_t>(state_.size()); }
  int32_t fetch_limit() const { return fetch_limit_; }
  int32_t fetching() const { return fetching_; }
  // What is in FETCH stays there, even if it is more.
  void limit_fetch(int32_t limit);

  State state(int32_t slot) const { return state_[slot]; }
  int32_t owner(int32_t slot) const { return owner_[slot]; }
  int32_t slot_of(int32_t key) const { return slot_of_[key]; }
  bool needed(int32_t key) const { return event_of_[key] == event_; }

  // The arrays behind the views.
  State* state_data() { return state_.data(); }
  int32_t* owner_data() { return owner_.data(); }
  int64_t* tag_data() { return tag_.data(); }
  int32_t* slot_of_data() { return slot_of_.data(); }
  float* score_data() { return score_.data(); }

  // While shared, the scores that count are those last published: inference writes the next ones without the mutex.
  void share_scores(bool shared);
  void publish_scores() { std::copy(score_.begin(), score_.end(), published_.begin()); }

  // Checked: std::out_of_range.
  int32_t key(int32_t layer, int32_t expert) const;
  void check_key(int32_t key) const;

  // Nothing this event needs is evicted until the next event begins.
  void begin_event(int32_t layer, const int32_t* experts, size_t count);

  // NaN has no order; it counts as the lowest score.
  float score_of(int32_t key) const {
    const float score = (shared_ ? published_ : score_)[key];
    return score == score ? score : -std::numeric_limits<float>::infinity();
  }

  Victim victim_at(int32_t slot) const {
    if (state_[slot] == State::empty) return {-std::numeric_limits<float>::infinity(), kAbsent, slot};
    return {score_of(owner_[slot]), owner_[slot], slot};
  }

  // The slot to take next, or kAbsent: empty ones first, then the lowest score, ties by the lower key.
  int32_t victim() const;

  // The next `count` slots to take, in order, or fewer if no more may be taken: one search for several.
  void victims(size_t count, std::vector<Victim>& next) const;

  // All slots that may be taken, as a heap with the next one in front: for taking many in one go.
  std::vector<Victim> victims() const;
  static int32_t take(std::vector<Victim>& heap);

  // EMPTY or USED -> FETCH. The first chooses the slot, or kAbsent if none may be taken or fetch_limit is reached.
  int32_t reserve(int32_t key, int64_t tag);
  void reserve_at(int32_t slot, int32_t key, int64_t tag);

  // EMPTY or USED -> COMPUTE.
  int32_t load(int32_t key);
  void load_at(int32_t slot, int32_t key) { occupy(slot, key, State::compute); }

  // FETCH -> COMPUTE or EMPTY. A landing counts only if its tag is the one the slot expects; a stale one changes
  // nothing.
  bool land(int32_t slot, int64_t tag, bool ok);
  bool cancel(int32_t slot, int64_t tag);

  // COMPUTE -> USED, USED -> EMPTY.
  void release(int32_t slot);
  void evict(int32_t slot);
  void release_layer(int32_t layer) { move_layer(layer, State::compute, &SlotTable::release); }
  void evict_layer(int32_t layer) { move_layer(layer, State::used, &SlotTable::evict); }

 private:
  static bool later(const Victim& a, const Victim& b) { return b < a; }

  bool evictable(int32_t slot) const { return state_[slot] == State::used && !needed(owner_[slot]); }

  void move_layer(int32_t layer, State from, void (SlotTable::*move)(int32_t));
  void occupy(int32_t slot, int32_t key, State next);
  void clear(int32_t slot);
  bool expects(int32_t slot, int64_t tag) const;
  void check_slot(int32_t slot) const;
  void check_absent(int32_t key) const;
  void expect_state(int32_t slot, State wanted, const char* verb) const;

  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
  int32_t layers_;
  int32_t experts_;
  int32_t fetch_limit_;
  int32_t fetching_ = 0;
  int64_t event_ = 1;
  bool shared_ = false;
  std::vector<State> state_;
  std::vector<int32_t> owner_;
  std::vector<int64_t> tag_;
  std::vector<int32_t> slot_of_;
  std::vector<float> score_;
  std::vector<float> published_;
  std::vector<int64_t> event_of_;
};

}  // namespace seqmoe
