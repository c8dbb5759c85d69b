// Sessions with threads as ranks, on one node or several, whose steps repeat. They use the whole schedule
// lock at once, for TSan too.
#include <random>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/locking_world.h"

namespace roundelay::contract {
namespace {

using runtime::Session;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Acts like an optimizer: submits some tensors, flushes, and waits for each.
std::string step(Session& session, int rank, int size, int tensors) {
  std::vector<Flight> flights(static_cast<std::size_t>(tensors));
  for (int i = 0; i < tensors; ++i) {
    Flight& flight = flights[static_cast<std::size_t>(i)];
    flight.data.assign(64, static_cast<float>((rank + 1) * (i + 1)));
    if (const Status s = take_off(session, "t" + std::to_string(i), flight); !s.ok()) return s.message();
  }
  session.end_linger();
  for (int i = 0; i < tensors; ++i) {
    std::string wrong = land(session, flights[static_cast<std::size_t>(i)],
                             static_cast<float>(size * (size + 1) / 2 * (i + 1)));
    if (!wrong.empty()) return wrong;
  }
  return {};
}

TEST_CASE("steps that repeat need no message at all", "[session][lock]") {
  const int size = GENERATE(2, 3);
  const int nodes = GENERATE(1, 2);
  LockingWorld world(size, one_by_one(), nodes);
  const auto steps = [&](int number) {
    world.run([&](Session& session, int rank) -> std::string {
      for (int i = 0; i < number; ++i) {
        if (std::string wrong = step(session, rank, size, 3); !wrong.empty()) return wrong;
      }
      return {};
    });
  };
  steps(30);
  const std::int64_t locked = world.count(0, "locked_operations");
  const std::int64_t orders = world.count(0, "orders_given");  // messages may be answers to clock pings, too
  const bool holds = world.count(0, "schedule_locks") > world.count(0, "schedule_unlocks");
  steps(20);
  if (holds && world.count(0, "schedule_locks") == 1 && world.count(0, "schedule_unlocks") == 0) {
    CHECK(world.count(0, "locked_operations") == locked + 60);
    CHECK(world.count(0, "orders_given") == orders);
  }
  CHECK(world.count(0, "schedule_locks") > 0);
  CHECK(world.count(0, "locked_operations") > 0);
  world.shutdown();
}

TEST_CASE("surprises of all kinds in a locked schedule", "[session][lock]") {
  constexpr int kSize = 3;
  LockingWorld world(kSize, one_by_one(), GENERATE(1, 2));
  world.run([&](Session& session, int rank) -> std::string {
    for (int i = 0; i < 120; ++i) {
      if (std::string wrong = step(session, rank, kSize, 2); !wrong.empty()) return wrong;
      if (i == 30 || i == 31) {
        if (std::string wrong = sum_once(session, rank, "metric", kSize); !wrong.empty()) return wrong;
      }
      if (i == 60) {
        Flight flight{std::vector<float>(rank == 1 ? 5 : 64, 1.0F)};
        if (const Status s = take_off(session, "t0", flight); !s.ok()) return s.message();
        const auto status = session.wait(flight.handle, Deadline::never());
        if (!status || status->code() != StatusCode::kMismatch) return "shapes that differ went through";
      }
    }
    return {};
  });
  CHECK(world.count(0, "schedule_unlocks") > 0);
  for (int rank = 1; rank < kSize; ++rank)
    CHECK(world.count(rank, "locked_operations") == world.count(0, "locked_operations"));
  world.shutdown();
}

TEST_CASE("several threads of each rank use a locked schedule at once", "[session][lock]") {
  constexpr int kSize = 2;
  LockingWorld world(kSize, one_by_one(), GENERATE(1, 2));
  world.run([&](Session& session, int rank) {
    return in_threads(
        3, 60, [&](std::size_t t) { return sum_once(session, rank, "thread " + std::to_string(t), kSize); });
  });
  world.shutdown();
}

// Each thread waits for its own sum. They end one after the other, while the rest go on.
TEST_CASE("threads of equal loops go on when one of them ends", "[session][lock]") {
  const int size = GENERATE(2, 3);
  Config config;
  config.log_level = LogLevel::kError;
  LockingWorld world(size, config, GENERATE(1, 2));
  world.run([&](Session& session, int rank) {
    return in_threads(4, 1, [&](std::size_t thread) -> std::string {
      for (std::size_t round = 0; round < 200 + 40 * thread; ++round) {
        const bool blocking = thread % 2 == 0;
        const std::string wrong = sum_once(session, rank, "loop " + std::to_string(thread), size, blocking);
        if (!wrong.empty()) return wrong;
      }
      return {};
    });
  });
  for (int rank = 1; rank < size; ++rank)
    CHECK(world.count(rank, "locked_operations") == world.count(0, "locked_operations"));
  world.shutdown();
}

// A thread of the peer stops for a moment. The others must not be forgotten.
TEST_CASE("threads whose peer is late by seconds", "[session][lock][slow]") {
  LockingWorld world(2, {}, GENERATE(1, 2));
  world.run([&](Session& session, int rank) {
    return in_threads(4, 400, [&](std::size_t thread) -> std::string {
      thread_local int round = 0;
      if (++round == 200 && thread == 1 && rank == 1) std::this_thread::sleep_for(milliseconds(1500));
      return sum_once(session, rank, "late " + std::to_string(thread), 2);
    });
  });
  world.shutdown();
}

TEST_CASE("blocking calls of one name, and polled ones, go by schedule", "[session][lock]") {
  LockingWorld world(2, one_by_one(), GENERATE(1, 2));
  world.run([](Session& session, int) -> std::string {
    for (int round = 0; round < 60; ++round) {
      Flight flight{std::vector<float>(8, 2.0F)};
      flight.blocking = round % 2 == 0;
      if (const Status s = take_off(session, "p", flight); !s.ok()) return s.message();
      const Deadline limit = Deadline::after(seconds(60));
      while (!flight.blocking && !*session.poll(flight.handle)) {
        if (limit.passed()) return "polled for a minute";
        std::this_thread::yield();
      }
      if (std::string wrong = land(session, flight, 4.0F); !wrong.empty()) return wrong;
    }
    return {};
  });
  CHECK(world.count(1, "locked_operations") > 20);
  world.shutdown();
}

TEST_CASE("a peer that is late ends the lock, and is waited for", "[session][lock][slow]") {
  LockingWorld world(2, one_by_one(), GENERATE(1, 2));
  world.run([&](Session& session, int rank) -> std::string {
    for (int round = 0; round < 12; ++round) {
      // Rank 1 is late until the lock has ended.
      const Deadline limit = Deadline::after(seconds(60));
      while (round == 10 && rank == 1 && world.count(1, "schedule_unlocks") == 0 && !limit.passed())
        std::this_thread::sleep_for(milliseconds(10));
      if (std::string wrong = sum_once(session, rank, "late", 2); !wrong.empty()) return wrong;
    }
    return {};
  });
  CHECK(world.count(0, "schedule_unlocks") == 1);
  CHECK(world.count(1, "schedule_unlocks") == 1);
  world.shutdown();
}

TEST_CASE("a rank that leaves a locked schedule ends it for all", "[session][lock]") {
  LockingWorld world(3, one_by_one(), GENERATE(1, 2, 3));
  world.run([](Session& session, int rank) -> std::string {
    for (int round = 0; round < 20; ++round) {
      if (std::string wrong = sum_once(session, rank, "x", 3); !wrong.empty()) return wrong;
    }
    if (rank == 2) {
      session.shutdown();
      return {};
    }
    const std::string wrong = sum_once(session, rank, "x", 3);
    return wrong.find("rank 2 has called shutdown()") != std::string::npos ? "" : "it ended with: " + wrong;
  });
  world.shutdown();
}

TEST_CASE("a coordinator that stops under a lock is named", "[session][lock][slow]") {
  Config config = one_by_one();
  config.stall_check_time = seconds(1);
  config.stall_shutdown_time = seconds(3);  // before the lock, no rank is so late on a busy machine
  const int stopped = GENERATE(0, 1);
  LockingWorld world(2, config, GENERATE(1, 2));
  world.run([&](Session& session, int rank) -> std::string {
    for (int round = 0; round < 20; ++round) {
      if (std::string wrong = sum_once(session, rank, "x", 2); !wrong.empty()) return wrong;
    }
    if (rank == stopped) {
      world.stop(rank);
      return {};
    }
    const std::string wrong = sum_once(session, rank, "x", 2);
    const std::string name = "rank " + std::to_string(stopped);
    return wrong.find(name) != std::string::npos ? "" : "it ended with: " + wrong;
  });
  for (auto& one : world.stopped) one = false;
  world.shutdown();
}

}  // namespace
}  // namespace roundelay::contract
