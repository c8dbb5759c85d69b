// Loads the GPU module on a machine that may have no GPU.
#include "gpu/loader.h"

#include <algorithm>

#include "base/version.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/doubles/fake_gpu.h"

namespace roundelay::gpu {
namespace {

TEST_CASE("a GPU module that is not there is named", "[cuda]") {
  const auto module = load_gpu_module("no/such/module.so");
  REQUIRE(!module.ok());
  REQUIRE(module.status().code() == StatusCode::kUnavailable);
  REQUIRE(module.status().message().find("no/such/module.so") != std::string::npos);
}

TEST_CASE("a library of somebody else is no GPU module", "[cuda]") {
  const auto module = load_gpu_module("libc.so.6");
  REQUIRE(!module.ok());
  REQUIRE(module.status().message() == "libc.so.6 is no GPU module of Roundelay");
}

TEST_CASE("a module that is compiled for none of the GPUs is refused", "[cuda]") {
  for (const int fitting : {0, 1, 2}) {
    doubles::FakeGpu gpu({.devices = 2, .fitting = fitting});
    const Status status = check_devices({version(), &gpu, &gpu});
    CHECK(status.ok() == (fitting > 0));
    if (fitting == 0) CHECK(status.message() == "fake GPU 0 is not what the kernels are compiled for");
  }
}

#ifdef ROUNDELAY_CUDA_MODULE
TEST_CASE("the CUDA module loads without a GPU, and says that there is none", "[cuda]") {
  const auto module = load_gpu_module(ROUNDELAY_CUDA_MODULE);
  INFO(module.status().message());
  REQUIRE(module.ok());
  REQUIRE((*module)->version == version());
  const Result<int> count = (*module)->runtime->device_count();
  if (count.ok()) return;  // this machine has a GPU
  REQUIRE(count.status().code() == StatusCode::kUnavailable);
  REQUIRE(!(*module)->runtime->make_stream(0).ok());
  REQUIRE(!(*module)->runtime->allocate(0, 1).ok());
  REQUIRE(!(*module)->runtime->allocate_pinned(1).ok());
  REQUIRE(!(*module)->runtime->identity(0).ok());
  REQUIRE(!(*module)->runtime->description().ok());
  REQUIRE(!(*module)->kernels->copy_batch(0, {}, {}, nullptr).ok());
}
#endif

}  // namespace
}  // namespace roundelay::gpu
