// The bootstrap of a single process without a launcher.
#pragma once

#include "bootstrap/bootstrap.h"

namespace roundelay::bootstrap {

class SingleBootstrap final : public Bootstrap {
 public:
  [[nodiscard]] std::string_view name() const override { return "single"; }
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  Result<std::vector<Bytes>> all_gather(ConstByteSpan mine, Deadline deadline) override;
};

}  // namespace roundelay::bootstrap
