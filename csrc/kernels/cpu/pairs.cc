#include "kernels/pairs.h"

#include <algorithm>
#include <array>

#include "kernels/element.h"
#include "kernels/kernels.h"

namespace roundelay::kernels {
namespace {

// So many pairs are worked on at a time: their values stay in the first cache.
constexpr std::size_t kGroup = 1024;

void write_indices(const Pairs& pairs, std::span<const std::int64_t> indices) {
  if (!pairs.form.is_short) {
    std::transform(indices.begin(), indices.end(), pairs.words,
                   [](std::int64_t index) { return static_cast<std::uint32_t>(index); });
    return;
  }
  std::transform(indices.begin(), indices.end(), pairs.narrow, [](std::int64_t index) {
    return static_cast<std::uint16_t>(static_cast<std::uint64_t>(index) % IndexForm::kBlock);
  });
  auto end = indices.begin();
  for (std::size_t block = 0; block < pairs.form.blocks(); ++block) {
    end = std::lower_bound(end, indices.end(), static_cast<std::int64_t>((block + 1) * IndexForm::kBlock));
    pairs.words[block] = static_cast<std::uint32_t>(end - indices.begin());
  }
}

template <typename Real>
void take_values(const Pairs& pairs, const ResidualState& kept, std::span<const std::int64_t> indices) {
  const auto place = [](std::byte* array, std::int64_t index) {
    return array + static_cast<std::size_t>(index) * sizeof(Real);
  };
  std::array<Real, kGroup> values;
  for (std::size_t begin = 0; begin < indices.size(); begin += kGroup) {
    const auto group = indices.subspan(begin, std::min(kGroup, indices.size() - begin));
    for (std::size_t i = 0; i < group.size(); ++i) values[i] = load<Real>(place(kept.residual, group[i]));
    take_rounded(pairs.values + begin * size_of(pairs.type), values.data(), group.size(), pairs.type);
    for (std::size_t i = 0; i < group.size(); ++i) store(place(kept.residual, group[i]), values[i]);
    if (kept.momentum == nullptr) continue;
    for (const std::int64_t index : group) store(place(kept.momentum, index), Real{0});
  }
}

// Reads the indices of a message from the first to the last.
class IndexReader {
 public:
  explicit IndexReader(const Pairs& pairs) : pairs_(pairs) {}

  // Returns whether the short form's blocks have as many indices as there are.
  [[nodiscard]] bool fits() const {
    if (!pairs_.form.is_short) return true;
    const std::uint32_t* const ends = pairs_.words;
    const std::size_t blocks = pairs_.form.blocks();
    return std::is_sorted(ends, ends + blocks) && (blocks == 0 ? 0 : ends[blocks - 1]) == pairs_.form.count;
  }
  // Reads the next indices. False: one is beyond the array. Precondition: fits().
  [[nodiscard]] bool read(std::span<std::uint32_t> to) {
    bool within = true;
    for (std::uint32_t& index : to) {
      index = next();
      within = within && index < pairs_.form.elements;
    }
    return within;
  }

 private:
  std::uint32_t next() {
    if (!pairs_.form.is_short) return pairs_.words[at_++];
    while (at_ >= pairs_.words[block_]) ++block_;
    const auto first = static_cast<std::uint32_t>(block_ * IndexForm::kBlock);
    return first + pairs_.narrow[at_++];
  }

  const Pairs& pairs_;
  std::size_t at_ = 0, block_ = 0;
};

template <typename Real>
bool add_values(std::byte* sums, const Pairs& pairs, Scale prescale) {
  IndexReader reader(pairs);
  if (!reader.fits()) return false;
  const DType type = residual_type(pairs.type);
  std::array<Real, kGroup> values;
  std::array<std::uint32_t, kGroup> indices;
  for (std::size_t begin = 0; begin < pairs.form.count; begin += kGroup) {
    const std::size_t count = std::min(kGroup, pairs.form.count - begin);
    if (!reader.read(std::span(indices).first(count))) return false;
    cast(values.data(), type, pairs.values + begin * size_of(pairs.type), pairs.type, count);
    if (!prescale.identity()) scale_copy(values.data(), values.data(), count, type, prescale);
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* const sum = sums + indices[i] * sizeof(Real);
      store(sum, same_nan(load<Real>(sum) + values[i]));
    }
  }
  return true;
}

}  // namespace

void take_pairs(const Pairs& pairs, const ResidualState& kept, std::span<const std::int64_t> indices) {
  write_indices(pairs, indices);
  if (residual_type(pairs.type) == DType::kFloat64) {
    take_values<double>(pairs, kept, indices);
  } else {
    take_values<float>(pairs, kept, indices);
  }
}

bool add_pairs(void* sums, const Pairs& pairs, Scale prescale) {
  if (residual_type(pairs.type) == DType::kFloat64)
    return add_values<double>(static_cast<std::byte*>(sums), pairs, prescale);
  return add_values<float>(static_cast<std::byte*>(sums), pairs, prescale);
}

}  // namespace roundelay::kernels
