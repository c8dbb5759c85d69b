// The part of CUDA's driver interface that is hooked, without its headers: the library builds where CUDA is
// not installed. Types and numbers are those of cuda.h, whose binary interface they are.
#pragma once

#include <cstddef>
#include <cstdint>

using CUresult = int;  // 0: success
using CUdeviceptr = unsigned long long;
using CUstream = struct CUstream_st*;
using CUcontext = struct CUctx_st*;
using CUmemoryPool = struct CUmemPoolHandle_st*;
using CUdevice = int;
struct CUipcMemHandle {
  char reserved[64];
};

namespace roundelay::preload {

enum Attribute : int {
  kContext = 1,
  kMemoryType = 2,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kRangeStart = 11,
  kRangeSize = 12
};
enum MemoryType : unsigned { kHostMemory = 1, kDeviceMemory = 2 };

// Functions that are hooked, by the names under which the driver exports them. Programs whose default stream
// is each thread's own call those that end in _ptsz.
#define ROUNDELAY_HOOKED(X)       \
  X(cuMemAlloc_v2)                \
  X(cuMemAllocPitch_v2)           \
  X(cuMemAllocManaged)            \
  X(cuMemAllocAsync)              \
  X(cuMemAllocAsync_ptsz)         \
  X(cuMemAllocFromPoolAsync)      \
  X(cuMemAllocFromPoolAsync_ptsz) \
  X(cuMemHostAlloc)               \
  X(cuMemAllocHost_v2)            \
  X(cuMemHostRegister_v2)         \
  X(cuIpcOpenMemHandle_v2)        \
  X(cuMemMap)                     \
  X(cuMemFree_v2)                 \
  X(cuMemFreeAsync)               \
  X(cuMemFreeAsync_ptsz)          \
  X(cuMemFreeHost)                \
  X(cuMemHostUnregister)          \
  X(cuIpcCloseMemHandle)          \
  X(cuMemUnmap)                   \
  X(cuMemAddressFree)             \
  X(cuCtxDestroy_v2)              \
  X(cuDevicePrimaryCtxReset_v2)   \
  X(cuDevicePrimaryCtxRelease_v2) \
  X(cuMemPoolDestroy)             \
  X(cuMemPoolTrimTo)              \
  X(cuPointerGetAttribute)        \
  X(cuPointerGetAttributes)       \
  X(cuGetProcAddress)             \
  X(cuGetProcAddress_v2)

enum class Hook : unsigned {
#define ROUNDELAY_NAME(name) name,
  ROUNDELAY_HOOKED(ROUNDELAY_NAME)
#undef ROUNDELAY_NAME
      kCount
};

}  // namespace roundelay::preload
