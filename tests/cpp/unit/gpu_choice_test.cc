#include "gpu/choice.h"

#include "tests/cpp/catch.h"

namespace roundelay::gpu {
namespace {

GpuInfo gpu_info(const std::string& identity, std::int32_t version = 22809, bool may_share = false) {
  GpuInfo tcp_address;
  tcp_address.nccl_version = version;
  tcp_address.may_share = may_share ? 1 : 0;
  identity.copy(tcp_address.identity.data(), tcp_address.identity.size() - 1);
  return tcp_address;
}

const Group kThree{0, {4, 6, 9}, 0};

std::string why_not(const std::vector<GpuInfo>& infos, GpuFabricWish wish = GpuFabricWish::kAuto) {
  const GpuChoice choice = choose_gpu_fabric(infos, kThree, wish);
  CHECK((choice.kind == GpuFabricKind::kStaged) == !choice.why.empty());
  return choice.why;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("NCCL is chosen where all members have the same and a GPU each", "[gpu][choice]") {
  CHECK(why_not({gpu_info("a"), gpu_info("b"), gpu_info("c")}) == "");
  CHECK(why_not({gpu_info("a"), gpu_info("b"), gpu_info("c")}, GpuFabricWish::kNccl) == "");
}

TEST_CASE("why it is not NCCL names ranks, cause and cure", "[gpu][choice]") {
  CHECK(why_not({gpu_info("a"), gpu_info("b"), gpu_info("c")}, GpuFabricWish::kStaged) ==
        "ROUNDELAY_GPU_FABRIC=staged");
  CHECK(contains(why_not({gpu_info("a"), gpu_info("b", 0), gpu_info("c")}), "rank 6 has no NCCL"));
  CHECK(contains(why_not({gpu_info("a"), gpu_info("b"), gpu_info("c", 23007)}),
                 "rank 4 has NCCL 2.28.9, rank 9 has 2.30.7: install the same PyTorch for all ranks"));
  CHECK(contains(why_not({gpu_info("a"), gpu_info("b"), gpu_info("a")}),
                 "rank 4 and rank 9 are on one GPU (a): call torch.cuda.set_device(hvd.local_rank())"));
}

TEST_CASE("MPI is chosen where it is wished for and all members' takes GPUs' memory", "[gpu][choice]") {
  std::vector<GpuInfo> infos{gpu_info("a", 0), gpu_info("a", 0), gpu_info("c", 0)};
  CHECK(choose_gpu_fabric(infos, kThree, GpuFabricWish::kMpi).kind == GpuFabricKind::kMpi);
  CHECK(choose_gpu_fabric(infos, kThree, GpuFabricWish::kAuto).kind == GpuFabricKind::kStaged);
  std::string("its MPI has no CUDA").copy(infos[1].why_not_mpi.data(), infos[1].why_not_mpi.size() - 1);
  CHECK(why_not(infos, GpuFabricWish::kMpi) == "rank 6: its MPI has no CUDA");
}

TEST_CASE("every value of ROUNDELAY_GPU_FABRIC is a wish", "[gpu][choice]") {
  for (const auto* const name : {"auto", "mpi", "nccl", "staged", "two_level"}) {
    CHECK(name_of(gpu_fabric_wish(name)) == name);
  }
}

TEST_CASE("ranks share a GPU where both allow it", "[gpu][choice]") {
  CHECK(why_not({gpu_info("a", 22809, true), gpu_info("b"), gpu_info("a", 22809, true)}) == "");
  CHECK(why_not({gpu_info("a", 22809, true), gpu_info("b"), gpu_info("a")}) != "");
}

// One rank for each name; its TCP address says that it is on the node of that name.
struct Nodes {
  explicit Nodes(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      infos.push_back(gpu_info(std::to_string(infos.size())));
      infos.back().has_levels = 1;
      name.copy(infos.back().node.data(), infos.back().node.size() - 1);
      group.ranks.push_back(group.size());
    }
  }
  [[nodiscard]] std::string why_not() const {
    const GpuChoice choice = choose_gpu_fabric(infos, group, GpuFabricWish::kTwoLevel);
    CHECK((choice.kind == GpuFabricKind::kTwoLevel) == choice.why.empty());
    return choice.why;
  }

  std::vector<GpuInfo> infos;
  Group group{0, {}, 0};
};

TEST_CASE("two levels between GPUs need equal nodes that share memory, NCCL and a GPU each",
          "[gpu][choice]") {
  CHECK(Nodes({"a", "b", "a", "b"}).why_not() == "");
  CHECK(Nodes({"a", "a", "a", "b", "b", "b"}).why_not() == "");
  CHECK(contains(Nodes({"a", "a", "b"}).why_not(),
                 "has 2 ranks on the node of rank 0 and 1 on that of rank 2: start equally many"));

  Nodes nodes({"a", "a", "b", "b"});
  nodes.infos[2].has_levels = 0;
  CHECK(contains(nodes.why_not(), "rank 2 does not share memory with the ranks of its node"));
  nodes = Nodes({"a", "a", "b", "b"});
  nodes.infos[3].nccl_version = 0;
  CHECK(contains(nodes.why_not(), "rank 3 has no NCCL"));
  nodes = Nodes({"a", "a", "b", "b"});
  nodes.infos[3].identity = nodes.infos[2].identity;
  CHECK(contains(nodes.why_not(), "rank 2 and rank 3 are on one GPU"));
}

TEST_CASE("two levels between GPUs: a set on one node has NCCL's, one with a rank a node the host's",
          "[gpu][choice]") {
  const auto choice_of = [](const Nodes& nodes) {
    return choose_gpu_fabric(nodes.infos, nodes.group, GpuFabricWish::kTwoLevel);
  };
  Nodes nodes({"a", "b", "c"});
  CHECK(choice_of(nodes).kind == GpuFabricKind::kStaged);
  CHECK(choice_of(nodes).why == "");
  nodes = Nodes({"a", "a", "a"});
  CHECK(choice_of(nodes).kind == GpuFabricKind::kNccl);
  nodes.infos[1].nccl_version = 0;
  CHECK(contains(choice_of(nodes).why, "rank 1 has no NCCL"));
}

TEST_CASE("two levels between GPUs: another NCCL matters within a node only", "[gpu][choice]") {
  Nodes nodes({"a", "b", "a", "b"});
  nodes.infos[1].nccl_version = nodes.infos[3].nccl_version = 23007;
  CHECK(nodes.why_not() == "");
  CHECK(choose_gpu_fabric(nodes.infos, nodes.group, GpuFabricWish::kNccl).kind == GpuFabricKind::kStaged);
  nodes.infos[1].nccl_version = 22809;
  CHECK(contains(nodes.why_not(), "rank 1 has NCCL 2.28.9, rank 3 has 2.30.7"));
}

}  // namespace
}  // namespace roundelay::gpu
