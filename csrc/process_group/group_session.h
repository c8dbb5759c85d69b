// A process group: the session in which its members' calls are carried out, in call order.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/config.h"
#include "base/status.h"
#include "collective/point_to_point/point_to_point.h"
#include "process_group/store.h"
#include "process_group/store_backend.h"
#include "runtime/context.h"
#include "trust/trust.h"

namespace roundelay::process_group {

// Thread-safe. Each group has connections, shared memory and threads of its own, so that what one group waits
// for never holds up another.
class GroupSession {
 public:
  struct Place {
    int rank;
    int size;
    std::string name;  // torch.distributed's: differs between groups that share a store
    trust::Key secret;
  };
  // All members call it. Errors: as Context::create().
  static Result<std::shared_ptr<GroupSession>> create(std::shared_ptr<C10dStore> store, const Place& place,
                                                      Config config);

  // Makes a group of some members of this one, with its settings. All members of the new one call it.
  [[nodiscard]] Result<std::shared_ptr<GroupSession>> split(std::shared_ptr<C10dStore> store, int rank,
                                                            int size, const std::string& name) const;

  [[nodiscard]] runtime::Context& context() { return *context_; }
  // Ends communication for all members: the user has called abort(). Calls that wait end at once, in all
  // threads.
  void abort();
  // Takes the messages between members; null if there is one member.
  [[nodiscard]] std::unique_ptr<collective::PointToPoint> take_messages() {
    return context_->take_messages();
  }

 private:
  GroupSession(std::shared_ptr<C10dStore> store, const trust::Key& secret, Config config)
      : secret_(secret), config_(std::move(config)), backend_(std::move(store)) {}

  const trust::Key secret_;
  const Config config_;
  StoreBackend backend_;
  std::unique_ptr<runtime::Context> context_;
};

}  // namespace roundelay::process_group
