// The tests that every fabric must pass. A Medium makes groups and runs one function for each member:
// tests/cpp/contract does it with threads in one process, tests/cpp/mpi with one process per member.
//
// A member's function returns an error text, "" if there is none, because Catch's macros are not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collective/fabric.h"
#include "collective/tuning/select.h"
#include "tests/cpp/effort.h"

namespace roundelay::contract {

using collective::AllreduceCall;
using collective::BarrierCall;
using collective::BroadcastCall;
using collective::Call;
using collective::Fabric;
using collective::Select;
using Part = std::function<std::string(Fabric& fabric)>;

// Returns the largest group for media whose members are threads. Under ThreadSanitizer larger groups find
// nothing more, but take minutes.
inline int largest_of_threads() {
#ifdef __SANITIZE_THREAD__
  return 3;
#else
  return testing::quick() ? 3 : 8;
#endif
}

class Medium {
 public:
  virtual ~Medium() = default;
  [[nodiscard]] virtual int largest_group() const = 0;
  // Runs `part` on the first `size` members. Returns the first error with the member's number, "" if there is
  // none.
  virtual std::string run(int size, Select select, const Part& part) = 0;
};

// Runs `part` on each member in a thread of its own. Returns the same as Medium::run().
std::string run_on_threads(const std::vector<std::unique_ptr<Fabric>>& members, const Part& part);

// One test of the contract. run() returns the error in a group of `size` members, "" if there is none.
struct Test {
  using Body = std::function<std::string(Medium& medium, int size, Select select)>;

  std::string name;
  Body body;
  std::optional<Operation> operation{};  // each algorithm of this operation has to pass the test
  Select select{};

  [[nodiscard]] std::string run(Medium& medium, int size) const { return body(medium, size, select); }
};
const std::vector<Test>& fabric_contract();
// Returns the tests of fabrics that run algorithms: each test with each algorithm that it is about.
const std::vector<Test>& algorithm_contract();
std::vector<Test> reduction_tests();  // rounding, reduce-scatter, Adasum
std::vector<Test> region_tests();     // buffers in regions
std::vector<Test> scattered_tests();  // tensors that are reduced in place without packing
std::vector<Test> movement_tests();   // all-gather, alltoall, members that have joined

// Building blocks, also for tests of one medium.
// Returns the rule that takes this algorithm wherever it can.
inline Select always(std::string_view name) { return Select::by_name(name).value(); }
// inputs() returns one member's elements for a reduction, expected() the result over `members`: exact in
// every type. Both repeat after a few elements, and compare() relies on that.
std::vector<int> first_members(int size);
std::vector<double> inputs(int member, std::size_t count, DType dtype, ReduceOp op);
double expected(const std::vector<int>& members, std::size_t i, DType dtype, ReduceOp op);
std::string compare(const std::vector<double>& got, const std::function<double(std::size_t)>& want,
                    const std::string& what);
// Convert exact values to elements of `dtype`, and back.
std::vector<std::byte> encode(const std::vector<double>& values, DType dtype);
std::vector<double> decode(const std::byte* data, std::size_t count, DType dtype);
// Returns values whose sums need rounding. Integers are 0 and 1, so that no reduction overflows.
std::vector<std::byte> random_elements(std::size_t count, DType dtype, unsigned seed);
// Makes a call whose deadline only a hanging test reaches.
template <class Kind>
Kind patient() {
  Kind call;
  call.deadline = Deadline::after(std::chrono::seconds(60));
  return call;
}
AllreduceCall allreduce_over(std::byte* memory, std::size_t bytes);
BroadcastCall broadcast_over(std::byte* memory, std::size_t bytes, int root = 0);
std::string run_call(Fabric& fabric, const Call& call);

}  // namespace roundelay::contract
