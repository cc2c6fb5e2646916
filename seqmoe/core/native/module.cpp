#include "bindings.h"

NB_MODULE(_native, module) {
  module.doc() =
      "Slots, prefetch workers, links, schedule, replay, event loop, CPU kernel, Mamba2 step and CUDA driver of "
      "seqmoe.core.";
  seqmoe::bind_slots(module);
  seqmoe::bind_link(module);
  seqmoe::bind_pipeline(module);
  seqmoe::bind_functions(module);
  seqmoe::bind_loop(module);
  seqmoe::bind_step(module);
  seqmoe::bind_moe(module);
  seqmoe::bind_mamba2(module);
  seqmoe::bind_cuda(module);
  seqmoe::bind_cuda_memory(module);
  seqmoe::bind_device_worker(module);
}
