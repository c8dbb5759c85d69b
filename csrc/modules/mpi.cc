// The module _mpi_openmpi.so or _mpi_mpich.so: implements runtime/backend.h with MPI. It contains all code
// that links MPI, and is loaded only if an MPI bootstrap is chosen.
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "base/version.h"
#include "bootstrap/mpi/mpi_bootstrap.h"
#include "channel/mpi/mpi_channel.h"
#include "collective/mpi/mpi_fabric.h"
#include "platform/mpi/device_memory.h"
#include "platform/mpi/session.h"
#include "runtime/backend.h"

namespace roundelay::runtime {
namespace {

std::optional<std::string> from_environment(const std::string& variable) {
  const char* value = std::getenv(variable.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

class MpiBackend final : public Backend {
 public:
  [[nodiscard]] std::string version() const override { return roundelay::version(); }
  [[nodiscard]] std::string fabric_name() const override { return "mpi"; }

  Result<std::unique_ptr<bootstrap::Bootstrap>> bootstrap(const Config& config, const Start& start,
                                                          Deadline deadline) override {
    start_timeout_ = config.start_timeout;
    Result<mpi::Session*> session =
        mpi::Session::open(from_environment, {start.ranks, start.communicator}, deadline);
    if (!session.ok()) return session.status();
    return bootstrap::MpiBootstrap::create(**session, deadline);
  }

  Result<std::unique_ptr<collective::Fabric>> fabric(const Group& group, const Config& config,
                                                     const collective::Select& select) override {
    mpi::Session* session = mpi::Session::current();
    if (session == nullptr) return not_started();
    collective::MpiFabricOptions options;
    options.deadline = Deadline::after(config.start_timeout);
    options.select = select;
    return collective::make_mpi_fabric(*session, group, options);
  }

  Result<collective::DeviceMedium> device_medium(const Group& group, const Config& config) override {
    mpi::Session* session = mpi::Session::current();
    if (session == nullptr) return not_started();
    collective::MpiFabricOptions options;
    options.deadline = Deadline::after(config.start_timeout);
    auto state = collective::make_mpi_state(*session, group, options);
    if (!state.ok()) return state.status();
    return collective::DeviceMedium{std::move(state).value(), "mpi", session->any_thread(),
                                    mpi::why_no_device_memory(*session)};
  }

  Result<std::unique_ptr<channel::Channel>> channel(const Group& world) override {
    mpi::Session* session = mpi::Session::current();
    if (session == nullptr) return not_started();
    return channel::MpiChannel::create(*session, world, Deadline::after(start_timeout_));
  }

  [[nodiscard]] std::string description() const override {
    const mpi::Session* session = mpi::Session::current();
    return session == nullptr ? mpi::library_version() + ", not started" : session->description();
  }

  void poison(const std::string& why) override {
    if (mpi::Session* session = mpi::Session::current()) session->poison(why);
  }

  [[noreturn]] void abort_job(int exit_code) override {
    const mpi::Session* session = mpi::Session::current();
    if (session != nullptr && !session->finalized()) MPI_Abort(MPI_COMM_WORLD, exit_code);
    _Exit(exit_code);
  }

 private:
  static Status not_started() {
    return Status::unavailable("MPI was not started: the bootstrap comes first");
  }

  Duration start_timeout_ = Config{}.start_timeout;
};

}  // namespace
}  // namespace roundelay::runtime

extern "C" roundelay::runtime::Backend* roundelay_backend() {
  static auto* const backend = new roundelay::runtime::MpiBackend;  // lives as long as the process
  return backend;
}
