// The state after a rank has left in order: operations that need it fail, all others go on.
#include <ctime>

#include "tests/cpp/catch.h"
#include "tests/cpp/contract/session_trip.h"

namespace roundelay::contract {
namespace {

using runtime::Session;
using std::chrono::milliseconds;

TEST_CASE("a rank that stops inside a set's operation is named after rank 0 has left",
          "[session][sets][slow]") {
  const int silent = GENERATE(1, 2);
  Config config;
  config.progress_timeout = std::chrono::seconds(1);
  config.log_level = LogLevel::kError;
  Trip last_of_silent(filled<float>({4}, 1.0F), 1);  // may never be ordered there; nobody waits for it
  SessionWorld world(3, config);
  world.run([](Session& session, int) { return add_set(session, {1, 2}).status().message(); });
  world.sessions[0]->shutdown();
  world.hubs.latest()->silence(silent - 1);
  stop_inside_a_set(world, last_of_silent, silent, 0);
  world.shutdown();
}

TEST_CASE("a rank sleeps after its peer has left without submitting the same operation", "[session]") {
  Config config;
  config.stall_check_time = milliseconds(20);
  config.log_level = LogLevel::kError;
  SessionWorld world(2, config);
  Flight flight{std::vector<float>(4, 1.0F)};
  REQUIRE(take_off(*world.sessions[1], "alone", flight).ok());
  CHECK_FALSE(world.sessions[1]->wait(flight.handle, Deadline::after(milliseconds(10))));
  world.sessions[0]->shutdown();
  const auto status = world.sessions[1]->wait(flight.handle, Deadline::never());
  REQUIRE(status);
  CHECK(status->code() == StatusCode::kAborted);
  std::this_thread::sleep_for(milliseconds(50));  // by now the watch has looked
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(milliseconds(500));
  CHECK(std::clock() - before < CLOCKS_PER_SEC / 10);
  world.shutdown();
}

TEST_CASE("an operation on data without a tensor is refused, and peers are told", "[session]") {
  SessionWorld world(2);
  world.run([](Session& session, int rank) -> std::string {
    Flight flight{std::vector<float>(4, 1.0F)};
    if (rank == 1) {
      const Status status = take_off(session, "w", flight);
      if (!status.ok()) return status.message();
      return session.wait(flight.handle, Deadline::never())->ok() ? "was not told" : "";
    }
    submit::Arguments arguments;
    arguments.request.name = "w";
    arguments.request.shape = {4};
    const auto handle = session.submit(std::move(arguments), {});
    return handle.status().code() == StatusCode::kInvalidArgument ? "" : "was not refused";
  });
  world.shutdown();
}

}  // namespace
}  // namespace roundelay::contract
