#include "preload/hooks.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
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
  void (*hook_for)();
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

void* hook_for(Hook hook) { return reinterpret_cast<void*>(kRows[index_of(hook)].hook_for); }

void* hook_for(std::string_view name) {
  if (!name.starts_with("cu")) return nullptr;
  for (const Row& row : kRows) {
    if (row.name == name) return reinterpret_cast<void*>(row.hook_for);
  }
  return nullptr;
}

Hook hook_of(std::string_view plain_name, bool per_thread) {
  const std::string plain(plain_name);
  Hook best = Hook::kCount;
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    const std::string_view name = kRows[i].name;
    if (per_thread && name == plain + "_ptsz") return static_cast<Hook>(i);
    if (name == plain || name == plain + "_v2") best = static_cast<Hook>(i);
  }
  return best;
}

void found(Hook hook, void* function) {
  if (function == hook_for(hook)) return;
  g_real[index_of(hook)].store(function, std::memory_order_release);
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
