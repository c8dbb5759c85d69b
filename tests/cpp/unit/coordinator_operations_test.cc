// The checks that ranks agree: each operation, groups, allgather's extents, removal of a process set.
#include <functional>
#include <string>
#include <vector>

#include "negotiate/validate.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/unit/coordinator_desk.h"

namespace roundelay::negotiate {
namespace {

wire::Request of(Operation operation, const std::string& name = "x", Shape shape = {4, 3}) {
  wire::Request request = request_of(name, std::move(shape));
  request.operation = operation;
  return request;
}

wire::Request group(const std::string& name, std::vector<wire::TensorSpec> others) {
  wire::Request request = request_of(name);
  request.others = std::move(others);
  return request;
}

std::string said(const wire::Request& a, const wire::Request& b) { return mismatch(a, 10, b, 11); }

TEST_CASE("each operation needs agreement on what it uses, and on nothing else", "[negotiate][validate]") {
  using Change = std::function<void(wire::Request&)>;
  const std::vector<std::pair<std::string, Change>> changes = {
      {"dtype", [](auto& r) { r.dtype = DType::kInt8; }},
      {"device", [](auto& r) { r.device = DeviceType::kGpu; }},
      {"first extent", [](auto& r) { r.shape[0] = 9; }},
      {"last extent", [](auto& r) { r.shape[1] = 9; }},
      {"rank", [](auto& r) { r.shape.push_back(1); }},
      {"reduction", [](auto& r) { r.reduce_op = ReduceOp::kMin; }},
      {"prescale", [](auto& r) { r.prescale.factor = 2; }},
      {"postscale", [](auto& r) { r.postscale.divisor = 2; }},
      {"technique", [](auto& r) { r.technique = "negate"; }},
      {"root", [](auto& r) { r.root = 1; }},
      {"count", [](auto& r) { r.others.push_back({}); }},
  };
  const auto refused = [&](Operation operation) {
    Names names;
    for (const auto& [name, change] : changes) {
      wire::Request other = of(operation);
      change(other);
      if (!said(of(operation), other).empty()) names.push_back(name);
    }
    return names;
  };
  const Names reductions = {"dtype",    "device",    "first extent", "last extent", "rank", "reduction",
                            "prescale", "postscale", "technique",    "root",        "count"};
  CHECK(refused(Operation::kAllreduce) == reductions);
  CHECK(refused(Operation::kReducescatter) == reductions);
  CHECK(refused(Operation::kBroadcast) ==
        Names{"dtype", "device", "first extent", "last extent", "rank", "root", "count"});
  CHECK(refused(Operation::kAllgather) == Names{"dtype", "device", "last extent", "rank", "root", "count"});
  CHECK(refused(Operation::kAlltoall) == Names{"dtype", "device", "last extent", "rank", "root", "count"});
  CHECK(refused(Operation::kBarrier).empty());
  CHECK(refused(Operation::kJoin).empty());
}

TEST_CASE("a disagreement about a technique has both texts", "[negotiate][validate]") {
  wire::Request cyclic = of(Operation::kAllreduce);
  cyclic.technique = "cyclic:parts=4";
  wire::Request flush = cyclic;
  flush.technique += wire::kFlush;
  CHECK(said(cyclic, cyclic).empty());
  CHECK(contains(said(cyclic, of(Operation::kAllreduce)),
                 "allreduce of 'x': rank 10 has technique 'cyclic:parts=4', rank 11 has dense. "));
  CHECK(contains(said(flush, cyclic),
                 "rank 10 has technique 'cyclic:parts=4 flush', rank 11 has technique 'cyclic:parts=4'"));
}

TEST_CASE("a group's disagreement names the tensor in it", "[negotiate][validate]") {
  const wire::TensorSpec spec{DType::kFloat32, {2, 2}};
  CHECK(said(group("g", {spec, spec}), group("g", {spec, spec})).empty());
  CHECK(contains(
      said(group("g", {spec, spec}), group("g", {spec, {DType::kFloat32, {2, 3}}})),
      "Mismatched allreduce of 'g': rank 10 has shape of tensor 2 [2, 2], rank 11 has shape of tensor "
      "2 [2, 3]"));
  CHECK(contains(said(group("g", {spec}), group("g", {{DType::kInt8, {2, 2}}})),
                 "rank 10 has dtype of tensor 1 float32, rank 11 has dtype of tensor 1 int8"));
  CHECK(contains(said(group("g", {spec}), group("g", {spec, spec})),
                 "rank 10 has 2 tensors, rank 11 has 3 tensors"));
  wire::Request gather = of(Operation::kAllgather);
  wire::Request other = gather;
  gather.others = {spec};
  other.others = {{DType::kFloat32, {7, 2}}};
  CHECK(said(gather, other).empty());
  other.others = {{DType::kFloat32, {2, 7}}};
  CHECK(contains(said(gather, other), "tensor 1"));
}

TEST_CASE("ranks that change process sets differently are told how", "[negotiate][validate]") {
  wire::Request add = of(Operation::kProcessSet, "process_set.noname.1", {});
  add.ranks = {0, 1};
  wire::Request other = add;
  CHECK(said(add, other).empty());
  other.ranks = {0, 2};
  CHECK(contains(said(add, other), "rank 10 has process set [0, 1], rank 11 has process set [0, 2]"));
  other.ranks.clear();
  other.root = 3;
  CHECK(contains(said(add, other), "rank 11 has removal of process set 3"));
}

TEST_CASE("a group is one member of a fused operation, with all its bytes", "[negotiate][coordinator]") {
  CoordinatorOptions options = eager();
  options.plan.fusion_threshold_bytes = 256;
  Desk desk(options);
  const wire::TensorSpec small{DType::kFloat32, {1}};  // 64 bytes with its padding, as request_of
  SECTION("it fits beside another") {
    desk.everyone({group("g", {small, small}), request_of("a")});
    CHECK(desk.order()->operations.size() == 1);
  }
  SECTION("it does not") {
    desk.everyone({group("g", {small, small, small}), request_of("a"), request_of("b")});
    const auto order = desk.order();
    REQUIRE(order->operations.size() == 2);
    CHECK(order->operations[0].tensors.size() == 1);
    CHECK(order->operations[1].tensors.size() == 2);
  }
  SECTION("of several dtypes: alone") {
    desk.everyone({group("g", {{DType::kInt8, {1}}}), request_of("a"), group("h", {{DType::kInt8, {1}}})});
    CHECK(desk.order()->operations.size() == 3);
  }
  SECTION("one id for all of it") {
    desk.everyone({group("g", {small, small})});
    REQUIRE(desk.order());
    desk.cached(0, {1});
    desk.cached(1, {1});
    CHECK(desk.order()->operations[0].tensors == std::vector<wire::FusedTensor>{{1, ""}});
  }
  SECTION("one failure for all of it") {
    desk.request(0, {group("g", {small, small})});
    desk.request(1, {group("g", {small})});
    const auto order = desk.order();
    CHECK(order->operations.empty());
    CHECK(order->failures.size() == 1);
    CHECK(desk.coordinator.waiting() == 0);
  }
}

TEST_CASE("only allreduces are fused, and no Adasum", "[negotiate][coordinator]") {
  Desk desk(eager());
  wire::Request adasum = request_of("a1");
  adasum.reduce_op = ReduceOp::kAdasum;
  wire::Request another = adasum;
  another.name = "a2";
  desk.everyone({adasum, another, of(Operation::kReducescatter, "r1"), of(Operation::kReducescatter, "r2")});
  CHECK(desk.order()->operations.size() == 4);
}

TEST_CASE("an allgather's order has everyone's first extents", "[negotiate][coordinator]") {
  Desk desk(eager(), 3);
  for (const int member : {2, 0, 1}) {
    wire::Request gather = of(Operation::kAllgather, "x", {10 + member, 3});
    gather.others = {{DType::kInt8, {20 + member}}};
    gather.cacheable = false;
    desk.request(member, {gather});
  }
  const auto order = desk.order();
  REQUIRE(order);
  CHECK(order->operations == std::vector<wire::FusedOperation>{{{{0, "x"}}, {10, 11, 12, 20, 21, 22}, {}}});
}

TEST_CASE("a process set is closed when all members remove it", "[negotiate][coordinator]") {
  CoordinatorOptions options = eager();
  options.fire = {1000000, std::chrono::seconds(10)};
  Desk desk(options, 3);
  wire::Report removing;
  removing.removing = true;
  desk.everyone({request_of("ready")});
  desk.request(1, {request_of("b"), request_of("a")});
  desk.request(2, {request_of("a")});
  REQUIRE(desk.say(2, removing).ok());
  REQUIRE(desk.say(0, removing).ok());
  CHECK_FALSE(desk.order());
  SECTION("in agreement") {
    REQUIRE(desk.say(1, removing).ok());
    const auto last = desk.order();
    REQUIRE(last);
    CHECK(last->removed);
    CHECK(last->shutdown_by == -1);
    CHECK(last->operations.size() == 1);
    REQUIRE(last->failures.size() == 2);
    CHECK(contains(last->failures[0].text,
                   "allreduce of 'a' was never submitted by rank 10, and process set 0 is being removed"));
    CHECK(contains(last->failures[1].text, "'b' was never submitted by ranks 10, 12"));
    CHECK(desk.coordinator.waiting() == 0);
  }
  SECTION("a shutdown comes first") {
    removing.leaving = true;
    REQUIRE(desk.say(1, removing).ok());
    const auto last = desk.order();
    REQUIRE(last);
    CHECK(last->shutdown_by == 11);
    CHECK_FALSE(last->removed);
  }
  CHECK_FALSE(desk.order());
  CHECK(desk.coordinator.next_due() == Deadline::never());
}

}  // namespace
}  // namespace roundelay::negotiate
