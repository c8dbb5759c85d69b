// The module _c10d.so: implements runtime/backend.h with PyTorch's c10d. It is loaded if ranks find each
// other without MPI.
#include <fcntl.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/version.h"
#include "bootstrap/c10d/tcp_store.h"
#include "bootstrap/store/store_bootstrap.h"
#include "collective/c10d/c10d_fabric.h"
#include "platform/c10d/process_group.h"
#include "platform/tcp/address.h"
#include "platform/tcp/name.h"
#include "runtime/backend.h"

namespace roundelay::runtime {
namespace {

using bootstrap::Rendezvous;
using bootstrap::TcpStore;
using StoreResult = Result<std::shared_ptr<TcpStore>>;

StoreResult serve(const Rendezvous& where, Deadline deadline) {
  int listener = -1;
  if (where.listener && platform::listens_on(*where.listener, where.port)) {
    listener = *where.listener;
  } else {
    const bool others_come = where.local_size != where.size;
    const auto own = platform::listen_at(where.host, where.port, others_come);
    if (!own.ok()) {
      // The user's torch.distributed may already serve a store there: this rank then uses it too.
      auto shared = TcpStore::open(where.host, where.port, true, std::nullopt, deadline);
      if (shared.ok()) return shared;
      return Status::unavailable(
          "rank 0 must serve on MASTER_ADDR and MASTER_PORT, but " + own.status().message() +
          (platform::port_is_refused(own.status()) ? "; choose another MASTER_PORT on every rank"
                                                   : "; set MASTER_ADDR to rank 0's host on every rank"));
    }
    listener = ::fcntl(own.value().get(), F_DUPFD_CLOEXEC, 0);
  }
  return TcpStore::open(where.host, where.port, true, listener, deadline);
}

StoreResult join(const Rendezvous& where, Deadline deadline) {
  if (Status there = platform::await_listener(where.host, where.port, deadline); !there.ok()) {
    return Status::unavailable(
        there.message() +
        ", where MASTER_ADDR and MASTER_PORT say that ranks meet: did rank 0 start? Set MASTER_ADDR to rank "
        "0's host, and MASTER_PORT alike, on every rank");
  }
  auto store = TcpStore::open(where.host, where.port, false, std::nullopt, deadline);
  if (store.ok()) return store;
  return Status::unavailable(store.status().message() +
                             "; another program has the port, or rank 0 is stopped: choose another "
                             "MASTER_PORT on every rank");
}

std::string joined(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return text;
}

class C10dBackend final : public Backend {
 public:
  [[nodiscard]] std::string version() const override { return roundelay::version(); }
  [[nodiscard]] std::string fabric_name() const override { return "c10d"; }

  Result<std::unique_ptr<bootstrap::Bootstrap>> bootstrap(const Config& config, const Start& start,
                                                          Deadline deadline) override {
    if (!start.rendezvous) return Status::internal("no rendezvous was given");
    const Rendezvous& where = *start.rendezvous;
    // The store is kept for the life of the process, because a later init meets there again, and PyTorch may
    // use it too.
    if (!store_ || !store_->usable() || where.host != where_.host || where.port != where_.port) {
      auto store = where.serve ? serve(where, deadline) : join(where, deadline);
      if (!store.ok()) return store.status();
      store_ = std::move(store).value();
    }
    where_ = where;
    root_ = bootstrap::store_root(where, start.generation);
    fabrics_made_.clear();
    given_up_ = start.given_up;
    return std::unique_ptr<bootstrap::Bootstrap>(std::make_unique<bootstrap::StoreBootstrap>(
        store_, where, start.generation, config.start_timeout, start.secret));
  }

  Result<std::unique_ptr<collective::Fabric>> fabric(const Group& group, const Config& config,
                                                     const collective::Select& select) override {
    platform::GroupPlace place;
    place.store_host = where_.host;
    place.store_port = where_.port;
    const std::string name = std::to_string(group.id) + "/" + joined(group.ranks);
    place.prefix = root_ + "fabric/" + name + "/" + std::to_string(fabrics_made_[name]++);
    place.interface = config.interface;
    // Gloo takes the name of an interface, or an address, but no prefix.
    const std::string first = config.interface.substr(0, config.interface.find(','));
    if (first.find('/') != std::string::npos) {
      const auto addresses = platform::local_addresses(first);
      if (!addresses.ok()) return addresses.status();
      place.own_address = addresses->front().to_string();
    }
    place.index = group.index;
    place.size = group.size();
    const Deadline deadline = Deadline::after(config.start_timeout).unless(given_up_);
    auto made = platform::ProcessGroup::create(place, deadline);
    if (!made.ok()) return made.status();
    collective::C10dFabricOptions options;
    options.select = select;
    return collective::make_c10d_fabric(std::move(made).value(), group, options);
  }

  Result<collective::DeviceMedium> device_medium(const Group& /*group*/, const Config& /*config*/) override {
    return collective::DeviceMedium{
        .state = nullptr,
        .name = "mpi",
        .why_not = "the job has no MPI; start it with mpirun, or leave ROUNDELAY_GPU_FABRIC unset"};
  }

  Result<std::unique_ptr<channel::Channel>> channel(const Group& /*world*/) override {
    return Status::unavailable(
        "without MPI, ranks need TCP connections for their control messages, and some rank could not listen "
        "or was told not to (ROUNDELAY_CHANNEL=mpi): allow sockets, or start the job with mpirun");
  }

  [[nodiscard]] std::string description() const override {
    return "PyTorch " + platform::torch_version() + ": TCPStore, Gloo";
  }

  void poison(const std::string& /*why*/) override {}  // a later init makes new groups

  [[noreturn]] void abort_job(int exit_code) override { _Exit(exit_code); }

 private:
  std::shared_ptr<TcpStore> store_;
  Rendezvous where_;
  std::string root_;
  const std::atomic<bool>* given_up_ = nullptr;  // Start's
  std::map<std::string, int> fabrics_made_;      // how many, by id and ranks; the same on all members
};

}  // namespace
}  // namespace roundelay::runtime

extern "C" __attribute__((visibility("default"))) roundelay::runtime::Backend* roundelay_backend() {
  static auto* const backend = new roundelay::runtime::C10dBackend;  // lives as long as the process
  return backend;
}
