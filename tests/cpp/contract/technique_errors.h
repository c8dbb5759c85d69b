// Tests of sessions that every technique of several calls can run: a rank that dies, and ranks that differ.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compress/technique.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/session_world.h"
#include "tests/cpp/contract/technique_bucket.h"

namespace roundelay::contract {

// Does what another technique does. Calls `before` with the number of each of its calls, before the call is
// made, and once more after the last.
class Watched final : public compress::Technique {
 public:
  Watched(compress::TechniquePtr inner, std::function<void(int)> before)
      : inner_(std::move(inner)), before_(std::move(before)) {}
  [[nodiscard]] std::string text() const override { return inner_->text(); }
  [[nodiscard]] std::size_t state_bytes(std::size_t count, DType dtype,
                                        std::span<const int> levels) const override {
    return inner_->state_bytes(count, dtype, levels);
  }
  collective::Task run(compress::Workspace& workspace, compress::Bucket bucket) const override {
    collective::Task inner = inner_->run(workspace, bucket);
    int calls = 0;
    for (inner.resume(); !inner.done(); inner.resume()) {
      before_(calls++);
      const collective::Task::Awaited awaited = inner.awaited();
      co_await collective::Calling(*awaited.fabric, *awaited.call);
    }
    before_(calls);
    co_return inner.status();
  }
  compress::Residual residual(std::size_t count, const Scale& scale,
                              const compress::Place& place) const override {
    return inner_->residual(count, scale, place);
  }

 private:
  const compress::TechniquePtr inner_;
  const std::function<void(int)> before_;
};

// Of three ranks, stops one before the technique's call of number `stopped`, silently or with its
// connections. The other two must get one error that names it.
inline void require_the_dead_is_named(const compress::TechniquePtr& technique, int stopped,
                                      bool connection_lost) {
  INFO("call " << stopped << (connection_lost ? ", connection lost" : ", silent"));
  Config config;
  config.progress_timeout = std::chrono::milliseconds(150);
  config.log_level = LogLevel::kError;
  constexpr int kSize = 3, kDead = 1;
  SessionWorld world(kSize, config);
  std::atomic<bool> died{false};
  std::vector<std::string> causes(kSize);
  std::vector<std::unique_ptr<TechniqueBucket>> buckets(kSize);
  world.run([&](runtime::Session& session, int rank) -> std::string {
    const auto before = [&, rank](int call) {
      if (rank != kDead || call != stopped || died) return;
      world.stop(kDead);
      if (connection_lost) world.data->fail(kDead);
      died = true;
    };
    auto& bucket = buckets[static_cast<std::size_t>(rank)];
    bucket =
        std::make_unique<TechniqueBucket>(session, std::make_shared<const Watched>(technique, before), 64);
    if (!bucket->ok().ok()) return bucket->ok().message();
    std::fill_n(bucket->elements(), 64, 1.0F);
    if (const Status status = bucket->start("b"); !status.ok()) return status.message();
    session.end_linger();
    if (rank != kDead) causes[static_cast<std::size_t>(rank)] = bucket->finish().message();
    return {};
  });
  CHECK(died);
  CHECK(causes[0] == causes[2]);
  INFO(causes[0]);
  CHECK(causes[0].find(connection_lost ? "member 1" : "rank 1") != std::string::npos);
  for (auto& one : world.stopped) one = false;
  world.shutdown();
}

// Gives two ranks different techniques for a bucket. Both must get an error with both texts, nothing may have
// changed, and the job must go on.
inline void require_both_texts(const compress::TechniquePtr& one, const compress::TechniquePtr& other) {
  SessionWorld world(2);
  world.run([&](runtime::Session& session, int rank) -> std::string {
    TechniqueBucket bucket(session, rank == 0 ? one : other, 64);
    if (!bucket.ok().ok()) return bucket.ok().message();
    std::fill_n(bucket.elements(), 64, 1.0F);
    const Status status = bucket.run("b");
    if (status.code() != StatusCode::kMismatch) return "no mismatch: " + status.message();
    for (const std::string& text : {one->text(), other->text()})
      if (status.message().find(text) == std::string::npos)
        return "without " + text + ": " + status.message();
    if (bucket.read() != std::vector<float>(64, 1.0F)) return "the elements have changed";
    if (bucket.state() != Bytes(bucket.state().size())) return "the state has changed";
    return sum_once(session, rank, "after", 2);
  });
  world.shutdown();
}

}  // namespace roundelay::contract
