#include "collective/program_pending.h"

#include <string>
#include <utility>

#include "collective/algorithms/algorithms.h"
#include "collective/present.h"

namespace roundelay::collective {
namespace {

constexpr unsigned kTestsPerClockRead = 16;  // a clock read costs as much as a test

}  // namespace

ProgramPending::ProgramPending(std::shared_ptr<FabricState> state, const Call& call, Select select, int tag)
    : state_(std::move(state)),
      call_(among_present(call, state_->group.size())),
      exchange_(*state_->transport, present_members(call, state_->group.size()), state_->scratch, tag),
      program_(select(call_, exchange_.size()).program(exchange_, call_)) {
  program_.resume();  // the first transfers start now
}

ProgramPending::~ProgramPending() {
  if (current().done()) return;
  state_->fail(Status::aborted(std::string(name_of(call_.operation)) + " was dropped before its end"));
  exchange_.abandon();
}

Result<bool> ProgramPending::test() {
  if (!state_->poison.ok()) return state_->poison;
  if (Status error = advance(); !error.ok()) {
    state_->fail(error);
    return error;
  }
  return current().done();
}

bool ProgramPending::has_to_close() const {
  return !closing_ && exchange_.size() > 1 && agreed_bytes(call_) > state_->most_open_bytes;
}

Status ProgramPending::advance() {
  while (true) {
    while (!current().done()) {
      if (!exchange_.settled()) {
        return exchange_.error().ok() ? interrupted() : exchange_.error();
      }
      current().resume();
    }
    if (!exchange_.error().ok() || current().threw() || !has_to_close()) break;
    closing_.emplace(dissemination_barrier(exchange_, call_));
  }
  if (current().threw()) {
    exchange_.abandon();
    return explain("ran out of memory");
  }
  return exchange_.error();
}

// Looked at only while nothing moves: a call whose data is there ends well, however late.
Status ProgramPending::interrupted() {
  if (call_.abort != nullptr && call_.abort->raised()) return call_.abort->cause();
  if (call_.deadline == Deadline::never()) return {};
  if (tests_++ % kTestsPerClockRead != 0 || !call_.deadline.passed()) return {};
  return explain("made no progress until its deadline");
}

Status ProgramPending::explain(const std::string& what) const {
  std::string text(name_of(call_.operation));
  text += " of " + std::to_string(call_.buffer.bytes) + " bytes " + what;
  if (const int peer = exchange_.waiting_for(); peer >= 0) {
    text += ", waiting for rank " + std::to_string(state_->group.ranks[static_cast<std::size_t>(peer)]);
  }
  return Status::aborted(text);
}

}  // namespace roundelay::collective
