#include "collective/point_to_point/control_link.h"

#include <span>
#include <utility>

#include "base/leak.h"

namespace roundelay::collective {
namespace {

constexpr int kControlTag = 0;  // data has another one

}  // namespace

ControlLink::ControlLink(Transport& transport, int peer) : transport_(transport), peer_(peer) {}

ControlLink::~ControlLink() {
  if (!idle()) leak(std::move(memory_));
}

Status ControlLink::expect() {
  const Result<TransferId> id =
      transport_.receive(peer_, std::as_writable_bytes(std::span(&memory_->in, 1)), kControlTag);
  if (!id.ok()) return id.status();
  in_ = *id;
  receiving_ = true;
  return {};
}

Result<const ControlMessage*> ControlLink::poll() {
  if (!receiving_) return nullptr;
  const Result<bool> done = transport_.test(in_);
  if (!done.ok()) return done.status();
  if (!*done) return nullptr;
  receiving_ = false;
  return &memory_->in;
}

Result<ControlMessage*> ControlLink::free_out() {
  if (sending_) {
    const Result<bool> done = transport_.test(out_);
    if (!done.ok()) return done.status();
    if (!*done) return nullptr;
    sending_ = false;
  }
  return &memory_->out;
}

Status ControlLink::send() {
  const Result<TransferId> id =
      transport_.send(peer_, std::as_bytes(std::span(&memory_->out, 1)), kControlTag);
  if (!id.ok()) return id.status();
  out_ = *id;
  sending_ = true;
  return {};
}

}  // namespace roundelay::collective
