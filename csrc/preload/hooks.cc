#include "preload/hooks.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <string>

extern "C" {
#define ROUNDELAY_DECLARE(name) void roundelay_hook_##name() __asm__(#name);
ROUNDELAY_HOOKED(ROUNDELAY_DECLARE)
#undef ROUNDELAY_DECLARE
}

namespace roundelay::preload {
namespace {

struct Row {
  std::string_view name;
  void (*function)();
};
constexpr Row kRows[] = {
#define ROUNDELAY_ROW(name) {#name, &roundelay_hook_##name},
    ROUNDELAY_HOOKED(ROUNDELAY_ROW)
#undef ROUNDELAY_ROW
};

std::array<std::atomic<void*>, static_cast<std::size_t>(Hook::kCount)> g_real{};

std::size_t index_of(Hook hook) { return static_cast<std::size_t>(hook); }

// The driver, if the process has loaded it.
void* driver() {
  static std::atomic<void*> handle{nullptr};
  void* known = handle.load(std::memory_order_acquire);
  if (known == nullptr) {
    known = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    handle.store(known, std::memory_order_release);
  }
  return known;
}

}  // namespace

void* function_of(Hook hook) { return reinterpret_cast<void*>(kRows[index_of(hook)].function); }

Hook hook_named(std::string_view name) {
  if (!name.starts_with("cu")) return Hook::kCount;
  const auto* const found = std::ranges::find(kRows, name, &Row::name);
  return static_cast<Hook>(found - std::begin(kRows));
}

Hook hook_wanted(std::string_view plain_name, int version, bool per_thread) {
  // Those whose second versions have other parameters, and that programs may want in their first.
  if (plain_name == "cuGetProcAddress" && version < 12000) return Hook::cuGetProcAddress;
  if (plain_name == "cuGraphAddNode" && version < 12030) return Hook::cuGraphAddNode;
  const std::string plain(plain_name);
  for (const char* const ending : {per_thread ? "_ptsz" : "_v2", "_v2", ""}) {
    if (const Hook hook = hook_named(plain + ending); hook != Hook::kCount) return hook;
  }
  return Hook::kCount;
}

void found(Hook hook, void* function) {
  if (function == function_of(hook)) return;
  g_real[index_of(hook)].store(function, std::memory_order_release);
}

bool is_captured(CUstream stream, const char* question) {
  int status = 0;
  auto* const ask = driver() == nullptr
                        ? nullptr
                        : reinterpret_cast<CUresult (*)(CUstream, int*)>(real_dlsym(driver(), question));
  return ask != nullptr && ask(stream, &status) == 0 && status != 0;
}

void* real_address(Hook hook) {
  void* known = g_real[index_of(hook)].load(std::memory_order_acquire);
  if (known != nullptr) return known;
  if (driver() == nullptr) return nullptr;
  known = real_dlsym(driver(), kRows[index_of(hook)].name.data());
  if (known != nullptr) found(hook, known);
  return known;
}

}  // namespace roundelay::preload
