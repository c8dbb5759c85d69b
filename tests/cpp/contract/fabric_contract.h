// What every fabric must do, written once. A Medium makes groups and runs a member's part; tests/cpp/contract
// does it with threads in one process, tests/cpp/mpi with one process a member.
//
// A member's part returns a complaint, empty if all is well: Catch's own checks are not for many threads.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collective/algorithms/algorithms.h"
#include "collective/fabric.h"
#include "collective/select.h"

namespace roundelay::contract {

using collective::Call;
using collective::Fabric;
using collective::Select;
using Part = std::function<std::string(Fabric& fabric)>;

class Medium {
 public:
  virtual ~Medium() = default;
  [[nodiscard]] virtual int largest_group() const = 0;
  // Runs `part` on the first `size` members. Returns the first complaint, with the member's number.
  virtual std::string run(int size, Select select, const Part& part) = 0;
};

// Every test of the contract, for a group of `size`: complaints by the name of the test.
struct Test {
  const char* name;
  std::function<std::string(Medium& medium, int size)> run;
};
const std::vector<Test>& fabric_contract();

// Building blocks, also for tests of one medium.
Select always_ring();
Select always_recursive_doubling();
// Elements of `dtype` from exact values, and back.
std::vector<std::byte> encode(const std::vector<double>& values, DType dtype);
std::vector<double> decode(const std::byte* data, std::size_t count, DType dtype);
// A call over `memory` with a deadline that only a hanging test meets.
Call call_over(Operation operation, std::byte* memory, std::size_t bytes);
std::string run_call(Fabric& fabric, const Call& call);

}  // namespace roundelay::contract
