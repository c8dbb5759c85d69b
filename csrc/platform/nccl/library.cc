#include "platform/nccl/library.h"

#include <dlfcn.h>

#include <bit>

#include "platform/nccl/communicator.h"
#include "platform/nccl/current_device.h"
#include "platform/nccl/functions.h"

namespace roundelay::platform {
namespace {

constexpr const char* kSoname = "libnccl.so.2";

std::string last_error() {
  const char* const text = ::dlerror();
  return text != nullptr ? text : "no reason given";
}

Result<void*> load(const std::string& path) {
  void* library = nullptr;
  if (path.empty()) library = ::dlopen(kSoname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) library = ::dlopen(path.empty() ? kSoname : path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  return Status::unavailable("NCCL cannot be loaded (" + last_error() +
                             "): install PyTorch with CUDA, or the wheel nvidia-nccl of its CUDA version");
}

class Library final : public NcclApi {
 public:
  explicit Library(const nccl::Found& found) : nccl_(found.functions), version_(found.version) {}

  [[nodiscard]] int version() const override { return version_; }

  Result<NcclId> make_id() override {
    nccl::UniqueId id{};
    const nccl::Code made = nccl_.get_unique_id(&id);
    if (made != nccl::kSuccess) return nccl::error_of(nccl_, "ncclGetUniqueId", made, nullptr);
    return std::bit_cast<NcclId>(id);
  }

  Result<std::unique_ptr<NcclCommunicator>> join(const NcclId& id, int members, int index,
                                                 int device) override {
    const Result<nccl::CurrentDevice> current = nccl::CurrentDevice::make(device);
    if (!current.ok()) return current.status();
    nccl::Config config;
    nccl::Comm comm = nullptr;
    const nccl::Code begun =
        nccl_.comm_init_rank_config(&comm, members, std::bit_cast<nccl::UniqueId>(id), index, &config);
    if (begun == nccl::kSuccess || begun == nccl::kInProgress) return nccl::make_communicator(nccl_, comm);
    const Status error = nccl::error_of(nccl_, "ncclCommInitRankConfig", begun, nullptr);
    if (comm != nullptr) static_cast<void>(nccl_.comm_abort(comm));
    return error;
  }

 private:
  const nccl::Functions nccl_;
  const int version_;
};

}  // namespace

Result<std::unique_ptr<NcclApi>> open_nccl(const std::string& path) {
  const Result<void*> library = load(path);
  if (!library.ok()) return library.status();
  const auto find = [&library](const char* name) { return ::dlsym(*library, name); };
  const Result<nccl::Found> found = nccl::find_functions(find, path.empty() ? kSoname : path);
  if (!found.ok()) return found.status();
  return std::unique_ptr<NcclApi>(std::make_unique<Library>(*found));
}

}  // namespace roundelay::platform
