// What every fabric must do, written once. A Medium makes groups and runs a member's part; tests/cpp/contract
// does it with threads in one process, tests/cpp/mpi with one process a member.
//
// A member's part returns a complaint, empty if all is well: Catch's own checks are not for many threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collective/algorithms/algorithms.h"
#include "collective/fabric.h"
#include "collective/select.h"

namespace roundelay::contract {

using collective::AllreduceCall;
using collective::BarrierCall;
using collective::BroadcastCall;
using collective::Call;
using collective::Fabric;
using collective::Select;
using Part = std::function<std::string(Fabric& fabric)>;

// Of media with threads for members. ThreadSanitizer sees no more in larger groups, but takes minutes.
#ifdef __SANITIZE_THREAD__
constexpr int kLargestGroup = 3;
#else
constexpr int kLargestGroup = 8;
#endif

class Medium {
 public:
  virtual ~Medium() = default;
  [[nodiscard]] virtual int largest_group() const = 0;
  // Runs `part` on the first `size` members. Returns the first complaint, with the member's number.
  virtual std::string run(int size, Select select, const Part& part) = 0;
};

// `part` on each member, on a thread of its own. What Medium::run() returns.
std::string run_on_threads(const std::vector<std::unique_ptr<Fabric>>& members, const Part& part);

// Every test of the contract, for a group of `size`: complaints by the name of the test.
struct Test {
  std::string name;
  std::function<std::string(Medium& medium, int size)> run;
};
const std::vector<Test>& fabric_contract();
std::vector<Test> reduction_tests();  // how sums are rounded, reduce-scatter, Adasum
std::vector<Test> region_tests();     // buffers in regions
std::vector<Test> scattered_tests();  // tensors where they lie
std::vector<Test> movement_tests();   // all-gather, alltoall, members that have joined

// Building blocks, also for tests of one medium.
// One algorithm for every allreduce that has something to send.
template <collective::Program (*kProgram)(collective::Exchange&, const AllreduceCall&)>
Select always() {
  return [](const Call& call, int size) -> const collective::Algorithm& {
    static constexpr collective::Algorithm kOnly = collective::algorithm_for<AllreduceCall, kProgram>("only");
    const auto* const allreduce = std::get_if<AllreduceCall>(&call);
    const bool fits = allreduce != nullptr && size > 1 && allreduce->buffer.bytes > 0;
    return fits ? kOnly : collective::select_algorithm(call, size);
  };
}
const std::vector<std::pair<const char*, Select>>& allreduces();
// What a member gives to a reduction, and what the reduction over `members` gives: exact in every type. Both
// repeat after a few elements, which compare() makes use of.
std::vector<int> first_members(int size);
std::vector<double> inputs(int member, std::size_t count, DType dtype, ReduceOp op);
double expected(const std::vector<int>& members, std::size_t i, DType dtype, ReduceOp op);
std::string compare(const std::vector<double>& got, const std::function<double(std::size_t)>& want,
                    const std::string& what);
// Elements of `dtype` from exact values, and back.
std::vector<std::byte> encode(const std::vector<double>& values, DType dtype);
std::vector<double> decode(const std::byte* data, std::size_t count, DType dtype);
// Values whose sums have to be rounded; integers are 0 and 1, which no reduction makes overflow.
std::vector<std::byte> random_elements(std::size_t count, DType dtype, unsigned seed);
// A call with a deadline that only a hanging test meets.
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
