#include "negotiate/response_cache.h"

#include <utility>

#include "negotiate/validate.h"

namespace roundelay::negotiate {

const wire::Request* ResponseCache::find(wire::CacheId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second->request;
}

wire::CacheId ResponseCache::id_of(const wire::Request& request) const {
  const auto found = by_name_.find(request.name);
  const bool same = found != by_name_.end() && mismatch(found->second->request, 0, request, 0).empty();
  return same ? found->second->id : wire::kNoCacheId;
}

std::string ResponseCache::base(wire::CacheId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? std::string() : found->second->base;
}

void ResponseCache::set_base(wire::CacheId id, std::string values) {
  const auto found = by_id_.find(id);
  if (found != by_id_.end()) found->second->base = std::move(values);
}

void ResponseCache::forget_bases() {
  for (Line& line : lines_) line.base.assign(line.base.size(), '\0');
}

void ResponseCache::touch(wire::CacheId id) {
  const auto found = by_id_.find(id);
  if (found != by_id_.end()) lines_.splice(lines_.begin(), lines_, found->second);
}

wire::CacheId ResponseCache::erase(Iterator position) {
  const wire::CacheId id = position->id;
  by_id_.erase(id);
  by_name_.erase(position->request.name);
  lines_.erase(position);
  return id;
}

}  // namespace roundelay::negotiate
