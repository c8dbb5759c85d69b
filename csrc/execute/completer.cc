#include "execute/completer.h"

namespace roundelay::execute {

Status under_way(const Status& why, const std::string& what) {
  if (why.message().find(what) != std::string::npos) return why;  // this operation is the cause
  return {why.code(), why.message() + " (while " + what + " was under way)"};
}

bool Completer::complete(submit::TensorTable& table, const submit::Entry& entry, const Status& status) {
  const TimePoint now = steady_now();
  if (status.ok()) observe_(entry, now);
  table.release(entry.request.name);
  const bool cut_short = status.code() == StatusCode::kAborted;
  const Status outcome = cut_short ? under_way(status, entry.describe()) : status;
  if (entry.results != nullptr) entry.results->set_over(outcome);
  return handles_.complete(entry.handle, outcome, now);
}

bool Completer::complete(submit::TensorTable& table, const std::string& name, const Status& status) {
  const auto entry = table.extract(name);
  return entry != nullptr && complete(table, *entry, status);
}

void Completer::fail_all(submit::TensorTable& table, const Status& why) {
  for (const auto& entry : table.close(why)) complete(table, *entry, why);
}

}  // namespace roundelay::execute
