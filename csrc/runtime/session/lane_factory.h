// Makes the lanes of one session.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "base/abort.h"
#include "control/control_inbox.h"
#include "execute/completer.h"
#include "execute/lane.h"
#include "gpu/gpu_sequencer.h"
#include "runtime/session/session_parts.h"
#include "timeline/timeline.h"

namespace roundelay::runtime {

// Returns the size limit of a fused operation, in bytes, in a job of `ranks` ranks. 0: nothing is fused.
std::size_t fusion_threshold(const Config& config, int ranks);

// Thread-safe.
class LaneFactory {
 public:
  // All lanes of a session use these objects, which outlive the lanes.
  struct Shared {
    execute::Completer& completer;
    timeline::Timeline& timeline;
    const AbortToken& abort;
    control::ControlInbox& inbox;  // gets the lanes' faults
  };

  // `ticket_came`: wakes the lanes with work, as an operation's turn on the GPU may have come
  // (gpu/gpu_sequencer.h). `parts` outlives the factory.
  LaneFactory(const SessionParts& parts, Shared shared, std::function<void()> ticket_came)
      : parts_(parts), shared_(shared), sequencer_(std::move(ticket_came)) {}

  // Makes a lane of this session's configuration. `threads`: lanes have threads of their own. Without them a
  // lane cannot lock schedules, as the one thread sleeps in the channel, where announcements do not wake it.
  // `medium`: for tensors on GPUs; may be null.
  std::shared_ptr<execute::Lane> make(LaneId id, execute::LaneFabrics fabrics, DeviceMediumPtr medium,
                                      bool threads);

 private:
  const SessionParts& parts_;
  const Shared shared_;
  gpu::GpuSequencer sequencer_;
};

}  // namespace roundelay::runtime
