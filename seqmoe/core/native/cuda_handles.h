// What the driver hands out, each given back when its owner goes: context, stream, event, device memory.
#pragma once

#include <memory>
#include <new>
#include <utility>

#include "cuda_driver.h"

namespace seqmoe {

// The primary context of a device, which PyTorch uses too.
class CudaContext {
 public:
  CudaContext(std::shared_ptr<const CudaDriver> driver, int index) : driver_(std::move(driver)) {
    driver_->device_get(&device_, index);
    driver_->primary_ctx_retain(&context_, device_);
  }
  ~CudaContext() { driver_->primary_ctx_release.result(device_); }
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  const CudaDriver& driver() const { return *driver_; }
  cuda::Device device() const { return device_; }

  // While it lives, the thread works in the context, and may do so while another one captures a graph: a query of an
  // event would otherwise spoil the capture.
  class Use {
   public:
    explicit Use(const CudaContext& context) : Use(context, std::nothrow) { driver_.ctx_push_current.check(pushed_); }

    // For destructors: a context that is lost has nothing to give back.
    Use(const CudaContext& context, std::nothrow_t)
        : driver_(context.driver()), pushed_(driver_.ctx_push_current.result(context.context_)) {
      if (pushed_ == cuda::kSuccess) relaxed_ = driver_.thread_exchange_capture_mode.result(&mode_) == cuda::kSuccess;
    }

    ~Use() {
      if (relaxed_) driver_.thread_exchange_capture_mode.result(&mode_);
      cuda::Context popped;
      if (pushed_ == cuda::kSuccess) driver_.ctx_pop_current.result(&popped);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    const CudaDriver& driver_;
    cuda::Result pushed_;
    int mode_ = cuda::kCaptureRelaxed;
    bool relaxed_ = false;
  };

 private:
  std::shared_ptr<const CudaDriver> driver_;
  cuda::Device device_ = 0;
  cuda::Context context_ = nullptr;
};

// A handle is created, used and destroyed within a context.
class CudaStream {
 public:
  explicit CudaStream(std::shared_ptr<const CudaContext> context) : context_(std::move(context)) {
    const CudaContext::Use use(*context_);
    context_->driver().stream_create(&stream_, cuda::kStreamNonBlocking);
  }
  ~CudaStream() {
    const CudaContext::Use use(*context_, std::nothrow);
    context_->driver().stream_destroy.result(stream_);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  cuda::Stream get() const { return stream_; }

 private:
  std::shared_ptr<const CudaContext> context_;
  cuda::Stream stream_ = nullptr;
};

class CudaEvent {
 public:
  CudaEvent(std::shared_ptr<const CudaContext> context, unsigned flags) : context_(std::move(context)) {
    const CudaContext::Use use(*context_);
    context_->driver().event_create(&event_, flags);
  }
  ~CudaEvent() {
    const CudaContext::Use use(*context_, std::nothrow);
    context_->driver().event_destroy.result(event_);
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  cuda::Event get() const { return event_; }

 private:
  std::shared_ptr<const CudaContext> context_;
  cuda::Event event_ = nullptr;
};

class DeviceMemory {
 public:
  DeviceMemory(std::shared_ptr<const CudaContext> context, size_t bytes) : context_(std::move(context)) {
    const CudaContext::Use use(*context_);
    context_->driver().mem_alloc(&address_, bytes);
  }
  ~DeviceMemory() {
    const CudaContext::Use use(*context_, std::nothrow);
    context_->driver().mem_free.result(address_);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  cuda::Address get() const { return address_; }

 private:
  std::shared_ptr<const CudaContext> context_;
  cuda::Address address_ = 0;
};

}  // namespace seqmoe
