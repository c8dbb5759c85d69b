#include "adapter/process.h"

#include <atomic>
#include <utility>

#include "adapter/operand.h"
#include "base/annotations.h"

namespace roundelay::adapter {
namespace {

// Horovod's text; programs look for it.
constexpr const char* kNotInitialized = "Horovod has not been initialized; use hvd.init().";

struct Process {
  Mutex mutex;  // held for a moment only, and never while a thread takes the GIL
  std::shared_ptr<runtime::Context> context GUARDED_BY(mutex);
  Operands operands;
  Accelerator accelerator;
  std::atomic<bool> forked{false};
};

// Never destroyed: at exit, and in a forked child, other threads may still use it or hold its lock.
Process& process() {
  static auto& process = *new Process;
  return process;
}

}  // namespace

Result<std::shared_ptr<runtime::Context>> current_context() {
  ROUNDELAY_RETURN_IF_ERROR(refuse_in_child());
  MutexLock lock(process().mutex);
  if (!process().context) return Status::invalid(kNotInitialized);
  return process().context;
}

std::shared_ptr<runtime::Context> exchange_context(std::shared_ptr<runtime::Context> context) {
  MutexLock lock(process().mutex);
  return std::exchange(process().context, std::move(context));
}

bool has_context() {
  if (process().forked) return false;
  MutexLock lock(process().mutex);
  return process().context != nullptr;
}

void note_fork() { process().forked = true; }

Status refuse_in_child() {
  if (!process().forked) return {};
  return Status::unavailable(
      "Roundelay was initialized in the parent process and cannot be used in a forked child; start processes "
      "with the 'spawn' or 'forkserver' method");
}

Operands& operands() { return process().operands; }

void reclaim_operands() { process().operands.reclaim().clear(); }

Accelerator& accelerator() { return process().accelerator; }

}  // namespace roundelay::adapter
