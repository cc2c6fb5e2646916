#include "slots.h"

#include <stdexcept>
#include <string>

namespace seqmoe {

SlotTable::SlotTable(int32_t layers, int32_t experts, int32_t slots, int32_t fetch_limit)
    : layers_(layers), experts_(experts) {
  if (layers < 1 || experts < 1 || slots < 1)
    throw std::invalid_argument("layers, experts and slots must be at least 1");
  limit_fetch(fetch_limit);
  if (static_cast<int64_t>(layers) * experts > std::numeric_limits<int32_t>::max())
    throw std::invalid_argument("layers * experts does not fit an int32 expert key");
  state_.assign(slots, State::empty);
  owner_.assign(slots, kAbsent);
  tag_.assign(slots, kNoTag);
  slot_of_.assign(static_cast<size_t>(layers) * experts, kAbsent);
  score_.assign(slot_of_.size(), 0.0f);
  event_of_.assign(slot_of_.size(), 0);
}

void SlotTable::limit_fetch(int32_t limit) {
  if (limit < 0) throw std::invalid_argument("fetch_limit must not be negative");
  fetch_limit_ = limit;
}

void SlotTable::share_scores(bool shared) {
  shared_ = shared;
  published_ = score_;
}

int32_t SlotTable::key(int32_t layer, int32_t expert) const {
  if (layer < 0 || layer >= layers_ || expert < 0 || expert >= experts_)
    throw std::out_of_range("expert (" + std::to_string(layer) + ", " + std::to_string(expert) + ") is outside " +
                            std::to_string(layers_) + " layers of " + std::to_string(experts_) + " experts");
  return layer * experts_ + expert;
}

void SlotTable::check_key(int32_t key) const {
  if (key < 0 || static_cast<size_t>(key) >= slot_of_.size())
    throw std::out_of_range("expert key " + std::to_string(key) + " is outside 0.." +
                            std::to_string(slot_of_.size() - 1));
}

void SlotTable::begin_event(int32_t layer, const int32_t* experts, size_t count) {
  ++event_;
  for (size_t i = 0; i < count; ++i) {
    const int32_t wanted = key(layer, experts[i]);
    if (needed(wanted)) throw std::invalid_argument("expert " + std::to_string(experts[i]) + " appears twice");
    event_of_[wanted] = event_;
  }
}

int32_t SlotTable::victim() const {
  Victim best{0.0f, 0, kAbsent};
  for (int32_t slot = 0; slot < slots(); ++slot) {
    if (state_[slot] == State::empty) return slot;
    if (!evictable(slot)) continue;
    const Victim candidate = victim_at(slot);
    if (best.slot == kAbsent || candidate < best) best = candidate;
  }
  return best.slot;
}

void SlotTable::victims(size_t count, std::vector<Victim>& next) const {
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

std::vector<SlotTable::Victim> SlotTable::victims() const {
  std::vector<Victim> heap;
  for (int32_t slot = 0; slot < slots(); ++slot)
    if (state_[slot] == State::empty || evictable(slot)) heap.push_back(victim_at(slot));
  std::make_heap(heap.begin(), heap.end(), later);
  return heap;
}

int32_t SlotTable::take(std::vector<Victim>& heap) {
  std::pop_heap(heap.begin(), heap.end(), later);
  const int32_t slot = heap.back().slot;
  heap.pop_back();
  return slot;
}

int32_t SlotTable::reserve(int32_t key, int64_t tag) {
  check_absent(key);
  if (fetching_ >= fetch_limit_) return kAbsent;
  const int32_t slot = victim();
  if (slot != kAbsent) reserve_at(slot, key, tag);
  return slot;
}

void SlotTable::reserve_at(int32_t slot, int32_t key, int64_t tag) {
  if (tag < 0) throw std::invalid_argument("tag must not be negative");
  occupy(slot, key, State::fetch);
  tag_[slot] = tag;
  ++fetching_;
}

int32_t SlotTable::load(int32_t key) {
  check_absent(key);
  const int32_t slot = victim();
  if (slot != kAbsent) load_at(slot, key);
  return slot;
}

bool SlotTable::land(int32_t slot, int64_t tag, bool ok) {
  if (!expects(slot, tag)) return false;
  if (!ok) return cancel(slot, tag);
  state_[slot] = State::compute;
  tag_[slot] = kNoTag;
  --fetching_;
  return true;
}

bool SlotTable::cancel(int32_t slot, int64_t tag) {
  if (!expects(slot, tag)) return false;
  clear(slot);
  --fetching_;
  return true;
}

void SlotTable::release(int32_t slot) {
  expect_state(slot, State::compute, "release");
  state_[slot] = State::used;
}

void SlotTable::evict(int32_t slot) {
  expect_state(slot, State::used, "evict");
  clear(slot);
}

void SlotTable::move_layer(int32_t layer, State from, void (SlotTable::*move)(int32_t)) {
  const int32_t first = key(layer, 0);
  for (int32_t key = first; key < first + experts_; ++key)
    if (const int32_t slot = slot_of_[key]; slot != kAbsent && state_[slot] == from) (this->*move)(slot);
}

void SlotTable::occupy(int32_t slot, int32_t key, State next) {
  check_absent(key);
  if (state_[slot] == State::used)
    clear(slot);
  else
    expect_state(slot, State::empty, "take");
  state_[slot] = next;
  owner_[slot] = key;
  slot_of_[key] = slot;
}

void SlotTable::clear(int32_t slot) {
  slot_of_[owner_[slot]] = kAbsent;
  state_[slot] = State::empty;
  owner_[slot] = kAbsent;
  tag_[slot] = kNoTag;
}

// A slot expects a tag only while in FETCH, so a matching tag implies the state.
bool SlotTable::expects(int32_t slot, int64_t tag) const {
  check_slot(slot);
  return tag != kNoTag && tag_[slot] == tag;
}

void SlotTable::check_slot(int32_t slot) const {
  if (slot < 0 || slot >= slots())
    throw std::out_of_range("slot " + std::to_string(slot) + " is outside 0.." + std::to_string(slots() - 1));
}

void SlotTable::check_absent(int32_t key) const {
  if (slot_of_[key] != kAbsent)
    throw std::runtime_error("expert key " + std::to_string(key) + " already has slot " +
                             std::to_string(slot_of_[key]));
}

void SlotTable::expect_state(int32_t slot, State wanted, const char* verb) const {
  static const char* const names[] = {"EMPTY", "USED", "FETCH", "COMPUTE"};
  check_slot(slot);
  if (state_[slot] != wanted)
    throw std::runtime_error(std::string("cannot ") + verb + " slot " + std::to_string(slot) + ": it is " +
                             names[static_cast<int>(state_[slot])]);
}

}  // namespace seqmoe
