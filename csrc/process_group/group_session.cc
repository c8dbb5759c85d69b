#include "process_group/group_session.h"

#include <cstdint>
#include <cstdlib>
#include <utility>

namespace roundelay::process_group {
namespace {

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

Result<std::shared_ptr<GroupSession>> GroupSession::create(std::shared_ptr<C10dStore> store,
                                                           const Place& place, Config config) {
  const std::string job = job_of(place.name);
  // A group that was destroyed may be made again in the same store.
  const Result<std::uint32_t> generation = store->count_group(job, place.size);
  if (!generation.ok()) return generation.status();
  std::shared_ptr<GroupSession> group(new GroupSession(std::move(store), place.secret, config));
  config.bootstrap = "store";
  config.timeline = timeline_of(config.timeline, place.name);
  runtime::Start start;
  start.generation = *generation;
  start.rendezvous = bootstrap::Rendezvous{};
  start.rendezvous->rank = place.rank;
  start.rendezvous->size = place.size;
  start.rendezvous->job = job;
  start.secret = place.secret;
  start.call_order = true;
  auto context = runtime::Context::create(config, &group->backend_, start);
  if (!context.ok()) return context.status();
  group->context_ = std::move(context).value();
  return group;
}

Result<std::shared_ptr<GroupSession>> GroupSession::split(std::shared_ptr<C10dStore> store, int rank,
                                                          int size, const std::string& name) const {
  return create(std::move(store), {rank, size, name, secret_}, config_);
}

void GroupSession::abort() {
  const std::string rank = std::to_string(context_->rank_info().rank);
  context_->fail("rank " + rank + " has aborted the group by abort()");
}

}  // namespace roundelay::process_group
