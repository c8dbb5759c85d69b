// Which operations may take a technique: each rank checks its own call before the peers hear of it.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "execute/operations/operations.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/techniques.h"

namespace roundelay::execute {
namespace {

// An allreduce of a bucket that may take its technique.
submit::Entry bucket() {
  submit::Entry entry;
  auto technique = std::make_shared<compress::BucketTechnique>();
  technique->technique = technique_of("negate");
  entry.request.technique = technique->technique->text();
  entry.request.shape = {4};
  entry.request.region = {1, 0};
  entry.parts.resize(1);
  entry.technique = std::move(technique);
  return entry;
}

std::string wrong(const std::function<void(submit::Entry&)>& change) {
  submit::Entry entry = bucket();
  change(entry);
  return wrong_with(entry, Group{0, {0, 1}, 0});
}

TEST_CASE("sums and averages of one bucket may take a technique", "[technique]") {
  CHECK(wrong([](auto&) {}).empty());
  CHECK(wrong([](auto& e) { e.request.reduce_op = ReduceOp::kAverage; }).empty());
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBFloat16})
    CHECK(wrong([&](auto& e) { e.request.dtype = dtype; }).empty());
}

TEST_CASE("nothing else may take a technique, with the reason", "[technique]") {
  const std::string one_bucket =
      "a technique takes an allreduce of one bucket in a gradient pool, nothing else";
  CHECK(wrong([](auto& e) { e.request.region = {}; }) == one_bucket);
  CHECK(wrong([](auto& e) { e.request.operation = Operation::kReducescatter; }) == one_bucket);
  CHECK(wrong([](auto& e) {
          e.request.others = {{DType::kFloat32, {4}}};
          e.parts.resize(2);
        }) == one_bucket);
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct, ReduceOp::kAdasum})
    CHECK(wrong([&](auto& e) { e.request.reduce_op = op; }) == "a technique needs op=Sum or op=Average");
  CHECK(wrong([](auto& e) { e.request.dtype = DType::kInt32; }) ==
        "a technique needs floating-point gradients, not int32");
  const std::string differ = "the request and the bucket differ about the technique";
  CHECK(wrong([](auto& e) { e.request.technique.clear(); }) == differ);
  CHECK(wrong([](auto& e) { e.technique = nullptr; }) == differ);
}

}  // namespace
}  // namespace roundelay::execute
