// Kernels that pack, unpack, cast and scale.
#include <algorithm>
#include <array>

#include "kernels/cuda/any.cuh"
#include "kernels/cuda/copy.cuh"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.cuh"

namespace roundelay::kernels::cuda {
namespace {

using platform::cuda::check;
using platform::cuda::native;

// Copies in one launch. Its arguments could be 32,764 bytes, but the host copies all of them for every
// launch.
constexpr std::size_t kCapacity = 240;

struct Table {
  Scaler scaler;
  std::uint64_t chunk;
  std::int32_t items;
  AnyTypes types;  // for the kernel for any types
  CopyItem item[kCapacity];
};
static_assert(sizeof(Table) <= 8 << 10);

struct Chunk {
  const CopyItem* item;
  std::uint64_t begin;
  int count;
};

// Finds this block's chunk: it belongs to the last item whose first block is not after this one.
__device__ __forceinline__ Chunk find_chunk(const Table& table) {
  int low = 0, high = table.items;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.item[middle].first_block <= blockIdx.x) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const CopyItem& item = table.item[low];
  const std::uint64_t begin = (blockIdx.x - item.first_block) * table.chunk;
  const std::uint64_t left = item.count - begin;
  return {&item, begin, static_cast<int>(left < table.chunk ? left : table.chunk)};
}

__global__ void __launch_bounds__(kMostThreads) bytes_kernel(const __grid_constant__ Table table) {
  const Chunk chunk = find_chunk(table);
  copy_bytes(this_thread(), chunk.item->to + chunk.begin, chunk.item->from + chunk.begin, chunk.count,
             chunk.item->width);
}

template <DType kTo, DType kFrom>
__global__ void __launch_bounds__(kMostThreads) copy_kernel(const __grid_constant__ Table table) {
  const Chunk chunk = find_chunk(table);
  copy_chunk<kTo, kFrom>(this_thread(), chunk.item->to + chunk.begin * sizeof(Stored<kTo>),
                         chunk.item->from + chunk.begin * sizeof(Stored<kFrom>), chunk.count,
                         chunk.item->width, table.scaler);
}

// The blocks of a multiprocessor: for more, ptxas would spill registers.
constexpr int kAnyBlocks = 3;
__global__ void __launch_bounds__(kMostThreads, kAnyBlocks) any_kernel(const __grid_constant__ Table table) {
  const Chunk chunk = find_chunk(table);
  std::byte* const to = chunk.item->to + chunk.begin * static_cast<unsigned>(table.types.to_size);
  const std::byte* const from = chunk.item->from + chunk.begin * static_cast<unsigned>(table.types.from_size);
  copy_any(this_thread(), to, from, table.types, chunk.count, chunk.item->width, table.scaler);
}

using Kernel = void (*)(Table);

constexpr std::array kFloating = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16};

template <std::size_t... kPairs>
Kernel floating_kernel(DType to, DType from, std::index_sequence<kPairs...> /*pairs*/) {
  static constexpr std::array<Kernel, sizeof...(kPairs)> kKernels = {
      &copy_kernel<kFloating[kPairs / 4], kFloating[kPairs % 4]>...};
  return kKernels[static_cast<std::size_t>(to) * 4 + static_cast<std::size_t>(from)];
}

Kernel find_kernel(const CopyGroup& group) {
  if (group.bytes) return &bytes_kernel;
  if (!is_floating(group.to_type) || !is_floating(group.from_type)) return &any_kernel;
  return floating_kernel(group.to_type, group.from_type, std::make_index_sequence<16>());
}

Status launch_some(const CopyGroup& group, std::span<const CopyItem> items, std::uint32_t blocks,
                   const Scaler& scaler, cudaStream_t stream) {
  Table table;
  table.scaler = scaler;
  table.chunk = group.chunk;
  table.items = static_cast<std::int32_t>(items.size());
  table.types = {group.to_type, group.from_type, static_cast<int>(size_of(group.to_type)),
                 static_cast<int>(size_of(group.from_type))};
  std::copy(items.begin(), items.end(), table.item);
  void* arguments[] = {&table};
  return check(cudaLaunchKernel(find_kernel(group), dim3(blocks), dim3(static_cast<unsigned>(group.threads)),
                                arguments, 0, stream),
               "cudaLaunchKernel(copy)");
}

Status launch(CopyGroup& group, Scale scale, cudaStream_t stream) {
  const Scaler scaler = make_scaler(scale);
  std::span<CopyItem> left = group.items;
  while (!left.empty()) {
    const CopyLaunch next = next_launch(left, group.chunk, kCapacity);
    ROUNDELAY_RETURN_IF_ERROR(launch_some(group, left.first(next.items), next.blocks, scaler, stream));
    left = left.subspan(next.items);
  }
  return {};
}

}  // namespace

Status CudaKernels::copy_batch(int device, std::span<const GpuCopy> items, Scale scale, GpuStream stream) {
  const platform::cuda::OnDevice on(device);
  ROUNDELAY_RETURN_IF_ERROR(on.status());
  const Result<int> processors = platform::cuda::multiprocessors(device);
  if (!processors.ok()) return processors.status();
  for (CopyGroup& group : plan_copies(items, scale.identity(), *processors)) {
    ROUNDELAY_RETURN_IF_ERROR(launch(group, scale, native(stream)));
  }
  return {};
}

}  // namespace roundelay::kernels::cuda
