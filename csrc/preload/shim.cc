#include "preload/shim.h"

#include <cstdio>
#include <cstdlib>

#include "preload/hooks.h"
#include "preload/self_test.h"

namespace roundelay::preload {
namespace {

using AskMany = CUresult(unsigned, int*, void**, CUdeviceptr);

void say(const std::string& text) { std::fprintf(stderr, "roundelay: pointer cache: %s\n", text.c_str()); }

}  // namespace

Result<Allocation> RealDriver::ask(const void* address) {
  Shim::get().count_passed_on();
  std::uint64_t managed = 0;
  unsigned type = 0;
  int device = -1;
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  CUcontext context = nullptr;
  int which[] = {kMemoryType, kDeviceOrdinal, kIsManaged, kRangeStart, kRangeSize, kContext};
  void* into[] = {&type, &device, &managed, &base, &bytes, &context};
  const CUresult result =
      real<AskMany>(Hook::cuPointerGetAttributes)(6, which, into, reinterpret_cast<CUdeviceptr>(address));
  if (result != 0) return Status::aborted("cuPointerGetAttributes failed");
  Allocation answer{static_cast<std::uintptr_t>(base), bytes, {}};
  answer.place.device = device;
  answer.place.context = reinterpret_cast<std::uint64_t>(context);
  if (type == 0) return Allocation{};
  answer.place.kind = managed != 0            ? MemoryKind::kManaged
                      : type == kDeviceMemory ? MemoryKind::kDevice
                                              : MemoryKind::kRegistered;
  return answer;
}

Shim& Shim::get() {
  static Shim& shim = *new Shim;  // hooks may be called until the process is gone
  return shim;
}

bool Shim::on() {
  State state = state_.load();
  if (state == State::kOn) return true;
  if (state != State::kUntested || real_address(Hook::cuPointerGetAttributes) == nullptr) return false;
  if (!state_.compare_exchange_strong(state, State::kTesting)) return false;  // another thread tests
  const std::string unheard = what_goes_unheard();
  if (!unheard.empty()) say("off: " + unheard + " went unheard, so that answers could grow old");
  State testing = State::kTesting;  // or stop() came first
  return state_.compare_exchange_strong(testing, unheard.empty() ? State::kOn : State::kOff) &&
         unheard.empty();
}

void Shim::stop(const std::string& why) {
  if (state_.exchange(State::kOff) == State::kOff) return;
  cache_->stop_keeping();
  for (const auto& listener : listeners_) {
    if (MemoryListener* const one = listener.load()) one->stop_keeping();
  }
  say("off: " + why);
}

void Shim::begin_change(std::uintptr_t base, std::size_t bytes) {
  changes_.fetch_add(1, std::memory_order_relaxed);
  cache_->begin_change(base, bytes);
  for (const auto& listener : listeners_) {
    if (MemoryListener* const one = listener.load(std::memory_order_acquire)) one->begin_change(base, bytes);
  }
}

void Shim::end_change() {
  cache_->end_change();
  for (const auto& listener : listeners_) {
    if (MemoryListener* const one = listener.load(std::memory_order_acquire)) one->end_change();
  }
}

bool Shim::add(MemoryListener* listener) {
  for (auto& place : listeners_) {
    MemoryListener* nobody = nullptr;
    if (place.compare_exchange_strong(nobody, listener)) return on();  // else stop() may not have seen it
  }
  return false;
}

}  // namespace roundelay::preload

// For this process's own pointer cache (platform/cuda/pointers.cc).
extern "C" __attribute__((visibility("default"))) bool roundelay_hear_of_memory(
    roundelay::MemoryListener* listener) {
  return roundelay::preload::Shim::get().on() && roundelay::preload::Shim::get().add(listener);
}

// Questions, and those that reached the driver, for tests and tools.
extern "C" __attribute__((visibility("default"))) void roundelay_pointer_counts(std::int64_t* questions,
                                                                                std::int64_t* passed_on) {
  *questions = roundelay::preload::Shim::get().questions();
  *passed_on = roundelay::preload::Shim::get().passed_on();
}
