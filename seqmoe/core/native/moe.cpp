#include "moe.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "moe_kernel.h"

namespace seqmoe {
namespace {

template <size_t width, size_t most_tokens>
SEQMOE_INLINE void compute_any(const MoeCall& call) {
  if (call.type == WeightType::float32)
    compute<width, float, most_tokens>(call);
  else
    compute<width, Bfloat16, most_tokens>(call);
}

#ifdef __x86_64__
__attribute__((target("avx512f,avx512vl,avx512dq,avx2,fma"))) void compute_avx512(const MoeCall& call) {
  compute_any<16, 4>(call);
}
__attribute__((target("avx2,fma"))) void compute_avx2(const MoeCall& call) { compute_any<8, 1>(call); }
#endif
void compute_portable(const MoeCall& call) { compute_any<4, 1>(call); }

std::vector<InstructionSet> detect() {
  std::vector<InstructionSet> sets;
#ifdef __x86_64__
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    sets.push_back({"avx512", compute_avx512});
  if (avx2) sets.push_back({"avx2", compute_avx2});
#endif
  sets.push_back({"portable", compute_portable});
  return sets;
}

}  // namespace

const std::vector<InstructionSet>& instruction_sets() {
  static const std::vector<InstructionSet> sets = detect();
  return sets;
}

const InstructionSet& instruction_set(std::string_view name) {
  std::string available;
  for (const InstructionSet& set : instruction_sets()) {
    if (name.empty() || name == set.name) return set;
    available += std::string(available.empty() ? "" : ", ") + set.name;
  }
  throw std::invalid_argument("instructions must be one of " + available + " on this machine, not '" +
                              std::string(name) + "'");
}

void reduce_contributions(size_t tokens, size_t choices, size_t hidden, const float* contribution, float* out) {
  for (size_t token = 0; token < tokens; ++token) {
    float* const sum = out + token * hidden;
    const float* const rows = contribution + token * choices * hidden;
    std::copy_n(rows, hidden, sum);
    for (size_t k = 1; k < choices; ++k)
      for (size_t i = 0; i < hidden; ++i) sum[i] += rows[k * hidden + i];
  }
}

}  // namespace seqmoe
