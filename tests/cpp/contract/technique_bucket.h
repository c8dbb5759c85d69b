// A bucket in a region that takes a technique, for tests of sessions.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compress/technique.h"
#include "tests/cpp/contract/session_world.h"
#include "wire/messages.h"

namespace roundelay::contract {

class TechniqueBucket {
 public:
  // A bucket of `count` fp32 elements, with a state of zeros. Check ok() before all else.
  TechniqueBucket(runtime::Session& session, compress::TechniquePtr technique, std::size_t count,
                  std::uint64_t key = 1)
      : session_(session),
        technique_(std::move(technique)),
        count_(count),
        key_(key),
        state_(technique_->state_bytes(count, DType::kFloat32, {})),
        memory_((state_ + sizeof(double)) / sizeof(double)) {
    auto made = session.make_region(0, key, count * sizeof(float), -1);
    if (made.ok()) region_ = std::move(*made);
    ready_ = made.status();
  }

  [[nodiscard]] const Status& ok() const { return ready_; }
  [[nodiscard]] float* elements() const { return reinterpret_cast<float*>(region_->own.data()); }
  [[nodiscard]] std::vector<float> read() const { return {elements(), elements() + count_}; }
  [[nodiscard]] Bytes state() const {
    const auto* const begin = reinterpret_cast<const std::byte*>(memory_.data());
    return {begin, begin + state_};
  }
  // The indices of the chunks that the last run has sent.
  [[nodiscard]] std::vector<std::uint32_t> sent() const {
    const std::array parameters = {compress::Slice{0, count_}};
    const auto sent = technique_->sent({count_, DType::kFloat32, parameters}, run_ - 1);
    const auto* const state = reinterpret_cast<const std::byte*>(memory_.data());
    const auto* const first = reinterpret_cast<const std::uint32_t*>(state + sent->indices_at);
    return {first, first + sent->indices};
  }
  // The outcome of the last operation.
  [[nodiscard]] const compress::TechniqueOutcome& outcome() const { return outcome_; }

  Status start(const std::string& name, ReduceOp op = ReduceOp::kSum, bool flush = false) {
    auto taken = std::make_shared<compress::BucketTechnique>();
    taken->technique = technique_;
    taken->flush = flush;
    taken->state = {reinterpret_cast<std::byte*>(memory_.data()), state_};
    taken->parameters = {{0, count_}};
    taken->run = flush ? 0 : run_;
    taken->outcome = &outcome_;
    outcome_ = {};
    submit::Arguments arguments;
    arguments.request.name = name;
    arguments.request.shape = {static_cast<std::int64_t>(count_)};
    arguments.request.reduce_op = op;
    arguments.request.region = {key_, 0};
    arguments.request.technique = technique_->text() + (flush ? std::string(wire::kFlush) : "");
    arguments.parts = {{DType::kFloat32, region_->own.data(), region_->own.data(), count_, region_}};
    arguments.technique = std::move(taken);
    const auto handle = session_.submit(std::move(arguments), {});
    if (handle.ok()) handle_ = *handle;
    flushing_ = flush;
    return handle.status();
  }
  Status finish() {
    Status status = *session_.wait(handle_, Deadline::never());
    if (outcome_.applied) run_ = flushing_ ? 0 : run_ + 1;
    return status;
  }
  Status run(const std::string& name, ReduceOp op = ReduceOp::kSum, bool flush = false) {
    Status status = start(name, op, flush);
    return status.ok() ? finish() : status;
  }

 private:
  runtime::Session& session_;
  const compress::TechniquePtr technique_;
  const std::size_t count_;
  const std::uint64_t key_;
  const std::size_t state_;
  std::vector<double> memory_;
  RegionPtr region_;
  Status ready_;
  compress::TechniqueOutcome outcome_;
  complete::Handle handle_ = 0;
  std::uint64_t run_ = 0;  // as in compress::Bucket
  bool flushing_ = false;
};

}  // namespace roundelay::contract
