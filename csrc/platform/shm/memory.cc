#include "platform/shm/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace roundelay::platform {
namespace {

Status failure(const char* call, std::size_t bytes, int error) {
  return errno_status(std::string(call) + " of " + std::to_string(bytes) + " bytes of shared memory", error);
}

}  // namespace

Result<SharedMemory> SharedMemory::create(std::size_t bytes) {
  Fd fd(::memfd_create("roundelay", MFD_CLOEXEC));
  if (!fd.valid()) return failure("memfd_create", bytes, errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return failure("ftruncate", bytes, errno);
  return map(std::move(fd), bytes);
}

Result<SharedMemory> SharedMemory::map(Fd fd, std::size_t bytes) {
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return failure("mmap", bytes, errno);
  SharedMemory memory;
  memory.fd_ = std::move(fd);
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  if (::madvise(data, bytes, MADV_DONTFORK) != 0) return failure("madvise", bytes, errno);
  return memory;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Status SharedMemory::allocate(std::size_t offset, std::size_t bytes) const {
  int error = EINTR;
  while (error == EINTR) {
    const int result = ::fallocate(fd_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    error = result == 0 ? 0 : errno;
  }
  return error == 0 ? Status{} : failure("fallocate", bytes, error);
}

}  // namespace roundelay::platform
