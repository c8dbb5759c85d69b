// Agreements of sessions with threads as ranks.
#include <string>
#include <vector>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/agreeing.h"
#include "tests/cpp/contract/locking_world.h"
#include "tests/cpp/contract/session_trip.h"

namespace roundelay::contract {
namespace {

using runtime::Session;

const std::vector<AgreementField> kFields = {
    {Merge::kEqual, 4}, {Merge::kAnd, 1}, {Merge::kOr, 1}, {Merge::kMax, 1}, {Merge::kRoot, 2}};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Returns a rank's values in a step: only the last rank's first field differs, in every third step.
std::string values_of(int rank, int size, int step) {
  const char wrong = step % 3 == 2 && rank == size - 1 ? '!' : '=';
  const char number = static_cast<char>('0' + (step + rank) % 10);
  return std::string("sam") + wrong + static_cast<char>(0xFF ^ (1 << (rank % 8))) +
         static_cast<char>(1 << (rank % 8)) + number + static_cast<char>('a' + rank) + number;
}

Agreed expected_of(int size, int step, int root) {
  Agreed expected{"sam=", {}, {}};
  char all = '\xff', any = 0, most = '0';
  for (int rank = 0; rank < size; ++rank) {
    const std::string values = values_of(rank, size, step);
    all = static_cast<char>(all & values[4]);
    any = static_cast<char>(any | values[5]);
    most = std::max(most, values[6]);
  }
  expected.values += {all, any, most};
  expected.values += values_of(root, size, step).substr(7);
  if (step % 3 == 2) expected.differences = {{0, 0, size - 1, "sam=", "sam!"}};
  return expected;
}

std::string agree_in_steps(Session& session, int rank, int size, int steps) {
  for (int step = 0; step < steps; ++step) {
    Agreement agreement("a", kFields, size - 1);
    const Status status = agreement.run(session, values_of(rank, size, step));
    if (std::string wrong = expect(agreement, status, expected_of(size, step, size - 1)); !wrong.empty())
      return "step " + std::to_string(step) + ": " + wrong;
    if (std::string wrong = sum_once(session, rank, "w", size); !wrong.empty()) return wrong;
  }
  return {};
}

TEST_CASE("ranks agree on values that change, beside other operations", "[session][agreement]") {
  const int size = GENERATE(2, 3, 4);
  Config config;
  config.cache_capacity = GENERATE(0, 1, 1024);
  SECTION("without shared memory") {
    SessionWorld world(size, config);
    world.run([&](Session& session, int rank) { return agree_in_steps(session, rank, size, 30); });
    world.shutdown();
  }
  SECTION("in shared memory") {
    config.log_level = LogLevel::kError;
    LockingWorld world(size, config);
    world.run([&](Session& session, int rank) { return agree_in_steps(session, rank, size, 60); });
    world.shutdown();
  }
}

TEST_CASE("a rank alone agrees with itself", "[session][agreement]") {
  SessionWorld world(1);
  world.run([](Session& session, int) -> std::string {
    Agreement agreement("a", kFields, 0);
    const Status status = agreement.run(session,
                                        "same\xff\x01"
                                        "3xy");
    return expect(agreement, status,
                  {"same\xff\x01"
                   "3xy",
                   {},
                   {}});
  });
  world.shutdown();
}

TEST_CASE("agreements wait in flight beside others, and go on without joined ranks", "[session][agreement]") {
  constexpr int kSize = 3;
  SessionWorld world(kSize);
  world.run([](Session& session, int rank) -> std::string {
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int step = 0; step < 3 + rank; ++step) {
        const int first = step < 3 ? 0 : step - 2;  // lower ranks have joined
        Agreement most("most", {{Merge::kMax, 1}});
        Agreement low("lowest", {{Merge::kEqual, 1}, {Merge::kRoot, 1}}, 0);
        Status status = most.start(session, std::string(1, static_cast<char>('a' + rank)));
        if (status.ok()) status = low.start(session, std::to_string(rank) + "r");
        if (!status.ok()) return status.message();
        Agreed expected{"c", {}, {}};
        for (int absent = 0; absent < first; ++absent) expected.absent.push_back(absent);
        std::string wrong = expect(most, most.finish(session), expected);
        expected.values = std::to_string(first) + (first == 0 ? 'r' : '\0');
        if (first < kSize - 1)
          expected.differences = {{0, first, first + 1, std::to_string(first), std::to_string(first + 1)}};
        if (wrong.empty()) wrong = expect(low, low.finish(session), expected);
        if (!wrong.empty()) return "step " + std::to_string(step) + ": " + wrong;
      }
      const auto last = join(session);
      if (!last.ok()) return last.status().message();
    }
    return {};
  });
  world.shutdown();
}

TEST_CASE("a process set agrees on its own", "[session][agreement]") {
  SessionWorld world(3);
  world.run([](Session& session, int rank) -> std::string {
    const auto set = add_set(session, {1, 2});
    if (!set.ok()) return set.status().message();
    Agreement of_set("a", {{Merge::kEqual, 1}, {Merge::kRoot, 1}}, 2, *set);
    Agreement of_all("a", {{Merge::kMax, 1}});
    if (rank > 0) {
      const Status status = of_set.run(session, std::to_string(rank) + std::to_string(rank));
      if (std::string wrong = expect(of_set, status, {"12", {{0, 1, 2, "1", "2"}}, {}}); !wrong.empty())
        return wrong;
    }
    const Status status = of_all.run(session, std::to_string(rank));
    if (std::string wrong = expect(of_all, status, {"2", {}, {}}); !wrong.empty()) return wrong;
    return remove_set(session, *set).message();
  });
  world.shutdown();
}

TEST_CASE("a rank whose values are wrong tells its peers, and the job goes on", "[session][agreement]") {
  std::vector<AgreementField> fields = {{Merge::kMax, 2}};
  std::string values = "xy", text;
  int root = -1;
  SECTION("the size") {
    values = "x";
    text = "agreement of 'a': has 1 bytes for fields of 2";
  }
  SECTION("too many fields") {
    fields.assign(256, {Merge::kOr, 0});
    values.clear();
    text = "has 256 fields; 255 are possible";
  }
  SECTION("too many bytes") {
    fields = {{Merge::kMax, 1U << 20}, {Merge::kMax, 1}};
    values.assign((1U << 20) + 1, 'x');
    text = "has 1048577 bytes; 1048576 are possible";
  }
  SECTION("the root") {
    fields = {{Merge::kRoot, 2}};
    root = 2;
    text = "has the root 2, which is not in the process set";
  }
  SessionWorld world(2);
  world.run([&](Session& session, int rank) -> std::string {
    Agreement agreement("a", rank == 1 ? fields : std::vector<AgreementField>{{Merge::kMax, 2}},
                        rank == 1 ? root : -1);
    const Status status = agreement.run(session, rank == 1 ? values : "xy");
    const StatusCode code = rank == 1 ? StatusCode::kInvalidArgument : StatusCode::kIncomplete;
    if (status.code() != code || !contains(status.message(), text)) return "told: " + status.message();
    Agreement next("a", {{Merge::kMax, 2}});
    return expect(next, next.run(session, rank == 1 ? "az" : "xy"), {"xz", {}, {}});
  });
  world.shutdown();
}

// -- under a schedule lock

// Acts like an optimizer: a tensor and an agreement in flight, then a second agreement alone.
std::string locked_step(Session& session, int rank, int size, int step, bool too_large) {
  const std::vector<AgreementField> fields = {{Merge::kMax, 200}, {Merge::kEqual, 1}};
  Flight flight{std::vector<float>(64, static_cast<float>(rank + 1))};
  Agreement early("early", fields), late("late", kFields, 0);
  std::string values(201, '\0');
  values[static_cast<std::size_t>(step + rank) % 200] = static_cast<char>(1 + step % 100);
  if (too_large) std::fill(values.begin(), values.end() - 1, static_cast<char>(rank == 0 ? 'z' : 'a'));
  values.back() = static_cast<char>(step % 5 == 4 ? rank : 7);
  Status status = take_off(session, "w", flight);
  if (status.ok()) status = early.start(session, values);
  if (!status.ok()) return status.message();
  session.end_linger();
  Agreed expected{std::string(201, '\0'), {}, {}};
  for (int other = 0; other < size; ++other)
    expected.values[static_cast<std::size_t>(step + other) % 200] = static_cast<char>(1 + step % 100);
  if (too_large) std::fill(expected.values.begin(), expected.values.end() - 1, 'z');
  expected.values.back() = static_cast<char>(step % 5 == 4 ? 0 : 7);
  if (step % 5 == 4) expected.differences = {{1, 0, 1, std::string(1, '\0'), "\1"}};
  std::string wrong = land(session, flight, static_cast<float>(size * (size + 1) / 2));
  if (wrong.empty()) wrong = expect(early, early.finish(session), expected);
  if (wrong.empty()) {
    status = late.run(session, values_of(rank, size, step));
    wrong = expect(late, status, expected_of(size, step, 0));
  }
  return wrong.empty() ? "" : "step " + std::to_string(step) + ": " + wrong;
}

TEST_CASE("agreements that change in each step do not end a lock", "[session][agreement][lock]") {
  const int size = GENERATE(2, 3);
  LockingWorld world(size, one_by_one());
  const auto steps = [&](int first, int number) {
    world.run([&](Session& session, int rank) -> std::string {
      for (int step = first; step < first + number; ++step) {
        if (std::string wrong = locked_step(session, rank, size, step, false); !wrong.empty()) return wrong;
      }
      return {};
    });
  };
  steps(0, 40);
  const std::int64_t locked = world.count(0, "locked_operations");
  const std::int64_t orders = world.count(0, "orders_given");  // messages may be answers to clock pings, too
  const std::int64_t unlocks = world.count(0, "schedule_unlocks");
  steps(40, 40);
  CHECK(world.count(0, "schedule_locks") > 0);
  CHECK(world.count(0, "locked_operations") > locked);
  // A rank that is late by a second ends a lock, too; then the counts say nothing.
  if (world.count(0, "schedule_locks") == 1 && world.count(0, "schedule_unlocks") == unlocks) {
    CHECK(world.count(0, "locked_operations") == locked + 3 * 40);
    CHECK(world.count(0, "orders_given") == orders);
  }
  world.shutdown();
}

TEST_CASE("an agreement that does not fit ends the lock, and the next one forms",
          "[session][agreement][lock]") {
  constexpr int kSize = 3;
  LockingWorld world(kSize, one_by_one());
  world.run([&](Session& session, int rank) -> std::string {
    for (int step = 0; step < 160; ++step) {
      std::string wrong = locked_step(session, rank, kSize, step, step % 50 == 49);
      if (!wrong.empty()) return wrong;
    }
    return {};
  });
  CHECK(world.count(0, "schedule_unlocks") > 0);
  CHECK(world.count(0, "schedule_locks") > 1);
  for (int rank = 1; rank < kSize; ++rank)
    CHECK(world.count(rank, "locked_operations") == world.count(0, "locked_operations"));
  world.shutdown();
}

TEST_CASE("threads that agree in loops of their own agree rightly", "[session][agreement][lock]") {
  constexpr int kSize = 2;
  Config config;
  config.log_level = LogLevel::kError;
  LockingWorld world(kSize, config);
  world.run([&](Session& session, int rank) {
    return in_threads(3, 1, [&](std::size_t thread) -> std::string {
      const std::string name = "loop " + std::to_string(thread);
      for (int round = 0; round < 150 + 50 * static_cast<int>(thread); ++round) {
        Agreement agreement(name, kFields, 1);
        const Status status = agreement.run(session, values_of(rank, kSize, round));
        std::string wrong = expect(agreement, status, expected_of(kSize, round, 1));
        if (!wrong.empty()) return name + ", round " + std::to_string(round) + ": " + wrong;
      }
      return {};
    });
  });
  world.shutdown();
}

TEST_CASE("the largest agreement goes through", "[session][agreement]") {
  SessionWorld world(2);
  world.run([](Session& session, int rank) -> std::string {
    Agreement agreement("a", {{Merge::kOr, static_cast<std::uint32_t>(kMostAgreementBytes)}});
    std::string values(kMostAgreementBytes, '\0');
    for (std::size_t i = static_cast<std::size_t>(rank); i < values.size(); i += 2) values[i] = '\1';
    return expect(agreement, agreement.run(session, values),
                  {std::string(kMostAgreementBytes, '\1'), {}, {}});
  });
  world.shutdown();
}

}  // namespace
}  // namespace roundelay::contract
