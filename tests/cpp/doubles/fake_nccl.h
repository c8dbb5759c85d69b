// NCCL without NCCL: members are threads of one process, collectives are work in the fake device's streams,
// and block there until all members' turns have come, as the real kernels do. What is started is enqueued
// only by ready(), a seeded number of times later: who uses the stream before gets wrong results.
//
// Sums are those of kernels::reduce_parts, from the first member to the last. Members that disagree on a call
// (count, type, root ...) hang in their streams, and ready() tells them.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/annotations.h"
#include "platform/nccl/api.h"
#include "tests/cpp/doubles/fake_gpu.h"

namespace roundelay::doubles {

// What goes wrong on order. Thread-safe.
class FakeNcclFaults {
 public:
  void fail(const std::string& call, const Status& cause) EXCLUDES(mutex_);
  void hang() EXCLUDES(mutex_);
  void report(const Status& cause) EXCLUDES(mutex_);
  void count_abort() EXCLUDES(mutex_);

  [[nodiscard]] Status of(const std::string& call) const EXCLUDES(mutex_);
  [[nodiscard]] bool hanging() const EXCLUDES(mutex_);
  [[nodiscard]] Status reported() const EXCLUDES(mutex_);
  [[nodiscard]] int aborts() const EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<std::string, Status> failing_ GUARDED_BY(mutex_);
  bool hanging_ GUARDED_BY(mutex_) = false;
  Status reported_ GUARDED_BY(mutex_);
  int aborts_ GUARDED_BY(mutex_) = 0;
};

// One a member, or one for all: communicators meet by their ids.
class FakeNccl final : public platform::NcclApi {
 public:
  // `gpu` outlives it and its communicators.
  explicit FakeNccl(FakeGpu& gpu, unsigned seed = 1) : gpu_(gpu), seed_(seed) {}

  [[nodiscard]] int version() const override { return 23007; }
  [[nodiscard]] Result<platform::NcclId> make_id() override;
  [[nodiscard]] Result<std::unique_ptr<platform::NcclCommunicator>> join(const platform::NcclId& id,
                                                                         int members, int index,
                                                                         int device) override;

  // From now on, of all of its communicators:
  // `call` ("join", "all_reduce" ...: names of platform/nccl/api.h) says `cause`;
  void fail(const std::string& call, const Status& cause) { faults_->fail(call, cause); }
  // nothing that is started settles, nor does it reach the stream;
  void hang() { faults_->hang(); }
  // ready() says `cause`: what came from the wire or a peer.
  void report(const Status& cause) { faults_->report(cause); }
  // Communicators that were aborted, by a call or in use.
  [[nodiscard]] int aborts() const { return faults_->aborts(); }

 private:
  FakeGpu& gpu_;
  const unsigned seed_;
  const std::shared_ptr<FakeNcclFaults> faults_ = std::make_shared<FakeNcclFaults>();
};

}  // namespace roundelay::doubles
