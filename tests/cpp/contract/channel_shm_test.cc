// The channel contract over rings in shared memory with TCP as the second channel, and the rings' own tests.
#include <atomic>
#include <cstring>
#include <new>
#include <thread>

#include "channel/shm/shm_channel.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/channel_contract.h"
#include "tests/cpp/contract/tcp_world.h"

namespace roundelay::testing {
namespace {

using channel::Channel;
using channel::Incoming;
using channel::Rings;
using channel::ShmChannel;
using namespace std::chrono_literals;

std::shared_ptr<std::byte> ring_memory(int ranks) {
  constexpr std::align_val_t kLine{128};
  auto* const memory = static_cast<std::byte*>(::operator new(Rings::bytes(ranks), kLine));
  std::memset(memory, 0, Rings::bytes(ranks));
  return {memory, [](std::byte* p) { ::operator delete(p, kLine); }};
}

// Ranks from `first` on share memory; lower ranks are on other nodes.
Channels make_all(int size, int first = 0) {
  TcpWorld world(size);
  const auto memory = ring_memory(size - first);
  std::vector<std::unique_ptr<channel::TcpChannel>> connected;
  for (int rank = 0; rank < size; ++rank) connected.push_back(world.channel(rank));
  std::vector<std::thread> threads;
  for (int rank = first; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      for (int peer = first; peer < size; ++peer)
        static_cast<void>(connected[static_cast<std::size_t>(rank)]->connect(peer, Deadline::after(20s)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  Channels channels;
  for (int rank = 0; rank < size; ++rank) {
    auto tcp = std::move(connected[static_cast<std::size_t>(rank)]);
    if (rank < first) {
      channels.push_back(std::move(tcp));
      continue;
    }
    Group node{0, {}, rank - first};
    for (int r = first; r < size; ++r) node.ranks.push_back(r);
    channels.push_back(std::make_unique<ShmChannel>(std::move(tcp), memory, std::move(node)));
  }
  return channels;
}

// The second channel of a ShmChannel. Counts the wakeups that it sends. A wakeup that it receives ends no
// sleep, as if the polling thread had read it before the sleeper's system call returned.
class Beside final : public channel::Channel {
 public:
  struct Seen {
    std::atomic<int> wakeups{0};
    std::atomic<bool> asleep{false};
  };
  explicit Beside(Seen& seen) : seen_(seen) {}
  Status send(int, ConstByteSpan) override {
    ++seen_.wakeups;
    return {};
  }
  std::optional<Incoming> receive() override { return std::nullopt; }
  void wait(Deadline deadline) override {
    MutexLock lock(mutex_);
    seen_.asleep = true;
    while (!woken_ && !deadline.passed()) changed_.wait_until(mutex_, deadline);
  }
  void wake() override {
    MutexLock lock(mutex_);
    woken_ = true;
    changed_.notify_all();
  }
  void close(Deadline) override {}

 private:
  Seen& seen_;
  Mutex mutex_;
  CondVar changed_;
  bool woken_ GUARDED_BY(mutex_) = false;
};

TEST_CASE("channel contract: shm") {
  check_channel([](int size) { return make_all(size); });
}

TEST_CASE("channel contract: shm on some ranks, others on nodes of their own") {
  check_channel([](int size) { return make_all(size, size / 2); });
}

TEST_CASE("shm channel: a rank that polls needs no wakeup, and gives none before it sleeps", "[channel]") {
  const auto ranks = make_all(2);
  ranks[0]->set_polling(true);
  ranks[1]->set_polling(true);
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(ranks[0]->send(1, to_bytes("question")).ok());
    CHECK(receive_one(*ranks[1]).bytes == to_bytes("question"));
    REQUIRE(ranks[1]->send(0, to_bytes("answer")).ok());
    CHECK(receive_one(*ranks[0]).bytes == to_bytes("answer"));
  }
  ranks[0]->set_polling(false);
  ranks[1]->set_polling(false);
}

TEST_CASE("shm channel: what comes when one stops polling ends the sleep of another thread", "[channel]") {
  for (int round = 0; round < 200; ++round) {
    const auto ranks = make_all(2);
    const Deadline deadline = Deadline::after(kForgotten);
    std::thread background([&] {  // stands for the coordination thread
      while (!ranks[0]->receive()) ranks[0]->wait(deadline);
    });
    std::thread sender([&] { static_cast<void>(ranks[1]->send(0, to_bytes("now"))); });
    ranks[0]->set_polling(true);
    ranks[0]->set_polling(false);
    background.join();
    CHECK_FALSE(deadline.passed());
    sender.join();
  }
}

TEST_CASE("shm channel: a sleeper whose wakeup another thread has read gets another", "[channel]") {
  const auto memory = ring_memory(2);
  Beside::Seen by_zero, by_one;
  ShmChannel zero(std::make_unique<Beside>(by_zero), memory, Group{0, {0, 1}, 0});
  ShmChannel one(std::make_unique<Beside>(by_one), memory, Group{0, {0, 1}, 1});
  std::thread background([&] { zero.wait(Deadline::after(60s)); });
  while (!by_zero.asleep) std::this_thread::yield();
  CHECK(one.send(0, to_bytes("for the sleeper")).ok());
  CHECK(by_one.wakeups == 1);
  zero.set_polling(true);
  CHECK(zero.receive().has_value());
  zero.set_polling(false);
  CHECK(one.send(0, to_bytes("while nobody attends")).ok());
  CHECK(by_one.wakeups == 2);
  zero.wake();
  background.join();
}

// Returns the next arrival at a rank that polls, and then sleeps. Sets `forgot` if nothing ended a sleep.
Incoming receive_polling(Channel& channel, Duration polling, std::atomic<bool>& forgot) {
  std::optional<Incoming> got;
  while (!(got = channel.receive())) {
    const Deadline deadline = Deadline::after(kForgotten);
    channel.wait_polling(deadline, polling);
    if (deadline.passed()) forgot = true;
  }
  return std::move(*got);
}

TEST_CASE("shm channel: two ranks that poll for a while and sleep by turns lose nothing", "[channel]") {
  const auto ranks = make_all(2);
  // The last message is empty: nothing would push out bytes for which a ring had no room.
  constexpr int kRounds = 2801;
  std::atomic<bool> forgot{false};
  std::thread other([&] {
    ranks[1]->set_polling(true);
    for (int i = 0; i < kRounds; ++i) {
      const Incoming got = receive_polling(*ranks[1], i % 3 == 0 ? 0us : 20us, forgot);
      if (i % 50 == 0) std::this_thread::sleep_for(100us);
      static_cast<void>(ranks[1]->send(0, got.bytes));
    }
    ranks[1]->set_polling(false);
  });
  ranks[0]->set_polling(true);
  bool same = true;
  for (int i = 0; i < kRounds; ++i) {
    const Bytes message = pattern(static_cast<std::size_t>(i % 400) * 100, static_cast<std::uint32_t>(i));
    static_cast<void>(ranks[0]->send(1, message));
    same = receive_polling(*ranks[0], i % 5 == 0 ? 0us : 20us, forgot).bytes == message && same;
  }
  ranks[0]->set_polling(false);
  other.join();
  CHECK(same);
  CHECK_FALSE(forgot);
}

}  // namespace
}  // namespace roundelay::testing
