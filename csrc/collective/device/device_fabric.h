// The data plane on GPUs over a medium that takes their memory itself, as a CUDA-aware MPI does (Awan et al.,
// "Scalable Distributed DNN Training using TensorFlow and CUDA-Aware MPI", CCGrid 2019). It runs the
// algorithms of collective/algorithms/: kernels add in a stream of the fabric's own, and transfers wait for
// them by events. The bytes never come to the host's memory.
#pragma once

#include <memory>

#include "base/gpu_runtime.h"
#include "collective/engine/program_call.h"
#include "collective/fabric.h"
#include "collective/tuning/select.h"
#include "kernels/gpu.h"
#include "platform/device/pointer_cache.h"

namespace roundelay::collective {

// A medium as its module makes it, for make_device_fabric().
struct DeviceMedium {
  std::shared_ptr<FabricState> state;
  std::string_view name;   // "mpi", in static storage
  bool any_thread = true;  // the result of Fabric::any_thread()
  std::string why_not{};   // the reason for not taking a GPU's memory; empty: the medium says that it does
  Select select = Select().on_device();
};

// The process's cache of where memory lies.
struct Pointers {
  std::shared_ptr<pointers::PointerCache> cache{};  // null: the process has no GPU
  bool hears_all = false;  // the cache is told of every change; false: each call empties it first
  pointers::PointerCache::Counts before{};  // the cache's counts when this job began to count

  void count_from_now() {
    if (cache != nullptr) before = cache->counts();
  }
  [[nodiscard]] pointers::PointerCache::Counts counts() const {
    const auto now = cache == nullptr ? pointers::PointerCache::Counts{} : cache->counts();
    return {now.hits - before.hits, now.misses - before.misses};
  }
};

struct DeviceFabricParts {
  DeviceMedium medium;
  GpuRuntime& runtime;
  kernels::GpuKernels& kernels;
  int device;
  Pointers pointers;
  Fabric& staged;  // carries out Adasum, whose factors the host computes
  std::shared_ptr<FabricCounters> counters = std::make_shared<FabricCounters>();
};

// Makes the fabric. A call names a stream of `device`, or this member is absent from it. Several calls may be
// in progress. The references in `parts` outlive the fabric. Errors: those of base/gpu_runtime.h.
Result<std::unique_ptr<Fabric>> make_device_fabric(DeviceFabricParts parts);

}  // namespace roundelay::collective
