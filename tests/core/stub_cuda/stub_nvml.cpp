// NVIDIA's management library for one device whose link rests. SEQMOE_STUB_FAIL="nvmlInit_v2=9": that call fails.
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

int failure(const std::string& name) {
  const char* const value = std::getenv("SEQMOE_STUB_FAIL");
  const std::string all = "," + std::string(value ? value : "");
  const size_t at = all.find("," + name + "=");
  return at == std::string::npos ? 0 : std::atoi(all.c_str() + at + name.size() + 2);
}

int give(const char* name, unsigned value, unsigned* to) {
  if (const int result = failure(name)) return result;
  *to = value;
  return 0;
}

int started = 0;

}  // namespace

extern "C" {
int stub_started() { return started; }
int nvmlInit_v2() {
  if (const int result = failure("nvmlInit_v2")) return result;
  ++started;
  return 0;
}
int nvmlShutdown() { --started; return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  if (const int result = failure("nvmlSystemGetDriverVersion")) return result;
  std::strncpy(text, "580.65.06", size);
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  if (const int result = failure("nvmlDeviceGetHandleByPciBusId_v2")) return result;
  if (std::string(id) != "0000:01:00.0") return 6;  // not found
  *device = reinterpret_cast<void*>(0x7fffffff00000001);  // no 32 bits would hold it
  return 0;
}
int answer(const char* name, void* device, unsigned value, unsigned* to) {
  return device == reinterpret_cast<void*>(0x7fffffff00000001) ? give(name, value, to) : 2;
}
#define ANSWER(name, value) \
  int name(void* device, unsigned* to) { return answer(#name, device, value, to); }
ANSWER(nvmlDeviceGetCurrPcieLinkGeneration, 1)
ANSWER(nvmlDeviceGetCurrPcieLinkWidth, 8)
ANSWER(nvmlDeviceGetMaxPcieLinkGeneration, 4)
ANSWER(nvmlDeviceGetMaxPcieLinkWidth, 16)
}
