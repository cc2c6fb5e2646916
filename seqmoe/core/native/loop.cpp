#include "loop.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

namespace seqmoe {

EventLoop::EventLoop(int32_t layers, int32_t experts, int32_t slots, const std::optional<PrefetchRules>& rules,
                     bool sequential, std::vector<int64_t> bands)
    : layers_(layers),
      experts_(experts),
      slots_(slots),
      rules_(rules),
      sequential_(sequential),
      bands_(std::move(bands)),
      table_(new_table()) {
  // More than the pool can be asked for: a link of that rate is unlimited.
  const double all = static_cast<double>(layers) * experts;
  if (rules_) link_.emplace(rules_->link, rules_->alpha, rules_->order, layers, all);
  for (LoopCounts* counts : {&counts_, &uncounted_}) {
    counts->layers.resize(layers);
    counts->bands.resize(bands_.size());
  }
  forget();
}

void EventLoop::forget() {
  largest_ = 0;
  table_ = new_table();
  if (link_) link_->forget();
  unused_.assign(slots_, false);
  sent_under_.assign(slots_, &uncounted_);
  sent_in_.assign(slots_, -1);
  queued_under_.assign(static_cast<size_t>(layers_) * experts_, nullptr);
  position_ = -1;
}

void EventLoop::set_all_scores(const float* scores) {
  std::copy_n(scores, static_cast<size_t>(layers_) * experts_, table_.score_data());
}

int32_t EventLoop::fetch_limit() const {
  return rules_ && rules_->fetch_limit ? *rules_->fetch_limit : std::max(slots_ - largest_, 0);
}

void EventLoop::check_distinct(const Block& block) const {
  std::vector<size_t> seen(experts_, block.events);
  for (size_t event = 0; event < block.events; ++event)
    for (int64_t i = block.start[event]; i < block.start[event + 1]; ++i)
      if (std::exchange(seen[block.expert[i]], event) == event)
        throw std::invalid_argument("an event names expert " + std::to_string(block.expert[i]) + " twice");
}

void EventLoop::feed(const Block& block, bool count, const std::function<void()>& heartbeat) {
  check_distinct(block);
  now_ = count ? &counts_ : &uncounted_;
  for (size_t event = 0; event < block.events; ++event) {
    if (event % 1024 == 1023) heartbeat();
    const int32_t layer = block.layer[event];
    const int32_t* const experts = block.expert + block.start[event];
    const int32_t* const demand = block.demand ? block.demand + block.start[event] : nullptr;
    const size_t needed = static_cast<size_t>(block.start[event + 1] - block.start[event]);
    if (static_cast<int32_t>(needed) > largest_) {
      largest_ = static_cast<int32_t>(needed);
      table_.limit_fetch(fetch_limit());
    }
    arrive(block.step[event] * layers_ + layer);
    if (!sequential_) need(layer, experts, demand, needed);
    for (size_t i = 0; sequential_ && i < needed; ++i) {
      need(layer, experts + i, demand ? demand + i : nullptr, 1);
      const int32_t key = layer * experts_ + experts[i];
      const int32_t slot = table_.slot_of(key);
      if (table_.state(slot) == State::compute) table_.release(slot);
      if (block.accessed) table_.score_data()[key] = block.accessed[block.start[event] + i];
      const int64_t row = (block.step[event] - block.step[0]) * layers_ + layer;
      if (block.used) table_.score_data()[key] = block.used[row * experts_ + experts[i]];
    }
    set_scores(block, event);
    for (const auto& [first, last] : block.ranges)
      if (layer == last - 1) trigger(block, block.step[event], first, last);
    compute(layer);
  }
}

// Step 1 of the paper's pipeline; what is overdue and still queued is dropped.
void EventLoop::arrive(int64_t position) {
  position_ = position;
  band_ = static_cast<int32_t>(std::upper_bound(bands_.begin(), bands_.end(), position / layers_) - bands_.begin()) - 1;
  table_.begin_event(0, nullptr, 0);
  if (!link_) return;
  drop(link_->take([&](const Task& task) { return task.deadline <= position; }));
  land_finished();
}

// Step 2: on return all of `experts` are resident.
void EventLoop::need(int32_t layer, const int32_t* experts, const int32_t* demand, size_t count) {
  table_.begin_event(layer, experts, count);
  if (link_) drop(link_->take([&](const Task& task) { return table_.needed(task.key); }));
  int64_t hits = 0;
  for (size_t i = 0; i < count; ++i) {
    const int32_t slot = table_.slot_of(layer * experts_ + experts[i]);
    const int64_t asking = demand ? demand[i] : 1;
    now_->assigned += asking;
    if (slot != kAbsent && table_.state(slot) != State::fetch) {
      ++hits;
      now_->assigned_hits += asking;
      note_use(slot);
    } else if (slot != kAbsent) {
      now_->add(&Place::late, layer, band_);
    }
  }
  now_->add(&Place::hits, layer, band_, hits);
  now_->add(&Place::needed, layer, band_, static_cast<int64_t>(count));
  if (hits < static_cast<int64_t>(count)) complete(layer, experts, count);
}

void EventLoop::complete(int32_t layer, const int32_t* experts, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const int32_t slot = table_.slot_of(layer * experts_ + experts[i]);
    if (slot == kAbsent || table_.state(slot) != State::fetch) continue;
    link_->finish_in_flight();
    land_finished();
    note_use(slot);
  }
  missing_.clear();
  for (size_t i = 0; i < count; ++i)
    if (const int32_t key = layer * experts_ + experts[i]; table_.slot_of(key) == kAbsent) missing_.push_back(key);
  if (missing_.empty()) return;
  table_.victims(missing_.size(), victims_);
  for (size_t i = 0; i < missing_.size(); ++i) load(missing_[i], i < victims_.size() ? victims_[i].slot : kAbsent);
}

void EventLoop::load(int32_t key, int32_t slot) {
  while (slot == kAbsent) {
    make_room();
    slot = table_.victim();
  }
  take_slot(slot);
  table_.load_at(slot, key);
  now_->add(&Place::loads, key / experts_, band_);
}

// No slot is empty or evictable: give up what costs least, as OffloadPipeline does.
void EventLoop::make_room() {
  if (rules_->reserve_at_creation)
    if (const auto task = link_->withdraw_newest()) return drop({*task});
  int32_t worst = kAbsent;
  for (int32_t slot = 0; slot < slots_; ++slot) {
    if (table_.state(slot) != State::compute || !unused_[slot] || table_.needed(table_.owner(slot))) continue;
    if (worst == kAbsent || table_.victim_at(slot) < table_.victim_at(worst)) worst = slot;
  }
  if (worst != kAbsent) return table_.release(worst);
  if (table_.fetching() == 0) throw std::runtime_error("no slot can be freed");
  link_->finish_in_flight();
  land_finished();
}

void EventLoop::land_finished() {
  for (const Task& task : link_->collect()) {
    table_.land(task.slot, task.tag, true);
    ++sent_under_[task.slot]->landed;
    unused_[task.slot] = true;
    // Its layer has passed and would release it only a step later.
    if (task.deadline < position_) table_.release(task.slot);
  }
}

void EventLoop::set_scores(const Block& block, size_t event) {
  const int32_t layer = block.layer[event];
  float* const score = table_.score_data() + static_cast<size_t>(layer) * experts_;
  if (block.accessed && !sequential_)
    for (int64_t i = block.start[event]; i < block.start[event + 1]; ++i) score[block.expert[i]] = block.accessed[i];
  const size_t row = static_cast<size_t>(block.step[event] - block.step[0]) * layers_ + layer;
  if (block.used) std::copy_n(block.used + row * experts_, experts_, score);
}

// Steps 3 to 5: forecasts become scores, and tasks for what is neither resident nor under way.
void EventLoop::trigger(const Block& block, int64_t step, int32_t first, int32_t last) {
  const size_t row = static_cast<size_t>(step - block.step[0]) * layers_ + first;
  if (block.forecast)
    std::copy_n(block.forecast + row * experts_, static_cast<size_t>(last - first) * experts_,
                table_.score_data() + static_cast<size_t>(first) * experts_);
  if (!link_ || !block.task_expert) return;
  std::vector<Task> wanted;
  for (int32_t layer = first; layer < last; ++layer) {
    const int64_t deadline = (step + 1) * layers_ + layer;
    // A task due by the next layer can never be selected (Algorithm 1, line 4).
    if (deadline <= position_ + 1) continue;
    const size_t begin = (row + layer - first) * block.tasks;
    for (size_t i = begin; i < begin + block.tasks; ++i)
      if (block.task_expert[i] >= 0)
        wanted.push_back({layer * experts_ + block.task_expert[i], kAbsent, 0, deadline, block.task_confidence[i]});
  }
  create(wanted);
}

// The most confident first while slots last.
void EventLoop::create(std::vector<Task>& wanted) {
  std::sort(wanted.begin(), wanted.end(), [](const Task& a, const Task& b) {
    return std::make_tuple(-a.confidence, a.deadline, a.key) < std::make_tuple(-b.confidence, b.deadline, b.key);
  });
  std::vector<SlotTable::Victim> victims;
  if (rules_->reserve_at_creation) victims = table_.victims();
  std::vector<Task> tasks;
  for (Task& task : wanted) {
    if (table_.slot_of(task.key) != kAbsent || queued_under_[task.key]) continue;
    if (rules_->reserve_at_creation) {
      if (victims.empty() || table_.fetching() >= table_.fetch_limit()) break;
      task.slot = SlotTable::take(victims);
      take_slot(task.slot);
    }
    task.tag = next_tag_++;
    if (task.slot != kAbsent) table_.reserve_at(task.slot, task.key, task.tag);
    queued_under_[task.key] = now_;
    tasks.push_back(task);
  }
  now_->created += static_cast<int64_t>(tasks.size());
  link_->submit(tasks);
}

// The layer's experts are computed while the link moves prefetches.
void EventLoop::compute(int32_t layer) {
  table_.release_layer(layer);
  if (link_) link_->run(position_, [this](Task& task) { return admit(task); });
}

// A task is about to be sent: by now at the latest it needs a slot.
bool EventLoop::admit(Task& task) {
  if (task.slot == kAbsent) {
    if (table_.fetching() >= table_.fetch_limit()) return false;
    const int32_t slot = table_.victim();
    if (slot == kAbsent) return false;
    take_slot(slot);
    table_.reserve_at(slot, task.key, task.tag);
    task.slot = slot;
  }
  queued_under_[task.key] = nullptr;
  sent_under_[task.slot] = now_;
  sent_in_[task.slot] = band_;
  now_->add(&Place::sent, task.key / experts_, band_);
  return true;
}

void EventLoop::drop(const std::vector<Task>& tasks) {
  for (const Task& task : tasks) {
    if (task.slot != kAbsent) table_.cancel(task.slot, task.tag);
    ++std::exchange(queued_under_[task.key], nullptr)->dropped;
  }
}

// A slot gets another owner.
void EventLoop::take_slot(int32_t slot) {
  now_->evictions += table_.state(slot) == State::used;
  if (unused_[slot]) sent_under_[slot]->add(&Place::wasted, layer_in(slot), sent_in_[slot]);
  unused_[slot] = false;
}

void EventLoop::note_use(int32_t slot) {
  if (unused_[slot]) sent_under_[slot]->add(&Place::used, layer_in(slot), sent_in_[slot]);
  unused_[slot] = false;
}

}  // namespace seqmoe
