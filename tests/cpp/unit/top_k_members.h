// A slow model of topk, on whole numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compress/quota.h"
#include "compress/registry.h"
#include "compress/top_k/plan.h"
#include "tests/cpp/unit/kernels_reference.h"
#include "tests/cpp/unit/node_members.h"

namespace roundelay::compress::top_k {

namespace reference = kernels::reference;

struct Model {
  std::size_t count = 0;
  std::vector<Slice> parameters;
  std::vector<std::uint32_t> dense;
  double density = 0.25;
  std::uint64_t before = 0;
  double momentum = 0;
  bool nesterov = false;
  bool masking = true;
  Shape shape;
  bool average = false;

  std::vector<double> result;
  std::vector<std::size_t> chosen;  // the number that each place has sent

  [[nodiscard]] std::string text() const {
    std::string text = "topk:before=" + std::to_string(before) + ",density=" + std::to_string(density);
    for (std::size_t i = 0; i < dense.size(); ++i)
      text += (i == 0 ? ",dense=" : "+") + std::to_string(dense[i]);
    if (momentum != 0) text += ",momentum=" + std::to_string(momentum);
    if (nesterov) text += ",nesterov=1";
    if (!masking) text += ",masking=0";
    return text + ",select=radix";
  }
  [[nodiscard]] collective::Reduction reduction(DType dtype) const {
    return {dtype, ReduceOp::kSum, {}, {1.0, average ? shape.size() : 1}};
  }

  void begin() {
    const auto ranks = static_cast<std::size_t>(shape.size());
    residual.assign(ranks, std::vector<double>(count));
    moved = residual;
    kind.assign(count, ' ');
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const bool goes = std::find(dense.begin(), dense.end(), i) != dense.end();
      std::fill_n(kind.begin() + static_cast<std::ptrdiff_t>(parameters[i].first), parameters[i].count,
                  goes ? 'd' : 'l');
    }
    run = 0;
  }

  void step(const Gradients& gradients) {
    result.assign(count, 0.0);
    chosen.clear();
    std::uint64_t passed = before;
    for (int place = 0; place < shape.members; ++place) {
      const Slice shard = shard_of(count, {place, shape.members});
      const auto lossy =
          static_cast<std::size_t>(std::count(at(shard.first), at(shard.first + shard.count), 'l'));
      chosen.push_back(quota(share_of(density), passed, lossy, run));
      passed += lossy;
      for (int node = 0; node < shape.nodes; ++node) send(gradients, shard, rank_of(node, place));
    }
    if (average)
      for (double& one : result) one /= shape.nodes;
    ++run;
  }
  void flush(const Gradients& gradients) {
    result.assign(count, 0.0);
    for (std::size_t r = 0; r < gradients.size(); ++r)
      for (std::size_t i = 0; i < count; ++i) result[i] += gradients[r][i] + residual[r][i] * inside();
    if (average)
      for (double& one : result) one /= shape.size();
    begin();
  }
  [[nodiscard]] double inside() const { return average ? shape.members : 1; }
  // Returns the shard of a rank.
  [[nodiscard]] Slice shard_of_rank(std::size_t rank) const {
    return shard_of(count, {static_cast<int>(rank) / shape.nodes, shape.members});
  }

  Gradients residual;  // of each rank, at the bucket's indices
  std::uint64_t run = 0;

 private:
  [[nodiscard]] std::string::const_iterator at(std::size_t i) const {
    return kind.begin() + static_cast<std::ptrdiff_t>(i);
  }
  [[nodiscard]] std::size_t rank_of(int node, int place) const {
    return static_cast<std::size_t>(node + shape.nodes * place);
  }
  void send(const Gradients& gradients, const Slice& shard, std::size_t rank) {
    const std::size_t node = rank % static_cast<std::size_t>(shape.nodes);
    std::vector<std::size_t> order;
    for (std::size_t i = shard.first; i < shard.first + shard.count; ++i) {
      double sum = 0;
      for (int place = 0; place < shape.members; ++place)
        sum += gradients[rank_of(static_cast<int>(node), place)][i];
      take_in(rank, i, sum / inside());
      if (kind[i] == 'd') result[i] += sum / inside();
      order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::fabs(residual[rank][a]) > std::fabs(residual[rank][b]);
    });
    order.resize(chosen.back());
    for (const std::size_t i : order) {
      result[i] += residual[rank][i];
      residual[rank][i] = 0;
      if (masking) moved[rank][i] = 0;
    }
  }
  void take_in(std::size_t rank, std::size_t i, double g) {
    if (kind[i] == 'd') g = 0;
    double& m = moved[rank][i];
    if (momentum == 0) {
      residual[rank][i] += g;
    } else {
      m = nesterov ? momentum * (m + g) : momentum * m + g;
      residual[rank][i] += nesterov ? m + g : m;
    }
  }

  Gradients moved;
  std::string kind;  // of each element: dense, lossy, or padding
};

inline TechniquePtr make(const std::string& text) {
  auto made = make_technique(text);
  INFO(made.status().message());
  REQUIRE(made.ok());
  return std::move(*made);
}

// Some parameters with the gaps of a pool, some of which are dense.
inline Model some_model(std::mt19937& random, Shape shape, double momentum = 0) {
  Model model;
  model.shape = shape;
  std::size_t at = 0;
  for (std::size_t n = 1 + random() % 8; n > 0; --n) {
    const std::size_t count = random() % 2 == 0 ? 1 + random() % 20 : 1 + random() % 300;
    if (random() % 4 == 0) model.dense.push_back(static_cast<std::uint32_t>(model.parameters.size()));
    model.parameters.push_back({at, count});
    model.count = at + count;
    at += (count + 15) / 16 * 16;
  }
  model.density = std::array{0.015625, 0.125, 0.25, 0.5, 0.75}[random() % 5];
  model.before = random() % 1000;
  model.momentum = momentum;
  model.nesterov = momentum != 0 && random() % 2 == 0;
  model.masking = momentum == 0 || random() % 2 == 0;
  model.average = random() % 2 == 0;
  model.begin();
  return model;
}

// Whole numbers, multiples of the number of ranks; gaps between parameters are zero, as in a pool.
inline Gradients some_gradients(const Model& model, int most, std::mt19937& random) {
  Gradients gradients(static_cast<std::size_t>(model.shape.size()), std::vector<double>(model.count));
  for (auto& of_rank : gradients) {
    for (const Slice& slice : model.parameters) {
      for (std::size_t i = slice.first; i < slice.first + slice.count; ++i) {
        const int whole = static_cast<int>(random() % static_cast<unsigned>(2 * most + 1)) - most;
        of_rank[i] = whole * model.shape.size();
      }
    }
  }
  return gradients;
}

inline void set_up(TechniqueMembers& group, const Technique& technique, const Model& model, DType dtype) {
  group.set_up(technique, model.reduction(dtype), model.count);
  for (auto& member : group.members) member->bucket.parameters = model.parameters;
}

inline void require_as(const Model& model, const TechniqueMembers& group) {
  require_alike(group);
  for (std::size_t m = 0; m < group.members.size(); ++m)
    REQUIRE(kept(*group.members[m], model.shard_of_rank(m)) == model.residual[m]);
  REQUIRE(elements(*group.members.front()) == model.result);
}

}  // namespace roundelay::compress::top_k
