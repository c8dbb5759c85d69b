// Ranks run out of data and join: the others go on without them until all have joined.
#include <future>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/session_trip.h"

namespace roundelay::contract {
namespace {

using runtime::Session;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("the last rank to join is the same on all ranks", "[session][join]") {
  const int size = GENERATE(1, 2, 3);
  SessionWorld world(size);
  for (int round = 0; round < 5; ++round) {
    std::vector<std::int64_t> last(static_cast<std::size_t>(size), -1);
    std::atomic<int> joining{0};
    const int late = round % size;
    world.run([&](Session& session, int rank) -> std::string {
      while (rank == late && joining < size - 1) std::this_thread::yield();
      // The late rank still has a step of its own, which needs the news that the others have joined.
      if (rank == late && size > 1) {
        Trip alone(filled<float>({3}, 2.0F));
        const Status status = alone.run(session, request_of(Operation::kAllreduce, "alone"));
        if (std::string wrong = expect(alone, status, {filled<float>({3}, 2.0F)}); !wrong.empty())
          return wrong;
      } else {
        ++joining;
      }
      const auto who = join(session);
      if (!who.ok()) return who.status().message();
      last[static_cast<std::size_t>(rank)] = *who;
      return sum_once(session, rank, "after", size);
    });
    CHECK(last == std::vector<std::int64_t>(static_cast<std::size_t>(size), late));
  }
  world.shutdown();
}

// Rank r has r steps more than rank 0. A step has all kinds of operations that do not need joined ranks.
TEST_CASE("uneven data: sums of those who are left, averages over all", "[session][join]") {
  const int size = GENERATE(2, 3, 4);
  Config config;
  config.fusion_threshold = GENERATE(0, 1 << 20);
  SessionWorld world(size, config);
  world.run([&](Session& session, int rank) -> std::string {
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int step = 0; step < 3 + rank; ++step) {
        const int first = step < 3 ? 0 : step - 2;  // the ranks below it have joined
        const int left = size - first;
        Trip sum(filled<std::int64_t>({4}, 12));
        Trip average(filled<float>({4}, 12.0F));
        Trip group(std::vector<Tensor>{filled<float>({6}, 1.0F), filled<std::int32_t>({2}, 2),
                                       filled<float>({9}, 3.0F), filled<double>({1}, 4.0)});
        Trip adasum(filled<double>({4}, 5.0));
        Trip gather(std::vector<Tensor>{filled<std::int32_t>({rank}, 7), filled<float>({1, 2}, 1.0F)});
        Trip broadcast(filled<std::int32_t>({3}, rank));
        Trip barrier(std::vector<Tensor>{});
        wire::Request from_last = request_of(Operation::kBroadcast);
        from_last.root = size - 1;
        Status status = sum.start(session, request_of(Operation::kAllreduce));
        if (status.ok())
          status = average.start(session, request_of(Operation::kAllreduce, "a", ReduceOp::kAverage));
        if (status.ok()) status = group.start(session, request_of(Operation::kAllreduce, "group"));
        if (status.ok())
          status = adasum.start(session, request_of(Operation::kAllreduce, "", ReduceOp::kAdasum));
        if (status.ok()) status = gather.start(session, request_of(Operation::kAllgather, "g"));
        if (status.ok()) status = broadcast.start(session, from_last);
        if (status.ok()) status = barrier.start(session, request_of(Operation::kBarrier));
        if (!status.ok()) return status.message();
        std::int64_t rows = 0;
        for (int r = first; r < size; ++r) rows += r;
        std::string wrong = expect(sum, sum.finish(session), {filled<std::int64_t>({4}, 12 * left)});
        if (wrong.empty())
          wrong = expect(average, average.finish(session),
                         {filled<float>({4}, 12.0F * static_cast<float>(left) / static_cast<float>(size))});
        const auto times = static_cast<float>(left);
        if (wrong.empty())
          wrong = expect(group, group.finish(session),
                         {filled<float>({6}, times), filled<std::int32_t>({2}, 2 * left),
                          filled<float>({9}, 3.0F * times), filled<double>({1}, 4.0 * left)});
        if (wrong.empty()) wrong = expect(adasum, adasum.finish(session), {filled<double>({4}, 5.0)});
        if (wrong.empty())
          wrong = expect(gather, gather.finish(session),
                         {filled<std::int32_t>({rows}, 7), filled<float>({left, 2}, 1.0F)});
        if (wrong.empty())
          wrong = expect(broadcast, broadcast.finish(session), {filled<std::int32_t>({3}, size - 1)});
        if (wrong.empty()) wrong = barrier.finish(session).message();
        if (!wrong.empty())
          return "epoch " + std::to_string(epoch) + ", step " + std::to_string(step) + ": " + wrong;
      }
      const auto last = join(session);
      if (!last.ok()) return last.status().message();
      if (*last != size - 1) return "last: " + std::to_string(*last);
    }
    return {};
  });
  world.shutdown();
}

TEST_CASE("a join in a process set leaves the world and other sets alone", "[session][join]") {
  SessionWorld world(3);
  world.run([](Session& session, int rank) -> std::string {
    const auto set = add_set(session, {0, 1});
    if (!set.ok()) return set.status().message();
    if (rank < 2) {
      for (int step = 0; step < 2 + rank; ++step) {
        std::string wrong = count_members(session, *set, step < 2 ? 2 : 1, "");
        if (!wrong.empty()) return wrong;
      }
    }
    // These come before, during and after the wait of the joined ranks.
    Trip join_of_set(std::vector<Tensor>{}, *set);
    if (rank < 2) {
      const Status status = join_of_set.start(session, request_of(Operation::kJoin));
      if (!status.ok()) return status.message();
    }
    if (std::string wrong = sum_once(session, rank, "world", 3); !wrong.empty()) return wrong;
    if (rank < 2) {
      if (std::string wrong =
              expect(join_of_set, join_of_set.finish(session), {filled<std::int64_t>({1}, 1)});
          !wrong.empty())
        return wrong;
      if (std::string wrong = count_members(session, *set, 2, ""); !wrong.empty()) return wrong;
    }
    return remove_set(session, *set).message();
  });
  world.shutdown();
}

TEST_CASE("what needs everybody fails while a rank has joined, and the job goes on", "[session][join]") {
  SessionWorld world(2);
  world.run([](Session& session, int rank) -> std::string {
    if (rank == 1) {
      Trip trip(filled<float>({4}, 1.0F));
      const Status status = trip.run(session, request_of(Operation::kReducescatter, "s"));
      if (!contains(status.message(), "rank 0 has joined")) return "told: " + status.message();
    }
    const auto last = join(session);
    if (!last.ok()) return last.status().message();
    if (*last != 1) return "last: " + std::to_string(*last);
    return sum_once(session, rank, "after", 2);
  });
  world.shutdown();
}

TEST_CASE("a rank that has joined submits nothing else, and leaves with the others", "[session][join]") {
  SessionWorld world(2);
  std::promise<void> tried;
  world.run([&](Session& session, int rank) -> std::string {
    Trip trip(std::vector<Tensor>{});
    if (rank == 0) {
      const Status joined = trip.start(session, request_of(Operation::kJoin));
      Flight flight{std::vector<float>(4, 1.0F)};
      const Status refused = take_off(session, "w", flight);
      tried.set_value();
      if (!joined.ok()) return joined.message();
      if (refused.code() != StatusCode::kInvalidArgument) return "accepted: " + refused.message();
      const Status end = trip.finish(session);
      return contains(end.message(), "rank 1 has called shutdown()") ? "" : "ended with: " + end.message();
    }
    tried.get_future().wait();
    session.shutdown();
    return {};
  });
  world.shutdown();
}

}  // namespace
}  // namespace roundelay::contract
