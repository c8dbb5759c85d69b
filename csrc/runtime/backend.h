// What a separately loaded module (_mpi.so, _c10d.so) offers: ways to find ranks, to talk and to move bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/rendezvous.h"
#include "channel/channel.h"
#include "collective/fabric.h"
#include "runtime/gpu/module.h"

namespace roundelay::runtime {

class Whereabouts;

// What one init is told beside the configuration.
struct Start {
  std::uint32_t generation = 1;                       // counts the inits of this process with these ranks
  std::optional<bootstrap::Rendezvous> rendezvous{};  // of bootstrap store; MPI knows by itself
  std::vector<int> ranks{};                           // of MPI's world, those in the job; empty: all
  std::optional<int> communicator{};                  // or those of this one of MPI's, a Fortran handle
  GpuParts gpu{};
  std::shared_ptr<Whereabouts> whereabouts{};  // null: nobody can ask the program where it is
};

// One per process, owned by the module, never destroyed while the process lives (MPI is finalised at exit).
class Backend {
 public:
  virtual ~Backend() = default;
  // Both sides must be built from one source: compared with version() before anything else is called.
  [[nodiscard]] virtual std::string version() const = 0;
  // Starts the library if nobody has. Errors: one line with cause and cure.
  virtual Result<std::unique_ptr<bootstrap::Bootstrap>> bootstrap(const Config& config, const Start& start,
                                                                  Deadline deadline) = 0;
  // As in ROUNDELAY_FABRIC.
  [[nodiscard]] virtual std::string fabric_name() const = 0;
  // Collective over the group, of two or more, in the same order on all of its members.
  virtual Result<std::unique_ptr<collective::Fabric>> fabric(const Group& group, const Config& config) = 0;
  virtual Result<std::unique_ptr<channel::Channel>> channel(const Group& world) = 0;
  // For doctor: "Open MPI v5.0.11, MPI_THREAD_MULTIPLE".
  [[nodiscard]] virtual std::string description() const = 0;
  // After a fault: MPI must not be finalised (it would wait for the dead), and re-init is refused with `why`.
  virtual void poison(const std::string& why) = 0;
  // Ends the whole job through the library (MPI_Abort); for the fail-stop path of a fatal error.
  [[noreturn]] virtual void abort_job(int exit_code) = 0;
};

using BackendEntry = Backend* (*)();
inline constexpr const char* kBackendEntry = "roundelay_backend";  // extern "C" symbol of the module

}  // namespace roundelay::runtime
