// Ranks meet in a store: late and missing ranks, older generations, other jobs in the same store.
#include "bootstrap/store/store_bootstrap.h"

#include <algorithm>
#include <map>
#include <optional>
#include <thread>

#include "base/annotations.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/in_time.h"

namespace roundelay::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class MemoryStore final : public KeyValueStore {
 public:
  Status set(const std::string& key, ConstByteSpan value, Deadline /*deadline*/) override {
    MutexLock lock(mutex_);
    if (gone_) return Status::aborted("the store is gone");
    values_[key] = Bytes(value.begin(), value.end());
    changed_.notify_all();
    while (values_.size() < least_) changed_.wait_until(mutex_, Deadline::never());
    return {};
  }
  Result<bool> wait(const std::vector<std::string>& keys, Deadline deadline, Deadline /*answer*/) override {
    MutexLock lock(mutex_);
    while (!gone_ && !there(keys) && !deadline.passed()) changed_.wait_until(mutex_, deadline);
    if (gone_) return Status::aborted("the store is gone");
    return there(keys);
  }
  Result<bool> has(const std::string& key, Deadline /*deadline*/) override {
    return wait({key}, Deadline::at(steady_now()), Deadline::never());
  }
  Result<std::vector<Bytes>> get(const std::vector<std::string>& keys, Deadline /*deadline*/) override {
    MutexLock lock(mutex_);
    std::vector<Bytes> found;
    for (const std::string& key : keys) {
      if (!values_.contains(key)) return Status::internal(key + " was read, but is not there");
      found.push_back(values_.at(key));
    }
    return found;
  }
  Status erase(const std::string& key, Deadline /*deadline*/) override {
    MutexLock lock(mutex_);
    values_.erase(key);
    return {};
  }
  std::vector<std::string> keys() {
    MutexLock lock(mutex_);
    std::vector<std::string> all;
    for (const auto& [key, value] : values_) all.push_back(key);
    return all;
  }
  // Lets set() return only when there are so many values. Ranks that set one each so wait for each other.
  void wait_for(std::size_t values) {
    MutexLock lock(mutex_);
    least_ = values;
  }
  void end() {
    MutexLock lock(mutex_);
    gone_ = true;
    changed_.notify_all();
  }

 private:
  bool there(const std::vector<std::string>& keys) REQUIRES(mutex_) {
    return std::all_of(keys.begin(), keys.end(),
                       [&](const std::string& key) REQUIRES(mutex_) { return values_.contains(key); });
  }
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Bytes> values_ GUARDED_BY(mutex_);
  bool gone_ GUARDED_BY(mutex_) = false;
  std::size_t least_ GUARDED_BY(mutex_) = 0;
};

Rendezvous place(int rank, int size, const std::string& job = "job/0") {
  Rendezvous where;
  where.rank = rank;
  where.size = size;
  where.job = job;
  return where;
}

// Runs one init of one rank with `exchanges` rounds of different bytes. Returns the received bytes, or the
// error.
std::string take_part(const std::shared_ptr<KeyValueStore>& store, const Rendezvous& where,
                      std::uint32_t generation, Duration limit, int exchanges = 3,
                      const trust::Key& secret = {}) {
  StoreBootstrap ranks(store, where, generation, limit, secret);
  const Deadline deadline = Deadline::after(limit);
  std::string seen;
  for (int round = 0; round < exchanges; ++round) {
    const std::string mine = where.job + std::to_string(generation) + std::to_string(round) + ":" +
                             std::string(static_cast<std::size_t>(where.rank), 'x') + " ";
    const auto all = ranks.all_gather(to_bytes(mine), deadline);
    if (!all.ok()) return all.status().message();
    for (const Bytes& one : *all) seen += to_text(one);
  }
  return seen;
}

std::string wanted(int size, const std::string& job, std::uint32_t generation, int exchanges = 3) {
  std::string text;
  for (int round = 0; round < exchanges; ++round) {
    for (int rank = 0; rank < size; ++rank) {
      text += job + std::to_string(generation) + std::to_string(round) + ":" +
              std::string(static_cast<std::size_t>(rank), 'x') + " ";
    }
  }
  return text;
}

// Runs each rank in a thread of its own; `delay` tells how late it comes.
std::vector<std::string> run(int size, const std::function<std::string(int rank)>& part) {
  std::vector<std::string> results(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { results[static_cast<std::size_t>(rank)] = part(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST_CASE("store: everyone's bytes by rank, and nothing stays behind", "[bootstrap]") {
  for (const int size : {1, 2, 5}) {
    const auto store = std::make_shared<MemoryStore>();
    const auto seen =
        run(size, [&](int rank) { return take_part(store, place(rank, size), 1, seconds(20)); });
    for (const std::string& text : seen) CHECK(text == wanted(size, "job/0", 1));
    CHECK(store->keys().empty());
  }
}

TEST_CASE("store: ranks go through several inits, each at its own speed", "[bootstrap]") {
  constexpr int kSize = 3;
  const auto store = std::make_shared<MemoryStore>();
  const auto seen = run(kSize, [&](int rank) {
    std::string text;
    for (std::uint32_t generation = 1; generation <= 4; ++generation) {
      std::this_thread::sleep_for(milliseconds(5 * ((rank + static_cast<int>(generation)) % kSize)));
      text += take_part(store, place(rank, kSize), generation, seconds(20));
    }
    return text;
  });
  std::string all;
  for (std::uint32_t generation = 1; generation <= 4; ++generation) all += wanted(kSize, "job/0", generation);
  for (const std::string& text : seen) CHECK(text == all);
  CHECK(store->keys().empty());
}

TEST_CASE("store: missing ranks are named, and who comes late hears of it", "[bootstrap]") {
  const auto store = std::make_shared<MemoryStore>();
  store->wait_for(2);  // neither gives up before the other has come
  const auto seen = run(4, [&](int rank) {
    return rank % 2 == 1 ? std::string() : take_part(store, place(rank, 4), 1, milliseconds(200));
  });
  for (const int rank : {0, 2}) {
    const std::string& text = seen[static_cast<std::size_t>(rank)];
    CHECK(text.find("ranks 1, 3 of 4 did not come to init() within 0.2 s (ROUNDELAY_START_TIMEOUT)") == 0);
  }
  store->wait_for(0);
  const TimePoint begin = steady_now();
  const std::string late = take_part(store, place(1, 4), 1, seconds(20));
  CHECK(late.find("ranks 1, 3 of 4 did not come to init()") == 0);
  testing::expect_within(seconds(5), steady_now() - begin);
  // All ranks come once more.
  const auto again = run(4, [&](int rank) { return take_part(store, place(rank, 4), 2, seconds(20)); });
  for (const std::string& text : again) CHECK(text == wanted(4, "job/0", 2));
}

TEST_CASE("store: a rank that leaves in the middle is named", "[bootstrap]") {
  const auto store = std::make_shared<MemoryStore>();
  store->wait_for(2);  // rank 0 does not give up before rank 1 has come
  const auto seen = run(
      2, [&](int rank) { return take_part(store, place(rank, 2), 1, milliseconds(300), rank == 0 ? 3 : 1); });
  CHECK(seen[0].find("rank 1 of 2 came to init() but got stuck") == 0);
}

TEST_CASE("store: jobs and restarts in one store do not see each other", "[bootstrap]") {
  const auto store = std::make_shared<MemoryStore>();
  // A run that died in the middle has left these keys.
  REQUIRE(store->set(store_root(place(0, 2, "a/0"), 1) + "0/1", to_bytes("stale"), Deadline::never()).ok());
  REQUIRE(
      store->set(store_root(place(0, 2, "a/0"), 1) + "given_up", to_bytes("stale"), Deadline::never()).ok());
  const auto seen = run(4, [&](int thread) {
    return take_part(store, place(thread % 2, 2, thread < 2 ? "a/1" : "b/1"), 1, seconds(20));
  });
  for (int thread = 0; thread < 4; ++thread) {
    CHECK(seen[static_cast<std::size_t>(thread)] == wanted(2, thread < 2 ? "a/1" : "b/1", 1));
  }
}

TEST_CASE("store: a rank that exchanges nothing sends nothing", "[bootstrap]") {
  const auto store = std::make_shared<MemoryStore>();
  for (const int rank : {0, 1})
    const StoreBootstrap unused(store, place(rank, 2), 1, seconds(20), trust::Key{});
  CHECK(store->keys().empty());
}

TEST_CASE("store: its end is an error at once", "[bootstrap]") {
  const auto store = std::make_shared<MemoryStore>();
  std::thread ending([&] {
    std::this_thread::sleep_for(milliseconds(50));
    store->end();
  });
  const TimePoint begin = steady_now();
  CHECK(take_part(store, place(1, 2), 1, seconds(20)) == "the store is gone");
  testing::expect_within(seconds(10), steady_now() - begin);
  ending.join();
}

TEST_CASE("store: rank 0 stays until all have read", "[bootstrap]") {
  const auto store = std::make_shared<MemoryStore>();
  const auto seen = run(3, [&](int rank) {
    const std::string text = take_part(store, place(rank, 3), 1, seconds(20), 1);
    if (rank == 0) store->end();  // the process that served the store ends
    return text;
  });
  for (const std::string& text : seen) CHECK(text == wanted(3, "job/0", 1, 1));
}

}  // namespace
}  // namespace roundelay::bootstrap
