// Ranks as their launcher numbers them, meeting in a key-value store.
//
// Keys: roundelay/<job and restart>/<generation>/<exchange>/<rank>. An exchange's values go once all ranks
// have come to the next one, the last one's when all have left: an older generation leaves nothing behind,
// and what a dead job left is under another name, or incomplete.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/key_value_store.h"
#include "bootstrap/rendezvous.h"

namespace roundelay::bootstrap {

// Where all keys of one init are; `generation` counts the inits of this process.
std::string store_root(const Rendezvous& where, std::uint32_t generation);

class StoreBootstrap final : public Bootstrap {
 public:
  // `patience`: what deadlines are made of, for the error that names who is missing.
  StoreBootstrap(std::shared_ptr<KeyValueStore> store, const Rendezvous& where, std::uint32_t generation,
                 Duration patience);
  // Tells that this rank has left. Rank 0 waits for those that were there, as its process may be the store
  // and would end it under those who still read: until the last exchange's deadline, 2 s after one that
  // failed.
  ~StoreBootstrap() override;

  [[nodiscard]] std::string_view name() const override { return "store"; }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  Result<std::vector<Bytes>> all_gather(ConstByteSpan mine, Deadline deadline) override;

 private:
  using Keys = std::vector<std::string>;
  [[nodiscard]] Keys keys_of(const std::string& what) const;  // one for each rank
  Result<std::vector<Bytes>> exchange(ConstByteSpan mine, Deadline deadline);
  Status refuse_if_given_up(Deadline deadline);
  Status give_up(const Keys& keys);

  const std::shared_ptr<KeyValueStore> store_;
  const std::string root_;
  const int rank_;
  const int size_;
  const Duration patience_;
  int exchanges_ = 0;
  Keys stay_for_;        // rank 0: who has to leave before it does
  bool broken_ = false;  // an exchange failed
  Deadline deadline_ = Deadline::never();
};

}  // namespace roundelay::bootstrap
