#include "execute/fusion_buffer.h"

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/leak.h"

namespace roundelay::execute {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kLarge = 16 * kPage;

}  // namespace

FusionBuffer::~FusionBuffer() { release(); }

FusionBuffer::FusionBuffer(FusionBuffer&& other) noexcept
    : keep_bytes_(other.keep_bytes_),
      capacity_(std::exchange(other.capacity_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

FusionBuffer& FusionBuffer::operator=(FusionBuffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  keep_bytes_ = other.keep_bytes_;
  capacity_ = std::exchange(other.capacity_, 0);
  data_ = std::exchange(other.data_, nullptr);
  return *this;
}

Status FusionBuffer::reserve(std::size_t bytes) {
  const bool oversized = capacity_ > keep_bytes_ && bytes <= keep_bytes_;
  if (bytes <= capacity_ && !oversized) return {};
  release();
  if (bytes == 0) return {};
  const std::size_t alignment = bytes >= kLarge ? kPage : kCacheLine;
  void* memory = nullptr;
  std::size_t rounded = 0;
  if (bytes <= static_cast<std::size_t>(PTRDIFF_MAX) - alignment) {
    rounded = (bytes + alignment - 1) / alignment * alignment;
    memory = std::aligned_alloc(alignment, rounded);
  }
  if (memory == nullptr) {
    return Status::unavailable("out of memory: no " + std::to_string(bytes) +
                               " bytes for a fusion buffer; a lower ROUNDELAY_FUSION_THRESHOLD needs less");
  }
  data_ = static_cast<std::byte*>(memory);
  capacity_ = rounded;
  return {};
}

void FusionBuffer::leak() {
  if (data_ != nullptr) roundelay::leak(data_);
  data_ = nullptr;
  capacity_ = 0;
}

void FusionBuffer::release() {
  std::free(data_);
  data_ = nullptr;
  capacity_ = 0;
}

}  // namespace roundelay::execute
