// Bootstrap and control plane over MPI.
#include <chrono>
#include <cstring>
#include <thread>

#include "bootstrap/mpi/mpi_bootstrap.h"
#include "channel/mpi/mpi_channel.h"
#include "platform/mpi/launch_check.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/in_time.h"
#include "tests/cpp/mpi/session.h"

namespace roundelay::contract {
namespace {

using channel::Channel;
using channel::Incoming;

Bytes text_of(int from, int number, std::size_t bytes) {
  Bytes text(bytes, static_cast<std::byte>(from * 16 + number % 16));
  return text;
}

// Returns the next message. Fails when patience ends.
std::optional<Incoming> next(Channel& mailbox) {
  const Deadline deadline = patience();
  while (!deadline.passed()) {
    if (auto incoming = mailbox.receive()) return incoming;
    mailbox.wait(deadline);
  }
  return std::nullopt;
}

TEST_CASE("mpi bootstrap gathers bytes of any lengths", "[mpi]") {
  auto made = bootstrap::MpiBootstrap::create(session(), patience());
  REQUIRE(made.ok());
  bootstrap::Bootstrap& start = **made;
  for (const std::size_t unit : {std::size_t{0}, std::size_t{1}, std::size_t{5000}}) {
    const auto mine = text_of(start.rank(), 1, unit * static_cast<std::size_t>(start.rank() + 1));
    auto all = start.all_gather(mine, patience());
    REQUIRE(all.ok());
    REQUIRE(all->size() == static_cast<std::size_t>(start.size()));
    for (int rank = 0; rank < start.size(); ++rank) {
      const auto want = text_of(rank, 1, unit * static_cast<std::size_t>(rank + 1));
      CHECK((*all)[static_cast<std::size_t>(rank)] == want);
    }
  }
}

TEST_CASE("mpi mailbox: in order, exactly once, from everyone, small and large", "[mpi]") {
  auto made = channel::MpiChannel::create(session(), first_ranks(session().size()), patience());
  REQUIRE(made.ok());
  Channel& mailbox = **made;
  constexpr int kMessages = 40;
  const int size = session().size();
  for (int number = 0; number < kMessages; ++number) {
    for (int to = 0; to < size; ++to) {
      // Some are beyond MPI's eager limit, so that younger small ones could overtake them.
      const std::size_t bytes = number % 7 == 3 ? 300000 : static_cast<std::size_t>(number);
      REQUIRE(mailbox.send(to, text_of(session().rank(), number, bytes)).ok());
    }
  }
  std::vector<int> seen(static_cast<std::size_t>(size), 0);
  for (int i = 0; i < kMessages * size; ++i) {
    const auto incoming = next(mailbox);
    REQUIRE(incoming.has_value());
    const int number = seen[static_cast<std::size_t>(incoming->from)]++;
    const std::size_t bytes = number % 7 == 3 ? 300000 : static_cast<std::size_t>(number);
    REQUIRE(incoming->bytes == text_of(incoming->from, number, bytes));
  }
  // Rank 0 closes: the others see no loss, and what they send to it is dropped.
  if (session().rank() == 0) {
    mailbox.close(patience());
    CHECK_FALSE(mailbox.send(0, {}).ok());
    return;
  }
  for (int i = 0; i < 10; ++i) {
    mailbox.wait(Deadline::after(std::chrono::milliseconds(5)));
    CHECK_FALSE(mailbox.receive().has_value());
    CHECK(mailbox.send(0, {}).ok());
  }
  mailbox.close(patience());
}

TEST_CASE("mpi mailbox: wake ends a wait, a deadline too", "[mpi]") {
  auto made = channel::MpiChannel::create(session(), first_ranks(session().size()), patience());
  REQUIRE(made.ok());
  Channel& mailbox = **made;
  mailbox.wake();
  const TimePoint begin = steady_now();
  mailbox.wait(patience());  // wake() came before it began
  CHECK(!mailbox.receive());
  std::thread other([&] { mailbox.wake(); });
  mailbox.wait(patience());
  other.join();
  CHECK(!mailbox.receive());
  testing::expect_within(std::chrono::seconds(20), steady_now() - begin);
  const TimePoint asleep = steady_now();
  mailbox.wait(Deadline::after(std::chrono::milliseconds(20)));  // may return early, never much later
  testing::expect_within(std::chrono::seconds(10), steady_now() - asleep);
  mailbox.close(patience());
}

TEST_CASE("a launcher of another MPI is named", "[mpi]") {
  const auto with = [](const char* name, const char* value) {
    return [=](const std::string& asked) {
      return asked == name ? std::optional<std::string>(value) : std::nullopt;
    };
  };
  const auto problem = mpi::launch_problem(with("PMI_SIZE", "4"), 1, "Open MPI v5");
  REQUIRE(problem.has_value());
  CHECK(problem->find("PMI_SIZE=4") != std::string::npos);
  CHECK(problem->find("Open MPI v5") != std::string::npos);
  CHECK(problem->find('\n') == std::string::npos);
  CHECK(mpi::launch_problem(with("OMPI_COMM_WORLD_SIZE", "2"), 1, "MPICH").has_value());
  CHECK(mpi::launch_problem(with("SLURM_STEP_NUM_TASKS", "2"), 1, "MPICH").has_value());
  CHECK_FALSE(mpi::launch_problem(with("SLURM_NTASKS", "2"), 1, "MPICH").has_value());
  CHECK_FALSE(mpi::launch_problem(with("PMI_SIZE", "1"), 1, "MPICH").has_value());
  CHECK_FALSE(mpi::launch_problem(with("PMI_SIZE", "4"), 4, "MPICH").has_value());
}

}  // namespace
}  // namespace roundelay::contract
