// The hooks of functions with which memory begins and ends. The dynamic linker finds them before the
// driver's, as this library is preloaded.
#include <cstdint>

#include "preload/driver.h"
#include "preload/hooks.h"
#include "preload/shim.h"

using roundelay::preload::Change;
using roundelay::preload::Hook;
using roundelay::preload::real;
using roundelay::preload::Shim;

namespace {

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
ROUNDELAY_BEGINS(cuMemAllocAsync, (CUdeviceptr * p, std::size_t n, CUstream s), (p, n, s), p, n)
ROUNDELAY_BEGINS(cuMemAllocAsync_ptsz, (CUdeviceptr * p, std::size_t n, CUstream s), (p, n, s), p, n)
ROUNDELAY_BEGINS(cuMemAllocFromPoolAsync, (CUdeviceptr * p, std::size_t n, CUmemoryPool pool, CUstream s),
                 (p, n, pool, s), p, n)
ROUNDELAY_BEGINS(cuMemAllocFromPoolAsync_ptsz,
                 (CUdeviceptr * p, std::size_t n, CUmemoryPool pool, CUstream s), (p, n, pool, s), p, n)
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
