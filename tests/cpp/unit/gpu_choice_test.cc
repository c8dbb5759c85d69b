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
  CHECK((choice.way == GpuWay::kStaged) == !choice.why.empty());
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

// Ranks 0 to N, their cards in turn on nodes of these names.
struct Nodes {
  explicit Nodes(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      cards.push_back(card(std::to_string(cards.size())));
      cards.back().has_levels = 1;
      name.copy(cards.back().node.data(), cards.back().node.size() - 1);
      group.ranks.push_back(group.size());
    }
  }
  [[nodiscard]] std::string why_not() const {
    const GpuChoice choice = choose_gpu_fabric(cards, group, GpuFabricWish::kTwoLevel);
    CHECK((choice.way == GpuWay::kTwoLevel) == choice.why.empty());
    return choice.why;
  }

  std::vector<GpuCard> cards;
  Group group{0, {}, 0};
};

TEST_CASE("two levels between GPUs need equal nodes that share memory, NCCL and a GPU each",
          "[gpu][choice]") {
  CHECK(Nodes({"a", "b", "a", "b"}).why_not() == "");
  CHECK(Nodes({"a", "a", "a", "b", "b", "b"}).why_not() == "");
  CHECK(contains(Nodes({"a", "a", "b"}).why_not(),
                 "has 2 ranks on the node of rank 0 and 1 on that of rank 2: start equally many"));

  Nodes nodes({"a", "a", "b", "b"});
  nodes.cards[2].has_levels = 0;
  CHECK(contains(nodes.why_not(), "rank 2 does not share memory with the ranks of its node"));
  nodes = Nodes({"a", "a", "b", "b"});
  nodes.cards[3].nccl_version = 0;
  CHECK(contains(nodes.why_not(), "rank 3 has no NCCL"));
  nodes = Nodes({"a", "a", "b", "b"});
  nodes.cards[3].identity = nodes.cards[2].identity;
  CHECK(contains(nodes.why_not(), "rank 2 and rank 3 are on one GPU"));
}

TEST_CASE("two levels between GPUs: a set on one node has NCCL's, one with a rank a node the host's",
          "[gpu][choice]") {
  const auto choice_of = [](const Nodes& nodes) {
    return choose_gpu_fabric(nodes.cards, nodes.group, GpuFabricWish::kTwoLevel);
  };
  Nodes nodes({"a", "b", "c"});
  CHECK(choice_of(nodes).way == GpuWay::kStaged);
  CHECK(choice_of(nodes).why == "");
  nodes = Nodes({"a", "a", "a"});
  CHECK(choice_of(nodes).way == GpuWay::kNccl);
  nodes.cards[1].nccl_version = 0;
  CHECK(contains(choice_of(nodes).why, "rank 1 has no NCCL"));
}

TEST_CASE("two levels between GPUs: another NCCL matters within a node only", "[gpu][choice]") {
  Nodes nodes({"a", "b", "a", "b"});
  nodes.cards[1].nccl_version = nodes.cards[3].nccl_version = 23007;
  CHECK(nodes.why_not() == "");
  CHECK(choose_gpu_fabric(nodes.cards, nodes.group, GpuFabricWish::kNccl).way == GpuWay::kStaged);
  nodes.cards[1].nccl_version = 22809;
  CHECK(contains(nodes.why_not(), "rank 1 has NCCL 2.28.9, rank 3 has 2.30.7"));
}

}  // namespace
}  // namespace roundelay::runtime
