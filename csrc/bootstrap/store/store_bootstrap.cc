#include "bootstrap/store/store_bootstrap.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.h"

namespace roundelay::bootstrap {
namespace {

// Time for the last messages after an exchange that failed.
constexpr Duration kReportTime = std::chrono::seconds(2);
// A rank that waits looks so often whether its own values are still there. PyTorch warns each time.
constexpr Duration kLook = std::chrono::seconds(10);
// The same while a value is not genuine. The store tells that a key is set, and not that its value is
// another.
constexpr Duration kForgedPause = std::chrono::milliseconds(20);

trust::Mac mac_of(const trust::Key& secret, const std::string& key, ConstByteSpan value) {
  return trust::mac_of(secret, "store", {std::as_bytes(std::span(key)), value});
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (const int rank : ranks) text += (rank == ranks.front() ? "" : ", ") + std::to_string(rank);
  return text;
}

std::vector<int> not_genuine(const std::vector<bool>& genuine) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < genuine.size(); ++rank) {
    if (!genuine[rank]) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

}  // namespace

std::string store_root(const Rendezvous& where, std::uint32_t generation) {
  return "roundelay/" + where.job + "/" + std::to_string(generation) + "/";
}

StoreBootstrap::StoreBootstrap(std::shared_ptr<KeyValueStore> store, const Rendezvous& where,
                               std::uint32_t generation, Duration timeout, const trust::Key& secret)
    : store_(std::move(store)),
      root_(store_root(where, generation)),
      rank_(where.rank),
      size_(where.size),
      timeout_(timeout),
      secret_(secret) {}

StoreBootstrap::~StoreBootstrap() {
  if (stay_for_.empty()) return;
  const Keys left = keys_of("left");
  const Deadline until = broken_ ? Deadline::after(kReportTime) : deadline_;
  if (!write(left[static_cast<std::size_t>(rank_)], {}, until).ok() || rank_ != 0) return;
  const auto all = collect(stay_for_, until);
  if (broken_ || !all.ok() || !all->all()) return;
  for (const std::string& key : left) static_cast<void>(store_->erase(key, until));
  for (const std::string& key : keys_of(std::to_string(exchanges_ - 1))) {
    static_cast<void>(store_->erase(key, until));
  }
}

StoreBootstrap::Keys StoreBootstrap::keys_of(const std::string& what) const {
  Keys keys;
  for (int rank = 0; rank < size_; ++rank) keys.push_back(root_ + what + "/" + std::to_string(rank));
  return keys;
}

bool StoreBootstrap::Found::all() const {
  return std::ranges::all_of(genuine, [](bool one) { return one; });
}

Status StoreBootstrap::write(const std::string& key, ConstByteSpan value, Deadline deadline) {
  Bytes& sealed = written_[key];
  sealed.assign(value.begin(), value.end());
  const trust::Mac mac = mac_of(secret_, key, value);
  sealed.insert(sealed.end(), mac.begin(), mac.end());
  return store_->set(key, sealed, deadline);
}

// Writes those of this rank's values again that are gone or changed.
Status StoreBootstrap::write_again(Deadline deadline) {
  for (const auto& [key, sealed] : written_) {
    const Result<bool> there = store_->has(key, deadline);
    if (!there.ok()) return there.status();
    if (*there) {
      const auto values = store_->get({key}, deadline);
      if (!values.ok()) return values.status();
      if (values->front() == sealed) continue;
    }
    if (!std::exchange(warned_, true)) {
      log(LogLevel::kWarning, "a stranger changes this rank's values in the store; it writes them again");
    }
    ROUNDELAY_RETURN_IF_ERROR(store_->set(key, sealed, deadline));
  }
  return {};
}

// Reads values. All keys must be set.
Result<StoreBootstrap::Found> StoreBootstrap::read(const Keys& keys, Deadline deadline) {
  auto values = store_->get(keys, deadline);
  if (!values.ok()) return values.status();
  Found found{std::move(values).value(), {}};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    Bytes& value = found.values[i];
    const std::size_t length = value.size() - std::min(value.size(), trust::kTrustBytes);
    const ConstByteSpan mac = ConstByteSpan(value).subspan(length);
    const bool genuine = trust::same_bytes(mac, mac_of(secret_, keys[i], ConstByteSpan(value).first(length)));
    value.resize(genuine ? length : 0);
    found.genuine.push_back(genuine);
  }
  return found;
}

// Waits until all values are there and genuine. At the deadline it returns what there is; if some keys are
// not even set, the values may be those of fewer keys.
Result<StoreBootstrap::Found> StoreBootstrap::collect(const Keys& keys, Deadline deadline) {
  while (true) {
    const Result<bool> all_set = store_->wait(keys, deadline.sooner(Deadline::after(kLook)), deadline);
    if (!all_set.ok()) return all_set.status();
    Found found{{}, std::vector<bool>(keys.size())};
    if (*all_set) {
      auto values = read(keys, deadline);
      if (!values.ok() || values->all()) return values;
      found = std::move(values).value();
      // Without a secret anybody's MAC is good, so this one is of a rank that has one.
      if (secret_ == trust::Key{}) return found;
    }
    if (deadline.passed()) return found;
    ROUNDELAY_RETURN_IF_ERROR(write_again(deadline));
    if (*all_set) std::this_thread::sleep_for(kForgedPause);
  }
}

Result<std::vector<Bytes>> StoreBootstrap::all_gather(ConstByteSpan mine, Deadline deadline) {
  deadline_ = deadline;
  stay_for_ = keys_of("left");
  auto all = exchange(mine, deadline);
  broken_ = broken_ || !all.ok();
  return all;
}

Result<std::vector<Bytes>> StoreBootstrap::exchange(ConstByteSpan mine, Deadline deadline) {
  ROUNDELAY_RETURN_IF_ERROR(refuse_if_given_up(deadline));
  const Keys keys = keys_of(std::to_string(exchanges_));
  ROUNDELAY_RETURN_IF_ERROR(write(keys[static_cast<std::size_t>(rank_)], mine, deadline));
  auto all = collect(keys, deadline);
  if (!all.ok()) return all.status();
  if (!all->all()) return give_up(keys, *all);
  // All ranks are here, so all have read the values of the exchange before.
  if (exchanges_ > 0) {
    const std::string before = keys_of(std::to_string(exchanges_ - 1))[static_cast<std::size_t>(rank_)];
    written_.erase(before);
    ROUNDELAY_RETURN_IF_ERROR(store_->erase(before, deadline));
  }
  ++exchanges_;
  return std::move(all->values);
}

// Fails at once if the other ranks have stopped waiting for this one.
Status StoreBootstrap::refuse_if_given_up(Deadline deadline) {
  const Keys given_up{root_ + "given_up"};
  const Result<bool> over = store_->has(given_up.front(), deadline);
  if (!over.ok()) return over.status();
  if (!*over) return {};
  const auto why = read(given_up, deadline);
  if (!why.ok()) return why.status();
  return why->all() ? Status::aborted(to_text(why->values.front())) : Status{};
}

// The error if all values are there, but some are not genuine.
Status StoreBootstrap::forged(const Found& found) const {
  const std::string whose = "the store's value of " + ranks_text(not_genuine(found.genuine));
  if (secret_ == trust::Key{}) {
    return Status::aborted(whose + " has the MAC of a secret, and rank " + std::to_string(rank_) +
                           " has none: give all ranks the same ROUNDELAY_SECRET");
  }
  return Status::aborted(
      whose + " has no MAC of this job's secret, says rank " + std::to_string(rank_) +
      ": that rank has no ROUNDELAY_SECRET or another one, or a stranger writes to the store");
}

Status StoreBootstrap::give_up(const Keys& keys, const Found& found) {
  const Deadline deadline = Deadline::after(kReportTime);
  std::vector<int> missing;
  Keys left_by_present;
  const Keys left = keys_of("left");
  for (int rank = 0; rank < size_; ++rank) {
    const Result<bool> there = store_->has(keys[static_cast<std::size_t>(rank)], deadline);
    if (!there.ok()) return there.status();
    if (*there) {
      left_by_present.push_back(left[static_cast<std::size_t>(rank)]);
    } else {
      missing.push_back(rank);
    }
  }
  if (missing.empty() && !found.values.empty()) return forged(found);
  if (missing.empty()) return Status::aborted("the start was not completed by all ranks before its deadline");
  stay_for_ = std::move(left_by_present);
  const std::string text = ranks_text(missing) + " of " + std::to_string(size_) +
                           (exchanges_ == 0 ? " did not come to init()" : " came to init() but got stuck") +
                           " within " + seconds_text(timeout_) + " (ROUNDELAY_START_TIMEOUT), says rank " +
                           std::to_string(rank_);
  ROUNDELAY_RETURN_IF_ERROR(write(root_ + "given_up", to_bytes(text), deadline));
  return Status::aborted(text);
}

}  // namespace roundelay::bootstrap
