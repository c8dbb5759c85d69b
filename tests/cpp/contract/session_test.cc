// The promises to a user of one init(), with all threads: results, errors, ends.
#include <limits>

#include "control/clock_probe.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/session_world.h"
#include "tests/cpp/contract/usage.h"
#include "tests/cpp/threads.h"

namespace roundelay::contract {
namespace {

using runtime::Session;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::cpu_seconds;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Config quiet() {
  Config config;
  config.log_level = LogLevel::kError;
  return config;
}

// Returns the error that ends an operation. Waits patiently, but not forever.
Status outcome(Session& session, const Flight& flight) {
  const auto status = session.wait(flight.handle, Deadline::after(seconds(60)));
  return status ? *status : Status::internal("still waiting after a minute");
}

TEST_CASE("hundreds of operations in flight, submitted in any order, are exact", "[session]") {
  constexpr int kSize = 3;
  constexpr std::size_t kTensors = 200;
  SessionWorld world(kSize);
  world.run([&](Session& session, int rank) { return sum_in_any_order(session, rank, kSize, kTensors); });
  const auto stats = world.sessions[1]->stats();
  CHECK(stats.at("tensors") == 3 * kTensors);
  CHECK(stats.at("operations") < 3 * static_cast<std::int64_t>(kTensors));
  CHECK(stats.at("fused_tensors") > 0);
  CHECK(stats.at("full_requests") == kTensors);
  CHECK(stats.at("cached_requests") == 2 * kTensors);
  CHECK(stats.at("orders_given") == 0);
  CHECK(world.sessions[0]->stats().at("orders_given") > 0);
  world.shutdown();
}

TEST_CASE("several threads of each rank submit and wait at once", "[session]") {
  const int size = GENERATE(1, 2, 3);
  constexpr int kThreads = 3;
  SessionWorld world(size);
  world.run([&](Session& session, int rank) {
    return in_threads(kThreads, 100, [&](std::size_t t) {
      return sum_once(session, rank, "thread " + std::to_string(t), size);
    });
  });
  world.shutdown();
}

TEST_CASE("threads that wait for one handle all come back, and one takes it", "[session]") {
  SessionWorld world(2);
  world.run([&](Session& session, int rank) -> std::string {
    for (int round = 0; round < 50; ++round) {
      Flight flight{std::vector<float>(8, 1.0F)};
      if (const Status s = take_off(session, "w", flight); !s.ok()) return s.message();
      std::atomic<int> taken{0}, unknown{0};
      std::vector<std::thread> threads;
      for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&] {
          const auto status = session.wait(flight.handle, Deadline::never());
          if (status && status->ok()) ++taken;
          if (!status || status->code() == StatusCode::kInvalidArgument) ++unknown;
        });
      }
      for (std::thread& thread : threads) thread.join();
      if (taken != 1 || unknown != 2)
        return "rank " + std::to_string(rank) + ": " + std::to_string(taken) + " took it";
    }
    return {};
  });
  world.shutdown();
}

TEST_CASE("an operation also completes if its caller only polls", "[session]") {
  SessionWorld world(2);
  world.run([](Session& session, int) -> std::string {
    for (int round = 0; round < 30; ++round) {
      Flight flight{std::vector<float>(8, 2.0F)};
      if (const Status s = take_off(session, "p", flight); !s.ok()) return s.message();
      const Deadline limit = Deadline::after(seconds(60));
      while (!*session.poll(flight.handle)) {
        if (limit.passed()) return "polled for a minute";
        std::this_thread::yield();
      }
      if (std::string wrong = land(session, flight, 4.0F); !wrong.empty()) return wrong;
      if (session.poll(flight.handle).ok()) return "a handle that was taken is still known";
    }
    return {};
  });
  world.shutdown();
}

TEST_CASE("unknown handles are errors", "[session]") {
  SessionWorld world(1);
  Session& session = *world.sessions[0];
  CHECK(session.poll(12345678).status().code() == StatusCode::kInvalidArgument);
  CHECK(session.wait(12345678, Deadline::never())->code() == StatusCode::kInvalidArgument);
}

TEST_CASE("a wait with a deadline comes back without a result, and a later one gets it", "[session]") {
  SessionWorld world(2);
  std::atomic<bool> go{false};
  world.run([&](Session& session, int rank) -> std::string {
    while (rank == 1 && !go) std::this_thread::yield();
    Flight flight{std::vector<float>(4, 1.0F)};
    if (const Status s = take_off(session, "late", flight); !s.ok()) return s.message();
    if (rank == 0) {
      const TimePoint begin = steady_now();
      if (session.wait(flight.handle, Deadline::after(milliseconds(30)))) return "ended without its peer";
      if (steady_now() - begin < milliseconds(30)) return "came back early";
      go = true;
    }
    return land(session, flight, 2.0F);
  });
  world.shutdown();
}

TEST_CASE("broadcasts and barriers", "[session]") {
  SessionWorld world(3);
  world.run([](Session& session, int rank) -> std::string {
    for (int root = 0; root < 3; ++root) {
      Flight flight{std::vector<float>(5, static_cast<float>(rank))};
      const Status s = take_off(session, "", flight, [&](wire::Request& request) {
        request.operation = Operation::kBroadcast;
        request.root = root;
      });
      if (!s.ok()) return s.message();
      if (std::string wrong = land(session, flight, static_cast<float>(root)); !wrong.empty()) return wrong;
      Flight barrier;
      static_cast<void>(
          take_off(session, "", barrier, [](wire::Request& r) { r.operation = Operation::kBarrier; }));
      if (std::string wrong = land(session, barrier, 0.0F); !wrong.empty()) return wrong;
    }
    return {};
  });
  world.shutdown();
}

TEST_CASE("after a mismatch, a local error and a duplicate the job goes on", "[session]") {
  SessionWorld world(3);
  std::vector<std::string> texts(3);
  world.run([&](Session& session, int rank) -> std::string {
    for (int round = 0; round < 10; ++round) {
      Flight flight{std::vector<float>(rank == 1 ? 3 : 4, 1.0F)};
      if (const Status s = take_off(session, "m", flight); !s.ok()) return s.message();
      Status status = outcome(session, flight);
      if (status.code() != StatusCode::kMismatch) return "no mismatch: " + status.message();
      if (flight.data.front() != 1.0F) return "data was changed";
      texts[static_cast<std::size_t>(rank)] = status.message();

      Flight bad{std::vector<float>(4, 1.0F)};
      const Status refused = take_off(session, "e", bad, [&](wire::Request& request) {
        if (rank == 2) request.prescale.factor = std::numeric_limits<double>::infinity();
      });
      if (rank == 2) {
        if (refused.code() != StatusCode::kInvalidArgument) return "a wrong call was accepted";
      } else {
        status = outcome(session, bad);
        if (!contains(status.message(), "rank 2: allreduce of 'e': prescale_factor"))
          return "told: " + status.message();
      }
      if (std::string wrong = sum_once(session, rank, "good", 3); !wrong.empty()) return wrong;
    }
    return {};
  });
  CHECK(contains(texts[0], "of 'm': rank "));
  CHECK(contains(texts[0], "rank 1 has shape [3]"));
  CHECK(contains(texts[0], " has shape [4]"));  // rank 0 or rank 2, depending on which came first
  CHECK(texts[1] == texts[0]);
  CHECK(texts[2] == texts[0]);
  world.shutdown();
}

TEST_CASE("one rank's shutdown fails the others' operations, naming it", "[session]") {
  const int leaver = GENERATE(0, 1, 2);
  SessionWorld world(3);
  world.run([&](Session& session, int rank) -> std::string {
    if (std::string wrong = sum_once(session, rank, "before", 3); !wrong.empty()) return wrong;
    if (rank == leaver) {
      session.shutdown();
      return {};
    }
    Flight flight{std::vector<float>(4, 1.0F)};
    Status status = take_off(session, "after", flight);
    if (status.ok()) status = outcome(session, flight);
    const std::string expected = "rank " + std::to_string(leaver) + " has called shutdown()";
    if (status.code() != StatusCode::kAborted || !contains(status.message(), expected))
      return status.message();
    const Status again = take_off(session, "again", flight);
    return contains(again.message(), expected) ? "" : "afterwards: " + again.message();
  });
  world.shutdown();
}

TEST_CASE("a rank that stops inside an operation is named after the progress deadline", "[session][slow]") {
  const int silent = GENERATE(0, 1, 2);
  Config config = quiet();
  config.progress_timeout = seconds(1);  // "before" takes less, also on a busy machine
  SessionWorld world(3, config);
  world.run([](Session& session, int rank) { return sum_once(session, rank, "before", 3); });
  // All ranks have the order and none finishes it: the silent rank's data never comes.
  world.data->silence(silent);
  const int sent_before = world.orders_sent;
  const std::atomic<int>& read = world.orders_read[static_cast<std::size_t>(silent)];
  const int read_before = read;
  const TimePoint begin = steady_now();
  world.run([&](Session& session, int rank) -> std::string {
    Flight flight{std::vector<float>(4, 1.0F)};
    if (const Status s = take_off(session, "stuck", flight); !s.ok()) return s.message();
    if (rank == silent) {
      // Its negotiation goes on until the order is here and with both peers. Then the rank stops completely.
      session.end_linger();
      while (world.orders_sent < sent_before + 2 || (silent != 0 && read == read_before))
        std::this_thread::yield();
      world.stop(silent);
    }
    const Status status = outcome(session, flight);
    if (status.code() != StatusCode::kAborted) return "ended with: " + status.message();
    if (rank == silent) return {};  // its own error blames others
    const std::string expected = "rank " + std::to_string(silent) + " entered allreduce of 'stuck'";
    return contains(status.message(), expected) ? "" : status.message();
  });
  CHECK(steady_now() - begin >= config.progress_timeout);
  world.shutdown();
}

TEST_CASE("a rank that is gone ends everybody's operations, naming it", "[session]") {
  const int victim = GENERATE(0, 1, 2);
  SessionWorld world(3, quiet());
  world.run([](Session& session, int rank) { return sum_once(session, rank, "before", 3); });
  std::atomic<int> waiting{0};
  world.run([&](Session& session, int rank) -> std::string {
    if (rank == victim) {
      while (waiting < 2) std::this_thread::yield();
      world.stopped[static_cast<std::size_t>(victim)] = true;
      world.control.disconnect(victim);
      return {};
    }
    Flight flight{std::vector<float>(4, 1.0F)};
    if (const Status s = take_off(session, "w", flight); !s.ok()) return s.message();
    ++waiting;
    const Status status = outcome(session, flight);
    const std::string expected = "rank " + std::to_string(victim) + " is gone";
    if (status.code() != StatusCode::kAborted || !contains(status.message(), expected) ||
        !contains(status.message(), "(while allreduce of 'w' was under way)"))
      return status.message();
    const Status later = take_off(session, "later", flight);
    const bool named = contains(later.message(), "(allreduce of 'later' was not started)");
    return named && contains(later.message(), expected) ? "" : "afterwards: " + later.message();
  });
  world.sessions[static_cast<std::size_t>(victim)]->fail("its own end");
  world.shutdown();
}

TEST_CASE("a rank that fails tells all others why", "[session]") {
  const int failing = GENERATE(0, 2);
  SessionWorld world(3);
  world.run([&](Session& session, int rank) -> std::string {
    if (rank == failing) {
      session.fail("rank " + std::to_string(failing) + " died of ValueError");
      return {};
    }
    Flight flight{std::vector<float>(4, 1.0F)};
    Status status = take_off(session, "w", flight);
    if (status.ok()) status = outcome(session, flight);
    return contains(status.message(), "died of ValueError") ? "" : status.message();
  });
  world.shutdown();
}

TEST_CASE("an operation that no other rank submits is given up after the stall time", "[session]") {
  Config config = quiet();
  config.stall_shutdown_time = milliseconds(100);
  SessionWorld world(2, config);
  std::atomic<bool> over{false};
  world.run([&](Session& session, int rank) -> std::string {
    while (rank == 1 && !over) std::this_thread::yield();
    if (rank == 0) {
      Flight flight{std::vector<float>(4, 1.0F)};
      static_cast<void>(take_off(session, "alone", flight));
      const Status status = outcome(session, flight);
      over = true;
      if (!contains(status.message(), "'alone' was given up: rank 1 did not submit it"))
        return status.message();
    }
    // The job goes on. On a busy machine one rank may again be later than the stall time.
    std::string wrong;
    const Deadline limit = Deadline::after(seconds(60));
    do {
      wrong = sum_once(session, rank, "both", 2);
    } while (contains(wrong, "'both' was given up") && !limit.passed());
    return wrong;
  });
  world.shutdown();
}

TEST_CASE("sessions come and go quickly, used or not, and leave no thread", "[session]") {
  const std::ptrdiff_t before = testing::threads_now();
  for (int cycle = 0; cycle < 200; ++cycle) {
    const int size = 1 + cycle % 3;
    SessionWorld world(size);
    if (cycle % 2 == 0) {
      world.run([&](Session& session, int rank) { return sum_once(session, rank, "w", size); });
    }
    if (cycle % 5 != 0)
      world.shutdown();  // otherwise destructors leave one by one, and later ranks hear of it first
  }
  CHECK(testing::threads_end(before));
}

TEST_CASE("an unused session costs no CPU time and sends nothing", "[session]") {
  SessionWorld world(3);
  world.run([](Session& session, int rank) { return sum_once(session, rank, "before", 3); });
  for (const int rank : {1, 2}) {  // each measures rank 0's clock first
    const auto pings = [&] {
      const auto stats = world.sessions[static_cast<std::size_t>(rank)]->stats();
      return stats.at("messages_sent") - stats.at("reports_sent");
    };
    while (pings() < static_cast<std::int64_t>(control::ClockProbe::kSamples))
      std::this_thread::sleep_for(milliseconds(1));
  }
  std::this_thread::sleep_for(milliseconds(50));
  const auto sent = world.sessions[1]->stats().at("messages_sent");
  const double before = cpu_seconds();
  std::this_thread::sleep_for(seconds(1));
  CHECK(cpu_seconds() - before < 0.02);
  CHECK(world.sessions[1]->stats().at("messages_sent") == sent);
  world.shutdown();
}

TEST_CASE("a rank whose peers are late sleeps while it waits", "[session]") {
  SessionWorld world(2);
  world.run([](Session& session, int rank) -> std::string {
    if (rank == 1) std::this_thread::sleep_for(milliseconds(500));
    const double before = cpu_seconds();
    if (std::string wrong = sum_once(session, rank, "late", 2); !wrong.empty()) return wrong;
    const double spent = cpu_seconds() - before;
    return spent < 0.1 ? "" : "spent " + std::to_string(spent) + " s of CPU time";
  });
  world.shutdown();
}

}  // namespace
}  // namespace roundelay::contract
