// A program in progress, as a Pending: resumed by test() when what it awaits is there.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "collective/call_watch.h"
#include "collective/exchange.h"
#include "collective/fabric.h"
#include "collective/program.h"
#include "collective/select.h"

namespace roundelay::collective {

// What the calls of one fabric share. One thread at a time.
struct FabricState {
  Group group;
  std::unique_ptr<Transport> transport;
  bool crowded = false;  // ranks outnumber cores
  // A medium that moves bytes only while its functions are called (MPI) may owe a peer the end of a longer
  // message after this member has all of its own: calls of more bytes end together, in a closing barrier.
  std::size_t most_open_bytes = SIZE_MAX;
  std::function<void(const Status&)> on_poison;  // may be empty
  std::function<Status()> usable;  // may be empty; not ok: the medium has gone (MPI was finalised)
  ScratchPool scratch;
  Status poison;  // the first cause; ok while the fabric works

  void fail(const Status& cause) {
    if (!poison.ok()) return;
    poison = cause;
    if (on_poison) on_poison(cause);
  }
};

class ProgramPending final : public Pending {
 public:
  // `tag` and its successor are equal on all members for this call and differ from those of others in
  // progress. This member takes part in the call.
  ProgramPending(std::shared_ptr<FabricState> state, const Call& call, Select select, int tag);
  // A call that is dropped before its end poisons the fabric: its transfers are still out.
  ~ProgramPending() override;

  Result<bool> test() override;
  [[nodiscard]] int waiting_for() const override { return exchange_.waiting_for(); }
  [[nodiscard]] bool crowded() const override { return state_->crowded; }

 private:
  [[nodiscard]] bool has_to_close() const;
  Program& current() { return closing_ ? *closing_ : program_; }
  Status advance();

  const std::shared_ptr<FabricState> state_;
  const Call call_;  // as the present members see it
  CallWatch watch_;
  Exchange exchange_;
  Program program_;
  std::optional<Program> closing_;
};

}  // namespace roundelay::collective
