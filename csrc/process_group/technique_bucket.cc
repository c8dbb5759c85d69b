#include "process_group/technique_bucket.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "adapter/check.h"
#include "adapter/gil.h"
#include "kernels/chunks.h"
#include "process_group/digest.h"
#include "process_group/errors.h"
#include "process_group/tensors.h"

namespace roundelay::process_group {
namespace {

gradients::BucketElements elements_of(at::ScalarType type, const std::vector<std::int64_t>& sizes) {
  const std::optional<DType> dtype = adapter::reducible_dtype_of(type);
  if (!dtype) refuse(std::string("a bucket has no technique for elements of ") + c10::toString(type));
  gradients::BucketElements elements;
  elements.dtype = *dtype;
  for (const std::int64_t size : sizes) {
    const auto count = static_cast<std::size_t>(size);
    elements.parameters.push_back({elements.count, count});
    elements.count += count;
  }
  elements.present = std::make_shared<std::vector<std::uint8_t>>(sizes.size());
  return elements;
}

// Returns whether a byte is not zero. A gradient's first elements tell, unless there is none.
bool any(std::span<const std::byte> bytes) {
  std::size_t at = 0;
  for (std::uint64_t word = 0; bytes.size() - at >= sizeof word; at += sizeof word) {
    std::memcpy(&word, bytes.data() + at, sizeof word);
    if (word != 0) return true;
  }
  return std::ranges::any_of(bytes.subspan(at), [](std::byte one) { return one != std::byte{0}; });
}

}  // namespace

TechniqueBucket::TechniqueBucket(c10::intrusive_ptr<RoundelayBackend> group, at::ScalarType type,
                                 const std::vector<std::int64_t>& sizes)
    : group_(std::move(group)),
      type_(type),
      elements_(elements_of(type, sizes)),
      levels_(group_->level_sizes()) {}

void TechniqueBucket::choose(const std::string& text) {
  end_last();
  const Status chosen = choice_.choose(text, elements_, levels_);
  if (chosen.code() == StatusCode::kInvalidArgument) refuse(chosen.message());
  check(chosen);
}

void TechniqueBucket::forget() {
  end_last();
  choice_ = {};
}

// What members of one call have to agree on, besides what its mark has.
std::int32_t TechniqueBucket::digest() const {
  Digest digest;
  digest.add(choice_.text());
  digest.add(choice_.run());
  for (const compress::Slice& slice : elements_.parameters) digest.add(slice.count);
  return digest.value();
}

RoundelayBackend::WorkPtr TechniqueBucket::average(const at::Tensor& elements) {
  end_last();
  check_tensor(elements, "all_reduce");
  if (!elements.is_cpu()) refuse("a hook's strategy works on gradients of the CPU, and has some of a device");
  if (static_cast<std::size_t>(elements.numel()) != elements_.count || elements.scalar_type() != type_)
    refuse("a bucket has changed its elements");
  const std::int32_t number = digest();
  const gradients::TechniqueUse use = choice_.next();
  {
    const adapter::GilReleased no_gil;
    const std::size_t size = size_of(elements_.dtype);
    const auto* const data = static_cast<const std::byte*>(elements.const_data_ptr());
    for (std::size_t i = 0; use.technique && i < elements_.parameters.size(); ++i) {
      const compress::Slice& slice = elements_.parameters[i];
      const std::span own(data + slice.first * size, slice.count * size);
      (*elements_.present)[i] = own.empty() || any(own) ? 1 : 0;
    }
    last_ = group_->average(elements, use.technique, number);
  }
  choice_.submitted();
  return last_;
}

// Tells the choice how the last operation has ended.
void TechniqueBucket::end_last() {
  if (!last_) return;
  const RoundelayBackend::WorkPtr last = std::exchange(last_, {});
  bool failed = false;
  {
    const adapter::GilReleased no_gil;
    try {
      last->wait(kNoTimeout);
    } catch (const GroupError&) {
      failed = true;
    }
  }
  failed ? choice_.fail() : choice_.complete(elements_.count * size_of(elements_.dtype));
}

bool TechniqueBucket::applied() {
  end_last();
  return choice_.applied();
}

at::Tensor TechniqueBucket::kept() {
  end_last();
  if (!choice_.unflushed()) return {};
  gradients::BucketElements elements = elements_;
  elements.dtype = kernels::residual_type(elements.dtype);  // so that nothing is rounded
  elements.present = nullptr;
  gradients::TechniqueChoice copy;
  check(copy.choose(choice_.text(), elements, levels_));
  if (copy.state().sizes() != choice_.state().sizes()) refuse("a technique's state depends on the type");
  copy.state().copy_(choice_.state());
  copy.flush_next();
  const at::ScalarType type = elements.dtype == DType::kFloat64 ? at::kDouble : at::kFloat;
  at::Tensor kept = at::zeros({static_cast<std::int64_t>(elements.count)}, type);
  const gradients::TechniqueUse flush = copy.next();
  const adapter::GilReleased no_gil;
  group_->give_back(kept, flush.technique);
  return kept;
}

void TechniqueBucket::rescale(double factor) {
  end_last();
  choice_.rescale(factor);
}

}  // namespace roundelay::process_group
