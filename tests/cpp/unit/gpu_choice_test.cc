#include "runtime/gpu/choice.h"

#include "tests/cpp/catch.h"

namespace roundelay::runtime {
namespace {

GpuCard card(const std::string& identity, std::int32_t version = 22809, bool may_share = false) {
  GpuCard card;
  card.nccl_version = version;
  card.may_share = may_share ? 1 : 0;
  identity.copy(card.identity.data(), card.identity.size() - 1);
  return card;
}

const Group kThree{0, {4, 6, 9}, 0};

std::string why_not(const std::vector<GpuCard>& cards, GpuFabricWish wish = GpuFabricWish::kAuto) {
  const GpuChoice choice = choose_gpu_fabric(cards, kThree, wish);
  CHECK(choice.nccl == choice.why.empty());
  return choice.why;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("NCCL is chosen where all members have the same and a GPU each", "[gpu][choice]") {
  CHECK(why_not({card("a"), card("b"), card("c")}) == "");
  CHECK(why_not({card("a"), card("b"), card("c")}, GpuFabricWish::kNccl) == "");
}

TEST_CASE("why it is not NCCL names ranks, cause and cure", "[gpu][choice]") {
  CHECK(why_not({card("a"), card("b"), card("c")}, GpuFabricWish::kStaged) == "ROUNDELAY_GPU_FABRIC=staged");
  CHECK(contains(why_not({card("a"), card("b", 0), card("c")}), "rank 6 has no NCCL"));
  CHECK(contains(why_not({card("a"), card("b"), card("c", 23007)}),
                 "rank 4 has NCCL 2.28.9, rank 9 has 2.30.7: install the same PyTorch for all ranks"));
  CHECK(contains(why_not({card("a"), card("b"), card("a")}),
                 "rank 4 and rank 9 are on one GPU (a): call torch.cuda.set_device(hvd.local_rank())"));
}

TEST_CASE("ranks share a GPU where both allow it", "[gpu][choice]") {
  CHECK(why_not({card("a", 22809, true), card("b"), card("a", 22809, true)}) == "");
  CHECK(why_not({card("a", 22809, true), card("b"), card("a")}) != "");
}

}  // namespace
}  // namespace roundelay::runtime
