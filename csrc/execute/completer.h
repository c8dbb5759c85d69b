// Completes entries: each exactly once, on every path.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "complete/handles.h"
#include "submit/table.h"

namespace roundelay::execute {

// Returns `why` with "(while `what` was under way)" after its message, unless that names it already. The
// cause is the same on all ranks; the addition tells this rank's user which operation it ended.
Status under_way(const Status& why, const std::string& what);

// Thread-safe. It frees the entry's name before it completes the handle: a waiter that wakes may submit the
// name again at once.
class Completer {
 public:
  // The completer calls it for each successful entry with the time of its completion, before the waiter
  // wakes. The timeline records the entry there.
  using Observer = std::function<void(const submit::Entry&, TimePoint)>;

  // `handles` outlives the completer.
  Completer(complete::HandleTable& handles, Observer observe)
      : handles_(handles), observe_(std::move(observe)) {}

  // Completes an extracted entry. If several batches work on an entry, the lane calls it after the last one.
  // A kAborted status gets the operation's name (under_way()). False: the handle was done before.
  bool complete(submit::TensorTable& table, const submit::Entry& entry, const Status& status);
  // Extracts the entry of this name and completes it. False: the table has none.
  bool complete(submit::TensorTable& table, const std::string& name, const Status& status);
  // Closes the table: completes the entries in it with `why` and makes later submissions fail with `why`.
  // Leaves the entries that a lane has extracted: the lane may still write to them, and fails them itself.
  void fail_all(submit::TensorTable& table, const Status& why);

 private:
  complete::HandleTable& handles_;
  Observer observe_;
};

}  // namespace roundelay::execute
