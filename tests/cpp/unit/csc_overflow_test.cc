// csc over the inproc fabric: gradients that are not finite, and finite ones with a norm that fp32 cannot
// hold.
#include <cmath>
#include <cstring>

#include "tests/cpp/unit/csc_members.h"

namespace roundelay::compress::csc {
namespace {

bool has_nan(const TechniqueMember& member, const std::vector<Slice>& parameters) {
  for (const Slice& slice : parameters) {
    for (std::size_t i = slice.first; i < slice.first + slice.count; ++i)
      if (std::isnan(element(member, i))) return true;
  }
  return false;
}

TEST_CASE("an overflow anywhere on one rank is a NaN on all, and the next run is clean", "[technique][csc]") {
  std::mt19937 random(5);
  const std::string more =
      GENERATE("", ",norms=previous", ",wire=bf16", ",momentum=0.5", ",norms=previous,wire=fp16", ",keep=1");
  const TechniquePtr technique =
      make("csc:chunk=50" + more + (more == ",keep=1" ? "" : ",keep=0.125"));  // of 19 lossy chunks
  Model model;
  model.parameters = {{16, 480}, {512, 400}};
  model.count = 1000;
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    for (const std::size_t at : {std::size_t{16}, std::size_t{333}, std::size_t{911}}) {
      TechniqueMembers group(3);
      set_up(group, *technique, model, DType::kFloat32);
      for (int step = 0; step < 6; ++step) {
        Gradients gradients = some_gradients(model, 3, 10, random);
        if (step == 3) gradients[1][at] = bad;
        bring(group, gradients);
        group.run(*technique);
        INFO(technique->text() << ", step " << step << ", element " << at);
        for (auto& member : group.members) {
          REQUIRE(std::memcmp(member->bytes.data(), group.members[0]->bytes.data(), member->bytes.size()) ==
                  0);
          const bool found = has_nan(*member, model.parameters) || std::isinf(element(*member, at));
          REQUIRE(found == (step == 3));
          for (std::size_t i = 0; i < model.count; ++i) REQUIRE(std::isfinite(kept(*member, i)));
        }
      }
    }
  }
}

TEST_CASE("an overflow is seen in a run that sends no chunk, and in a dense parameter", "[technique][csc]") {
  std::mt19937 random(7);
  const std::size_t chunks = GENERATE(1U, 2U, 3U);
  const std::string more = GENERATE("", ",norms=previous", ",wire=bf16", ",momentum=0.5",
                                    ",norms=previous,wire=fp16", ",norms=previous,momentum=0.5,nesterov=1");
  const bool with_dense = GENERATE(false, true);
  Model model;
  model.parameters = {{0, 50 * chunks - 3}};
  if (with_dense) model.parameters.push_back({50 * chunks, 20});
  model.count = 50 * chunks + (with_dense ? 20 : 0);
  const TechniquePtr technique =
      make("csc:chunk=50,before=7,keep=0.125" + std::string(with_dense ? ",dense=1" : "") + more);
  bool without_chunks = false;
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    for (int at_step = 0; at_step < 9; ++at_step) {
      TechniqueMembers group(2);
      set_up(group, *technique, model, DType::kFloat32);
      for (int step = 0; step < 11; ++step) {
        Gradients gradients = some_gradients(model, 2, 10, random);
        const Slice where = model.parameters[with_dense && at_step % 2 == 0 ? 1 : 0];
        const std::size_t at = where.first + random() % where.count;
        if (step == at_step) gradients[1][at] = bad;
        bring(group, gradients);
        group.run(*technique);
        if (step == at_step && sent_by(*technique, *group.members[0]).empty()) without_chunks = true;
        INFO(technique->text() << ", step " << step << ", element " << at);
        for (auto& member : group.members) {
          REQUIRE(std::memcmp(member->bytes.data(), group.members[0]->bytes.data(), member->bytes.size()) ==
                  0);
          const bool found = has_nan(*member, model.parameters) || std::isinf(element(*member, at));
          REQUIRE(found == (step == at_step));
        }
      }
    }
  }
  CHECK(without_chunks);
}

TEST_CASE("finite gradients give finite results, however large their norm is", "[technique][csc]") {
  const std::string more = GENERATE("", ",norms=previous", ",momentum=0.5");
  const TechniquePtr technique = make("csc:chunk=50,keep=0.125" + more);
  Model model;
  model.parameters = {{0, 1000}};
  model.count = 1000;
  TechniqueMembers group(3);
  set_up(group, *technique, model, DType::kFloat32);
  for (int step = 0; step < 4; ++step) {
    Gradients gradients(3, std::vector<double>(1000, 1.0));
    if (step == 1) gradients[1].assign(1000, 1e38);
    bring(group, gradients);
    group.run(*technique);
    for (auto& member : group.members) {
      REQUIRE_FALSE(has_nan(*member, model.parameters));
      for (std::size_t i = 0; i < model.count; ++i) REQUIRE(std::isfinite(kept(*member, i)));
    }
  }
}

}  // namespace
}  // namespace roundelay::compress::csc
