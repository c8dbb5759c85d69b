#include "process_group/store_backend.h"

#include <cstdlib>

#include "base/version.h"
#include "bootstrap/store/store_bootstrap.h"

namespace roundelay::process_group {
namespace {

Status only_tcp() {
  return Status::unavailable(
      "a process group of torch.distributed moves bytes over shared memory and TCP: leave ROUNDELAY_FABRIC "
      "and ROUNDELAY_CHANNEL unset, or choose shm, tcp or shm+tcp");
}

}  // namespace

std::string StoreBackend::version() const { return roundelay::version(); }

Result<std::unique_ptr<bootstrap::Bootstrap>> StoreBackend::bootstrap(const Config& config,
                                                                      const runtime::Start& start,
                                                                      Deadline /*deadline*/) {
  return std::unique_ptr<bootstrap::Bootstrap>(std::make_unique<bootstrap::StoreBootstrap>(
      store_, *start.rendezvous, start.generation, config.start_timeout, start.secret));
}

Result<std::unique_ptr<collective::Fabric>> StoreBackend::fabric(const Group& /*group*/,
                                                                 const Config& /*config*/,
                                                                 const collective::Select& /*select*/) {
  return only_tcp();
}

Result<collective::DeviceMedium> StoreBackend::device_medium(const Group& /*group*/,
                                                             const Config& /*config*/) {
  return only_tcp();
}

Result<std::unique_ptr<channel::Channel>> StoreBackend::channel(const Group& /*world*/) { return only_tcp(); }

void StoreBackend::abort_job(int exit_code) { std::_Exit(exit_code); }

}  // namespace roundelay::process_group
