// How ranks find each other: who am I, how many are we, and one exchange of bytes.
#pragma once

#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace roundelay::bootstrap {

// Collective over all ranks; called from one thread, before any lane exists.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  // Everyone's bytes, by rank; lengths may differ. Errors: kAborted at the deadline, naming who is missing if
  // known.
  virtual Result<std::vector<Bytes>> all_gather(ConstByteSpan mine, Deadline deadline) = 0;
};

}  // namespace roundelay::bootstrap
