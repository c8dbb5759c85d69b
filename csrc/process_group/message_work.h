// What torch.distributed's send and recv return: a message under way.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <memory>
#include <vector>

#include "process_group/callbacks.h"
#include "process_group/device_copies.h"
#include "process_group/message_lane.h"
#include "process_group/tensors.h"

namespace roundelay::process_group {

class MessageWork final : public ::c10d::Work {
 public:
  // Posts the message of one tensor. If it is sent from a device, waits until that has computed it. Throws
  // c10::DistBackendError if the group has failed.
  static c10::intrusive_ptr<MessageWork> start(const std::shared_ptr<MessageLane>& lane,
                                               MessageLane::Message message, const at::Tensor& tensor);
  MessageWork(std::shared_ptr<MessageLane> lane, const MessageLane::Message& message,
              const at::Tensor& tensor);

  bool wait(std::chrono::milliseconds timeout) override;
  // Returns the peer of a message that is over.
  [[nodiscard]] int sourceRank() const override { return peer_; }
  std::vector<at::Tensor> result() override { return {tensor_}; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_.get(); }

 private:
  // Waits for a device no longer than the message may take.
  Status copy(const std::function<void()>& copies);
  void over(const Result<int>& peer);

  const std::shared_ptr<MessageLane> lane_;
  const Deadline deadline_;
  const at::Tensor tensor_;
  const Memory memory_;
  DeviceCopies copies_;
  CallFuture future_;
  std::atomic<int> peer_{-1};
};

}  // namespace roundelay::process_group
