#include "collective/program/local_work.h"

#include <cstring>
#include <memory>

#include "collective/single.h"
#include "kernels/kernels.h"

namespace roundelay::collective {
namespace {

class HostWork final : public LocalWork {
 public:
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void scale_copy(std::byte* to, const std::byte* from, std::size_t count, DType dtype,
                  Scale scale) override {
    kernels::scale_copy(to, from, count, dtype, scale);
  }
  void cast(std::byte* to, DType to_type, const std::byte* from, DType from_type,
            std::size_t count) override {
    kernels::cast(to, to_type, from, from_type, count);
  }
  void reduce(const Reduction& how, std::byte* own, const std::byte* incoming, std::size_t count) override {
    kernels::reduce(own, incoming, count, how.dtype, how.reduce_op);
  }
  void reduce_parts(const Reduction& how, std::byte* to, std::span<const void* const> parts,
                    std::size_t count) override {
    kernels::reduce_parts(to, parts, count, how.dtype, how.reduce_op, how.prescale, how.scale);
  }
  void finish_single(const Call& call) override { collective::finish_single(call); }
};

}  // namespace

const std::shared_ptr<LocalWork>& host_work() {
  static const std::shared_ptr<LocalWork> work = std::make_shared<HostWork>();
  return work;
}

}  // namespace roundelay::collective
