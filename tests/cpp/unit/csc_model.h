// A slow csc on whole numbers, to compare the technique with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "compress/quota.h"
#include "compress/technique.h"

namespace roundelay::compress::csc {

struct Model {
  std::size_t count = 0, chunk = 1;
  std::vector<Slice> parameters;
  std::vector<std::uint32_t> dense;
  double keep = 0.1;
  std::uint64_t before = 0;
  bool previous = false;
  double momentum = 0;
  bool nesterov = false;
  bool masking = true;
  bool may_stay = true;  // the wire has the bucket's type

  // What a run gave.
  std::vector<double> result;
  std::vector<std::uint32_t> chosen;
  std::size_t sent_elements = 0, norms_sent = 0;

  void begin(int ranks) {
    const auto size = static_cast<std::size_t>(ranks);
    residual.assign(size, std::vector<double>(count));
    moved = residual;
    is_dense.assign(count, false);
    lossy.assign((count + chunk - 1) / chunk, false);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const bool goes = std::find(dense.begin(), dense.end(), i) != dense.end();
      for (std::size_t e = parameters[i].first; e < parameters[i].first + parameters[i].count; ++e) {
        is_dense[e] = goes;
        if (!goes) lossy[e / chunk] = true;
      }
    }
    chunks = static_cast<std::size_t>(std::count(lossy.begin(), lossy.end(), true));
    run = 0;
  }

  // `gradients`: of each rank.
  void step(const std::vector<std::vector<double>>& gradients) {
    result.assign(count, 0.0);
    chosen.clear();
    norms_sent = 0;
    std::vector<double> norms(lossy.size());
    for (std::size_t r = 0; r < gradients.size(); ++r) take_in(r, gradients[r], norms);
    if (stays(run)) {
      for (std::uint32_t c = 0; c < lossy.size(); ++c)
        if (lossy[c]) chosen.push_back(c);
      sent_elements = count;
      last_norms.clear();
    } else {
      choose(norms);
      const auto dense_elements = std::count(is_dense.begin(), is_dense.end(), true);
      sent_elements = static_cast<std::size_t>(dense_elements) + std::min(chosen.size() * chunk, count);
    }
    for (std::size_t r = 0; r < gradients.size(); ++r) send(r, gradients[r]);
    ++run;
  }
  void flush(const std::vector<std::vector<double>>& gradients) {
    result.assign(count, 0.0);
    for (std::size_t r = 0; r < gradients.size(); ++r)
      for (std::size_t i = 0; i < count; ++i) result[i] += gradients[r][i] + residual[r][i];
    begin(static_cast<int>(gradients.size()));
    last_norms.clear();
  }

  std::vector<std::vector<double>> residual;
  std::size_t chunks = 0;  // lossy ones
  std::uint64_t run = 0;

 private:
  [[nodiscard]] std::size_t quota_in(std::uint64_t n) const {
    return quota(share_of(keep), before, chunks, n);
  }
  [[nodiscard]] bool stays(std::uint64_t n) const {
    return may_stay && momentum == 0 && quota_in(n) == chunks;
  }

  void take_in(std::size_t r, const std::vector<double>& gradient, std::vector<double>& norms) {
    for (std::size_t i = 0; i < count; ++i) {
      if (is_dense[i]) continue;
      double& m = moved[r][i];
      const double g = gradient[i];
      if (momentum == 0) {
        residual[r][i] += g;
      } else {
        m = nesterov ? momentum * (m + g) : momentum * m + g;
        residual[r][i] += nesterov ? m + g : m;
      }
      norms[i / chunk] += std::fabs(residual[r][i]);
    }
  }
  void choose(const std::vector<double>& norms) {
    const bool by_last = previous && run > 0 && !stays(run - 1);
    norms_sent = norms.size();
    const std::vector<double>& by = by_last ? last_norms : norms;
    std::vector<std::uint32_t> order;
    for (std::uint32_t c = 0; c < lossy.size(); ++c)
      if (lossy[c]) order.push_back(c);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return by[a] > by[b]; });
    order.resize(quota_in(run));
    std::sort(order.begin(), order.end());
    chosen = order;
    last_norms = norms;
  }
  void send(std::size_t r, const std::vector<double>& gradient) {
    for (std::size_t i = 0; i < count; ++i) {
      if (is_dense[i]) {
        result[i] += gradient[i];
      } else if (std::binary_search(chosen.begin(), chosen.end(), static_cast<std::uint32_t>(i / chunk)) ||
                 stays(run)) {
        result[i] += residual[r][i];
        residual[r][i] = 0;
        if (masking) moved[r][i] = 0;
      }
    }
  }

  std::vector<std::vector<double>> moved;
  std::vector<bool> is_dense, lossy;
  std::vector<double> last_norms;
};

}  // namespace roundelay::compress::csc
