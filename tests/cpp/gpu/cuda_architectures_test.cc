// Which GPUs a build's kernels run on.
#include "kernels/cuda/architectures.h"

#include <array>

#include "tests/cpp/catch.h"

namespace roundelay::kernels::cuda {
namespace {

constexpr std::array kThree = {800, 900, 1000};

TEST_CASE("code runs on later GPUs of its major number, and its source on all later ones", "[cuda]") {
  const Architectures fixed{kThree, false}, newer{kThree, true};
  for (const int runs : {800, 860, 890, 900, 1000, 1030}) {
    CHECK(covers(fixed, runs));
    CHECK(covers(newer, runs));
  }
  for (const int older : {700, 750}) {
    CHECK_FALSE(covers(fixed, older));
    CHECK_FALSE(covers(newer, older));
  }
  CHECK_FALSE(covers(fixed, 1200));
  CHECK(covers(newer, 1200));
}

TEST_CASE("a GPU that is not covered is named with the cure", "[cuda]") {
  CHECK(text_of({kThree, true}) == "8.0, 9.0, 10.0 and later");
  const Status status = unfit(1, 750, {kThree, true});
  CHECK(status.code() == StatusCode::kUnavailable);
  CHECK(status.message() ==
        "GPU 1 has compute capability 7.5, but this build is for 8.0, 9.0, 10.0 and later: build it with "
        "-DROUNDELAY_CUDA_ARCHITECTURES=75, or hide this GPU by CUDA_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace roundelay::kernels::cuda
