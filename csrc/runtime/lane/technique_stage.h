// The means of a technique while it works on one bucket of a lane: the lane's fabric, stream and arithmetic,
// and scratch memory, which is kept from one bucket to the next.
#pragma once

#include <cstddef>
#include <vector>

#include "compress/technique.h"
#include "runtime/lane/device_buffers.h"

namespace roundelay::runtime {

// compress::Stage describes the functions.
class TechniqueStage final : public compress::Stage {
 public:
  // `buffers` outlives the stage.
  explicit TechniqueStage(DeviceBuffers& buffers) : buffers_(buffers) {}

  [[nodiscard]] collective::Fabric& fabric() override { return buffers_.fabric(); }
  [[nodiscard]] GpuStream stream() const override { return buffers_.stream(); }
  [[nodiscard]] compress::Arithmetic& math() override { return buffers_.math(); }
  [[nodiscard]] Result<std::byte*> scratch(std::size_t bytes) override;
  [[nodiscard]] FramePool& frames() override { return buffers_.frames(); }

  // Lets the next technique use the scratch memory again. Call it when the technique has ended.
  void reset() { used_ = 0; }

 private:
  DeviceBuffers& buffers_;
  std::vector<Scratch> scratch_;  // in the order in which techniques ask
  std::size_t used_ = 0;          // pieces of `scratch_`
};

}  // namespace roundelay::runtime
