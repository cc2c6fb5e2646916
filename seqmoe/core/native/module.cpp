#include <thread>

#include "bindings.h"
#include "channel.h"

namespace {

// Whoever imports the extension first; Python runs handlers on its main thread alone.
const std::thread::id importing = std::this_thread::get_id();

// Ctrl-C and SIGTERM have handlers in Python, which run only when asked to. Another thread must not wait for the GIL
// here: its owner may be waiting for the channel.
void raise_pending_signal() {
  if (std::this_thread::get_id() != importing) return;
  const nanobind::gil_scoped_acquire held;
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

}  // namespace

NB_MODULE(_native, module) {
  seqmoe::set_interruption(raise_pending_signal);
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
