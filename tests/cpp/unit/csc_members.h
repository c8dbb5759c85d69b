// Members of a group that reduce a bucket by csc, beside the slow model of it.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "compress/registry.h"
#include "tests/cpp/unit/csc_model.h"
#include "tests/cpp/unit/kernels_reference.h"
#include "tests/cpp/unit/technique_members.h"

namespace roundelay::compress::csc {

namespace reference = kernels::reference;
using Gradients = std::vector<std::vector<double>>;

inline std::string text_for(const Model& model) {
  std::string text = "csc:before=" + std::to_string(model.before) + ",chunk=" + std::to_string(model.chunk) +
                     ",keep=" + std::to_string(model.keep);
  for (std::size_t i = 0; i < model.dense.size(); ++i)
    text += (i == 0 ? ",dense=" : "+") + std::to_string(model.dense[i]);
  if (model.previous) text += ",norms=previous";
  if (model.momentum != 0) text += ",momentum=" + std::to_string(model.momentum);
  if (model.nesterov) text += ",nesterov=1";
  if (!model.masking) text += ",masking=0";
  return text;
}

inline TechniquePtr make(const std::string& text) {
  auto made = make_technique(text);
  INFO(made.status().message());
  REQUIRE(made.ok());
  return std::move(*made);
}

// Some parameters with the gaps of a pool, some of which are dense.
inline void lay_out(Model& model, std::mt19937& random) {
  std::size_t at = 0;
  for (std::size_t n = 1 + random() % 10; n > 0; --n) {
    const std::size_t count = random() % 2 == 0 ? 1 + random() % 20 : 1 + random() % 400;
    if (random() % 4 == 0) model.dense.push_back(static_cast<std::uint32_t>(model.parameters.size()));
    model.parameters.push_back({at, count});
    model.count = at + count;
    at += (count + 15) / 16 * 16;
  }
}

inline Model some_model(std::mt19937& random, double momentum = 0) {
  Model model;
  lay_out(model, random);
  model.chunk = 1 + random() % 100;
  model.keep = std::array{0.015625, 0.125, 0.25, 0.5, 0.75, 1.0}[random() % 6];
  model.before = random() % 100;
  model.previous = random() % 2 == 0;
  model.momentum = momentum;
  model.nesterov = momentum != 0 && random() % 2 == 0;
  model.masking = momentum == 0 || random() % 2 == 0;
  return model;
}

// Whole numbers; gaps between parameters are zero, as in a pool.
inline Gradients some_gradients(const Model& model, int ranks, int most, std::mt19937& random) {
  Gradients gradients(static_cast<std::size_t>(ranks), std::vector<double>(model.count));
  for (auto& of_rank : gradients) {
    for (const Slice& slice : model.parameters) {
      for (std::size_t i = slice.first; i < slice.first + slice.count; ++i)
        of_rank[i] = static_cast<int>(random() % static_cast<unsigned>(2 * most + 1)) - most;
    }
  }
  return gradients;
}

inline void set_up(TechniqueMembers& group, const Technique& technique, const Model& model, DType dtype) {
  group.set_up(technique, {dtype, ReduceOp::kSum, {}, {}}, model.count);
  for (auto& member : group.members) member->bucket.parameters = model.parameters;
}

inline void bring(TechniqueMembers& group, const Gradients& gradients) {
  for (std::size_t m = 0; m < gradients.size(); ++m) {
    TechniqueMember& member = *group.members[m];
    const DType dtype = member.bucket.reduction.dtype;
    for (std::size_t i = 0; i < gradients[m].size(); ++i)
      reference::write(dtype, member.bytes.data() + i * size_of(dtype), gradients[m][i]);
  }
}

inline double element(const TechniqueMember& member, std::size_t i) {
  const DType dtype = member.bucket.reduction.dtype;
  return reference::read(dtype, member.bytes.data() + i * size_of(dtype));
}

inline double kept(const TechniqueMember& member, std::size_t i) {
  const DType type = kernels::residual_type(member.bucket.reduction.dtype);
  return reference::read(type, member.bucket.state.data() + i * size_of(type));
}

inline std::vector<std::uint32_t> sent_by(const Technique& technique, const TechniqueMember& member) {
  const Bucket& bucket = member.bucket;
  const auto sent = technique.sent({bucket.count, bucket.reduction.dtype, bucket.parameters}, bucket.run - 1);
  REQUIRE(sent.has_value());
  const auto* const first = reinterpret_cast<const std::uint32_t*>(bucket.state.data() + sent->indices_at);
  return {first, first + sent->indices};
}

inline void require_as(const Model& model, const TechniqueMembers& group) {
  for (std::size_t m = 0; m < group.members.size(); ++m) {
    REQUIRE(group.members[m]->bytes == group.members.front()->bytes);
    std::vector<double> residual(model.count);
    for (std::size_t i = 0; i < model.count; ++i) residual[i] = kept(*group.members[m], i);
    REQUIRE(residual == model.residual[m]);
  }
  std::vector<double> result(model.count);
  for (std::size_t i = 0; i < model.count; ++i) result[i] = element(*group.members[0], i);
  REQUIRE(result == model.result);
}

inline void require_sent(const Model& model, const Technique& technique, const TechniqueMembers& group,
                         std::size_t element_bytes) {
  for (const auto& member : group.members) {
    REQUIRE(sent_by(technique, *member) == model.chosen);
    REQUIRE(member->called_bytes == model.sent_elements * element_bytes + model.norms_sent * sizeof(float));
  }
}

}  // namespace roundelay::compress::csc
