// Compiled, not run: what platform/nccl/abi.h declares is what nccl.h says.
#include "platform/nccl/abi.h"

#include <nccl.h>

#include <cstddef>
#include <type_traits>

namespace roundelay::platform::nccl {
namespace {

// Passed alike: both pointers, both 4-byte integers or enums, or one and the same, or structs of one size.
template <typename Ours, typename Theirs>
constexpr bool passed_alike() {
  if constexpr (std::is_same_v<Ours, Theirs>) return true;
  if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>) {
    return std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>;
  }
  constexpr bool kNumbers = (std::is_enum_v<Ours> || std::is_integral_v<Ours>)&&std::is_enum_v<Theirs>;
  constexpr bool kStructs = std::is_class_v<Ours> && std::is_class_v<Theirs> &&
                            std::is_trivially_copyable_v<Ours> && std::is_trivially_copyable_v<Theirs>;
  return (kNumbers || kStructs) && sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
}

template <typename Ours, typename Theirs>
struct CalledAlike : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
struct CalledAlike<R (*)(A...), S (*)(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B)) return false;
    return passed_alike<R, S>() && (passed_alike<A, B>() && ...);
  }();
};

#define ROUNDELAY_CHECK(member, symbol)                                                     \
  static_assert(CalledAlike<decltype(Functions::member), decltype(&::nccl##symbol)>::value, \
                "nccl" #symbol " is called otherwise");
ROUNDELAY_NCCL_FUNCTIONS(ROUNDELAY_CHECK)
#undef ROUNDELAY_CHECK

static_assert(sizeof(UniqueId) == NCCL_UNIQUE_ID_BYTES && sizeof(UniqueId) == sizeof(::ncclUniqueId));

static_assert(int{kSuccess} == ::ncclSuccess && int{kInProgress} == ::ncclInProgress);

static_assert(int{kInt8} == ::ncclInt8 && int{kUint8} == ::ncclUint8 && int{kInt32} == ::ncclInt32);
static_assert(int{kInt64} == ::ncclInt64 && int{kFloat16} == ::ncclFloat16);
static_assert(int{kFloat32} == ::ncclFloat32 && int{kFloat64} == ::ncclFloat64);
static_assert(int{kBfloat16} == ::ncclBfloat16);

static_assert(int{kSum} == ::ncclSum && int{kProd} == ::ncclProd && int{kMax} == ::ncclMax);
static_assert(int{kMin} == ::ncclMin && int{kAvg} == ::ncclAvg);

static_assert(version_code(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH) == NCCL_VERSION_CODE);

static_assert(offsetof(Config, size) == offsetof(::ncclConfig_t, size));
static_assert(offsetof(Config, magic) == offsetof(::ncclConfig_t, magic));
static_assert(offsetof(Config, version) == offsetof(::ncclConfig_t, version));
static_assert(offsetof(Config, blocking) == offsetof(::ncclConfig_t, blocking));
static_assert(sizeof(Config) <= sizeof(::ncclConfig_t));
constexpr ::ncclConfig_t kTheirs = NCCL_CONFIG_INITIALIZER;
static_assert(Config{}.magic == kTheirs.magic && Config{}.size == sizeof(Config));

}  // namespace
}  // namespace roundelay::platform::nccl
