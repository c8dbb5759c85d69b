// Ranks find each other through a bootstrap: it gives a rank's number, the number of ranks, and an exchange
// of bytes between them.
#pragma once

#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace roundelay::bootstrap {

// One thread at a time may use it, before any lane exists.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  // Returns the value of ROUNDELAY_BOOTSTRAP that chooses it.
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  // Returns the bytes of all ranks, by rank; lengths may differ. All ranks have to call it. Errors:
  // kAborted (not all ranks came by the deadline; the text names the missing ones if they are known).
  virtual Result<std::vector<Bytes>> all_gather(ConstByteSpan mine, Deadline deadline) = 0;
};

}  // namespace roundelay::bootstrap
