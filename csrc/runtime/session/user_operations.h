// Operations as the program's threads see them: submit, then wait or poll.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/gpu_runtime.h"
#include "complete/handles.h"
#include "control/control_inbox.h"
#include "execute/lane.h"
#include "runtime/context.h"
#include "runtime/session/engine.h"
#include "runtime/session/process_sets.h"
#include "wire/messages.h"

namespace roundelay::runtime {

// Thread-safe. runtime/context.h describes the functions that have no comment here.
class UserOperations {
 public:
  // `gpu_runtime`: null if this build has no CUDA part. The references outlive this object.
  UserOperations(ProcessSets& sets, complete::HandleTable& handles, Engine& engine,
                 control::ControlInbox& inbox, GpuRuntime* gpu_runtime)
      : sets_(sets), handles_(handles), engine_(engine), inbox_(inbox), gpu_runtime_(gpu_runtime) {}

  Result<complete::Handle> submit(submit::Arguments&& arguments, Route route);
  Result<complete::Handle> call(submit::Arguments&& arguments, bool blocking);
  void submit_error(ProcessSetId process_set, wire::Request request);
  Result<RegionPtr> make_region(ProcessSetId process_set, std::uint64_t key, std::size_t bytes, int gpu);

  // Submits to all ranks that a process set is to be made or removed. `request` has its ranks, and as its
  // root the set to remove. If `wrong` is not empty, the other ranks get it as this rank's error, and it is
  // returned as kInvalidArgument.
  Result<complete::Handle> submit_change(wire::Request request, const std::string& wrong);

  Result<bool> poll(complete::Handle handle) const;
  std::optional<Status> wait(complete::Handle handle, Deadline deadline);
  void end_linger();

 private:
  std::string refuse_gpu(int index);
  Result<complete::Handle> add(execute::Lane& lane, submit::Entry entry, bool blocking);
  void add_error(execute::Lane& lane, wire::Request request);
  bool wait_until_done(complete::Handle handle, Deadline deadline);
  [[nodiscard]] bool anything_lingers() const;

  ProcessSets& sets_;
  complete::HandleTable& handles_;
  Engine& engine_;
  control::ControlInbox& inbox_;
  GpuRuntime* const gpu_runtime_;
  std::atomic<int> gpu_{-1};  // the process's GPU; -1: no operation has used one yet
};

}  // namespace roundelay::runtime
