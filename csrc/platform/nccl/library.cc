#include "platform/nccl/library.h"

#include <dlfcn.h>

#include <bit>
#include <utility>

#include "platform/nccl/abi.h"
#include "platform/nccl/communicator.h"
#include "platform/nccl/current_device.h"

namespace roundelay::platform {
namespace {

constexpr const char* kSoname = "libnccl.so.2";

std::string text_of(int version) {
  const bool old = version < nccl::version_code(1, 0, 0);  // until 2.8.4: 2804
  const int major = old ? version / 1000 : version / 10000;
  const int minor = old ? version / 100 % 10 : version / 100 % 100;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version % 100);
}

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

template <typename Function>
bool resolve(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

Result<nccl::Functions> functions_of(void* library, const std::string& what) {
  nccl::Functions functions;
  int version = 0;
  if (!resolve(library, "ncclGetVersion", functions.get_version) ||
      functions.get_version(&version) != nccl::kSuccess) {
    return Status::unavailable(what + " is no NCCL: it does not tell its version");
  }
  if (version < nccl::kOldestVersion) {
    return Status::unavailable("NCCL " + text_of(version) + " (" + what +
                               ") is too old: " + text_of(nccl::kOldestVersion) +
                               " or later is needed; install a newer PyTorch");
  }
#define ROUNDELAY_RESOLVE(member, name)                                                          \
  if (!resolve(library, "nccl" #name, functions.member)) {                                       \
    return Status::unavailable("NCCL " + text_of(version) + " (" + what + ") lacks nccl" #name); \
  }
  ROUNDELAY_NCCL_FUNCTIONS(ROUNDELAY_RESOLVE)
#undef ROUNDELAY_RESOLVE
  return functions;
}

class Library final : public NcclApi {
 public:
  Library(const nccl::Functions& functions, int version) : nccl_(functions), version_(version) {}

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
  const Result<nccl::Functions> functions = functions_of(*library, path.empty() ? kSoname : path);
  if (!functions.ok()) return functions.status();
  int version = 0;
  static_cast<void>(functions->get_version(&version));
  return std::unique_ptr<NcclApi>(std::make_unique<Library>(*functions, version));
}

}  // namespace roundelay::platform
