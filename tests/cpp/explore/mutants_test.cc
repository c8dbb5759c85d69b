// The explorer finds faults: a broadcast, an all-gather and a sleeper, each with one wrong line.
#include <cstring>

#include "collective/shm/chunks.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/explore/chunk_scene.h"

namespace roundelay::explore {
namespace {

using collective::Call;
using collective::Program;
using collective::shm::Cuts;
using collective::shm::Doorbell;
using collective::shm::Rounds;

enum class Fault : unsigned char { kNone, kSlotStillRead, kStagedEarly, kReleasedEarly, kNeverStaged };

template <Fault kFault>
Program broadcast(Rounds& net, const collective::BroadcastCall& call) {
  const Cuts chunks{call.buffer.size(), net.slot_bytes()};
  for (std::uint64_t round = 0; round < chunks.count(); ++round) {
    std::byte* const here = call.buffer.data() + chunks[round].offset;
    if (net.index() == call.root) {
      if (kFault != Fault::kSlotStillRead) co_await net.writable(round);
      if (kFault == Fault::kStagedEarly) net.stage(round);
      std::memcpy(net.slot(round), here, chunks[round].bytes);
      if (kFault != Fault::kStagedEarly && kFault != Fault::kNeverStaged) net.stage(round);
    } else {
      co_await net.staged(call.root, round);
      if (kFault == Fault::kReleasedEarly) net.release(round);
      std::memcpy(here, net.slot_of(call.root, round), chunks[round].bytes);
    }
    net.release(round);
  }
}

template <Fault kFault>
Report broadcasts() {
  Script script;
  script.calls = {{Operation::kBroadcast, {90}}, {Operation::kBroadcast, {70}}};
  script.program = [](const Call& call, Rounds& net) {
    return broadcast<kFault>(net, std::get<collective::BroadcastCall>(call));
  };
  ChunkScene scene(script);
  return explore(scene);
}

// An all-gather in a region. With its fault it ends while others may still read.
template <bool kWaitsForReaders>
Program all_gather(Rounds& net, const collective::AllgatherCall& call) {
  net.stage(0);
  const int other = 1 - net.index();
  co_await net.staged(other, 0);
  const std::size_t place = other == 0 ? 0 : call.receive_bytes.front();
  std::memcpy(call.output.data() + place, call.region->parts[static_cast<std::size_t>(other)] + place,
              call.receive_bytes[static_cast<std::size_t>(other)]);
  net.stage(1);
  if (kWaitsForReaders) co_await net.staged(1);
}

template <bool kWaitsForReaders>
Report all_gathers() {
  Script script;
  const Planned planned{Operation::kAllgather, {5, 7}, {}, 0, true};
  script.calls = {planned, planned};
  script.program = [](const Call& call, Rounds& net) {
    return all_gather<kWaitsForReaders>(net, std::get<collective::AllgatherCall>(call));
  };
  ChunkScene scene(script);
  return explore(scene);
}

Report barrier_asleep(void (*sleep)(Rounds&, Doorbell&)) {
  Script script;
  script.calls = {{Operation::kBarrier, {}}};
  script.sleep = sleep;
  ChunkScene scene(script);
  return explore(scene);
}

TEST_CASE("faults of a program are found", "[explore][mutants]") {
  using Catch::Matchers::StartsWith;
  CHECK(broadcasts<Fault::kNone>().complaint == "");
  CHECK_THAT(broadcasts<Fault::kSlotStillRead>().complaint, StartsWith("a wrong result"));
  CHECK_THAT(broadcasts<Fault::kStagedEarly>().complaint, StartsWith("a wrong result"));
  CHECK_THAT(broadcasts<Fault::kReleasedEarly>().complaint, StartsWith("a wrong result"));
  CHECK_THAT(broadcasts<Fault::kNeverStaged>().complaint, StartsWith("nobody moves any more"));
}

TEST_CASE("a region that is still read is found", "[explore][mutants]") {
  using Catch::Matchers::StartsWith;
  CHECK(all_gathers<true>().complaint == "");
  CHECK_THAT(all_gathers<false>().complaint, StartsWith("a wrong result"));
}

TEST_CASE("faults of a sleeper are found", "[explore][mutants]") {
  using Catch::Matchers::StartsWith;
  CHECK(barrier_asleep(nap).complaint == "");
  // This sleeper does not look once more after it has told its peers that it sleeps.
  const Report blind = barrier_asleep([](Rounds&, Doorbell& own) {
    const std::uint32_t seen = own.rings.load();
    own.asleep.store(1);
    futex_wait(own.rings, seen, std::chrono::seconds(1));
  });
  CHECK_THAT(blind.complaint, StartsWith("nobody moves any more"));
  // This sleeper reads the doorbell when the doorbell may have rung already.
  const Report late = barrier_asleep([](Rounds& rounds, Doorbell& own) {
    own.asleep.store(1);
    if (rounds.all_done()) return;
    futex_wait(own.rings, own.rings.load(), std::chrono::seconds(1));
  });
  CHECK_THAT(late.complaint, StartsWith("nobody moves any more"));
}

}  // namespace
}  // namespace roundelay::explore
