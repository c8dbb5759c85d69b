#include "bootstrap/store/store_bootstrap.h"

#include <utility>

namespace roundelay::bootstrap {
namespace {

// Time for the last messages after an exchange that failed.
constexpr Duration kReportTime = std::chrono::seconds(2);

}  // namespace

std::string store_root(const Rendezvous& where, std::uint32_t generation) {
  return "roundelay/" + where.job + "/" + std::to_string(generation) + "/";
}

StoreBootstrap::StoreBootstrap(std::shared_ptr<KeyValueStore> store, const Rendezvous& where,
                               std::uint32_t generation, Duration patience)
    : store_(std::move(store)),
      root_(store_root(where, generation)),
      rank_(where.rank),
      size_(where.size),
      patience_(patience) {}

StoreBootstrap::~StoreBootstrap() {
  if (stay_for_.empty()) return;
  const Keys left = keys_of("left");
  const Deadline until = broken_ ? Deadline::after(kReportTime) : deadline_;
  if (!store_->set(left[static_cast<std::size_t>(rank_)], {}, until).ok() || rank_ != 0) return;
  const Result<bool> all = store_->wait(stay_for_, until);
  if (broken_ || !all.ok() || !*all) return;
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
  ROUNDELAY_RETURN_IF_ERROR(store_->set(keys[static_cast<std::size_t>(rank_)], mine, deadline));
  const Result<bool> all_there = store_->wait(keys, deadline);
  if (!all_there.ok()) return all_there.status();
  if (!*all_there) return give_up(keys);
  auto all = store_->get(keys, deadline);
  if (!all.ok()) return all;
  // All ranks are here, so all have read the values of the exchange before.
  if (exchanges_ > 0) {
    const std::string before = keys_of(std::to_string(exchanges_ - 1))[static_cast<std::size_t>(rank_)];
    ROUNDELAY_RETURN_IF_ERROR(store_->erase(before, deadline));
  }
  ++exchanges_;
  return all;
}

// Fails at once if the other ranks have stopped waiting for this one.
Status StoreBootstrap::refuse_if_given_up(Deadline deadline) {
  const Keys given_up{root_ + "given_up"};
  const Result<bool> over = store_->has(given_up.front(), deadline);
  if (!over.ok()) return over.status();
  if (!*over) return {};
  const auto why = store_->get(given_up, deadline);
  return why.ok() ? Status::aborted(to_text(why->front())) : why.status();
}

Status StoreBootstrap::give_up(const Keys& keys) {
  const Deadline deadline = Deadline::after(kReportTime);
  std::string missing;
  int count = 0;
  Keys left_by_present;
  const Keys left = keys_of("left");
  for (int rank = 0; rank < size_; ++rank) {
    const Result<bool> there = store_->has(keys[static_cast<std::size_t>(rank)], deadline);
    if (!there.ok()) return there.status();
    if (*there) {
      left_by_present.push_back(left[static_cast<std::size_t>(rank)]);
      continue;
    }
    missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    ++count;
  }
  if (count == 0) return Status::aborted("the start was not completed by all ranks before its deadline");
  stay_for_ = std::move(left_by_present);
  const std::string text = (count == 1 ? "rank " : "ranks ") + missing + " of " + std::to_string(size_) +
                           (exchanges_ == 0 ? " did not come to init()" : " came to init() but got stuck") +
                           " within " + seconds_text(patience_) + " (ROUNDELAY_START_TIMEOUT), says rank " +
                           std::to_string(rank_);
  ROUNDELAY_RETURN_IF_ERROR(store_->set(root_ + "given_up", to_bytes(text), deadline));
  return Status::aborted(text);
}

}  // namespace roundelay::bootstrap
