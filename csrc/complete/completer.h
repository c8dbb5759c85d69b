// Completion of entries: each exactly once, on every path; the first cause reaches all of them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "submit/handles.h"
#include "submit/table.h"

namespace roundelay::complete {

// `why`, with what it cut short: the cause is the same on all ranks, this part is about the one that reads
// it.
Status under_way(const Status& why, const std::string& what);

// Thread-safe. The name is free again before the handle is done, so that a waiter that was woken may submit
// it again at once.
class Completer {
 public:
  // `observe` sees each successfully completed entry, and when that was, before its waiter does (timeline).
  using Observer = std::function<void(const submit::Entry&, TimePoint)>;

  Completer(submit::HandleTable& handles, Observer observe)
      : handles_(handles), observe_(std::move(observe)) {}

  // An entry that several batches work on is completed by the last of them. What a fault (kAborted) cuts
  // short says which operation it was. False if the handle was done before.
  bool complete(submit::TensorTable& table, const submit::Entry& entry, const Status& status);
  // The same for an entry that nobody has extracted; false if there is none.
  bool complete(submit::TensorTable& table, const std::string& name, const Status& status);
  // What waits in the table fails with `why`, and so does whatever is submitted from now on. Entries that a
  // lane has extracted are the lane's to fail: it may still be writing to them.
  void fail_all(submit::TensorTable& table, const Status& why);

 private:
  submit::HandleTable& handles_;
  Observer observe_;
};

}  // namespace roundelay::complete
