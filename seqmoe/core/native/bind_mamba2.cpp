#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "mamba2.h"

namespace seqmoe {

using namespace nb::literals;

namespace {

using Row = Array<const float, 1>;
using Matrix = Array<const float, 2>;
using Linear = std::pair<Matrix, Row>;
// norm, in_proj, conv_weight, conv_bias, dt_bias, a, skip, gate_norm, out_proj
using Block = std::tuple<Row, Matrix, Matrix, Row, Row, Row, Row, Row, Matrix>;

struct Arrays {
  Linear enter;
  std::vector<Block> blocks;
  Row norm;
  Linear leave;
  std::optional<Linear> use;
};

void check_row(const Row& row, size_t n, const char* message) { check(row.shape(0) == n, message); }

void check_matrix(const Matrix& matrix, size_t rows, size_t columns, const char* message) {
  check(matrix.shape(0) == rows && matrix.shape(1) == columns, message);
}

Mamba2Shape shape_of(const Arrays& arrays, size_t experts, size_t top_k) {
  const size_t width = arrays.enter.first.shape(0), hidden = arrays.enter.first.shape(1);
  check(top_k > 0 && top_k <= experts, "top_k must be 1 to experts");
  check(width > 0 && width % experts == 0, "enter must be [layers * experts, hidden]");
  check(!arrays.blocks.empty(), "a network has at least one block");
  const Block& first = arrays.blocks.front();
  const size_t inner = std::get<8>(first).shape(1), heads = std::get<5>(first).shape(0);
  const size_t taps = std::get<2>(first).shape(0), convolved = std::get<2>(first).shape(1);
  check(convolved > inner && (convolved - inner) % 2 == 0, "conv_weight must be [taps, inner + 2 state_size]");
  check(heads > 0 && inner % heads == 0, "a must be [heads], which divide inner");
  const Mamba2Shape shape{width / experts, experts, top_k, hidden, inner, heads, (convolved - inner) / 2, taps};
  check(hidden % 16 == 0 && inner % 16 == 0 && shape.state_size % 16 == 0 && shape.head_dim() % 4 == 0,
        "hidden, inner and state_size must be multiples of 16, head_dim of 4");
  return shape;
}

void check_linear(const Linear& linear, size_t rows, size_t columns, size_t bias, const char* message) {
  check_matrix(linear.first, rows, columns, message);
  check_row(linear.second, bias, message);
}

Mamba2Block block_of(const Block& block, const Mamba2Shape& shape) {
  const auto& [norm, in_proj, conv_weight, conv_bias, dt_bias, a, skip, gate_norm, out_proj] = block;
  check_row(norm, shape.hidden, "norm must be [hidden]");
  check_matrix(in_proj, shape.projected(), shape.hidden, "in_proj must be [2 inner + 2 state_size + heads, hidden]");
  check_matrix(conv_weight, shape.taps, shape.convolved(), "conv_weight must be [taps, inner + 2 state_size]");
  check_row(conv_bias, shape.convolved(), "conv_bias must be [inner + 2 state_size]");
  check_row(dt_bias, shape.heads, "dt_bias must be [heads]");
  check_row(a, shape.heads, "a must be [heads]");
  check_row(skip, shape.heads, "skip must be [heads]");
  check_row(gate_norm, shape.inner, "gate_norm must be [inner]");
  check_matrix(out_proj, shape.hidden, shape.inner, "out_proj must be [hidden, inner]");
  return {norm.data(), in_proj.data(), conv_weight.data(), conv_bias.data(), dt_bias.data(),
          a.data(),    skip.data(),    gate_norm.data(),   out_proj.data()};
}

Mamba2Weights weights_of(const Arrays& arrays, const Mamba2Shape& shape) {
  const size_t width = shape.width(), hidden = shape.hidden;
  check_linear(arrays.enter, width, hidden, hidden, "enter must be [layers * experts, hidden] and [hidden]");
  check_linear(arrays.leave, width, hidden, width, "leave must be [layers * experts, hidden] and [layers * experts]");
  if (arrays.use)
    check_linear(*arrays.use, width, hidden, width, "use must be [layers * experts, hidden] and [layers * experts]");
  check_row(arrays.norm, hidden, "norm must be [hidden]");
  Mamba2Weights weights{arrays.enter.first.data(),
                        arrays.enter.second.data(),
                        {},
                        arrays.norm.data(),
                        arrays.leave.first.data(),
                        arrays.leave.second.data(),
                        arrays.use ? arrays.use->first.data() : nullptr,
                        arrays.use ? arrays.use->second.data() : nullptr};
  for (const Block& block : arrays.blocks) weights.blocks.push_back(block_of(block, shape));
  return weights;
}

// With the arrays that it reads.
struct Stepper {
  Arrays arrays;
  Mamba2Stepper self;

  Stepper(Arrays&& given, size_t experts, size_t top_k, std::string_view instructions)
      : Stepper(std::move(given), shape_of(given, experts, top_k), instructions) {}
  Stepper(Arrays&& given, const Mamba2Shape& shape, std::string_view instructions)
      : arrays(std::move(given)), self(shape, weights_of(arrays, shape), instructions) {}
};

using View = nb::ndarray<nb::numpy, float>;

View view(nb::handle stepper, float* data, std::initializer_list<size_t> shape) {
  return View(data, shape, stepper);
}

View per_layer(nb::handle stepper, float* data) {
  const Mamba2Shape& shape = nb::cast<Stepper&>(stepper).self.shape();
  return view(stepper, data, {shape.layers, shape.experts});
}

std::vector<std::pair<View, View>> states(nb::handle stepper) {
  const Mamba2Stepper& self = nb::cast<Stepper&>(stepper).self;
  const Mamba2Shape& shape = self.shape();
  std::vector<std::pair<View, View>> views;
  for (const Mamba2State& state : self.state())
    views.emplace_back(view(stepper, state.window, {shape.taps, shape.convolved()}),
                       view(stepper, state.scan, {shape.heads, shape.head_dim(), shape.state_size}));
  return views;
}

nb::ndarray<nb::numpy, float, nb::ndim<3>> forecast(Stepper& stepper, size_t lookahead, Matrix lines) {
  check(lines.shape(0) > 0 && lines.shape(1) == 2, "lines must be [steps, 2] with at least one step");
  const Mamba2Shape& shape = stepper.self.shape();
  std::unique_ptr<float[]> out(new float[(lookahead + 1) * shape.width()]);
  {
    static_assert(sizeof(PlattLine) == 2 * sizeof(float));
    nb::gil_scoped_release unlocked;
    stepper.self.forecast(lookahead, reinterpret_cast<const PlattLine*>(lines.data()), lines.shape(0), out.get());
  }
  nb::capsule owner(out.get(), [](void* pointer) noexcept { delete[] static_cast<float*>(pointer); });
  return {out.release(), {lookahead + 1, shape.layers, shape.experts}, owner};
}

}  // namespace

void bind_mamba2(nb::module_& module) {
  nb::class_<Stepper>(module, "Mamba2Stepper", "A Mamba2 network, a step at a time; see seqmoe.core.mamba2.")
      .def(
          "__init__",
          [](Stepper* self, size_t experts, size_t top_k, Linear enter, std::vector<Block> blocks, Row norm,
             Linear leave, std::optional<Linear> use, std::string_view instructions) {
            Arrays arrays{std::move(enter), std::move(blocks), std::move(norm), std::move(leave), std::move(use)};
            new (self) Stepper(std::move(arrays), experts, top_k, instructions);
          },
          "experts"_a, "top_k"_a, "enter"_a.noconvert(), "blocks"_a.noconvert(), "norm"_a.noconvert(),
          "leave"_a.noconvert(), "use"_a.noconvert() = nb::none(), "instructions"_a = "")
      .def_prop_ro("states", [](nb::handle_t<Stepper> self) { return states(self); },
                   "Each block's window [taps, inner + 2 state_size] and scan [heads, head_dim, state_size].")
      .def_prop_ro(
          "logits", [](nb::handle_t<Stepper> self) { return per_layer(self, nb::cast<Stepper&>(self).self.logits()); },
          "Logits of the next step, [layers, experts].")
      .def_prop_ro(
          "use",
          [](nb::handle_t<Stepper> self) -> std::optional<View> {
            float* const use = nb::cast<Stepper&>(self).self.use();
            if (use == nullptr) return std::nullopt;
            return per_layer(self, use);
          },
          "Logits of the discounted use, [layers, experts], or None.")
      .def("reset", [](Stepper& stepper) { stepper.self.reset(); }, "Forget the sequence.")
      .def(
          "observe",
          [](Stepper& stepper, Matrix activation) {
            const Mamba2Shape& shape = stepper.self.shape();
            check_matrix(activation, shape.layers, shape.experts, "activation must be [layers, experts]");
            nb::gil_scoped_release unlocked;
            stepper.self.observe(activation.data());
          },
          "activation"_a.noconvert(), "Take in one step's activation [layers, experts].")
      .def("forecast", &forecast, "lookahead"_a, "lines"_a.noconvert(),
           "Probabilities [lookahead + 1, layers, experts] of the next step and of those after it.");
}

}  // namespace seqmoe
