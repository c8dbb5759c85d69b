// The double-buffered chunk protocol of fabric shm in every order of its members' steps: results are right,
// and no member waits for ever. Programs, rounds.cc and segment.h are the product's. Slots are one or two
// lines for each member, so that few bytes take several rounds. Memory is sequentially consistent
// (explorer.h).
#include "tests/cpp/catch.h"
#include "tests/cpp/explore/chunk_scene.h"

namespace roundelay::explore {
namespace {

Planned allreduce(std::size_t length, std::vector<int> absent = {}) {
  return {Operation::kAllreduce, {length}, std::move(absent)};
}

Planned broadcast(std::size_t length, int root, std::vector<int> absent = {}) {
  return {Operation::kBroadcast, {length}, std::move(absent), root};
}

Planned barrier(std::vector<int> absent = {}) { return {Operation::kBarrier, {}, std::move(absent)}; }

Planned all_gather(std::vector<std::size_t> lengths, std::vector<int> absent = {}) {
  return {Operation::kAllgather, std::move(lengths), std::move(absent)};
}

Planned alltoall(std::vector<std::size_t> lengths) { return {Operation::kAlltoall, std::move(lengths)}; }

Planned reduce_scatter(std::vector<std::size_t> lengths) {
  return {Operation::kReducescatter, std::move(lengths)};
}

Planned in_region(std::size_t length, std::vector<int> absent = {}) {
  return {Operation::kAllreduce, {length}, std::move(absent), 0, true};
}

Planned in_heap(std::size_t length, std::vector<int> members, std::vector<int> absent = {}) {
  return {Operation::kAllreduce, {length}, std::move(absent), 0, false, ReduceOp::kSum, std::move(members)};
}

// Moves a call whose memory may lie in a region there.
Planned moved_to_region(Planned planned, std::vector<int> absent = {}) {
  planned.in_region = true;
  planned.absent = std::move(absent);
  return planned;
}

Planned scatter_in_region(std::vector<std::size_t> lengths, std::vector<int> absent = {}) {
  return moved_to_region(reduce_scatter(std::move(lengths)), std::move(absent));
}

Planned gather_in_region(std::vector<std::size_t> lengths, std::vector<int> absent = {}) {
  return moved_to_region(all_gather(std::move(lengths)), std::move(absent));
}

Planned adasum(std::size_t length) {
  return {Operation::kAllreduce, {length}, {}, 0, false, ReduceOp::kAdasum};
}

Script two(std::vector<Planned> calls) { return {2, 128, std::move(calls)}; }
Script three(std::vector<Planned> calls) { return {3, 192, std::move(calls)}; }
Script asleep(Script script) {
  script.sleep = nap;
  return script;
}

void every_order(const char* what, const Script& script) {
  ChunkScene scene(script);
  const Report report = explore(scene);
  INFO(what << ": " << report.states << " states, " << report.runs << " runs, " << report.orders
            << " orders of steps");
  CHECK(report.complaint == "");
  CHECK(report.orders > 1);
}

TEST_CASE("allreduce in every order", "[explore][slow]") {
  every_order("3 rounds, twice", two({allreduce(90), allreduce(90)}));
  every_order("together, three times", two({allreduce(32), allreduce(20), allreduce(32)}));
  every_order("long, short, long", two({allreduce(70), allreduce(5), allreduce(70)}));
  every_order("three members, together, then a barrier", three({allreduce(40), barrier()}));
  every_order("three members, 2 rounds", three({allreduce(90)}));
}

TEST_CASE("Adasum in every order", "[explore]") {
  every_order("2 rounds, then 1", two({adasum(50), adasum(20)}));
}

TEST_CASE("movement in every order", "[explore][slow]") {
  every_order("broadcasts from both ends", two({broadcast(90, 0), broadcast(90, 1), broadcast(40, 0)}));
  every_order("broadcast of three", three({broadcast(120, 1)}));
  every_order("all-gathers", two({all_gather({20, 90}), all_gather({70, 0})}));
  every_order("all-gather of three", three({all_gather({60, 10, 0})}));
  every_order("alltoalls", two({alltoall({4, 40, 20, 7}), alltoall({0, 10, 40, 3})}));
  every_order("alltoall of three", three({alltoall({4, 20, 5, 6, 7, 0, 16, 9, 1})}));
  every_order("reduce-scatters", two({reduce_scatter({40, 10}), reduce_scatter({5, 33})}));
  every_order("reduce-scatter of three", three({reduce_scatter({5, 0, 5})}));
}

TEST_CASE("one operation after another in every order", "[explore]") {
  every_order("allreduce, broadcast, barrier", two({allreduce(90), broadcast(90, 1), barrier()}));
  every_order("all-gather, allreduce", two({all_gather({50, 9}), allreduce(70), barrier()}));
  every_order("barriers of three", three({barrier(), barrier()}));
}

TEST_CASE("members that are away meanwhile, in every order", "[explore]") {
  every_order("one of two", two({allreduce(90), allreduce(20, {1}), allreduce(90)}));
  every_order("one of three", three({allreduce(48, {1}), allreduce(30)}));
  every_order("another one each time", three({broadcast(60, 0, {1}), broadcast(60, 1, {2})}));
}

TEST_CASE("allreduce in a region in every order", "[explore][slow]") {
  constexpr std::size_t kPiece = 4096;
  every_order("3 pieces", two({in_region(3 * kPiece)}));
  every_order("2 pieces, twice", two({in_region(2 * kPiece), in_region(5)}));
  every_order("staged ones in between", two({in_region(20), allreduce(70), in_region(20)}));
  every_order("three members", three({in_region(9)}));
  every_order("three members, one away", three({in_region(9, {0}), in_region(9, {1})}));
}

TEST_CASE("allreduce of buffers in heaps in every order", "[explore][slow]") {
  every_order("3 rounds, of all", two({in_heap(90, {0, 1}), in_heap(90, {0, 1})}));
  every_order("3 rounds, of one", two({in_heap(90, {0}), in_heap(90, {1})}));
  every_order("of all, of none, of one", two({in_heap(70, {0, 1}), allreduce(70), in_heap(70, {1})}));
  every_order("together, of all, in a region",
              two({in_heap(20, {0, 1}), in_heap(70, {0, 1}), in_region(20)}));
  every_order("three members", three({in_heap(60, {0, 1, 2})}));
  every_order("three members, of two", three({in_heap(60, {0, 2})}));
  every_order("one of three away", three({in_heap(60, {1, 2}, {0}), in_heap(60, {0, 1}, {2})}));
}

TEST_CASE("reduce-scatter and all-gather in a region in every order", "[explore]") {
  constexpr std::size_t kBlock = 4096;
  every_order("reduce-scatters", two({scatter_in_region({40, 10}), scatter_in_region({5, 33})}));
  every_order("reduce-scatter in blocks", two({scatter_in_region({kBlock + 1, kBlock}), barrier()}));
  every_order("all-gathers", two({gather_in_region({20, 90}), gather_in_region({70, 0})}));
  every_order("one of each, twice", two({scatter_in_region({9, 7}), gather_in_region({9, 7}),
                                         scatter_in_region({8, 8}), gather_in_region({8, 8})}));
  every_order("staged ones in between", two({scatter_in_region({20, 3}), reduce_scatter({50, 9}),
                                             gather_in_region({20, 3}), all_gather({50, 9})}));
  every_order("allreduces in between", two({in_region(20), scatter_in_region({20, 3}), in_region(5)}));
  every_order("reduce-scatter of three", three({scatter_in_region({5, 0, 5})}));
  every_order("all-gather of three", three({gather_in_region({6, 1, 0})}));
  every_order("reduce-scatter, one of three away", three({scatter_in_region({0, 4, 4}, {0})}));
  every_order("all-gathers, one of three away",
              three({gather_in_region({0, 4, 4}, {0}), gather_in_region({4, 0, 4}, {1})}));
}

TEST_CASE("sleepers are woken in every order", "[explore]") {
  every_order("barriers", asleep(two({barrier(), barrier()})));
  every_order("allreduce together", asleep(two({allreduce(20)})));
  every_order("broadcast", asleep(two({broadcast(50, 0)})));
}

}  // namespace
}  // namespace roundelay::explore
