// The coordinator's response cache: validated requests by id, so that members can report an id instead of a
// request. When it is full, the least recently used request goes.
#pragma once

#include <list>
#include <string>
#include <unordered_map>

#include "wire/messages.h"

namespace roundelay::negotiate {

// Pure. Ids count up from 1 and are never used again.
class ResponseCache {
 public:
  struct Line {
    wire::CacheId id;
    wire::Request request;
    std::string base{};  // an agreement's: its last result under this id; zeros if there was none
  };

  explicit ResponseCache(std::size_t capacity) : capacity_(capacity) {}

  // Returns the request, or null if the id was evicted or never given. The pointer is valid until the next
  // insert().
  [[nodiscard]] const wire::Request* find(wire::CacheId id) const;
  // Returns whether insert() has returned the id, also if it was evicted since.
  [[nodiscard]] bool was_given(wire::CacheId id) const { return id != wire::kNoCacheId && id <= last_id_; }
  // Returns the id of a request of the same name in which mismatch() (negotiate/validate.h) finds no
  // difference, or kNoCacheId.
  [[nodiscard]] wire::CacheId id_of(const wire::Request& request) const;
  [[nodiscard]] bool knows(const std::string& name) const { return by_name_.contains(name); }
  // The base of an agreement (wire::Contribution). base() returns "" for an id that the cache does not have,
  // and set_base() ignores it.
  [[nodiscard]] std::string base(wire::CacheId id) const;
  void set_base(wire::CacheId id, std::string values);
  // Makes all bases zeros: CachedRequests::forget_bases().
  void forget_bases();
  // Makes the id the most recently used one. Does nothing if it was evicted.
  void touch(wire::CacheId id);

  // Adds the request and returns its new id, or kNoCacheId if there is no room. Appends to `evicted` the ids
  // that had to go: the name's old id, and the least recently used id for which `in_use(name)` is false.
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
    lines_.push_front({++last_id_, request, std::string(bytes_of(request.fields), '\0')});
    by_name_[request.name] = lines_.begin();
    by_id_[last_id_] = lines_.begin();
    return last_id_;
  }

 private:
  using Iterator = std::list<Line>::iterator;
  wire::CacheId erase(Iterator position);

  std::size_t capacity_;
  wire::CacheId last_id_ = wire::kNoCacheId;
  std::list<Line> lines_;  // the last one used comes first
  std::unordered_map<std::string, Iterator> by_name_;
  std::unordered_map<wire::CacheId, Iterator> by_id_;
};

}  // namespace roundelay::negotiate
