#include "process_group/group_session.h"

#include <cstdint>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/annotations.h"

namespace roundelay::process_group {
namespace {

// Counts the groups of one name in this process: one that was destroyed may be made again in the same store.
// All members count alike, as all of them make their common groups.
std::uint32_t generation_of(const std::string& name) {
  static Mutex mutex;
  static std::map<std::string, std::uint32_t> made;
  MutexLock lock(mutex);
  return ++made[name];
}

// Returns what names a group and the job's restart: a launcher's store may live longer than its workers.
std::string job_of(const std::string& name) {
  std::string job = "process_group/" + name;
  for (const char* variable : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) {
    if (const char* const value = std::getenv(variable)) job += std::string("/") + value;
  }
  return job;
}

// Returns the path of a group's own timeline: "a.json" becomes "a.NAME.json".
std::string timeline_of(const std::string& path, const std::string& name) {
  if (path.empty() || path == "DYNAMIC") return {};
  const std::size_t dot = path.rfind(".json");
  return dot == std::string::npos ? path + "." + name : path.substr(0, dot) + "." + name + path.substr(dot);
}

}  // namespace

Result<std::shared_ptr<GroupSession>> GroupSession::create(std::shared_ptr<bootstrap::KeyValueStore> store,
                                                           Place place, Config config) {
  std::shared_ptr<GroupSession> group(new GroupSession(std::move(store)));
  config.bootstrap = "store";
  config.timeline = timeline_of(config.timeline, place.name);
  runtime::Start start;
  start.generation = generation_of(place.name);
  start.rendezvous = bootstrap::Rendezvous{};
  start.rendezvous->rank = place.rank;
  start.rendezvous->size = place.size;
  start.rendezvous->job = job_of(place.name);
  start.secret = place.secret;
  start.call_order = true;
  auto context = runtime::Context::create(config, &group->backend_, start);
  if (!context.ok()) return context.status();
  group->context_ = std::move(context).value();
  return group;
}

}  // namespace roundelay::process_group
