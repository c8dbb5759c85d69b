#include "runtime/session/set_agreement.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/leak.h"

namespace roundelay::runtime {
namespace {

constexpr std::size_t kReasonWords = 64;  // room for the text of the first failure

}  // namespace

Status SetAgreement::agree(const ProcessSet& set, const Status& mine) {
  const Deadline deadline = Deadline::after(start_timeout_);
  wire::Request request;
  request.name = "roundelay.process_set." + std::to_string(set.serial);
  request.reduce_op = ReduceOp::kMin;
  std::vector<std::int64_t> failed = {mine.ok() ? size_ : rank_};
  ROUNDELAY_RETURN_IF_ERROR(exchange(request, failed, deadline));
  const auto culprit = static_cast<std::int32_t>(failed.front());
  if (culprit == size_) return {};

  std::vector<std::int64_t> text(kReasonWords, 0);
  std::memcpy(text.data(), mine.message().data(),
              std::min(mine.message().size(), (kReasonWords - 1) * sizeof(std::int64_t)));
  request.operation = Operation::kBroadcast;
  request.root = culprit;
  ROUNDELAY_RETURN_IF_ERROR(exchange(request, text, deadline));
  return Status::unavailable(describe(set) + " could not be made: rank " + std::to_string(culprit) + ": " +
                             reinterpret_cast<const char*>(text.data()));
}

// Runs one operation in the world, in place in `words`. It is a fault if this rank cannot take part, because
// the others would be left with half a process set.
Status SetAgreement::exchange(wire::Request request, std::vector<std::int64_t>& words, Deadline deadline) {
  submit::Arguments arguments;
  auto* memory = reinterpret_cast<std::byte*>(words.data());
  request.dtype = DType::kInt64;
  request.shape = {static_cast<std::int64_t>(words.size())};
  request.cacheable = false;
  arguments.request = std::move(request);
  arguments.parts = {{DType::kInt64, memory, memory, words.size()}};
  const std::string prefix =
      "rank " + std::to_string(rank_) + " could not agree with the other ranks about a process set: ";
  const Result<complete::Handle> handle = operations_.submit(std::move(arguments), {});
  if (!handle.ok()) {
    if (handle.status().code() != StatusCode::kAborted) report_fault_(prefix + handle.status().message());
    return handle.status();
  }
  std::optional<Status> status = operations_.wait(*handle, deadline);
  if (!status) {
    report_fault_(prefix + "not all of them came within ROUNDELAY_START_TIMEOUT");
    status = operations_.wait(*handle, Deadline::never());
  }
  if (status->code() == StatusCode::kAborted) leak(std::move(words));  // the fabric may still write there
  return *status;
}

}  // namespace roundelay::runtime
