// Makes and removes process sets in two steps: the ranks agree on the change by an operation, then this rank
// opens or closes its lane of the set.
#pragma once

#include <atomic>
#include <vector>

#include "base/abort.h"
#include "base/annotations.h"
#include "complete/handles.h"
#include "control/negotiator.h"
#include "execute/completer.h"
#include "runtime/session/engine.h"
#include "runtime/session/lane_factory.h"
#include "runtime/session/lane_threads.h"
#include "runtime/session/open_lanes.h"
#include "runtime/session/process_sets.h"
#include "runtime/session/session_parts.h"
#include "runtime/session/set_agreement.h"
#include "runtime/session/user_operations.h"

namespace roundelay::runtime {

// Thread-safe. Makes one change at a time.
class SetChanges {
 public:
  // All of these outlive the SetChanges.
  struct Dependencies {
    const SessionParts& parts;
    const AbortToken& abort;
    execute::Completer& completer;
    ProcessSets& sets;
    OpenLanes& open_lanes;
    LaneFactory& lane_factory;
    LaneThreads& lane_threads;
    control::Negotiator& negotiator;
    Engine& engine;
    UserOperations& operations;
  };
  SetChanges(Dependencies session, ReportFault report_fault);

  // Submit a change to all ranks. The handle is done when all have submitted the same; then they call make()
  // or remove(). Errors: kInvalidArgument (wrong ranks or id; the other ranks get this error too).
  Result<complete::Handle> submit_new(const std::vector<int>& ranks);
  Result<complete::Handle> submit_removal(ProcessSetId id);
  // Submits that no change is to come now: a rank that waits with one gets an error.
  Result<complete::Handle> submit_none() { return session_.operations.submit_change({}, {}); }

  // All ranks of the world call it. Returns the new set's id. Errors: kUnavailable (a member could not make
  // its fabric; the text is the same on all ranks), kAborted.
  Result<ProcessSetId> make(const std::vector<int>& ranks) EXCLUDES(changing_);
  // All ranks of the world call it. Waits until all members have called it and nothing is in flight in the
  // set on this rank. Errors: kInvalidArgument (the set is unknown, being removed, or the world), kAborted.
  Status remove(ProcessSetId id) EXCLUDES(changing_);
  // Makes later calls of make() and remove() return kAborted.
  void refuse() { refusing_.store(true); }
  // Waits for the change in progress. Call it after refuse(), when all operations have failed.
  void wait_until_over() EXCLUDES(changing_) { MutexLock changing(changing_); }

 private:
  // Makes this rank's lane, if it is a member of the set.
  Status open_lane(ProcessSet& set) REQUIRES(changing_);
  // Waits until the lane has got its last order and has done its work.
  Status finish_lane(const execute::Lane& lane, const ProcessSet& set) REQUIRES(changing_);
  // Frees this rank's lane. Operations that are left in it fail with `why`.
  void close_lane(ProcessSet& set, const Status& why) REQUIRES(changing_);

  const Dependencies session_;
  const ReportFault report_fault_;
  SetAgreement agreement_;
  std::atomic<bool> refusing_{false};
  Mutex changing_;  // held during a change; taken before all other locks
};

}  // namespace roundelay::runtime
