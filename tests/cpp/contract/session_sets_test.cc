// Process sets through whole sessions: added, used side by side, removed, and all their failures.
#include <algorithm>
#include <random>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/session_trip.h"
#include "tests/cpp/threads.h"

namespace roundelay::contract {
namespace {

using runtime::Session;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool member(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

Config quick() {
  Config config;
  config.progress_timeout = std::chrono::seconds(1);
  config.start_timeout = std::chrono::seconds(20);
  config.log_level = LogLevel::kError;
  return config;
}

TEST_CASE("sets of every shape work, and no id is used twice", "[session][sets]") {
  SessionWorld world(3);
  world.run([](Session& session, int rank) -> std::string {
    const std::vector<std::vector<int>> shapes = {{0, 1}, {1, 2}, {0, 1, 2}, {2}, {0, 2}, {0, 1}};
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const auto id = add_set(session, shapes[i]);
      if (!id.ok()) return id.status().message();
      if (*id != i + 1) return "id " + std::to_string(*id);
    }
    for (int round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        if (!member(shapes[i], rank)) continue;
        const auto size = static_cast<int>(shapes[i].size());
        const std::string wrong = count_members(session, static_cast<ProcessSetId>(i + 1), size, "same name");
        if (!wrong.empty()) return wrong;
      }
      if (std::string wrong = sum_once(session, rank, "same name", 3); !wrong.empty()) return wrong;
    }
    for (const ProcessSetId id : {4U, 2U}) {
      if (const Status s = remove_set(session, id); !s.ok()) return s.message();
    }
    const auto again = add_set(session, {1, 2});
    if (!again.ok() || *again != 7) return "not a new id: " + again.status().message();
    if (rank > 0) {
      if (std::string wrong = count_members(session, *again, 2, "same name"); !wrong.empty()) return wrong;
    }
    return session.level_sizes(4, DeviceType::kCpu).status().code() == StatusCode::kInvalidArgument
               ? ""
               : "set 4 is still known";
  });
  const auto stats = world.sessions[2]->stats();
  CHECK(stats.at("tensors") >= 3 * 4 + 3 + 1);  // counts sets that are gone too
  world.shutdown();
}

TEST_CASE("broadcasts and reductions in a set use the set's members", "[session][sets]") {
  SessionWorld world(3);
  world.run([](Session& session, int rank) -> std::string {
    const auto set = add_set(session, {1, 2});
    if (!set.ok()) return set.status().message();
    if (rank == 0) return {};
    wire::Request from_two = request_of(Operation::kBroadcast);
    from_two.root = 2;
    Trip broadcast(filled<float>({3}, static_cast<float>(rank)), *set);
    std::string wrong = expect(broadcast, broadcast.run(session, from_two), {filled<float>({3}, 2.0F)});
    if (!wrong.empty()) return wrong;
    Trip average(filled<float>({3}, static_cast<float>(rank)), *set);
    const auto mean = request_of(Operation::kAllreduce, "", ReduceOp::kAverage);
    wrong = expect(average, average.run(session, mean), {filled<float>({3}, 1.5F)});
    if (!wrong.empty()) return wrong;
    Trip gather(filled<std::int32_t>({1}, rank), *set);
    wrong = expect(gather, gather.run(session, request_of(Operation::kAllgather)),
                   {vector_of<std::int32_t>({1, 2})});
    if (!wrong.empty()) return wrong;
    from_two.root = 0;
    Trip outside(filled<float>({3}, 1.0F), *set);
    const Status status = outside.run(session, from_two);
    return contains(status.message(), "root_rank 0 is not") ? "" : status.message();
  });
  world.shutdown();
}

TEST_CASE("ranks may use two sets in opposite orders", "[session][sets]") {
  SessionWorld world(2);
  world.run([](Session& session, int rank) -> std::string {
    const auto one = add_set(session, {0, 1});
    if (!one.ok()) return one.status().message();
    const std::vector<ProcessSetId> sets = {rank == 0 ? 0U : *one, rank == 0 ? *one : 0U};
    for (int round = 0; round < 100; ++round) {
      Trip first(filled<float>({100}, 1.0F), sets[0]);
      Trip second(filled<float>({100}, 1.0F), sets[1]);
      Status status = first.start(session, request_of(Operation::kAllreduce, "w"));
      if (status.ok()) status = second.start(session, request_of(Operation::kAllreduce, "w"));
      if (!status.ok()) return status.message();
      const std::vector<Tensor> expected = {filled<float>({100}, 2.0F)};
      if (std::string wrong = expect(first, first.finish(session), expected); !wrong.empty()) return wrong;
      if (std::string wrong = expect(second, second.finish(session), expected); !wrong.empty()) return wrong;
    }
    return {};
  });
  world.shutdown();
}

TEST_CASE("a set whose data does not come holds up no other", "[session][sets]") {
  SessionWorld world(3);
  world.run([](Session& session, int) { return add_set(session, {0, 1}).status().message(); });
  world.hubs.latest()->silence(1);
  std::vector<std::unique_ptr<Trip>> stuck;
  for (int rank = 0; rank < 2; ++rank) stuck.push_back(std::make_unique<Trip>(filled<float>({4}, 1.0F), 1));
  world.run([&](Session& session, int rank) -> std::string {
    if (rank < 2) {
      Trip& trip = *stuck[static_cast<std::size_t>(rank)];
      if (const Status s = trip.start(session, request_of(Operation::kAllreduce, "stuck")); !s.ok())
        return s.message();
      session.end_linger();
    }
    for (int round = 0; round < 50; ++round) {
      if (std::string wrong = sum_once(session, rank, "w", 3); !wrong.empty()) return wrong;
    }
    return {};
  });
  // The stuck operation ends with everything else.
  world.sessions[2]->fail("rank 2 has had enough");
  world.run([&](Session& session, int rank) -> std::string {
    if (rank == 2) return {};
    const Status status = stuck[static_cast<std::size_t>(rank)]->finish(session);
    return contains(status.message(), "had enough") ? "" : "ended with: " + status.message();
  });
  world.shutdown();
}

TEST_CASE("overlapping sets, random programs in an order of each rank's own", "[session][sets]") {
  constexpr int kSize = 4;
  const std::vector<std::vector<int>> shapes = {{0, 1, 2, 3}, {0, 1}, {1, 2, 3}, {0, 3}, {2, 3}};
  SessionWorld world(kSize);
  world.run([&](Session& session, int rank) -> std::string {
    for (std::size_t i = 1; i < shapes.size(); ++i) {
      if (const auto id = add_set(session, shapes[i]); !id.ok()) return id.status().message();
    }
    std::mt19937 random(static_cast<unsigned>(rank + 1));
    for (int round = 0; round < 10; ++round) {
      std::vector<std::size_t> program;
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        if (member(shapes[i], rank)) program.insert(program.end(), 10, i);
      }
      std::shuffle(program.begin(), program.end(), random);
      std::vector<std::unique_ptr<Trip>> trips;
      std::vector<int> used(shapes.size(), 0);
      for (const std::size_t i : program) {
        trips.push_back(std::make_unique<Trip>(filled<std::int64_t>({5}, 1), static_cast<ProcessSetId>(i)));
        const auto name = "t" + std::to_string(used[i]++);
        const Status status = trips.back()->start(session, request_of(Operation::kAllreduce, name));
        if (!status.ok()) return status.message();
      }
      for (std::size_t i = 0; i < trips.size(); ++i) {
        const auto members = static_cast<std::int64_t>(shapes[program[i]].size());
        std::string wrong =
            expect(*trips[i], trips[i]->finish(session), {filled<std::int64_t>({5}, members)});
        if (!wrong.empty()) return wrong;
      }
    }
    return {};
  });
  world.shutdown();
}

TEST_CASE("adding, using and removing leaves no thread, descriptor or handle", "[session][sets]") {
  SessionWorld world(3);
  const auto cycle = [](Session& session, int rank, int turn) -> std::string {
    const std::vector<std::vector<int>> shapes = {{0, 1}, {1, 2}, {0, 1, 2}, {0}};
    const auto& ranks = shapes[static_cast<std::size_t>(turn) % shapes.size()];
    const auto set = add_set(session, ranks);
    if (!set.ok()) return set.status().message();
    if (member(ranks, rank)) {
      std::string wrong = count_members(session, *set, static_cast<int>(ranks.size()), "w");
      if (!wrong.empty()) return wrong;
    }
    return remove_set(session, *set).message();
  };
  const auto cycles = [&](int count) {
    world.run([&](Session& session, int rank) -> std::string {
      for (int turn = 0; turn < count; ++turn) {
        std::string wrong = cycle(session, rank, turn);
        if (!wrong.empty()) return "turn " + std::to_string(turn) + ": " + wrong;
      }
      return {};
    });
  };
  cycles(4);
  const auto threads = testing::threads_now();
  const auto descriptors = testing::entries_of("/proc/self/fd");
  cycles(1000);
  CHECK(testing::threads_end(threads));
  CHECK(testing::entries_of("/proc/self/fd") == descriptors);
  CHECK(world.hubs.latest() == nullptr);  // nothing holds the last set's medium
  world.shutdown();
}

TEST_CASE("a removal waits for what is in flight, and fails what cannot complete", "[session][sets]") {
  SessionWorld world(3);
  world.run([](Session& session, int rank) -> std::string {
    const auto set = add_set(session, {0, 1});
    if (!set.ok()) return set.status().message();
    std::vector<std::unique_ptr<Trip>> trips;
    Trip alone(filled<float>({4}, 1.0F), *set);
    if (rank < 2) {
      for (int i = 0; i < 20; ++i) {
        trips.push_back(std::make_unique<Trip>(filled<float>({5000}, 1.0F), *set));
        if (const Status s = trips.back()->start(session, request_of(Operation::kAllreduce)); !s.ok())
          return s.message();
      }
    }
    if (rank == 1) {
      if (const Status s = alone.start(session, request_of(Operation::kAllreduce, "alone")); !s.ok())
        return s.message();
    }
    if (const Status s = remove_set(session, *set); !s.ok()) return s.message();
    for (const auto& trip : trips) {
      std::string wrong = expect(*trip, trip->finish(session), {filled<float>({5000}, 2.0F)});
      if (!wrong.empty()) return wrong;
    }
    if (rank == 1) {
      const Status status = alone.finish(session);
      if (status.ok() || !contains(status.message(), "alone")) return "alone: " + status.message();
    }
    Trip late(filled<float>({4}, 1.0F), *set);
    const Status refused = late.start(session, request_of(Operation::kAllreduce));
    if (!contains(refused.message(), "process set 1 does not exist or was removed")) return refused.message();
    return sum_once(session, rank, "after", 3);
  });
  world.shutdown();
}

TEST_CASE("wrong use of sets is refused with the reason, and the job goes on", "[session][sets]") {
  SessionWorld world(3);
  world.run([](Session& session, int rank) -> std::string {
    const auto set = add_set(session, {0, 1});
    if (!set.ok()) return set.status().message();
    if (rank == 2) {
      Trip outside(filled<float>({4}, 1.0F), *set);
      const Status status = outside.start(session, request_of(Operation::kAllreduce, "w"));
      if (status != Status::invalid("rank 2 is not in process set 1, which has ranks [0, 1]"))
        return status.message();
    }
    Trip unknown(filled<float>({4}, 1.0F), 7);
    const Status status = unknown.start(session, request_of(Operation::kAllreduce));
    if (status.code() != StatusCode::kInvalidArgument) return "set 7: " + status.message();
    const std::vector<std::pair<std::vector<int>, std::string>> wrong_sets = {
        {{}, "at least one rank"},
        {{0, 3}, "rank 3 does not exist"},
        {{-1}, "rank -1 does not exist"},
        {{1, 1}, "each of them once"},
    };
    for (const auto& [ranks, text] : wrong_sets) {
      const auto handle = session.submit_new_set(ranks);
      if (handle.ok() || !contains(handle.status().message(), text)) return "not refused: " + text;
    }
    if (session.submit_removal(0).ok()) return "the world was removed";
    if (session.submit_removal(9).ok()) return "set 9 was removed";
    return count_members(session, 0, 3, "after");
  });
  world.shutdown();
}

TEST_CASE("ranks that announce different changes all get an error", "[session][sets]") {
  SessionWorld world(3);
  world.run([](Session& session, int rank) -> std::string {
    if (const auto set = add_set(session, {0, 1}); !set.ok()) return set.status().message();
    for (int round = 0; round < 3; ++round) {
      const auto handle = rank == round
                              ? session.submit_removal(1)
                              : session.submit_new_set(rank == 1 ? std::vector{1, 2} : std::vector{2});
      if (!handle.ok()) return handle.status().message();
      const Status status = *session.wait(*handle, Deadline::never());
      if (status.code() != StatusCode::kMismatch) return "no mismatch: " + status.message();
      if (std::string wrong = sum_once(session, rank, "after", 3); !wrong.empty()) return wrong;
    }
    const auto next = add_set(session, {1, 2});
    return next.ok() && *next == 2 ? "" : "next: " + next.status().message();
  });
  world.shutdown();
}

TEST_CASE("a rank that changes a set where the others change none gets an error", "[session][sets]") {
  SessionWorld world(3);
  world.run([](Session& session, int rank) -> std::string {
    for (int round = 0; round < 3; ++round) {
      const auto handle = rank == round ? session.submit_new_set({0, 1}) : session.submit_no_change();
      if (!handle.ok()) return handle.status().message();
      const Status status = *session.wait(*handle, Deadline::never());
      if (status.code() != StatusCode::kMismatch || !contains(status.message(), "no further process set"))
        return "no mismatch: " + status.message();
      const auto none = session.submit_no_change();
      if (!none.ok()) return none.status().message();
      if (const Status all = *session.wait(*none, Deadline::never()); !all.ok()) return all.message();
    }
    return sum_once(session, rank, "after", 3);
  });
  world.shutdown();
}

TEST_CASE("a set that one rank cannot make is made by none, with one reason for all", "[session][sets]") {
  const int failing = GENERATE(0, 2);
  SessionWorld world(3);
  world.run([&](Session& session, int rank) -> std::string {
    for (int round = 0; round < 3; ++round) {
      if (rank == failing) world.hubs.fail_next(rank, Status::unavailable("no more communicators"));
      const auto set = add_set(session, {0, 2});
      if (set.ok()) return "it was made";
      const std::string expected = "the process set with ranks [0, 2] could not be made: rank " +
                                   std::to_string(failing) + ": no more communicators";
      if (set.status().message() != expected) return set.status().message();
    }
    const auto set = add_set(session, {0, 2});
    if (!set.ok()) return set.status().message();
    if (*set != 4) return "id " + std::to_string(*set);  // each attempt has its number
    return rank == 1 ? "" : count_members(session, *set, 2, "w");
  });
  world.shutdown();
}

TEST_CASE("an abort ends operations in all sets, and every call that waits", "[session][sets]") {
  SessionWorld world(3);
  std::atomic<int> waiting{0};
  world.run([&](Session& session, int rank) -> std::string {
    for (const auto& ranks : {std::vector{0, 1}, std::vector{0, 1, 2}}) {
      if (const auto set = add_set(session, ranks); !set.ok()) return set.status().message();
    }
    if (rank == 1) {
      while (waiting < 2) std::this_thread::yield();
      session.fail("rank 1 died of KeyError");
    } else {
      Trip in_world(filled<float>({4}, 1.0F)), in_set(filled<float>({4}, 1.0F), 2);
      Status status = in_world.start(session, request_of(Operation::kAllreduce, "w"));
      if (status.ok()) status = in_set.start(session, request_of(Operation::kAllreduce, "w"));
      if (!status.ok()) return status.message();
      ++waiting;
      if (status = in_set.finish(session); !contains(status.message(), "KeyError")) return status.message();
      if (status = in_world.finish(session); !contains(status.message(), "KeyError")) return status.message();
    }
    const auto more = add_set(session, {0, 2});
    if (!contains(more.status().message(), "KeyError")) return "add: " + more.status().message();
    const auto made = session.make_process_set({0, 2});
    if (!contains(made.status().message(), "KeyError")) return "make: " + made.status().message();
    const Status dropped = session.drop_process_set(2);
    return contains(dropped.message(), "KeyError") ? "" : "drop: " + dropped.message();
  });
  world.shutdown();
}

TEST_CASE("a rank that stops inside a set's operation is named", "[session][sets][slow]") {
  const int silent = GENERATE(0, 2);
  Trip last_of_silent(filled<float>({4}, 1.0F), 1);  // may never be ordered there; nobody waits for it
  SessionWorld world(3, quick());
  world.run([](Session& session, int) { return add_set(session, {0, 2}).status().message(); });
  world.hubs.latest()->silence(silent == 0 ? 0 : 1);
  stop_inside_a_set(world, last_of_silent, silent, 1);
  world.shutdown();
}

TEST_CASE("ranks leave without removing their sets, also one by one", "[session][sets]") {
  for (int cycle = 0; cycle < 50; ++cycle) {
    SessionWorld world(3);
    world.run([&](Session& session, int rank) -> std::string {
      for (const auto& ranks : {std::vector{0, 1}, std::vector{1, 2}, std::vector{1}}) {
        if (const auto set = add_set(session, ranks); !set.ok()) return set.status().message();
      }
      if (rank == cycle % 3) {
        session.shutdown();
        return {};
      }
      Trip trip(filled<float>({4}, 1.0F), rank == 0 ? 1 : 2);
      Status status = trip.start(session, request_of(Operation::kAllreduce, "w"));
      if (status.ok() && cycle % 3 != 1) session.shutdown();
      if (status.ok()) status = trip.finish(session);
      return status.ok() || status.code() == StatusCode::kAborted ? "" : status.message();
    });
    if (cycle % 2 == 0) world.shutdown();
  }
}

}  // namespace
}  // namespace roundelay::contract
