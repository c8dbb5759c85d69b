// The hooks of functions with which memory begins and ends. The dynamic linker finds them before the
// driver's, as this library is preloaded.
#include <cstdint>

#include "preload/driver.h"
#include "preload/hooks.h"
#include "preload/shim.h"

using roundelay::preload::Change;
using roundelay::preload::Hook;
using roundelay::preload::is_captured;
using roundelay::preload::kMemAllocNode;
using roundelay::preload::real;
using roundelay::preload::Shim;

namespace {

// A graph's memory begins and ends when the device comes to its nodes, and no call tells of that.
constexpr const char* kByGraph = "a CUDA graph allocates memory itself, whose end goes unheard";

std::uintptr_t number(CUdeviceptr address) { return static_cast<std::uintptr_t>(address); }
std::uintptr_t number(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }

}  // namespace

#define ROUNDELAY_EXPORT extern "C" __attribute__((visibility("default")))

// Memory begins at an address that the driver's function stores in *POINTER.
#define ROUNDELAY_BEGINS(NAME, PARAMETERS, ARGUMENTS, POINTER, BYTES)        \
  ROUNDELAY_EXPORT CUresult NAME PARAMETERS {                                \
    const Change whole;                                                      \
    const CUresult result = real<CUresult PARAMETERS>(Hook::NAME) ARGUMENTS; \
    if (result == 0) const Change memory(number(*(POINTER)), BYTES);         \
    return result;                                                           \
  }
// The same in the order of a stream: its memory is a graph's own if a graph takes the stream's work down.
#define ROUNDELAY_BEGINS_IN_STREAM(NAME, PARAMETERS, ARGUMENTS, QUESTION)    \
  ROUNDELAY_EXPORT CUresult NAME PARAMETERS {                                \
    const Change whole;                                                      \
    const CUresult result = real<CUresult PARAMETERS>(Hook::NAME) ARGUMENTS; \
    if (result == 0) const Change memory(number(*p), n);                     \
    if (result == 0 && is_captured(s, QUESTION)) Shim::get().stop(kByGraph); \
    return result;                                                           \
  }
// Memory changes, beginning at an address that is known.
#define ROUNDELAY_CHANGES(NAME, PARAMETERS, ARGUMENTS, BASE, BYTES) \
  ROUNDELAY_EXPORT CUresult NAME PARAMETERS {                       \
    const Change memory(number(BASE), BYTES);                       \
    return real<CUresult PARAMETERS>(Hook::NAME) ARGUMENTS;         \
  }
// Memory ends, and nobody says which.
#define ROUNDELAY_ENDS_ANY(NAME, PARAMETERS, ARGUMENTS)     \
  ROUNDELAY_EXPORT CUresult NAME PARAMETERS {               \
    const Change any(0, SIZE_MAX);                          \
    return real<CUresult PARAMETERS>(Hook::NAME) ARGUMENTS; \
  }

ROUNDELAY_BEGINS(cuMemAlloc_v2, (CUdeviceptr * p, std::size_t n), (p, n), p, n)
ROUNDELAY_BEGINS(cuMemAllocPitch_v2,
                 (CUdeviceptr * p, std::size_t* pitch, std::size_t width, std::size_t height,
                  unsigned element),
                 (p, pitch, width, height, element), p, *pitch* height)
ROUNDELAY_BEGINS(cuMemAllocManaged, (CUdeviceptr * p, std::size_t n, unsigned flags), (p, n, flags), p, n)
ROUNDELAY_BEGINS_IN_STREAM(cuMemAllocAsync, (CUdeviceptr * p, std::size_t n, CUstream s), (p, n, s),
                           "cuStreamIsCapturing")
ROUNDELAY_BEGINS_IN_STREAM(cuMemAllocAsync_ptsz, (CUdeviceptr * p, std::size_t n, CUstream s), (p, n, s),
                           "cuStreamIsCapturing_ptsz")
ROUNDELAY_BEGINS_IN_STREAM(cuMemAllocFromPoolAsync,
                           (CUdeviceptr * p, std::size_t n, CUmemoryPool pool, CUstream s), (p, n, pool, s),
                           "cuStreamIsCapturing")
ROUNDELAY_BEGINS_IN_STREAM(cuMemAllocFromPoolAsync_ptsz,
                           (CUdeviceptr * p, std::size_t n, CUmemoryPool pool, CUstream s), (p, n, pool, s),
                           "cuStreamIsCapturing_ptsz")
ROUNDELAY_BEGINS(cuMemHostAlloc, (void** p, std::size_t n, unsigned flags), (p, n, flags), p, n)
ROUNDELAY_BEGINS(cuMemAllocHost_v2, (void** p, std::size_t n), (p, n), p, n)
// The size of a peer's memory is not said: one byte removes whatever was there.
ROUNDELAY_BEGINS(cuIpcOpenMemHandle_v2, (CUdeviceptr * p, CUipcMemHandle handle, unsigned flags),
                 (p, handle, flags), p, 1)
ROUNDELAY_CHANGES(cuMemHostRegister_v2, (void* p, std::size_t n, unsigned flags), (p, n, flags), p, n)
ROUNDELAY_CHANGES(cuMemMap,
                  (CUdeviceptr p, std::size_t n, std::size_t offset, unsigned long long handle,
                   unsigned long long flags),
                  (p, n, offset, handle, flags), p, n)
ROUNDELAY_CHANGES(cuMemFree_v2, (CUdeviceptr p), (p), p, 1)
ROUNDELAY_CHANGES(cuMemFreeAsync, (CUdeviceptr p, CUstream s), (p, s), p, 1)
ROUNDELAY_CHANGES(cuMemFreeAsync_ptsz, (CUdeviceptr p, CUstream s), (p, s), p, 1)
ROUNDELAY_CHANGES(cuMemFreeHost, (void* p), (p), p, 1)
ROUNDELAY_CHANGES(cuMemHostUnregister, (void* p), (p), p, 1)
ROUNDELAY_CHANGES(cuIpcCloseMemHandle, (CUdeviceptr p), (p), p, 1)
ROUNDELAY_CHANGES(cuMemUnmap, (CUdeviceptr p, std::size_t n), (p, n), p, n)
ROUNDELAY_CHANGES(cuMemAddressFree, (CUdeviceptr p, std::size_t n), (p, n), p, n)
ROUNDELAY_ENDS_ANY(cuCtxDestroy_v2, (CUcontext context), (context))
ROUNDELAY_ENDS_ANY(cuDevicePrimaryCtxReset_v2, (CUdevice device), (device))
ROUNDELAY_ENDS_ANY(cuDevicePrimaryCtxRelease_v2, (CUdevice device), (device))
ROUNDELAY_ENDS_ANY(cuMemPoolDestroy, (CUmemoryPool pool), (pool))
ROUNDELAY_ENDS_ANY(cuMemPoolTrimTo, (CUmemoryPool pool, std::size_t kept), (pool, kept))

ROUNDELAY_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                                 std::size_t count, void* parameters) {
  Shim::get().stop(kByGraph);
  return real<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, void*)>(
      Hook::cuGraphAddMemAllocNode)(node, graph, after, count, parameters);
}
// The parameters of a node of any kind begin with the kind.
ROUNDELAY_EXPORT CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                         std::size_t count, int* parameters) {
  if (parameters != nullptr && *parameters == kMemAllocNode) Shim::get().stop(kByGraph);
  return real<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, int*)>(Hook::cuGraphAddNode)(
      node, graph, after, count, parameters);
}
ROUNDELAY_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                            const void* edges, std::size_t count, int* parameters) {
  if (parameters != nullptr && *parameters == kMemAllocNode) Shim::get().stop(kByGraph);
  return real<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, const void*, std::size_t, int*)>(
      Hook::cuGraphAddNode_v2)(node, graph, after, edges, count, parameters);
}
