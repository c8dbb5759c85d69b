#include "collective/engine/program_call.h"

#include <utility>

#include "collective/algorithms/algorithms.h"
#include "collective/present.h"

namespace roundelay::collective {

ProgramCall::ProgramCall(std::shared_ptr<FabricState> state, const Call& call, const Select& select, int tag)
    : state_(std::move(state)),
      call_(among_present(call, state_->group.size())),
      watch_(call_, state_->group),
      exchange_(*state_->transport, *state_->work, present_members(options_of(call), state_->group.size()),
                state_->scratch, tag, options_of(call).mark),
      algorithm_(select(call_, exchange_.size())),
      program_(algorithm_.program(exchange_, call_)) {
  program_.resume();  // the first transfers start now
}

ProgramCall::~ProgramCall() {
  if (current().done()) return;
  state_->fail(watch_.dropped());
  exchange_.abandon();
}

Result<bool> ProgramCall::test() {
  if (!state_->poison.ok()) return state_->poison;
  if (Status error = advance(); !error.ok()) {
    state_->fail(error);
    return error;
  }
  return current().done();
}

bool ProgramCall::has_to_close() const {
  return !closing_ && exchange_.size() > 1 && agreed_bytes(call_) > state_->most_open_bytes;
}

Status ProgramCall::advance() {
  while (true) {
    while (!current().done()) {
      if (!exchange_.all_done()) {
        return exchange_.error().ok() ? watch_.interrupted(waiting_for()) : exchange_.error();
      }
      current().resume();
    }
    if (!exchange_.error().ok() || current().threw() || !has_to_close()) break;
    closing_.emplace(dissemination_barrier(exchange_));
  }
  if (current().threw()) {
    exchange_.abandon();
    return watch_.explain("ran out of memory", waiting_for());
  }
  return exchange_.error();
}

}  // namespace roundelay::collective
