// The means of a technique while it works on one bucket of a lane: the lane's fabric, stream and arithmetic,
// the timeline, and scratch memory, which is kept from one bucket to the next.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "compress/technique.h"
#include "execute/device_buffers.h"

namespace roundelay::execute {

// compress::Workspace describes the functions.
class TechniqueWorkspace final : public compress::Workspace {
 public:
  // `buffers` outlives the workspace.
  explicit TechniqueWorkspace(DeviceBuffers& buffers) : buffers_(buffers) {}

  [[nodiscard]] collective::Fabric& fabric() override { return buffers_.fabric(); }
  [[nodiscard]] GpuStream stream() const override { return buffers_.stream(); }
  [[nodiscard]] compress::Arithmetic& math() override { return buffers_.math(); }
  [[nodiscard]] Result<std::byte*> scratch(std::size_t bytes) override;
  [[nodiscard]] FramePool& frames() override { return buffers_.frames(); }
  void span(std::string_view name) override;

  // Sets the recorder of the next technique's spans; null: they are not recorded.
  void record_to(LaneRecorder* recorder) { recorder_ = recorder; }
  // Ends the span of the technique's own work, if there is one.
  void end_span();
  // Lets the next technique use the scratch memory again. Call it when the technique has ended.
  void reset() {
    used_ = 0;
    span_ = {};
    recorder_ = nullptr;
  }

 private:
  DeviceBuffers& buffers_;
  std::vector<Scratch> scratch_;  // in the order in which a technique asks for it
  std::size_t used_ = 0;          // how many of `scratch_` the technique has
  LaneRecorder* recorder_ = nullptr;
  std::string_view span_{};  // the name of the current span; empty: there is none
  TimePoint began_{};
};

}  // namespace roundelay::execute
