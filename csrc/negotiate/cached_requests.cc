#include "negotiate/cached_requests.h"

#include <utility>

namespace roundelay::negotiate {

wire::CacheId CachedRequests::id_of(const wire::Request& request) const {
  const auto cached = by_name_.find(request.name);
  return cached != by_name_.end() && cached->second.request == request ? cached->second.id : wire::kNoCacheId;
}

Result<std::string> CachedRequests::name_of(const wire::FusedTensor& tensor) const {
  if (!tensor.name.empty()) return tensor.name;
  const auto found = names_.find(tensor.id);
  if (found == names_.end()) {
    return Status::internal("an order names cache id " + std::to_string(tensor.id) +
                            ", which this rank does not know");
  }
  return found->second;
}

Result<const wire::Request*> CachedRequests::request_of(wire::CacheId id) const {
  const Result<std::string> name = name_of({id, {}});
  if (!name.ok()) return name.status();
  const auto cached = by_name_.find(*name);
  if (cached == by_name_.end() || cached->second.id != id)
    return Status::internal("an order names an outdated submission of '" + *name + "'");
  return &cached->second.request;
}

const std::string& CachedRequests::base_of(wire::CacheId id) const { return by_name_.at(names_.at(id)).base; }

void CachedRequests::set_base(wire::CacheId id, std::string values) {
  if (id != wire::kNoCacheId) by_name_.at(names_.at(id)).base = std::move(values);
}

void CachedRequests::forget_bases() {
  for (auto& [name, cached] : by_name_) cached.base.assign(cached.base.size(), '\0');
}

Status CachedRequests::assign(const wire::FusedTensor& tensor, const wire::Request& request) {
  if (tensor.name.empty() || tensor.id == wire::kNoCacheId) return {};
  if (names_.contains(tensor.id)) {
    return Status::internal("an order assigns cache id " + std::to_string(tensor.id) + " twice");
  }
  by_name_.insert_or_assign(tensor.name,
                            Cached{tensor.id, request, std::string(bytes_of(request.fields), '\0')});
  names_.emplace(tensor.id, tensor.name);
  return {};
}

std::optional<std::string> CachedRequests::evict(wire::CacheId id) {
  const auto found = names_.find(id);
  if (found == names_.end()) return std::nullopt;
  std::string name = std::move(found->second);
  names_.erase(found);
  if (const auto cached = by_name_.find(name); cached != by_name_.end() && cached->second.id == id)
    by_name_.erase(cached);
  return name;
}

}  // namespace roundelay::negotiate
