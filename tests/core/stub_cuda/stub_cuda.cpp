// A CUDA driver of host memory: streams do their work only when asked whether it is done, as late as a device might.
//
// SEQMOE_STUB_FAIL="cuMemHostAlloc=2@3,cuInit=100": the third and every later call of one fails, and every call of the
// other. SEQMOE_STUB_DEVICES: how many devices there are. SEQMOE_STUB_COPY_US: how long a copy takes at least.
// SEQMOE_STUB_MARK: the address of an int64 that is 1 once a copy has begun. SEQMOE_STUB_DROP=htod, dtod or dtoh: such
// copies succeed and move nothing. SEQMOE_STUB_CAPTURING: another thread captures a graph, so that a thread may query
// events only in relaxed mode.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Address = unsigned long long;

enum { kInvalidValue = 1, kInvalidDevice = 101, kInvalidContext = 201, kNotReady = 600, kCapturing = 900 };

// A device's address is never the host's: whoever mixes them up reads nothing.
constexpr Address kDevice = Address{1} << 60;

struct Work {
  Clock::time_point ready;
  std::function<void()> run;
};

struct Stream {
  std::deque<Work> queued;
  Clock::time_point busy_until = Clock::now();
};

struct Event {
  bool recorded = false, done = true;
  Clock::time_point time;
};

std::recursive_mutex mutex;
std::map<std::string, int> calls;
std::set<Stream*> streams;
std::set<Event*> events;
std::set<void*> host_memory, device_memory;
int contexts = 0;
thread_local std::vector<void*> current;
thread_local int capture_mode = 0;  // global, as threads begin

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

// The result that this call shall have, by the environment.
int failure(const std::string& name) {
  const int number = ++calls[name];
  const std::string all = "," + setting("SEQMOE_STUB_FAIL") + ",";
  const size_t at = all.find("," + name + "=");
  if (at == std::string::npos) return 0;
  const std::string rest = all.substr(at + name.size() + 2, all.find(',', at + 1) - at - name.size() - 2);
  const size_t from = rest.find('@');
  return from == std::string::npos || number >= std::stoi(rest.substr(from + 1)) ? std::stoi(rest) : 0;
}

void pump(Stream& stream) {
  while (!stream.queued.empty() && stream.queued.front().ready <= Clock::now()) {
    stream.queued.front().run();
    stream.queued.pop_front();
  }
}

void enqueue(Stream& stream, bool takes_time, std::function<void()> run) {
  const std::string microseconds = setting("SEQMOE_STUB_COPY_US");
  const auto time = std::chrono::microseconds(!takes_time ? 0 : microseconds.empty() ? 1 : std::stoll(microseconds));
  stream.busy_until = std::max(stream.busy_until, Clock::now()) + time;
  stream.queued.push_back({stream.busy_until, std::move(run)});
}

void* place(Address address) { return reinterpret_cast<void*>(address >= kDevice ? address - kDevice : address); }

int copy(const char* kind, void* stream, void* to, const void* from, size_t bytes) {
  if (!streams.count(static_cast<Stream*>(stream))) return kInvalidValue;
  if (const std::string word = setting("SEQMOE_STUB_MARK"); !word.empty())
    __atomic_store_n(reinterpret_cast<long long*>(std::stoull(word)), 1, __ATOMIC_RELEASE);
  const bool dropped = setting("SEQMOE_STUB_DROP") == kind;
  enqueue(*static_cast<Stream*>(stream), true, [=] {
    if (!dropped) std::memcpy(to, from, bytes);
  });
  return 0;
}

}  // namespace

#define BEGIN(name)                                       \
  const std::lock_guard<std::recursive_mutex> lock(mutex); \
  if (const int result = failure(name)) return result;
#define BEGIN_IN_CONTEXT(name) \
  BEGIN(name)                  \
  if (current.empty()) return kInvalidContext;

extern "C" {

// What was handed out and not given back.
int stub_open_handles() {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  return contexts + static_cast<int>(streams.size() + events.size() + host_memory.size() + device_memory.size());
}
int stub_calls(const char* name) {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  return calls[name];
}
void stub_reset() {
  const std::lock_guard<std::recursive_mutex> lock(mutex);
  calls.clear();
}

int cuInit(unsigned) { BEGIN("cuInit") return 0; }
int cuDriverGetVersion(int* version) { BEGIN("cuDriverGetVersion") *version = 13010; return 0; }
int cuGetErrorName(int code, const char** name) {
  static const std::map<int, const char*> names{{1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {100, "CUDA_ERROR_NO_DEVICE"}, {101, "CUDA_ERROR_INVALID_DEVICE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {800, "CUDA_ERROR_NOT_PERMITTED"},
      {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}};
  const auto found = names.find(code);
  if (found == names.end()) return kInvalidValue;
  *name = found->second;
  return 0;
}
int cuDeviceGetCount(int* count) {
  BEGIN("cuDeviceGetCount")
  const std::string devices = setting("SEQMOE_STUB_DEVICES");
  *count = devices.empty() ? 1 : std::stoi(devices);
  return 0;
}
int cuDeviceGet(int* device, int index) {
  BEGIN("cuDeviceGet")
  const std::string devices = setting("SEQMOE_STUB_DEVICES");
  if (index < 0 || index >= (devices.empty() ? 1 : std::stoi(devices))) return kInvalidDevice;
  *device = index;
  return 0;
}
int cuDeviceGetName(char* name, int size, int device) {
  BEGIN("cuDeviceGetName")
  std::strncpy(name, ("Stub " + std::to_string(device)).c_str(), size);
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) { BEGIN("cuDeviceTotalMem_v2") *bytes = size_t{24} << 30; return 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  BEGIN("cuDeviceGetAttribute")
  static const std::map<int, int> values{{16, 128}, {18, 0}, {19, 1}, {40, 2}, {41, 1}, {75, 8}, {76, 9}, {86, 0}};
  const auto found = values.find(attribute);
  if (found == values.end()) return kInvalidValue;
  *value = found->second;
  return 0;
}
int cuDeviceGetPCIBusId(char* id, int size, int device) {
  BEGIN("cuDeviceGetPCIBusId")
  std::strncpy(id, ("0000:0" + std::to_string(device + 1) + ":00.0").c_str(), size);
  return 0;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  BEGIN("cuDevicePrimaryCtxRetain")
  ++contexts;
  *context = reinterpret_cast<void*>(static_cast<size_t>(device) + 1);
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) { BEGIN("cuDevicePrimaryCtxRelease_v2") --contexts; return 0; }
int cuCtxPushCurrent_v2(void* context) {
  BEGIN("cuCtxPushCurrent_v2")
  if (!context) return kInvalidContext;
  current.push_back(context);
  return 0;
}
int cuCtxPopCurrent_v2(void** context) {
  BEGIN_IN_CONTEXT("cuCtxPopCurrent_v2")
  *context = current.back();
  current.pop_back();
  return 0;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  BEGIN("cuThreadExchangeStreamCaptureMode")
  std::swap(*mode, capture_mode);
  return 0;
}

int cuStreamCreate(void** stream, unsigned flags) {
  BEGIN_IN_CONTEXT("cuStreamCreate")
  if (flags != 1) return kInvalidValue;  // a blocking one would wait for PyTorch's
  *stream = *streams.insert(new Stream).first;
  return 0;
}
int cuStreamDestroy_v2(void* stream) {
  BEGIN_IN_CONTEXT("cuStreamDestroy_v2")
  auto* const known = static_cast<Stream*>(stream);
  if (!streams.erase(known)) return kInvalidValue;
  delete known;
  return 0;
}
int cuStreamSynchronize(void* stream) {
  BEGIN_IN_CONTEXT("cuStreamSynchronize")
  auto* const known = static_cast<Stream*>(stream);
  if (!streams.count(known)) return kInvalidValue;
  while (!known->queued.empty()) pump(*known);
  return 0;
}

int cuEventCreate(void** event, unsigned) {
  BEGIN_IN_CONTEXT("cuEventCreate")
  *event = *events.insert(new Event).first;
  return 0;
}
int cuEventDestroy_v2(void* event) {
  BEGIN_IN_CONTEXT("cuEventDestroy_v2")
  if (!events.erase(static_cast<Event*>(event))) return kInvalidValue;
  return 0;  // not freed: work that still points to it may run
}
int cuEventRecord(void* event, void* stream) {
  BEGIN_IN_CONTEXT("cuEventRecord")
  auto* const known = static_cast<Event*>(event);
  if (!events.count(known) || !streams.count(static_cast<Stream*>(stream))) return kInvalidValue;
  known->recorded = true;
  known->done = false;
  enqueue(*static_cast<Stream*>(stream), false, [known] { known->done = true; });
  known->time = static_cast<Stream*>(stream)->busy_until;
  return 0;
}
int cuEventQuery(void* event) {
  BEGIN_IN_CONTEXT("cuEventQuery")
  if (!setting("SEQMOE_STUB_CAPTURING").empty() && capture_mode != 2) return kCapturing;
  if (!events.count(static_cast<Event*>(event))) return kInvalidValue;
  for (Stream* const stream : streams) pump(*stream);
  return static_cast<Event*>(event)->done ? 0 : kNotReady;
}
int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  BEGIN_IN_CONTEXT("cuEventElapsedTime")
  const auto *from = static_cast<Event*>(start), *to = static_cast<Event*>(end);
  if (!from->recorded || !to->recorded) return kInvalidValue;
  if (!from->done || !to->done) return kNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count();
  return 0;
}

int cuMemHostAlloc(void** host, size_t bytes, unsigned) {
  BEGIN_IN_CONTEXT("cuMemHostAlloc")
  *host = *host_memory.insert(std::malloc(bytes)).first;
  std::memset(*host, 0xEE, bytes);
  return 0;
}
int cuMemFreeHost(void* host) {
  BEGIN_IN_CONTEXT("cuMemFreeHost")
  if (!host_memory.erase(host)) return kInvalidValue;
  std::free(host);
  return 0;
}
int cuMemHostGetDevicePointer_v2(Address* device, void* host, unsigned) {
  BEGIN_IN_CONTEXT("cuMemHostGetDevicePointer_v2")
  *device = reinterpret_cast<Address>(host) + kDevice;
  return 0;
}
int cuMemAlloc_v2(Address* device, size_t bytes) {
  BEGIN_IN_CONTEXT("cuMemAlloc_v2")
  *device = reinterpret_cast<Address>(*device_memory.insert(std::malloc(bytes)).first) + kDevice;
  return 0;
}
int cuMemFree_v2(Address device) {
  BEGIN_IN_CONTEXT("cuMemFree_v2")
  if (!device_memory.erase(place(device))) return kInvalidValue;
  std::free(place(device));
  return 0;
}
int cuMemsetD8Async(Address to, unsigned char value, size_t bytes, void* stream) {
  BEGIN_IN_CONTEXT("cuMemsetD8Async")
  enqueue(*static_cast<Stream*>(stream), false, [=] { std::memset(place(to), value, bytes); });
  return 0;
}
int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, void* stream) {
  BEGIN_IN_CONTEXT("cuMemcpyHtoDAsync_v2")
  return copy("htod", stream, place(to), from, bytes);
}
int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, void* stream) {
  BEGIN_IN_CONTEXT("cuMemcpyDtoHAsync_v2")
  return copy("dtoh", stream, to, place(from), bytes);
}
int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void* stream) {
  BEGIN_IN_CONTEXT("cuMemcpyDtoDAsync_v2")
  return copy("dtod", stream, place(to), place(from), bytes);
}
}
