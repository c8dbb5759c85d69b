// A simulated NCCL. Members are threads of one process. A collective is work in the fake device's streams,
// and blocks there until all members' streams reach it, as the real kernels do. Only ready() enqueues
// operations that were started, after a seeded number of calls: code that uses the stream too early gets
// wrong results.
//
// Sums are those of kernels::reduce_parts(), from the first member to the last. If members disagree on a call
// (count, type, root ...), they hang in their streams, and ready() reports it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/annotations.h"
#include "platform/nccl/api.h"
#include "tests/cpp/doubles/fake_gpu.h"

namespace roundelay::doubles {

// The faults to simulate. Thread-safe.
class FakeNcclFaults {
 public:
  void fail(const std::string& call, const Status& cause) EXCLUDES(mutex_);
  void hang() EXCLUDES(mutex_);
  void report(const Status& cause) EXCLUDES(mutex_);
  void count_abort() EXCLUDES(mutex_);
  // How communicators are made: the number of calls of ready() after all have joined, and who hears of each
  // call before.
  struct Making {
    int calls = 0;
    std::function<void(int call)> heard;
  };
  void make_so(Making how) EXCLUDES(mutex_);
  [[nodiscard]] Making making() const EXCLUDES(mutex_);

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
  Making making_ GUARDED_BY(mutex_);
};

// Members may share one, or have one each: communicators meet by their ids.
class FakeNccl final : public platform::NcclApi {
 public:
  // `gpu` must outlive it and its communicators.
  explicit FakeNccl(FakeGpu& gpu, unsigned seed = 1) : gpu_(gpu), seed_(seed) {}

  [[nodiscard]] int version() const override { return 23007; }
  [[nodiscard]] Result<platform::NcclId> make_id() override;
  [[nodiscard]] Result<std::unique_ptr<platform::NcclCommunicator>> join(const platform::NcclId& id,
                                                                         int members, int index,
                                                                         int device) override;

  // These set the behaviour of all its communicators from now on. `call` ("join", "all_reduce" ...: names of
  // platform/nccl/api.h) returns `cause`.
  void fail(const std::string& call, const Status& cause) { faults_->fail(call, cause); }
  // Nothing that is started settles or reaches the stream.
  void hang() { faults_->hang(); }
  // ready() returns `cause`, as after an error of the network or a peer.
  void report(const Status& cause) { faults_->report(cause); }
  // A communicator that joins from now on takes so many calls of ready() after all have joined. `heard` is
  // called at the beginning of each call of ready() until then, with its number from 0 on.
  void be_slow(int calls, std::function<void(int call)> heard = {}) {
    faults_->make_so({calls, std::move(heard)});
  }
  // Returns how many communicators were aborted, by abort() or by destruction in use.
  [[nodiscard]] int aborts() const { return faults_->aborts(); }

 private:
  FakeGpu& gpu_;
  const unsigned seed_;
  const std::shared_ptr<FakeNcclFaults> faults_ = std::make_shared<FakeNcclFaults>();
};

}  // namespace roundelay::doubles
