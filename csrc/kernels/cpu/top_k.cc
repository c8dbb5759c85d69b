#include "kernels/top_k.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>

#include "kernels/bisection.h"
#include "kernels/cpu/candidates.h"
#include "kernels/cpu/select_loops.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/top_k.h"

namespace roundelay::kernels {
namespace {

// Values of which only those in a range matter any more. The first narrowing copies them.
class Narrowed {
 public:
  Narrowed(const Table& table, std::span<const float> values) : table_(table), values_(values) {}

  [[nodiscard]] std::span<const float> values() const { return values_; }
  // Drops the values outside the range, of which `count` values are in it.
  void keep(MagnitudeRange range, std::size_t count) {
    if (copy_.data() == nullptr) copy_ = Scratch<float>(count + kCollectSlack);
    float* const to = copy_.data();
    values_ = {to, table_.collect(values_.data(), values_.size(), range, to, nullptr)};
  }

 private:
  const Table& table_;
  std::span<const float> values_;
  Scratch<float> copy_;
};

// Finds a threshold by bisection. Each call of the counting kernel is worth four steps.
void bisect(Bisection& bisection, const Table& table, std::span<const float> candidates) {
  Narrowed narrowed(table, candidates);
  std::uint64_t above = 0;  // magnitudes above all that matter
  while (!bisection.done()) {
    const Bisection::Thresholds thresholds = bisection.thresholds();
    Bisection::Counts counts;
    counts.fill(above);
    const std::span<const float> values = narrowed.values();
    table.count(values.data(), values.size(), thresholds, counts.data());
    bisection.narrow(counts);
    const Reached& low = bisection.below();
    const Reached& high = bisection.above();
    if (low.count == 0 || low.count - high.count > values.size() / 2) continue;
    narrowed.keep({low.threshold, high.threshold - 1}, low.count - high.count);
    above = high.count;
  }
}

// Counts magnitudes by ten of their bits: the digit. Four histograms take turns, so that additions to one bin
// do not wait for each other.
class Digits {
 public:
  static constexpr int kBits = 10;

  Digits(std::span<const float> values, Magnitude low, int shift) : low_(low), shift_(shift) {
    std::size_t i = 0;
    for (; i + kTurns <= values.size(); i += kTurns) {
      for (std::size_t turn = 0; turn < kTurns; ++turn) ++bins_[turn][digit(values[i + turn])];
    }
    for (; i < values.size(); ++i) ++bins_[0][digit(values[i])];
  }

  [[nodiscard]] std::uint64_t count(std::size_t digit) const {
    std::uint64_t count = 0;
    for (const auto& bins : bins_) count += bins[digit];
    return count;
  }

 private:
  static constexpr std::size_t kTurns = 4;

  [[nodiscard]] std::size_t digit(float value) const {
    return static_cast<std::size_t>((magnitude_of(value) - low_) >> shift_);
  }

  const Magnitude low_;
  const int shift_;
  std::array<std::array<std::uint64_t, std::size_t{1} << kBits>, kTurns> bins_{};
};

// Finds the k-th largest magnitude digit by digit, from the highest one: exponents first, then mantissas.
Cut radix_cut(const Table& table, const Candidates& candidates, std::uint64_t k) {
  Narrowed narrowed(table, candidates.values());
  Magnitude low = candidates.floor();
  std::uint64_t ties = k;
  const auto bits = static_cast<int>(std::bit_width(static_cast<std::uint32_t>(kInfinite - low)));
  int shift = std::max(bits - Digits::kBits, 0);
  while (true) {
    const Digits digits(narrowed.values(), low, shift);
    std::size_t digit = (std::size_t{1} << Digits::kBits) - 1;
    for (; digits.count(digit) < ties; --digit) ties -= digits.count(digit);
    low += static_cast<Magnitude>(digit << shift);
    if (shift == 0) return {low + 1, low, 0, ties};
    narrowed.keep({low, low + ((Magnitude{1} << shift) - 1)}, digits.count(digit));
    shift = std::max(shift - Digits::kBits, 0);
  }
}

Cut mstopk_cut(const Table& table, std::span<const float> values, Candidates& candidates,
               const TopKRule& rule, std::uint64_t k) {
  const MagnitudeStatistics statistics = statistics_of(table, values);
  if (statistics.infinite > k) return {kInfinite + 1, kInfinite, 0, k};
  Bisection bisection(statistics, k, rule.samplings);
  const Bisection at_first = bisection;
  bisect(bisection, table, candidates.values());
  if (bisection.cut(rule.seed).band < candidates.floor()) {
    // The band has values that are no candidates. The sample has misled, or there were few samplings.
    candidates = Candidates(values);
    bisection = at_first;
    bisect(bisection, table, values);
  }
  return bisection.cut(rule.seed);
}

// Writes the selected values, block by block.
class Writer {
 public:
  Writer(const Table& table, Cut cut, float* chosen, std::int64_t* indices)
      : table_(table),
        cut_(cut),
        chosen_(chosen),
        indices_(indices),
        values_(kMagnitudeBlock + kCollectSlack),
        places_(kMagnitudeBlock + kCollectSlack) {}

  void write(const Candidates::Block& block) {
    const std::array<Magnitude, 2> thresholds = {cut_.above, cut_.band};
    std::array<std::uint64_t, 2> counts{};
    if (cut_.take > 0) table_.count(block.values.data(), block.values.size(), thresholds, counts.data());
    const std::uint64_t band = counts[1] - counts[0];
    if (band == 0 || cut_.skip >= band) {
      cut_.skip -= band;
      write_from(block, cut_.above);
    } else if (cut_.skip == 0 && band <= cut_.take) {
      cut_.take -= band;
      write_from(block, cut_.band);
    } else {
      write_run(block);
    }
  }

 private:
  // Writes all values from the magnitude on.
  void write_from(const Candidates::Block& block, Magnitude first) {
    if (first > kInfinite) return;
    const std::size_t count = table_.collect(block.values.data(), block.values.size(), {first, kInfinite},
                                             values_.data(), places_.data());
    std::copy_n(values_.data(), count, chosen_);
    chosen_ += count;
    const std::uint32_t* const places = places_.data();
    const auto base = static_cast<std::int64_t>(block.first);
    for (std::size_t i = 0; i < count; ++i)
      indices_[i] = base + (block.positions == nullptr ? places[i] : block.positions[places[i]]);
    indices_ += count;
  }

  // Writes all values above the band, and a part of the band's values.
  void write_run(const Candidates::Block& block) {
    for (std::size_t i = 0; i < block.values.size(); ++i) {
      const Magnitude magnitude = magnitude_of(block.values[i]);
      if (magnitude < cut_.band) continue;
      if (magnitude < cut_.above) {
        if (cut_.skip > 0) {
          --cut_.skip;
          continue;
        }
        if (cut_.take == 0) continue;
        --cut_.take;
      }
      const std::size_t place = block.positions == nullptr ? i : block.positions[i];
      *chosen_++ = block.values[i];
      *indices_++ = static_cast<std::int64_t>(block.first + place);
    }
  }

  const Table& table_;
  Cut cut_;
  float* chosen_;
  std::int64_t* indices_;
  Scratch<float> values_;
  Scratch<std::uint32_t> places_;
};

}  // namespace

void top_k(const Table& table, std::span<const float> values, const TopKRule& rule, std::span<float> chosen,
           std::span<std::int64_t> indices) {
  const std::size_t k = chosen.size();
  assert(k <= values.size() && k == indices.size());
  if (k == 0) return;
  Candidates candidates = k < values.size() ? likely_candidates(table, values, k) : Candidates(values);
  Cut cut;
  if (k < values.size()) {
    cut = rule.how == Selection::kRadix ? radix_cut(table, candidates, k)
                                        : mstopk_cut(table, values, candidates, rule, k);
  }
  Writer writer(table, cut, chosen.data(), indices.data());
  for (std::size_t number = 0; number < candidates.blocks(); ++number) writer.write(candidates.block(number));
}

void top_k(std::span<const float> values, const TopKRule& rule, std::span<float> chosen,
           std::span<std::int64_t> indices) {
  top_k(best_table(), values, rule, chosen, indices);
}

}  // namespace roundelay::kernels
