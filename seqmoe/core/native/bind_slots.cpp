#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <mutex>
#include <optional>

#include "bindings.h"
#include "slots.h"

namespace seqmoe {

using namespace nb::literals;

namespace {

// A view that aliases the table's memory and keeps the table alive.
template <class T, size_t dimensions>
auto view(SlotTable& table, T* data, const size_t (&shape)[dimensions]) {
  return nb::ndarray<nb::numpy, T, nb::ndim<dimensions>>(data, dimensions, shape, nb::find(table));
}

template <class T>
auto per_slot(SlotTable& table, const T* data) {
  return view<const T>(table, data, {static_cast<size_t>(table.slots())});
}

template <class T>
auto per_expert(SlotTable& table, T* data) {
  return view<T>(table, data, {static_cast<size_t>(table.layers()), static_cast<size_t>(table.experts())});
}

// A pipeline's worker may be at work on the same table.
template <class Action>
auto locked(SlotTable& table, const Action& action) {
  std::lock_guard lock(table.mutex());
  return action();
}

}  // namespace

void bind_slots(nb::module_& module) {
  nb::class_<SlotTable>(module, "SlotTable",
                        "Slots of one pool that all layers share; see seqmoe.core.slots for the states and rules.")
      .def(
          "__init__",
          [](SlotTable* self, int32_t layers, int32_t experts, int32_t slots, std::optional<int32_t> fetch_limit) {
            new (self) SlotTable(layers, experts, slots, fetch_limit.value_or(std::max(slots, 0)));
          },
          "layers"_a, "experts"_a, "slots"_a, "fetch_limit"_a = nb::none())
      .def_prop_ro("layers", &SlotTable::layers, "MoE layers.")
      .def_prop_ro("experts", &SlotTable::experts, "Experts per layer.")
      .def_prop_ro("slots", &SlotTable::slots, "Slots in the pool.")
      .def_prop_rw(
          "fetch_limit", [](SlotTable& t) { return locked(t, [&] { return t.fetch_limit(); }); },
          [](SlotTable& t, int32_t limit) { locked(t, [&] { t.limit_fetch(limit); }); },
          "The most slots that may be in FETCH at once; what is there stays, even if it is more.")
      .def_prop_ro(
          "state",
          [](SlotTable& t) { return per_slot(t, reinterpret_cast<const uint8_t*>(t.state_data())); },
          "uint8 [slots], read-only view: EMPTY, USED, FETCH or COMPUTE.")
      .def_prop_ro(
          "owner", [](SlotTable& t) { return per_slot(t, t.owner_data()); },
          "int32 [slots], read-only view: the expert key in each slot, -1 for none.")
      .def_prop_ro(
          "tag", [](SlotTable& t) { return per_slot(t, t.tag_data()); },
          "int64 [slots], read-only view: the tag that a slot in FETCH expects, -1 otherwise.")
      .def_prop_ro(
          "slot_of", [](SlotTable& t) { return per_expert<const int32_t>(t, t.slot_of_data()); },
          "int32 [layers, experts], read-only view: the slot of each expert, also while in FETCH; -1 absent.")
      .def_prop_ro(
          "score", [](SlotTable& t) { return per_expert<float>(t, t.score_data()); },
          "float32 [layers, experts], writable view: retention score; the lowest is evicted first, NaN counts as "
          "the lowest.")
      .def(
          "reserve",
          [](SlotTable& t, int32_t layer, int32_t expert, int64_t tag) {
            return locked(t, [&] { return t.reserve(t.key(layer, expert), tag); });
          },
          "layer"_a, "expert"_a, "tag"_a,
          "EMPTY or USED -> FETCH. The slot, or -1 if none may be taken or fetch_limit is reached. RuntimeError if "
          "the expert has a slot.")
      .def(
          "land",
          [](SlotTable& t, int32_t slot, int64_t tag, bool ok) {
            return locked(t, [&] { return t.land(slot, tag, ok); });
          },
          "slot"_a, "tag"_a, "ok"_a = true,
           "FETCH -> COMPUTE, or -> EMPTY if not ok. False, and no change, if the slot does not expect this tag.")
      .def(
          "load", [](SlotTable& t, int32_t layer, int32_t expert) {
            return locked(t, [&] { return t.load(t.key(layer, expert)); });
          },
          "layer"_a, "expert"_a,
          "EMPTY or USED -> COMPUTE. The slot, or -1 if none may be taken. RuntimeError if the expert has a slot.")
      .def(
          "cancel",
          [](SlotTable& t, int32_t slot, int64_t tag) { return locked(t, [&] { return t.cancel(slot, tag); }); },
          "slot"_a, "tag"_a,
           "FETCH -> EMPTY. False, and no change, if the slot does not expect this tag.")
      .def(
          "release", [](SlotTable& t, int32_t slot) { locked(t, [&] { t.release(slot); }); }, "slot"_a, "COMPUTE -> USED; RuntimeError in any other state.")
      .def(
          "release_layer", [](SlotTable& t, int32_t layer) { locked(t, [&] { t.release_layer(layer); }); }, "layer"_a, "COMPUTE -> USED for all slots of this layer.")
      .def(
          "evict", [](SlotTable& t, int32_t slot) { locked(t, [&] { t.evict(slot); }); }, "slot"_a, "USED -> EMPTY; RuntimeError in any other state.")
      .def(
          "begin_event",
          [](SlotTable& t, int32_t layer, Vector<int32_t> experts) {
            locked(t, [&] { t.begin_event(layer, experts.data(), experts.size()); });
          },
          "layer"_a, "experts"_a,
          "What this event needs (int32 [n], distinct) is not evicted until the next event begins.");
}

}  // namespace seqmoe
