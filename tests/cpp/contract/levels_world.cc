#include "tests/cpp/contract/levels_world.h"

#include <random>

#include "tests/cpp/catch.h"

namespace roundelay::contract {

std::vector<LevelsMember> start_all(const std::vector<std::unique_ptr<Fabric>>& fabrics, std::size_t count,
                                    Deadline deadline, const AbortToken* abort) {
  std::vector<LevelsMember> members(fabrics.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    members[i].data.assign(count, static_cast<float>(i));
    auto* const memory = reinterpret_cast<std::byte*>(members[i].data.data());
    AllreduceCall call = allreduce_over(memory, count * sizeof(float));
    call.deadline = deadline;
    call.abort = abort;
    auto started = fabrics[i]->start(call);
    REQUIRE(started.ok());
    members[i].pending = std::move(*started);
  }
  return members;
}

void step_to_end(std::vector<LevelsMember>& members, unsigned seed, const std::function<void()>& after) {
  std::mt19937 random(seed);
  while (std::ranges::count(members, false, &LevelsMember::over) > 0) {
    LevelsMember& member = members[random() % members.size()];
    for (unsigned turns = random() % 5 == 0 ? 20 : 1; turns > 0 && !member.over; --turns) {
      const Result<bool> done = member.pending->test();
      if (!done.ok()) member.error = done.status();
      member.over = !done.ok() || *done;
    }
    if (after) after();
  }
}

}  // namespace roundelay::contract
