// A program in progress, as a Pending: resumed by test() when what it awaits is there.
#pragma once

#include <functional>
#include <memory>

#include "collective/exchange.h"
#include "collective/fabric.h"
#include "collective/program.h"

namespace roundelay::collective {

// What the calls of one fabric share. One thread at a time.
struct FabricState {
  Group group;
  std::unique_ptr<Transport> transport;
  bool crowded = false;                          // ranks outnumber cores
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
  // progress.
  ProgramPending(std::shared_ptr<FabricState> state, const Call& call, const Algorithm& algorithm, int tag);
  // A call that is dropped before its end poisons the fabric: its transfers are still out.
  ~ProgramPending() override;

  Result<bool> test() override;
  [[nodiscard]] int waiting_for() const override { return exchange_.waiting_for(); }
  [[nodiscard]] bool crowded() const override { return state_->crowded; }

 private:
  Status advance();
  Status interrupted();
  [[nodiscard]] Status explain(const std::string& what) const;

  const std::shared_ptr<FabricState> state_;
  const Call call_;
  Exchange exchange_;
  Program program_;
  unsigned tests_ = 0;
};

}  // namespace roundelay::collective
