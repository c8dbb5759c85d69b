// The interface of a separately loaded module (_mpi_*.so, _c10d.so): it finds the ranks and makes channels
// and fabrics between nodes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/rendezvous.h"
#include "channel/channel.h"
#include "collective/device/device_fabric.h"
#include "collective/fabric.h"
#include "collective/tuning/select.h"
#include "gpu/module.h"
#include "trust/trust.h"

namespace roundelay::control {
class Whereabouts;
}

namespace roundelay::runtime {

// The arguments of one init, beside the configuration.
struct Start {
  std::uint32_t generation = 1;                       // counts the inits of this process with these ranks
  std::optional<bootstrap::Rendezvous> rendezvous{};  // bootstrap store needs it; MPI needs none
  std::vector<int> ranks{};                           // the job's ranks of MPI_COMM_WORLD; empty: all of them
  std::optional<int> communicator{};                  // the job's communicator as a Fortran handle, instead
  std::string launcher_rack{};  // the launcher's name of the rack (bootstrap/topology.h)
  std::string tuning{};         // this rank's tuning, as Tuning::parse() reads it; empty: none
  std::string tuning_error{};   // why the tuning file cannot be used; empty: it can, or there is none
  trust::Key secret{};          // the job's; all zeros: it has none
  bool call_order = false;      // all operations are Context::call()s
  bool ranks_changed = false;   // since the job began: it is elastic, and this a later generation of it
  gpu::GpuParts gpu{};
  // Becomes true if the start is to end before its deadline. Lives as long as the process; null: it never
  // does.
  const std::atomic<bool>* given_up = nullptr;
  // control/inquiry.h; null: the program cannot be asked
  std::shared_ptr<control::Whereabouts> whereabouts{};
};

// The module owns its one backend and never destroys it: MPI is finalised when the process exits. One thread
// at a time may use it, except where a comment says otherwise.
class Backend {
 public:
  virtual ~Backend() = default;
  // Returns the version of the module's source. Call it first: if it differs from the core's, use nothing
  // else.
  [[nodiscard]] virtual std::string version() const = 0;
  // Finds the ranks of the job, and starts the library if it is not started. Errors: kUnavailable,
  // kInvalidArgument; one line with cause and cure.
  virtual Result<std::unique_ptr<bootstrap::Bootstrap>> bootstrap(const Config& config, const Start& start,
                                                                  Deadline deadline) = 0;
  // Returns the name of fabric()'s fabrics in ROUNDELAY_FABRIC: "mpi", "c10d".
  [[nodiscard]] virtual std::string fabric_name() const = 0;
  // Makes a fabric for a group of two or more ranks, which chooses algorithms by `select`. Collective: all
  // members make their common fabrics in the same order. Takes at most ROUNDELAY_START_TIMEOUT. Errors:
  // kUnavailable, kAborted.
  virtual Result<std::unique_ptr<collective::Fabric>> fabric(const Group& group, const Config& config,
                                                             const collective::Select& select) = 0;
  // Makes a medium for memory on GPUs for such a group. The rules of fabric() hold. If the library cannot
  // take such memory, the medium says why, and need not have a state.
  virtual Result<collective::DeviceMedium> device_medium(const Group& group, const Config& config) = 0;
  // Makes the channel of the world, for ranks that cannot use TCP. Collective. Errors: kUnavailable.
  virtual Result<std::unique_ptr<channel::Channel>> channel(const Group& world) = 0;
  // Returns the library and its version, for `roundelay doctor`: "Open MPI v5.0.11, MPI_THREAD_MULTIPLE".
  [[nodiscard]] virtual std::string description() const = 0;
  // Makes the library never finalise, as that would wait for dead ranks, and refuse a later init with the
  // text `why`. Call it after a fault. Any thread may call it.
  virtual void poison(const std::string& why) = 0;
  // Ends all processes of the job, with MPI_Abort where there is MPI. Any thread may call it.
  [[noreturn]] virtual void abort_job(int exit_code) = 0;
};

using BackendEntry = Backend* (*)();
inline constexpr const char* kBackendEntry = "roundelay_backend";  // extern "C" symbol of the module

}  // namespace roundelay::runtime
