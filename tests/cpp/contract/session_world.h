// Sessions of N ranks in one process, and the operations of their users.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/cores.h"
#include "channel/inproc/hub.h"
#include "collective/inproc/hub.h"
#include "runtime/session/session.h"
#include "tests/cpp/catch.h"
#include "wire/codec.h"

namespace roundelay::contract {

// A channel of a process that a test can stop. It then neither reads nor writes, but its connections stay
// open. Counts the orders that it sends and receives.
class StoppableChannel final : public channel::Channel {
 public:
  StoppableChannel(std::unique_ptr<channel::Channel> inner, const std::atomic<bool>& stopped,
                   std::atomic<int>& orders_sent, std::atomic<int>& orders_read)
      : inner_(std::move(inner)), stopped_(stopped), orders_sent_(orders_sent), orders_read_(orders_read) {}
  Status send(int to, ConstByteSpan message) override {
    if (stopped_) return {};
    const bool order = is_order(message);
    Status status = inner_->send(to, message);
    if (order) ++orders_sent_;
    return status;
  }
  std::optional<channel::Incoming> receive() override {
    if (stopped_) return std::nullopt;
    auto incoming = inner_->receive();
    if (incoming && is_order(incoming->bytes)) ++orders_read_;
    return incoming;
  }
  void wait(Deadline deadline) override {
    if (stopped_) return std::this_thread::sleep_for(std::chrono::milliseconds(1));
    inner_->wait(deadline);
  }
  void wake() override { inner_->wake(); }
  void close(Deadline deadline) override { inner_->close(deadline); }

 private:
  static bool is_order(ConstByteSpan message) {
    const auto decoded = wire::decode(message);
    return decoded.ok() && std::holds_alternative<wire::Order>(*decoded);
  }

  const std::unique_ptr<channel::Channel> inner_;
  const std::atomic<bool>& stopped_;
  std::atomic<int>& orders_sent_;
  std::atomic<int>& orders_read_;
};

// Makes the fabrics of process sets. All members of a set share a hub.
class SetHubs {
 public:
  Result<std::unique_ptr<collective::Fabric>> fabric(const Group& group) {
    const std::lock_guard lock(mutex_);
    Status& failure = failures_[group.world_rank()];
    if (!failure.ok()) return std::exchange(failure, Status{});
    Meeting& meeting = meetings_[group.id];
    if (meeting.arrived++ == 0) meeting.hub = std::make_shared<collective::InprocHub>(group.size());
    auto fabric = collective::make_inproc_fabric(meeting.hub, group);
    latest_ = meeting.hub;
    if (meeting.arrived == group.size()) meetings_.erase(group.id);
    return fabric;
  }
  // Makes the next fabric() of `rank` fail.
  void fail_next(int rank, Status why) {
    const std::lock_guard lock(mutex_);
    failures_[rank] = std::move(why);
  }
  // Returns the hub of the set that was made last; null if it is gone.
  std::shared_ptr<collective::InprocHub> latest() {
    const std::lock_guard lock(mutex_);
    return latest_.lock();
  }

 private:
  struct Meeting {
    int arrived = 0;
    std::shared_ptr<collective::InprocHub> hub;
  };
  std::mutex mutex_;
  std::map<ProcessSetId, Meeting> meetings_;
  std::map<int, Status> failures_;
  std::weak_ptr<collective::InprocHub> latest_;
};

class SessionWorld {
 public:
  // May change each rank's parts before its session starts.
  using Change = std::function<void(runtime::SessionParts&)>;
  explicit SessionWorld(int size, Config config = {}, const Change& change = {})
      : control(size, channel::Delivery::kAtOnce),
        data(std::make_shared<collective::InprocHub>(size)),
        stopped(static_cast<std::size_t>(size)),
        orders_read(static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      Group world{0, {}, rank};
      for (int r = 0; r < size; ++r) world.ranks.push_back(r);
      runtime::SessionParts parts;
      parts.config = config;
      parts.rank_info =
          bootstrap::rank_info_of(rank, std::vector<std::string>(static_cast<std::size_t>(size), "node"));
      parts.crowded = outnumber_cores(size);
      parts.bootstrap = "test";
      parts.channel_name = "inproc";
      parts.channel =
          std::make_unique<StoppableChannel>(control.channel(rank), stopped[static_cast<std::size_t>(rank)],
                                             orders_sent, orders_read[static_cast<std::size_t>(rank)]);
      parts.fabrics = execute::one_fabric(collective::make_inproc_fabric(data, world));
      parts.make_fabrics = [this](const Group& group) -> Result<execute::LaneFabrics> {
        auto fabric = hubs.fabric(group);
        if (!fabric.ok()) return fabric.status();
        return execute::one_fabric(std::move(fabric).value());
      };
      if (change) change(parts);
      sessions.push_back(std::make_unique<runtime::Session>(std::move(parts)));
    }
  }

  // Stops the process of `rank`: it sends and receives nothing more.
  void stop(int rank) {
    stopped[static_cast<std::size_t>(rank)] = true;
    data->silence(rank);
  }

  // Calls `user` for each rank in a thread of its own, and checks that it returns "". Catch2's macros are not
  // thread-safe, so `user` returns errors.
  using User = std::function<std::string(runtime::Session&, int rank)>;
  void run(const User& user) {
    std::vector<std::string> complaints(sessions.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < sessions.size(); ++rank) {
      threads.emplace_back([&, rank] { complaints[rank] = user(*sessions[rank], static_cast<int>(rank)); });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::size_t rank = 0; rank < complaints.size(); ++rank) {
      INFO("rank " << rank);
      CHECK(complaints[rank] == "");
    }
  }
  // Shuts down all ranks, each in a thread of its own, as processes do.
  void shutdown() {
    run([](runtime::Session& session, int) {
      session.shutdown();
      return std::string();
    });
  }

  channel::Hub control;
  std::shared_ptr<collective::InprocHub> data;  // the world's
  SetHubs hubs;
  std::vector<std::atomic<bool>> stopped;
  std::vector<std::atomic<int>> orders_read;  // by rank; a coordinator sends itself no message
  std::atomic<int> orders_sent{0};            // by all ranks together
  std::vector<std::unique_ptr<runtime::Session>> sessions;
};

// A tensor in an operation that is in flight.
struct Flight {
  std::vector<float> data;
  complete::Handle handle = 0;
  ProcessSetId process_set = 0;
  bool blocking = false;
};

template <typename Change>
Status take_off(runtime::Session& session, const std::string& name, Flight& flight, Change change) {
  submit::Arguments arguments;
  arguments.request.name = name;
  arguments.request.shape = {static_cast<std::int64_t>(flight.data.size())};
  change(arguments.request);
  auto* const data = reinterpret_cast<std::byte*>(flight.data.data());
  arguments.parts = {{arguments.request.dtype, data, data, flight.data.size()}};
  const auto handle = session.submit(std::move(arguments), {flight.process_set, flight.blocking});
  if (handle.ok()) flight.handle = *handle;
  return handle.status();
}

inline Status take_off(runtime::Session& session, const std::string& name, Flight& flight) {
  return take_off(session, name, flight, [](wire::Request&) {});
}

// Runs `step` for `rounds` rounds in each of `number` threads; a thread stops at its first error. Returns the
// error of the first thread that has one.
inline std::string in_threads(std::size_t number, int rounds,
                              const std::function<std::string(std::size_t thread)>& step) {
  std::vector<std::string> complaints(number);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < number; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < rounds && complaints[t].empty(); ++round) complaints[t] = step(t);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& complaint : complaints) {
    if (!complaint.empty()) return complaint;
  }
  return {};
}

// Waits for the operation and returns its error or the difference, "" if there is none. Waits without a
// deadline, so that a lost wake-up hangs and does not pass late.
inline std::string land(runtime::Session& session, const Flight& flight, float expected) {
  const auto status = session.wait(flight.handle, Deadline::never());
  if (!status) return "wait() without a deadline came back";
  if (!status->ok()) return status->message();
  for (const float value : flight.data) {
    if (value != expected) return "got " + std::to_string(value) + " instead of " + std::to_string(expected);
  }
  return {};
}

// Runs one blocking allreduce of rank + 1. Returns the error, "" if there is none.
inline std::string sum_once(runtime::Session& session, int rank, const std::string& name, int size,
                            bool blocking = false) {
  Flight flight{std::vector<float>(16, static_cast<float>(rank + 1))};
  flight.blocking = blocking;
  if (const Status s = take_off(session, name, flight); !s.ok()) return s.message();
  return land(session, flight, static_cast<float>(size * (size + 1) / 2));
}

// Submits tensors in an order of this rank's own, and waits for them in another, three times. Returns the
// first error or difference, "" if there is none.
inline std::string sum_in_any_order(runtime::Session& session, int rank, int size, std::size_t tensors) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::vector<std::size_t> order(tensors);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (int round = 0; round < 3; ++round) {
    std::vector<Flight> flights(tensors);
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      flights[i].data.assign(1 + i * 7 % 300, static_cast<float>(static_cast<int>(i) + rank));
      const Status status = take_off(session, "t" + std::to_string(i), flights[i]);
      if (!status.ok()) return status.message();
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) {
      const int sum = size * static_cast<int>(i) + size * (size - 1) / 2;
      const std::string wrong = land(session, flights[i], static_cast<float>(sum));
      if (!wrong.empty()) return "t" + std::to_string(i) + ": " + wrong;
    }
  }
  return {};
}

}  // namespace roundelay::contract
