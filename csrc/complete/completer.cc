#include "complete/completer.h"

namespace roundelay::complete {

bool Completer::complete(submit::TensorTable& table, std::shared_ptr<submit::Entry> entry,
                         const Status& status) {
  if (status.ok()) observe_(*entry);
  table.release(entry->request.name);
  return handles_.complete(entry->handle, status);
}

bool Completer::complete(submit::TensorTable& table, const std::string& name, const Status& status) {
  auto entry = table.extract(name);
  return entry != nullptr && complete(table, std::move(entry), status);
}

void Completer::fail_all(submit::TensorTable& table, const Status& why) {
  for (auto& entry : table.close(why)) complete(table, std::move(entry), why);
}

}  // namespace roundelay::complete
