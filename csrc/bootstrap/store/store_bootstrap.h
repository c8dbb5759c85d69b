// The bootstrap of ranks that their launcher has numbered and that meet in a key-value store.
//
// Keys: roundelay/<job and restart>/<generation>/<exchange>/<rank>. An exchange is one all_gather(), counted
// from 0. The values of an exchange are erased when all ranks have come to the next one; those of the last
// one when all ranks have left. So an older generation leaves no values, and those of a dead job have other
// keys or are incomplete. Instead of <exchange>/<rank> a key may end in left/<rank>
// (the rank has left) or in given_up (the error of a rank whose wait for others has ended).
//
// Anybody who reaches the store can write to it. So each value ends with a MAC over its key, which names the
// generation, and the value. A value with another MAC counts as missing, and who finds its own value changed
// writes it again. A stranger delays the job, and must write all the time to do so until the deadline.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/key_value_store.h"
#include "bootstrap/rendezvous.h"
#include "trust/trust.h"

namespace roundelay::bootstrap {

// Returns the prefix of all keys of one init. `generation` counts the inits of this process.
std::string store_root(const Rendezvous& where, std::uint32_t generation);

class StoreBootstrap final : public Bootstrap {
 public:
  // `timeout` is the time limit from which callers make deadlines; only errors show it.
  StoreBootstrap(std::shared_ptr<KeyValueStore> store, const Rendezvous& where, std::uint32_t generation,
                 Duration timeout, const trust::Key& secret);
  // Tells the others that this rank has left. Rank 0's process may serve the store, so rank 0 waits until the
  // ranks of the last exchange have left: up to the exchange's deadline, or for 2 s if the exchange failed.
  // Without an exchange nobody waits for this rank, and nothing is sent.
  ~StoreBootstrap() override;

  [[nodiscard]] std::string_view name() const override { return "store"; }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  Result<std::vector<Bytes>> all_gather(ConstByteSpan mine, Deadline deadline) override;

 private:
  using Keys = std::vector<std::string>;
  [[nodiscard]] Keys keys_of(const std::string& what) const;  // one for each rank
  struct Found {
    std::vector<Bytes> values;  // without their MACs, by key
    std::vector<bool> genuine;  // by key
    [[nodiscard]] bool all() const;
  };
  Result<std::vector<Bytes>> exchange(ConstByteSpan mine, Deadline deadline);
  Status write(const std::string& key, ConstByteSpan value, Deadline deadline);
  Status write_again(Deadline deadline);
  Result<Found> read(const Keys& keys, Deadline deadline);
  Result<Found> collect(const Keys& keys, Deadline deadline);
  Status refuse_if_given_up(Deadline deadline);
  Status give_up(const Keys& keys, const Found& found);
  [[nodiscard]] Status forged(const Found& found) const;

  const std::shared_ptr<KeyValueStore> store_;
  const std::string root_;
  const int rank_;
  const int size_;
  const Duration timeout_;
  const trust::Key secret_;
  std::map<std::string, Bytes> written_;  // this rank's values that others may still need, with their MACs
  int exchanges_ = 0;
  Keys stay_for_;        // rank 0 stays until these keys say that ranks have left; empty before an exchange
  bool broken_ = false;  // an exchange failed
  bool warned_ = false;  // of a stranger's changes
  Deadline deadline_ = Deadline::never();
};

}  // namespace roundelay::bootstrap
