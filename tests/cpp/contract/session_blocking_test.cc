// Blocking callers, for whom no thread is woken. Their operations are negotiated whichever thread drives,
// also if a driver leaves early. Waits have no deadline if possible, so that a lost wake-up hangs.
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/session_trip.h"

namespace roundelay::contract {
namespace {

using channel::Channel;
using runtime::Session;
using std::chrono::milliseconds;
using std::chrono::seconds;

class CountingChannel final : public Channel {
 public:
  CountingChannel(std::unique_ptr<Channel> inner, std::atomic<int>& wakes, bool any_thread)
      : inner_(std::move(inner)), wakes_(wakes), any_thread_(any_thread) {}
  Status send(int to, ConstByteSpan message) override { return inner_->send(to, message); }
  std::optional<channel::Incoming> receive() override { return inner_->receive(); }
  void wait(Deadline deadline) override { inner_->wait(deadline); }
  void wake() override {
    ++wakes_;
    inner_->wake();
  }
  void close(Deadline deadline) override { inner_->close(deadline); }
  [[nodiscard]] bool any_thread() const override { return any_thread_; }

 private:
  const std::unique_ptr<Channel> inner_;
  std::atomic<int>& wakes_;
  const bool any_thread_;
};

// A fabric whose calls do not end while the gate is shut.
class GatedFabric final : public collective::Fabric {
 public:
  GatedFabric(std::unique_ptr<Fabric> inner, const std::atomic<bool>& open)
      : inner_(std::move(inner)), open_(open) {}
  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] const Group& group() const override { return inner_->group(); }
  Result<std::unique_ptr<collective::PendingCall>> start(const collective::Call& call) override {
    auto pending = inner_->start(call);
    if (!pending.ok()) return pending.status();
    return std::unique_ptr<collective::PendingCall>(std::make_unique<Gated>(std::move(*pending), open_));
  }
  [[nodiscard]] bool any_thread() const override { return inner_->any_thread(); }
  [[nodiscard]] bool poisoned() const override { return inner_->poisoned(); }
  [[nodiscard]] std::span<collective::Fabric* const> level_fabrics() override { return flat(); }

 private:
  class Gated final : public collective::PendingCall {
   public:
    Gated(std::unique_ptr<PendingCall> inner, const std::atomic<bool>& open)
        : inner_(std::move(inner)), open_(open) {}
    Result<bool> test() override { return open_ ? inner_->test() : Result<bool>(false); }

   private:
    const std::unique_ptr<PendingCall> inner_;
    const std::atomic<bool>& open_;
  };
  const std::unique_ptr<Fabric> inner_;
  const std::atomic<bool>& open_;
};

std::string sum_blocking(Session& session, int rank, const std::string& name, int size) {
  Flight flight{.data = std::vector<float>(16, static_cast<float>(rank + 1)), .blocking = true};
  if (const Status s = take_off(session, name, flight); !s.ok()) return s.message();
  return land(session, flight, static_cast<float>(size * (size + 1) / 2));
}

TEST_CASE("a blocking call wakes no thread", "[session][blocking]") {
  constexpr int kRounds = 200;
  std::atomic<int> wakes{0};
  SessionWorld world(2, {}, [&](runtime::SessionParts& parts) {
    parts.channel = std::make_unique<CountingChannel>(std::move(parts.channel), wakes, true);
  });
  const auto rounds = [&](Session& session, int rank) -> std::string {
    for (int round = 0; round < kRounds; ++round) {
      if (std::string wrong = sum_blocking(session, rank, "w", 2); !wrong.empty()) return wrong;
    }
    return {};
  };
  world.run(rounds);
  CHECK(wakes < kRounds / 4);  // two ranks' calls; some of them meet the background thread at work
  world.shutdown();
}

TEST_CASE("several threads block at once, and one at a time drives", "[session][blocking]") {
  const int size = GENERATE(1, 2, 4);
  constexpr int kThreads = 3;
  SessionWorld world(size);
  world.run([&](Session& session, int rank) {
    return in_threads(kThreads, 200, [&](std::size_t t) {
      return sum_blocking(session, rank, "thread " + std::to_string(t), size);
    });
  });
  world.shutdown();
}

TEST_CASE("threads that block in overlapping sets", "[session][blocking][sets]") {
  SessionWorld world(3);
  const std::vector<std::vector<int>> shapes = {{0, 1, 2}, {0, 1}, {1, 2}, {0, 2}};
  world.run([&](Session& session, int rank) -> std::string {
    for (std::size_t i = 1; i < shapes.size(); ++i) {
      if (const auto id = add_set(session, shapes[i]); !id.ok()) return id.status().message();
    }
    return in_threads(shapes.size(), 200, [&](std::size_t set) -> std::string {
      if (std::find(shapes[set].begin(), shapes[set].end(), rank) == shapes[set].end()) return {};
      Flight flight{.data = std::vector<float>(3, 1.0F),
                    .process_set = static_cast<ProcessSetId>(set),
                    .blocking = true};
      const Status status = take_off(session, "same name", flight);
      return status.ok() ? land(session, flight, static_cast<float>(shapes[set].size())) : status.message();
    });
  });
  world.shutdown();
}

TEST_CASE("a call that blocks is negotiated while its thread runs an earlier operation",
          "[session][blocking]") {
  std::atomic<bool> open{false};
  SessionWorld world(2, {}, [&](runtime::SessionParts& parts) {
    parts.fabrics.all.front() = std::make_unique<GatedFabric>(std::move(parts.fabrics.all.front()), open);
  });
  const int orders_before = world.orders_sent;
  std::atomic<bool> ordered{false};
  world.run([&](Session& session, int) -> std::string {
    Flight first{std::vector<float>(8, 1.0F)};
    if (const Status s = take_off(session, "first", first); !s.ok()) return s.message();
    session.end_linger();
    // Both ranks' lanes have the operation and keep it.
    while (world.orders_sent == orders_before) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(20));
    std::thread watch([&] {
      const Deadline limit = Deadline::after(seconds(20));
      while (world.orders_sent < orders_before + 2 && !limit.passed()) std::this_thread::yield();
      ordered = world.orders_sent >= orders_before + 2;
      open = true;
    });
    Flight second{.data = std::vector<float>(8, 2.0F), .blocking = true};
    const Status status = take_off(session, "second", second);
    std::string wrong = status.ok() ? land(session, second, 4.0F) : status.message();
    watch.join();
    return wrong.empty() ? land(session, first, 2.0F) : wrong;
  });
  CHECK(ordered);
  world.shutdown();
}

TEST_CASE("a caller that leaves a blocking call early has told its peers of it", "[session][blocking]") {
  const int leaver = GENERATE(0, 1);
  SessionWorld world(2);
  std::atomic<bool> left{false}, over{false};
  world.run([&](Session& session, int rank) -> std::string {
    if (std::string wrong = sum_blocking(session, rank, "before", 2); !wrong.empty()) return wrong;
    std::this_thread::sleep_for(milliseconds(20));  // lets all threads go to sleep
    while (rank != leaver && !left) std::this_thread::yield();
    Flight flight{.data = std::vector<float>(8, 1.0F), .blocking = true};
    if (const Status s = take_off(session, "left", flight); !s.ok()) return s.message();
    if (rank == leaver) {
      if (session.wait(flight.handle, Deadline::at(steady_now()))) return "ended without its peer";
      left = true;
      while (!over) std::this_thread::yield();  // this thread does no more work for it
    } else {
      const auto status = session.wait(flight.handle, Deadline::after(seconds(20)));
      over = true;
      if (!status) return "the other rank's part never came";
    }
    return rank == leaver ? land(session, flight, 2.0F) : std::string();
  });
  world.shutdown();
}

TEST_CASE("blocking calls work when one thread does everything", "[session][blocking]") {
  std::atomic<int> wakes{0};
  SessionWorld world(3, {}, [&](runtime::SessionParts& parts) {
    parts.channel = std::make_unique<CountingChannel>(std::move(parts.channel), wakes, false);
  });
  world.run([&](Session& session, int rank) -> std::string {
    for (int round = 0; round < 50; ++round) {
      if (std::string wrong = sum_blocking(session, rank, "w", 3); !wrong.empty()) return wrong;
    }
    return {};
  });
  world.shutdown();
}

}  // namespace
}  // namespace roundelay::contract
