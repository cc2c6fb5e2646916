// The control region: 64-bit words in mapped, pinned memory through which a device and the prefetch worker speak.
// seqmoe/core/control.py has the same numbers and says what each word means.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "task.h"

namespace seqmoe {

// A slot that the device lends to the worker, in FETCH with this tag.
struct LentSlot {
  int32_t slot;
  int64_t tag;
};

class Control {
 public:
  enum Word : int {
    kPosition, kMissesBegun, kMissesDone, kTasks, kLent, kLandings, kConsumed, kFailed, kTaken, kCapacity
  };
  static constexpr int64_t kHeader = 16;
  static constexpr int64_t kTaskWords = 3, kLentWords = 2, kLandingWords = 3;

  // In place of a key: the landing brought nothing.
  static constexpr int64_t kNothing = -1;

  static constexpr int64_t words(int64_t capacity) {
    return kHeader + (kTaskWords + kLentWords + kLandingWords) * capacity;
  }

  // `words` is the address of words(capacity) words, of which the header says the same capacity.
  Control(uintptr_t words, int64_t capacity) : words_(reinterpret_cast<int64_t*>(words)), capacity_(capacity) {
    if (!words || words % alignof(int64_t)) throw std::invalid_argument("the control region needs an aligned address");
    if (capacity < 1 || (capacity & (capacity - 1)))
      throw std::invalid_argument("capacity = " + std::to_string(capacity) + ": must be a power of two");
    if (load(kCapacity) != capacity)
      throw std::invalid_argument("the control region was made for a capacity of " + std::to_string(load(kCapacity)) +
                                  ", not " + std::to_string(capacity));
  }

  int64_t capacity() const { return capacity_; }

  // Acquire and release: what was written before a word's store is seen after its load.
  int64_t load(Word word) const { return __atomic_load_n(words_ + word, __ATOMIC_ACQUIRE); }
  void store(Word word, int64_t value) { __atomic_store_n(words_ + word, value, __ATOMIC_RELEASE); }

  // A host's word must show `value`: a device that reads it by a read-modify-write may have put an older one back.
  void hold(Word word, int64_t value) {
    if (load(word) != value) store(word, value);
  }

  // Entry number `index` of a ring, counted from the beginning of time.
  Task task(int64_t index) const {
    const int64_t* const entry = at(kHeader, kTaskWords, index);
    const auto bits = static_cast<uint32_t>(read(entry + 2));
    float confidence;
    std::memcpy(&confidence, &bits, sizeof confidence);
    return {static_cast<int32_t>(read(entry)), kNoSlot, index, read(entry + 1), confidence};
  }

  LentSlot lent(int64_t index) const {
    const int64_t* const entry = at(kHeader + kTaskWords * capacity_, kLentWords, index);
    return {static_cast<int32_t>(read(entry)), read(entry + 1)};
  }

  int64_t landed_key(int64_t index) const { return read(landing(index) + 2); }

  void write_landing(int64_t index, const LentSlot& slot, int64_t key) {
    int64_t* const entry = landing(index);
    write(entry, slot.slot);
    write(entry + 1, slot.tag);
    write(entry + 2, key);
  }

 private:
  static constexpr int32_t kNoSlot = -1;

  static int64_t read(const int64_t* word) { return __atomic_load_n(word, __ATOMIC_RELAXED); }
  static void write(int64_t* word, int64_t value) { __atomic_store_n(word, value, __ATOMIC_RELAXED); }

  int64_t* landing(int64_t index) const {
    return at(kHeader + (kTaskWords + kLentWords) * capacity_, kLandingWords, index);
  }

  int64_t* at(int64_t ring, int64_t entry_words, int64_t index) const {
    return words_ + ring + entry_words * (index & (capacity_ - 1));
  }

  int64_t* words_;
  int64_t capacity_;
};

}  // namespace seqmoe
