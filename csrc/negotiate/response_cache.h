// The coordinator's response cache: requests that were validated once, by id. Least recently used out.
#pragma once

#include <list>
#include <string>
#include <unordered_map>

#include "wire/messages.h"

namespace roundelay::negotiate {

// Pure. Ids count up from 1 and are never reused.
class ResponseCache {
 public:
  struct Line {
    wire::CacheId id;
    wire::Request request;
  };

  explicit ResponseCache(std::size_t capacity) : capacity_(capacity) {}

  // Null if the id was evicted or never given.
  [[nodiscard]] const wire::Request* find(wire::CacheId id) const;
  [[nodiscard]] bool was_given(wire::CacheId id) const { return id != wire::kNoCacheId && id <= last_id_; }
  // The id of this request, or of one that agrees with it in all that ranks must agree on; else kNoCacheId.
  [[nodiscard]] wire::CacheId id_of(const wire::Request& request) const;
  [[nodiscard]] bool knows(const std::string& name) const { return by_name_.contains(name); }
  void touch(wire::CacheId id);

  // A new id for the request; ids that had to go are appended to `evicted`: the name's old one, and the least
  // recently used for which `in_use(name)` is false. kNoCacheId if there is no room.
  template <typename InUse>
  wire::CacheId insert(const wire::Request& request, InUse in_use, std::vector<wire::CacheId>& evicted) {
    if (capacity_ == 0) return wire::kNoCacheId;
    if (const auto old = by_name_.find(request.name); old != by_name_.end())
      evicted.push_back(erase(old->second));
    if (lines_.size() >= capacity_) {
      auto victim = lines_.end();
      while (victim != lines_.begin()) {
        --victim;
        if (!in_use(victim->request.name)) {
          evicted.push_back(erase(victim));
          break;
        }
      }
      if (lines_.size() >= capacity_) return wire::kNoCacheId;
    }
    lines_.push_front({++last_id_, request});
    by_name_[request.name] = lines_.begin();
    by_id_[last_id_] = lines_.begin();
    return last_id_;
  }

 private:
  using Position = std::list<Line>::iterator;  // the list is in order of use, newest first
  wire::CacheId erase(Position position);

  std::size_t capacity_;
  wire::CacheId last_id_ = wire::kNoCacheId;
  std::list<Line> lines_;
  std::unordered_map<std::string, Position> by_name_;
  std::unordered_map<wire::CacheId, Position> by_id_;
};

}  // namespace roundelay::negotiate
