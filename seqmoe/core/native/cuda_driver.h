// The CUDA driver API, opened when it is asked for: no CUDA toolkit is needed to build, no GPU to import.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace seqmoe {

// The types of cuda.h, by their ABI.
namespace cuda {
using Result = int;
using Device = int;
using Address = unsigned long long;
using Context = struct ContextHandle*;
using Stream = struct StreamHandle*;
using Event = struct EventHandle*;

constexpr Result kSuccess = 0, kOutOfMemory = 2, kNotReady = 600;
constexpr unsigned kHostPortable = 1, kHostMapped = 2;
constexpr unsigned kStreamNonBlocking = 1, kEventDefault = 0, kEventDisableTiming = 2;
constexpr int kCaptureRelaxed = 2;

enum Attribute : int {
  kMultiprocessors = 16,
  kIntegrated = 18,
  kCanMapHostMemory = 19,
  kCopyEngines = 40,
  kUnifiedAddressing = 41,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kHostNativeAtomics = 86
};
}  // namespace cuda

// A call of the driver that failed.
struct CudaError : std::runtime_error {
  CudaError(const std::string& message, std::string failed_call, std::string result_name, int result)
      : std::runtime_error(message), call(std::move(failed_call)), name(std::move(result_name)), code(result) {}
  std::string call;
  std::string name;  // of the CUresult
  int code;
};

// There is no driver to call: the library, or a function of it, was not found.
struct CudaMissing : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A library that stays open until the end of the process: the driver starts threads that would outlive it.
class CudaLibrary {
 public:
  explicit CudaLibrary(const std::string& path);

  void* symbol(const char* name) const;

  // What `call` returning `result` means, and what to do about it.
  CudaError error(const char* call, cuda::Result result) const;

 private:
  std::string path_;
  void* handle_;
};

// One function of the driver; throws CudaError unless it succeeds.
template <class... Arguments>
class CudaCall {
 public:
  CudaCall(const CudaLibrary& library, const char* name)
      : library_(library), name_(name), function_(reinterpret_cast<Function>(library.symbol(name))) {}

  void operator()(Arguments... arguments) const { check(function_(arguments...)); }

  // For calls whose result is an answer, and for destructors.
  cuda::Result result(Arguments... arguments) const { return function_(arguments...); }

  void check(cuda::Result result) const {
    if (result != cuda::kSuccess) throw library_.error(name_, result);
  }

 private:
  using Function = cuda::Result (*)(Arguments...);
  const CudaLibrary& library_;
  const char* name_;
  Function function_;
};

// The functions that are used, by the names in the library; cuInit has been called.
class CudaDriver {
 public:
  static constexpr const char* kLibrary = "libcuda.so.1";

  // CudaMissing, or CudaError if it cannot be initialised.
  explicit CudaDriver(const std::string& path = kLibrary) : library_(path) { init(0); }
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  int attribute(cuda::Attribute attribute, cuda::Device device) const {
    int value = 0;
    device_get_attribute(&value, attribute, device);
    return value;
  }

 private:
  CudaLibrary library_;  // first: the calls are found in it

 public:
  CudaCall<unsigned> init{library_, "cuInit"};
  CudaCall<int*> driver_get_version{library_, "cuDriverGetVersion"};
  CudaCall<int*> device_get_count{library_, "cuDeviceGetCount"};
  CudaCall<cuda::Device*, int> device_get{library_, "cuDeviceGet"};
  CudaCall<char*, int, cuda::Device> device_get_name{library_, "cuDeviceGetName"};
  CudaCall<size_t*, cuda::Device> device_total_mem{library_, "cuDeviceTotalMem_v2"};
  CudaCall<int*, int, cuda::Device> device_get_attribute{library_, "cuDeviceGetAttribute"};
  CudaCall<char*, int, cuda::Device> device_get_pci_bus_id{library_, "cuDeviceGetPCIBusId"};
  CudaCall<cuda::Context*, cuda::Device> primary_ctx_retain{library_, "cuDevicePrimaryCtxRetain"};
  CudaCall<cuda::Device> primary_ctx_release{library_, "cuDevicePrimaryCtxRelease_v2"};
  CudaCall<cuda::Context> ctx_push_current{library_, "cuCtxPushCurrent_v2"};
  CudaCall<cuda::Context*> ctx_pop_current{library_, "cuCtxPopCurrent_v2"};
  CudaCall<int*> thread_exchange_capture_mode{library_, "cuThreadExchangeStreamCaptureMode"};
  CudaCall<cuda::Stream*, unsigned> stream_create{library_, "cuStreamCreate"};
  CudaCall<cuda::Stream> stream_destroy{library_, "cuStreamDestroy_v2"};
  CudaCall<cuda::Stream> stream_synchronize{library_, "cuStreamSynchronize"};
  CudaCall<cuda::Event*, unsigned> event_create{library_, "cuEventCreate"};
  CudaCall<cuda::Event> event_destroy{library_, "cuEventDestroy_v2"};
  CudaCall<cuda::Event, cuda::Stream> event_record{library_, "cuEventRecord"};
  CudaCall<cuda::Event> event_query{library_, "cuEventQuery"};
  CudaCall<float*, cuda::Event, cuda::Event> event_elapsed_time{library_, "cuEventElapsedTime"};
  CudaCall<void**, size_t, unsigned> mem_host_alloc{library_, "cuMemHostAlloc"};
  CudaCall<void*> mem_free_host{library_, "cuMemFreeHost"};
  CudaCall<cuda::Address*, void*, unsigned> mem_host_get_device_pointer{library_, "cuMemHostGetDevicePointer_v2"};
  CudaCall<cuda::Address*, size_t> mem_alloc{library_, "cuMemAlloc_v2"};
  CudaCall<cuda::Address> mem_free{library_, "cuMemFree_v2"};
  CudaCall<cuda::Address, unsigned char, size_t, cuda::Stream> memset_d8_async{library_, "cuMemsetD8Async"};
  CudaCall<cuda::Address, const void*, size_t, cuda::Stream> memcpy_htod_async{library_, "cuMemcpyHtoDAsync_v2"};
  CudaCall<void*, cuda::Address, size_t, cuda::Stream> memcpy_dtoh_async{library_, "cuMemcpyDtoHAsync_v2"};
  CudaCall<cuda::Address, cuda::Address, size_t, cuda::Stream> memcpy_dtod_async{library_, "cuMemcpyDtoDAsync_v2"};
};

}  // namespace seqmoe
