// Members of a group that reduce buckets by a technique, stepped from one thread over the inproc fabric.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/engine/algorithm_fabric.h"
#include "collective/inproc/hub.h"
#include "compress/give_back.h"
#include "compress/host_arithmetic.h"
#include "compress/technique.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/in_time.h"

namespace roundelay::compress {

// A workspace in host memory. Its scratch memory is full of garbage.
class TestWorkspace final : public Workspace {
 public:
  explicit TestWorkspace(collective::Fabric& fabric) : fabric_(fabric) {}
  collective::Fabric& fabric() override { return fabric_; }
  [[nodiscard]] GpuStream stream() const override { return nullptr; }
  Arithmetic& math() override { return math_; }
  Result<std::byte*> scratch(std::size_t bytes) override {
    if (no_memory) return Status::unavailable("no memory");
    most_bytes = std::max(most_bytes, bytes);
    memory_.emplace_back(bytes / sizeof(double) + 1, -12345.678);
    return reinterpret_cast<std::byte*>(memory_.back().data());
  }
  FramePool& frames() override { return frames_; }
  void end() { memory_.clear(); }

  bool no_memory = false;
  std::size_t most_bytes = 0;  // that scratch() was asked for

 private:
  collective::Fabric& fabric_;
  HostArithmetic math_;
  FramePool frames_;
  std::vector<std::vector<double>> memory_;
};

// Counts the bytes that a member sends over the medium.
class CountingTransport final : public collective::Transport {
 public:
  CountingTransport(std::unique_ptr<collective::Transport> inner, std::size_t& sent)
      : inner_(std::move(inner)), sent_(sent) {}
  [[nodiscard]] int index() const override { return inner_->index(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  Result<collective::TransferId> send(int peer, ConstByteSpan data, int tag) override {
    sent_ += data.size();
    return inner_->send(peer, data, tag);
  }
  Result<collective::TransferId> receive(int peer, ByteSpan data, int tag) override {
    return inner_->receive(peer, data, tag);
  }
  Result<bool> test(collective::TransferId id) override { return inner_->test(id); }

 private:
  const std::unique_ptr<collective::Transport> inner_;
  std::size_t& sent_;
};

// One member, its bucket and its state.
struct TechniqueMember {
  // `make` makes the fabric, which adds the bytes that it sends to a number.
  explicit TechniqueMember(const std::function<std::unique_ptr<collective::Fabric>(std::size_t&)>& make)
      : fabric(make(wire_bytes)), workspace(*fabric) {}
  static std::unique_ptr<collective::Fabric> make_fabric(const std::shared_ptr<collective::InprocHub>& hub,
                                                         const Group& group, std::size_t& sent) {
    auto state = std::make_shared<collective::FabricState>();
    state->transport = std::make_unique<CountingTransport>(hub->transport(group.index), sent);
    state->group = group;
    return std::make_unique<collective::AlgorithmFabric>(
        std::move(state), collective::AlgorithmFabric::Options{.name = "inproc"});
  }

  // Makes the bucket of these elements, with a state of zeros.
  void set_up(const Technique& technique, collective::Reduction reduction, std::size_t count) {
    bytes.assign(count * size_of(reduction.dtype), std::byte{});
    const std::size_t size = technique.state_bytes(count, reduction.dtype, collective::level_sizes(*fabric));
    state.assign(size / sizeof(double) + 1, 0.0);
    bucket.reduction = reduction;
    bucket.count = count;
    bucket.buffer = {bytes.data(), 0, bytes.size()};
    bucket.state = {reinterpret_cast<std::byte*>(state.data()), size};
  }
  template <typename T>
  [[nodiscard]] T* elements() {
    return reinterpret_cast<T*>(bytes.data());
  }

  std::size_t wire_bytes = 0;  // sent over the medium
  const std::unique_ptr<collective::Fabric> fabric;
  TestWorkspace workspace;
  Bytes bytes;
  std::vector<double> state;
  Bucket bucket;
  collective::Task task;
  std::unique_ptr<collective::PendingCall> pending;
  std::size_t called_bytes = 0;  // in the last run
};

class TechniqueMembers {
 public:
  explicit TechniqueMembers(int size) {
    const auto hub = std::make_shared<collective::InprocHub>(size);
    Group group;
    for (int rank = 0; rank < size; ++rank) group.ranks.push_back(rank);
    for (group.index = 0; group.index < size; ++group.index)
      add([&](std::size_t& sent) { return TechniqueMember::make_fabric(hub, group, sent); });
  }
  TechniqueMembers() = default;
  template <typename Make>
  void add(const Make& make) {
    members.push_back(std::make_unique<TechniqueMember>(make));
  }
  void set_up(const Technique& technique, collective::Reduction reduction, std::size_t count) {
    for (auto& member : members) member->set_up(technique, reduction, count);
  }
  // Reduces all members' buckets by the technique.
  void run(const Technique& technique) {
    for (auto& member : members) {
      member->called_bytes = 0;
      member->task = technique.run(member->workspace, member->bucket);
    }
    finish();
    for (auto& member : members) ++member->bucket.run;
  }
  // Reduces them densely. `flush`: after the technique has given back what it kept.
  void run_dense(const Technique* flush = nullptr) {
    for (auto& member : members) {
      if (flush != nullptr) {
        REQUIRE(compress::give_back(*flush, member->workspace, member->bucket).ok());
        member->bucket.run = 0;
      }
      member->task = dense(member->workspace, member->bucket);
    }
    finish();
  }

  std::vector<std::unique_ptr<TechniqueMember>> members;

 private:
  static collective::Task dense(Workspace& workspace, Bucket bucket) {
    collective::Call call = allreduce_of(bucket.buffer, bucket, workspace);
    co_await collective::Calling(workspace.fabric(), call);
    co_return Status{};
  }
  static void move(TechniqueMember& member) {
    if (member.pending) {
      const Result<bool> over = member.pending->test();
      REQUIRE(over.ok());
      if (!*over) return;
      member.pending.reset();
      member.task.resume();
    }
    if (member.task.done()) return;
    const collective::Task::Awaited& step = member.task.awaited();
    member.called_bytes += collective::given_bytes(*step.call, step.fabric->group().index);
    auto started = step.fabric->start(*step.call);
    REQUIRE(started.ok());
    member.pending = std::move(*started);
  }
  void finish() {
    for (auto& member : members) member->task.resume();
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    for (std::size_t done = 0; done < members.size();) {
      testing::expect_before(deadline);
      done = 0;
      for (auto& member : members) {
        if (!member->task.done()) move(*member);
        if (member->task.done()) ++done;
      }
    }
    for (auto& member : members) {
      INFO(member->task.status().message());
      REQUIRE(member->task.status().ok());
      member->task = {};
      member->workspace.end();
    }
  }
};

}  // namespace roundelay::compress
