// A member's view of the response cache: the requests that it can report by id. Pure.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>

#include "base/status.h"
#include "wire/messages.h"

namespace roundelay::negotiate {

// Orders assign and evict ids. All errors are kInternal: the coordinator broke the protocol.
class CachedRequests {
 public:
  // Returns the id that stands for exactly this request, or kNoCacheId.
  [[nodiscard]] wire::CacheId id_of(const wire::Request& request) const;
  // Returns the name of a tensor of an order.
  [[nodiscard]] Result<std::string> name_of(const wire::FusedTensor& tensor) const;
  // Returns the request that the id stands for. The pointer is valid until the next assign() or evict().
  [[nodiscard]] Result<const wire::Request*> request_of(wire::CacheId id) const;

  // Returns the base of the agreement that the id stands for (wire::Contribution). The id has a request.
  [[nodiscard]] const std::string& base_of(wire::CacheId id) const;
  // Makes `values` the base of the agreement that the id stands for. Does nothing for kNoCacheId.
  void set_base(wire::CacheId id, std::string values);

  // Makes the bases of all agreements zeros. Call it when a schedule lock ends: the results under the lock
  // are not in the bases. The coordinator does the same with this order.
  void forget_bases();

  // Keeps the request under the id that the order assigns to the tensor, if it assigns one. `request` is this
  // rank's own.
  Status assign(const wire::FusedTensor& tensor, const wire::Request& request);
  // Forgets the id. Returns its name; nothing if this rank does not know the id.
  std::optional<std::string> evict(wire::CacheId id);

 private:
  struct Cached {
    wire::CacheId id;
    wire::Request request;
    std::string base{};  // an agreement's: its last result under this id; zeros if there was none
  };

  std::unordered_map<std::string, Cached> by_name_;  // a name's newest id
  std::unordered_map<wire::CacheId, std::string> names_;
};

}  // namespace roundelay::negotiate
