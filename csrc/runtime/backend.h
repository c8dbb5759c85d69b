// What a separately loaded module (MPI today) offers: ways to find ranks, to talk and to move bytes.
#pragma once

#include <memory>
#include <string>

#include "base/config.h"
#include "bootstrap/bootstrap.h"
#include "channel/channel.h"
#include "collective/fabric.h"

namespace roundelay::runtime {

// One per process, owned by the module, never destroyed while the process lives (MPI is finalised at exit).
class Backend {
 public:
  virtual ~Backend() = default;
  // Both sides must be built from one source: compared with version() before anything else is called.
  [[nodiscard]] virtual std::string version() const = 0;
  // Starts the library if nobody has. Errors: one line with cause and cure.
  virtual Result<std::unique_ptr<bootstrap::Bootstrap>> bootstrap(const Config& config,
                                                                  Deadline deadline) = 0;
  // Collective over the group, of two or more, in the same order on all of its members.
  virtual Result<std::unique_ptr<collective::Fabric>> fabric(const Group& group, const Config& config) = 0;
  virtual Result<std::unique_ptr<channel::Channel>> channel(const Group& world) = 0;
  // For doctor: "Open MPI v5.0.11, MPI_THREAD_MULTIPLE".
  [[nodiscard]] virtual std::string description() const = 0;
  // After a fault: the library must not be finalised (it would wait for the dead). Re-init is refused with
  // `why`.
  virtual void poison(const std::string& why) = 0;
  // Ends the whole job through the library (MPI_Abort); for the fail-stop path of a fatal error.
  [[noreturn]] virtual void abort_job(int exit_code) = 0;
};

using BackendEntry = Backend* (*)();
inline constexpr const char* kBackendEntry = "roundelay_backend";  // extern "C" symbol of the module

}  // namespace roundelay::runtime
