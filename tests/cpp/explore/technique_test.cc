// Techniques over fabric shm in every order of their members' steps: every member gets the same bits, nothing
// is lost, and a member that dies makes no other one end with a wrong result.
#include <cstring>
#include <string>

#include "tests/cpp/catch.h"
#include "tests/cpp/explore/technique_scene.h"
#include "tests/cpp/techniques.h"

namespace roundelay::explore {
namespace {

using Kind = TechniqueRun::Kind;

const TechniqueRun kFlush{Kind::kFlush};

void every_order(TechniqueScript script) {
  TechniqueScene scene(std::move(script));
  const Report report = explore(scene);
  INFO(report.states << " states, " << report.runs << " runs, " << report.orders << " orders of steps");
  CHECK(report.complaint == "");
  CHECK(report.orders > 1);
}

// Sends a bucket in two halves. It forgets the second one; or, if kUneven, member 1 makes only one call.
template <bool kUneven>
class Wrong final : public compress::Technique {
 public:
  [[nodiscard]] std::string text() const override { return "wrong"; }
  [[nodiscard]] std::size_t state_bytes(std::size_t, DType, std::span<const int>) const override { return 0; }
  collective::Task run(compress::Workspace& workspace, compress::Bucket bucket) const override {
    const std::size_t half = bucket.buffer.bytes / 2;
    collective::Call call = compress::allreduce_of({bucket.buffer.data(), 0, half}, bucket, workspace);
    co_await collective::Calling(workspace.fabric(), call);
    if (kUneven && workspace.fabric().group().index == 1) co_return Status{};
    std::byte* const rest = bucket.buffer.data() + half;
    call = compress::allreduce_of({rest, 0, half}, bucket, workspace);
    co_await collective::Calling(workspace.fabric(), call);
    if (!kUneven) std::memset(rest, 0, half);
    co_return Status{};
  }
  compress::Residual residual(std::size_t, const Scale&, const compress::Place&) const override { return {}; }
};

TEST_CASE("techniques in every order", "[explore]") {
  const std::string text = GENERATE("negate", "cyclic:parts=2", "csc:chunk=4,keep=0.5", "topk:density=0.25",
                                    "power_sgd:columns=20,rank=1", "quantised");
  const bool in_region = GENERATE(false, true);
  CAPTURE(text, in_region);
  every_order({technique_of(text), 20, {{}, {}, kFlush}, in_region});
}

TEST_CASE("techniques within a node in every order", "[explore]") {
  const std::string text = GENERATE("topk:density=0.25", "power_sgd:columns=20,rank=1", "quantised");
  const bool in_region = GENERATE(false, true);
  every_order({technique_of(text), 20, {{}, {}, kFlush}, in_region, true});
}

TEST_CASE("a technique before and after a join in every order", "[explore]") {
  const std::string text = GENERATE("cyclic:parts=2", "csc:chunk=4,keep=0.5");
  CAPTURE(text);
  const TechniqueRun joined{Kind::kDense, {1}};
  every_order({technique_of(text), 20, {{}, joined, {}, kFlush}});
}

TEST_CASE("a member that dies in any workspace of a technique, in every order", "[explore]") {
  const int dies = GENERATE(0, 1);
  const bool in_region = GENERATE(false, true);
  const std::string text =
      GENERATE("csc:chunk=4,keep=0.5", "topk:density=0.25", "power_sgd:columns=20,rank=1", "quantised");
  const bool within_node = text.starts_with("topk") || text.starts_with("power_sgd");
  TechniqueScene scene({technique_of(text), 20, {{}, kFlush}, in_region, within_node});
  REQUIRE(explore(scene).complaint == "");
  std::uint64_t writes = 0;
  for (bool waits = true; waits; ++writes) {
    INFO("member " << dies << " dies in place of write " << writes);
    scene.let_die({dies, writes});
    const Report report = explore(scene);
    REQUIRE(report.complaint == "");
    waits = report.left_waiting > 0;
  }
  CHECK(writes > 6);  // three calls of two writes or more
}

TEST_CASE("faults of a technique are found", "[explore][mutants]") {
  using Catch::Matchers::StartsWith;
  TechniqueScene forgetful({std::make_shared<const Wrong<false>>(), 20, {{}, kFlush}});
  CHECK_THAT(explore(forgetful).complaint, StartsWith("gradients were lost"));
  TechniqueScene uneven({std::make_shared<const Wrong<true>>(), 20, {{}}});
  CHECK_THAT(explore(uneven).complaint, StartsWith("nobody moves any more"));
}

}  // namespace
}  // namespace roundelay::explore
