#include "platform/mpi/device_memory.h"

#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <optional>

#if defined(MPIX_GPU_SUPPORT_CUDA)
// A wheel's module is for all MPIs of MPICH's ABI, and older ones lack this function.
extern "C" int MPIX_GPU_query_support(int, int*) __attribute__((weak));
#endif

namespace roundelay::mpi {
namespace {

// Nothing: this MPI has no such function.
std::optional<bool> says_cuda() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1;
#elif defined(MPIX_GPU_SUPPORT_CUDA)
  if (MPIX_GPU_query_support == nullptr) return std::nullopt;
  int supported = 0;
  return MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &supported) == MPI_SUCCESS && supported != 0;
#else
  return std::nullopt;
#endif
}

}  // namespace

std::string why_no_device_memory(const Session& session) {
  const std::optional<bool> cuda = says_cuda();
  const std::string cure = "; use an MPI that was built with CUDA, or leave ROUNDELAY_GPU_FABRIC unset";
  if (!cuda)
    return "its MPI (" + session.description() + ") does not say whether it takes a GPU's memory" + cure;
  if (!*cuda) return "its MPI (" + session.description() + ") does not take a GPU's memory" + cure;
  if (!session.any_thread()) {
    return "its MPI (" + session.description() +
           ") may not be called by the threads that use the GPU; start it "
           "with MPI_THREAD_MULTIPLE";
  }
  return {};
}

}  // namespace roundelay::mpi
