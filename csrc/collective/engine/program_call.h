// A PendingCall that runs a program: test() resumes it when the transfers that it waits for are done.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "collective/call_watch.h"
#include "collective/fabric.h"
#include "collective/program/exchange.h"
#include "collective/program/program.h"
#include "collective/tuning/select.h"

namespace roundelay::collective {

// The state that the calls of one fabric share. One thread at a time.
struct FabricState {
  Group group;
  std::unique_ptr<Transport> transport;
  std::shared_ptr<LocalWork> work = host_work();
  bool crowded = false;  // ranks outnumber cores
  // Calls of more bytes end in a barrier. A medium that moves bytes only while its functions are called (MPI)
  // needs it: a member that has all of its own bytes may still owe a peer the end of a message.
  std::size_t most_open_bytes = SIZE_MAX;
  std::function<void(const Status&)> on_poison;  // called once, with the first cause; may be empty
  std::function<Status()> usable;  // an error: the medium has gone (MPI was finalised); may be empty
  ScratchPool scratch;
  Status poison;  // the first cause; ok while the fabric works

  // Poisons the fabric, unless it is poisoned already.
  void fail(const Status& cause) {
    if (!poison.ok()) return;
    poison = cause;
    if (on_poison) on_poison(cause);
  }
};

class ProgramCall final : public PendingCall {
 public:
  // `tag` and `tag` + 1 are the same on all members, and no other call in progress has them. This member
  // takes part in the call.
  ProgramCall(std::shared_ptr<FabricState> state, const Call& call, const Select& select, int tag);
  // A call that is dropped before its end poisons the fabric, because its transfers are still on their way.
  ~ProgramCall() override;

  Result<bool> test() override;
  [[nodiscard]] int waiting_for() const override { return exchange_.waiting_for(); }
  [[nodiscard]] std::string_view algorithm() const override { return algorithm_.name; }
  [[nodiscard]] bool crowded() const override { return state_->crowded; }
  Nap idle(Backoff& backoff) override { return state_->transport->nap(backoff); }

 private:
  [[nodiscard]] bool has_to_close() const;
  Program& current() { return closing_ ? *closing_ : program_; }
  Status advance();

  const std::shared_ptr<FabricState> state_;
  const Call call_;  // the call of the present members
  CallWatch watch_;
  Exchange exchange_;
  const Algorithm& algorithm_;
  Program program_;
  std::optional<Program> closing_;
};

}  // namespace roundelay::collective
