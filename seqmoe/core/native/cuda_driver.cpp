#include "cuda_driver.h"

#include <dlfcn.h>

namespace seqmoe {

namespace {

// What a person can do about a CUresult; empty where nothing can be said.
const char* advice(cuda::Result result) {
  switch (result) {
    case 2:
      return "free memory, or ask for less";
    case 3:
    case 999:
      return "the driver could not start: see whether nvidia-smi works, and dmesg";
    case 34:
      return "this library is the toolkit's stub: put the driver's own libcuda.so.1 before it";
    case 46:
      return "another process has the device for itself: end it, or set the compute mode to default";
    case 100:
      return "no GPU is visible: see nvidia-smi and CUDA_VISIBLE_DEVICES, and in a container its GPU option";
    case 101:
      return "there is no device of this number: see nvidia-smi and CUDA_VISIBLE_DEVICES";
    case 214:
      return "the GPU's memory has an error that cannot be corrected: see dmesg";
    case 700:
    case 719:
      return "an earlier kernel failed, and the context is lost: begin a new process";
    case 800:
      return "the system forbids it: in a container, see its GPU and locked-memory options";
    case 801:
      return "the device or the system cannot do it";
    case 802:
      return "the system is not ready: is the fabric manager running?";
    case 803:
    case 804:
      return "the driver's library and its kernel module differ: restart after the driver's update";
    case 900:
    case 901:
    case 906:
      return "a graph is being captured: do it before or after";
    default:
      return "";
  }
}

}  // namespace

CudaLibrary::CudaLibrary(const std::string& path) : path_(path), handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (!handle_) {
    const char* const reason = dlerror();
    throw CudaMissing("no CUDA driver: " + std::string(reason ? reason : path + " cannot be opened"));
  }
}

void* CudaLibrary::symbol(const char* name) const {
  void* const found = dlsym(handle_, name);
  if (!found) throw CudaMissing("the CUDA driver " + path_ + " has no " + name + ": it is too old, update it");
  return found;
}

CudaError CudaLibrary::error(const char* call, cuda::Result result) const {
  using GetName = cuda::Result (*)(cuda::Result, const char**);
  const auto get_name = reinterpret_cast<GetName>(dlsym(handle_, "cuGetErrorName"));
  const char* known = nullptr;
  const bool named = get_name && get_name(result, &known) == cuda::kSuccess && known;
  const std::string name = named ? known : "CUresult " + std::to_string(result);
  const std::string hint = advice(result);
  return {std::string(call) + ": " + name + " (" + std::to_string(result) + ")" + (hint.empty() ? "" : "; " + hint),
          call, name, result};
}

}  // namespace seqmoe
