// The form of topk's messages. A rank gathers its message with those of the ranks that have the same place in
// their nodes (compress/shards.h), and so the same shard. A message begins with a number (fp32) that is not
// finite after an overflow in the shard. Then come the values of the shard's dense elements, and the pairs of
// the chosen ones (kernels/pairs.h). The messages that are gathered together have the same size.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "kernels/pairs.h"

namespace roundelay::compress::top_k {

// The places of a message's parts, and its size, in bytes. The size is a multiple of 8, so that messages
// lie side by side. `dense`: the number of dense elements.
class MessageLayout {
 public:
  MessageLayout(std::size_t dense, DType wire_type, const kernels::IndexForm& form)
      : wire_type_(wire_type),
        form_(form),
        pairs_at_(kDenseAt + dense * size_of(wire_type)),
        indices_at_((pairs_at_ + form.count * size_of(wire_type) + 3) / 4 * 4),
        bytes_((indices_at_ + form.bytes() + 7) / 8 * 8) {}

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] static float* overflow(std::byte* message) { return reinterpret_cast<float*>(message); }
  [[nodiscard]] static std::byte* dense(std::byte* message) { return message + kDenseAt; }
  [[nodiscard]] kernels::Pairs pairs(std::byte* message) const {
    return kernels::pairs_at(overflow(message), message + pairs_at_, message + indices_at_, wire_type_,
                             form_);
  }

 private:
  static constexpr std::size_t kDenseAt = 8;

  DType wire_type_;
  kernels::IndexForm form_;
  std::size_t pairs_at_, indices_at_, bytes_;
};

}  // namespace roundelay::compress::top_k
