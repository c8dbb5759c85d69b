#include "process_group/message_work.h"

#include <string>
#include <utility>

#include "process_group/errors.h"
#include "process_group/work.h"

namespace roundelay::process_group {
namespace {

using Kind = MessageLane::Message::Kind;

::c10d::OpType type_of(Kind kind) {
  return kind == Kind::kSend      ? ::c10d::OpType::SEND
         : kind == Kind::kReceive ? ::c10d::OpType::RECV
                                  : ::c10d::OpType::RECVANYSOURCE;
}

const char* title_of(Kind kind) {
  return kind == Kind::kSend      ? "roundelay:send"
         : kind == Kind::kReceive ? "roundelay:recv"
                                  : "roundelay:recvAnySource";
}

}  // namespace

MessageWork::MessageWork(std::shared_ptr<MessageLane> lane, const MessageLane::Message& message,
                         const at::Tensor& tensor)
    : ::c10d::Work(-1, type_of(message.kind), title_of(message.kind),
                   std::optional<std::vector<at::Tensor>>({tensor})),
      lane_(std::move(lane)),
      deadline_(message.deadline),
      tensor_(tensor),
      memory_(message.kind == Kind::kSend ? Memory::input(tensor) : Memory::output(tensor)),
      copies_(tensor.device()),
      future_(tensor.device()) {}

c10::intrusive_ptr<MessageWork> MessageWork::start(const std::shared_ptr<MessageLane>& lane,
                                                   MessageLane::Message message, const at::Tensor& tensor) {
  auto work = c10::make_intrusive<MessageWork>(lane, message, tensor);
  if (const auto begin = work->memory_.begin()) check(work->copy(begin));
  message.memory = work->memory_.bytes();
  message.over = [work](const Result<int>& peer) { work->over(peer); };
  check(lane->post(std::move(message)));
  return work;
}

Status MessageWork::copy(const std::function<void()>& copies) {
  return copies_.run(copies, deadline_, [] { return Status(); });
}

void MessageWork::over(const Result<int>& peer) {
  Status outcome = peer.status();
  if (peer.ok()) {
    peer_ = *peer;
    if (opType_ != ::c10d::OpType::SEND) outcome = copy(memory_.finish());
  } else if (peer.status().code() != StatusCode::kMismatch) {
    c10::raw::intrusive_ptr::incref(this);  // the medium may still use the memory
  }
  const std::exception_ptr error = exception_of(outcome);
  finish(error);
  future_.complete(error, {tensor_});
}

bool MessageWork::wait(std::chrono::milliseconds timeout) {
  const auto done = [this] { return isCompleted(); };
  const bool over = wait_in_steps(
      done, [&](Deadline until) { lane_->drive(done, until); }, deadline_of(timeout));
  if (!over) {
    check(Status::aborted(
        std::string(title_of(opType_ == ::c10d::OpType::SEND ? Kind::kSend : Kind::kReceive)) +
        " was not over after " + std::to_string(timeout.count()) + " ms, the timeout of this wait()"));
  }
  future_.wait_if_given();
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  return true;
}

}  // namespace roundelay::process_group
