// A rank dies while NCCL's communicator is being made, in the first operation on GPUs. All others must get an
// error in time that names it.
#include <atomic>
#include <random>
#include <thread>

#include "tests/cpp/effort.h"
#include "tests/cpp/gpu/gpu_trip.h"
#include "tests/cpp/in_time.h"

namespace roundelay::contract {
namespace {

constexpr int kRanks = 3;
constexpr int kCalls = 12;  // of ready(), after all have joined

// The victim dies at the beginning of its call of ready() with this number.
struct Death {
  int victim, call;
  std::atomic<bool> died{false};
  TimePoint at{};

  // Ends the victim's process: it sends and receives nothing more, and its connections close.
  void happen(SessionWorld& world) {
    at = steady_now();
    world.stop(victim);
    world.control.disconnect(victim);
    died = true;
  }
};

// Returns what is wrong with the end of a rank's first operation.
std::string first_operation(const Death& death, runtime::Session& session, Device& device, int rank) {
  GpuTrip trip(device, filled<float>({1000}, 1.0F));
  Status status = trip.start(session, request_of(Operation::kAllreduce, "first"));
  session.end_linger();
  if (rank == death.victim) {
    while (!death.died) std::this_thread::yield();
    session.fail("its own end");  // lets the test's thread go on
  }
  if (status.ok()) status = trip.wait(session);
  if (rank == death.victim) return {};
  const std::string expected = "rank " + std::to_string(death.victim) + " is gone";
  return status.message().find(expected) != std::string::npos ? "" : "said: " + status.message();
}

void check_death(int victim, int call) {
  INFO("rank " << victim << " dies in call " << call);
  Config config;
  config.log_level = LogLevel::kError;
  GpuWorld world(kRanks, "nccl", true, true, config);
  Death death{victim, call};
  for (auto& device : world.devices) device->nccl.be_slow(kCalls);
  world.devices[static_cast<std::size_t>(victim)]->nccl.be_slow(kCalls, [&](int now) {
    if (now == call) death.happen(*world.sessions);
  });
  world.run([&](runtime::Session& session, Device& device, int rank) {
    return first_operation(death, session, device, rank);
  });
  testing::expect_within(std::chrono::seconds(5), steady_now() - death.at);
  for (auto& one : world.sessions->stopped) one = false;
  world.shutdown();
}

TEST_CASE("who dies while a communicator is being made is named by all others", "[session][gpu]") {
  std::mt19937 random(43);
  for (int run = 0; run < testing::seeds(24); ++run)
    check_death(run % 2 == 0 ? 0 : kRanks - 1, static_cast<int>(random() % (kCalls + 1)));
}

}  // namespace
}  // namespace roundelay::contract
