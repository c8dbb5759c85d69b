// Strangers read the store, write to it and erase from it. The ranks get each other's bytes all the same.
#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "base/annotations.h"
#include "bootstrap/store/store_bootstrap.h"
#include "tests/cpp/catch.h"

namespace roundelay::bootstrap {
namespace {

using Catch::Matchers::Contains;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr trust::Key kSecret = {std::byte{1}, std::byte{2}};
constexpr trust::Key kOther = {std::byte{3}};

// A store that a stranger changes just before a rank looks.
class SpoiltStore final : public KeyValueStore {
 public:
  using Spoil = std::function<void(std::map<std::string, Bytes>& values)>;
  explicit SpoiltStore(Spoil spoil) : spoil_(std::move(spoil)) {}

  Status set(const std::string& key, ConstByteSpan value, Deadline /*deadline*/) override {
    MutexLock lock(mutex_);
    values_[key] = Bytes(value.begin(), value.end());
    changed_.notify_all();
    return {};
  }
  Result<bool> wait(const std::vector<std::string>& keys, Deadline deadline, Deadline /*answer*/) override {
    MutexLock lock(mutex_);
    while (!there(keys) && !deadline.passed()) changed_.wait_until(mutex_, deadline);
    if (spoil_) spoil_(values_);
    return there(keys);
  }
  Result<bool> has(const std::string& key, Deadline /*deadline*/) override {
    MutexLock lock(mutex_);
    return values_.contains(key);
  }
  Result<std::vector<Bytes>> get(const std::vector<std::string>& keys, Deadline /*deadline*/) override {
    MutexLock lock(mutex_);
    std::vector<Bytes> found;
    for (const std::string& key : keys) found.push_back(values_[key]);
    return found;
  }
  Status erase(const std::string& key, Deadline /*deadline*/) override {
    MutexLock lock(mutex_);
    values_.erase(key);
    return {};
  }

 private:
  bool there(const std::vector<std::string>& keys) REQUIRES(mutex_) {
    return std::ranges::all_of(
        keys, [&](const std::string& key) REQUIRES(mutex_) { return values_.contains(key); });
  }
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Bytes> values_ GUARDED_BY(mutex_);
  const Spoil spoil_;
};

Rendezvous place(int rank) {
  Rendezvous where;
  where.rank = rank;
  where.size = 2;
  where.job = "job/0";
  return where;
}

std::string key_of(const std::string& end) { return store_root(place(0), 1) + end; }

// Two ranks exchange three times. Returns what each has seen, or its error.
std::vector<std::string> exchange(const std::shared_ptr<KeyValueStore>& store, const trust::Key& of_zero,
                                  const trust::Key& of_one, Duration limit = seconds(20)) {
  std::vector<std::string> seen(2);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      StoreBootstrap ranks(store, place(rank), 1, limit, rank == 0 ? of_zero : of_one);
      const Deadline deadline = Deadline::after(limit);
      for (int round = 0; round < 3; ++round) {
        const auto all = ranks.all_gather(to_bytes(std::to_string(10 * round + rank) + " "), deadline);
        if (!all.ok()) {
          seen[static_cast<std::size_t>(rank)] = all.status().message();
          return;
        }
        for (const Bytes& one : *all) seen[static_cast<std::size_t>(rank)] += to_text(one);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return seen;
}

void check_that_all_goes_well(const SpoiltStore::Spoil& spoil) {
  for (const std::string& text : exchange(std::make_shared<SpoiltStore>(spoil), kSecret, kSecret)) {
    CHECK(text == "0 1 10 11 20 21 ");
  }
}

TEST_CASE("store: values that strangers write count as missing", "[bootstrap]") {
  SECTION("garbage in a rank's place, before and after the rank's own") {
    check_that_all_goes_well([left = 40](auto& values) mutable {
      if (left-- > 0 && left % 2 == 0) values[key_of(std::to_string(left % 3) + "/1")] = to_bytes("garbage");
    });
  }
  SECTION("nothing") {
    check_that_all_goes_well([left = 6](auto& values) mutable {
      if (left-- > 0) values[key_of("1/0")] = {};
    });
  }
  SECTION("a value of another key, with its MAC") {
    check_that_all_goes_well([left = 40](auto& values) mutable {
      if (left-- > 0 && values.contains(key_of("0/0"))) values[key_of("1/1")] = values[key_of("0/0")];
    });
  }
  SECTION("the end of the job") {
    check_that_all_goes_well([](auto& values) { values[key_of("given_up")] = to_bytes("all is lost"); });
  }
  SECTION("the ranks' leave") {
    check_that_all_goes_well([](auto& values) { values.try_emplace(key_of("left/1")); });
  }
}

TEST_CASE("store: values that strangers erase come back", "[bootstrap][slow]") {
  check_that_all_goes_well([left = 1](auto& values) mutable {
    if (left > 0 && values.erase(key_of("1/1")) > 0) --left;
  });
}

TEST_CASE("store: ranks with different secrets fail, and say so", "[bootstrap]") {
  const auto seen = exchange(std::make_shared<SpoiltStore>(nullptr), kSecret, kOther, milliseconds(300));
  CHECK_THAT(seen[0],
             Contains("value of rank 1 has no MAC of this job's secret") && Contains("ROUNDELAY_SECRET"));
  CHECK_THAT(seen[1], Contains("value of rank 0 has no MAC of this job's secret"));
}

TEST_CASE("store: a rank without the secret fails at once", "[bootstrap]") {
  const auto seen = exchange(std::make_shared<SpoiltStore>(nullptr), kSecret, {}, milliseconds(300));
  CHECK_THAT(seen[0], Contains("rank 1"));
  CHECK_THAT(seen[1], Contains("rank 0 has the MAC of a secret, and rank 1 has none"));
}

}  // namespace
}  // namespace roundelay::bootstrap
