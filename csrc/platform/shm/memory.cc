#include "platform/shm/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "platform/shm/fork_copies.h"

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

Result<SharedMemory> SharedMemory::map_part(std::size_t offset, std::size_t bytes) const {
  Fd fd(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!fd.valid()) return failure("dup", bytes, errno);
  return map(std::move(fd), offset, bytes);
}

Result<SharedMemory> SharedMemory::map(Fd fd, std::size_t offset, std::size_t bytes) {
  void* const data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), static_cast<off_t>(offset));
  if (data == MAP_FAILED) return failure("mmap", bytes, errno);
  SharedMemory memory;
  memory.fd_ = std::move(fd);
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  memory.offset_ = offset;
  if (::madvise(data, bytes, MADV_DONTFORK) != 0) return failure("madvise", bytes, errno);
  return memory;
}

SharedMemory::~SharedMemory() {
  if (data_ == nullptr) return;
  forget_copies(span());
  ::munmap(data_, bytes_);
}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(offset_, other.offset_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Status SharedMemory::allocate(std::size_t offset, std::size_t bytes) const {
  int error = EINTR;
  while (error == EINTR) {
    const int result =
        ::fallocate(fd_.get(), 0, static_cast<off_t>(offset_ + offset), static_cast<off_t>(bytes));
    error = result == 0 ? 0 : errno;
  }
  return error == 0 ? Status{} : failure("fallocate", bytes, error);
}

Status SharedMemory::copy_in_children(std::size_t offset, std::size_t bytes) const {
  return platform::copy_in_children(span(), span().subspan(offset, bytes), fd_.get(), offset_ + offset);
}

void SharedMemory::discard(std::size_t offset, std::size_t bytes) const {
  static_cast<void>(::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                static_cast<off_t>(offset_ + offset), static_cast<off_t>(bytes)));
}

}  // namespace roundelay::platform
