// platform/nccl's use of the real NCCL: it finds the library, and its communicators call stand-ins for NCCL's
// functions.
#include <cstdlib>
#include <string>
#include <vector>

#include "platform/nccl/communicator.h"
#include "platform/nccl/functions.h"
#include "platform/nccl/library.h"
#include "tests/cpp/catch.h"

namespace roundelay::platform {
namespace {

using nccl::Code;
using nccl::Comm;
using nccl::find_functions;
using nccl::Functions;

// The results of the stand-ins, and the calls that they received. One test at a time uses it.
struct Script {
  int version = 22809;
  Code call = nccl::kSuccess, state = nccl::kSuccess;
  std::vector<std::string> calls;
  nccl::RedOp op = nccl::kSum;
};
Script script;

Code say(const char* call) {
  script.calls.emplace_back(call);
  return script.call;
}

Functions stand_ins() {
  Functions functions;
  functions.get_version = [](int* version) {
    *version = script.version;
    return nccl::kSuccess;
  };
  functions.comm_finalize = [](Comm) { return say("finalize"); };
  functions.comm_destroy = [](Comm) { return say("destroy"); };
  functions.comm_abort = [](Comm) { return say("abort"); };
  functions.comm_get_async_error = [](Comm, Code* state) {
    *state = script.state;
    return nccl::kSuccess;
  };
  functions.get_error_string = [](Code code) {
    return code == nccl::kInProgress ? "in progress" : "unhandled system error";
  };
  functions.get_last_error = [](Comm) { return "socket closed by 10.0.0.1"; };
  functions.all_reduce = [](const void*, void*, std::size_t, nccl::DataType, nccl::RedOp op, Comm,
                            GpuStream) {
    script.op = op;
    return say("all reduce");
  };
  return functions;
}

// Resets the script and makes a communicator that uses it.
struct Stage {
  Stage() { script = {}; }
  Status reduce(DType dtype, NcclCommunicator::Reduction reduction) const {
    return communicator->all_reduce(nullptr, nullptr, 1, dtype, reduction, nullptr);
  }
  const Functions functions = stand_ins();
  std::unique_ptr<NcclCommunicator> communicator =
      nccl::make_communicator(functions, reinterpret_cast<Comm>(&script));
};

using Calls = std::vector<std::string>;

TEST_CASE("NCCL: a library that is none, or too old, is refused with its name and version", "[gpu]") {
  static const Functions functions = stand_ins();
  const auto nothing = [](const char*) -> void* { return nullptr; };
  CHECK(find_functions(nothing, "libz.so").status().message() ==
        "libz.so is no NCCL: it does not tell a version of it");
  const auto only_version = [](const char* name) -> void* {
    return name == std::string("ncclGetVersion") ? reinterpret_cast<void*>(functions.get_version) : nullptr;
  };
  script.version = 21212;
  const Status old = find_functions(only_version, "lib").status();
  CHECK(old.code() == StatusCode::kUnavailable);
  CHECK(old.message().find("NCCL 2.12.12 (lib) is too old: 2.14.0 or later is needed") == 0);
  script.version = 2708;
  CHECK(find_functions(only_version, "lib").status().message().find("NCCL 2.7.8 ") == 0);
  script.version = 22809;
  CHECK(find_functions(only_version, "lib").status().message() == "NCCL 2.28.9 (lib) lacks ncclGetUniqueId");
}

TEST_CASE("NCCL: a path that leads nowhere, or to another library, is refused", "[gpu]") {
  const Status nowhere = open_nccl("/no/such/libnccl.so.2").status();
  CHECK(nowhere.code() == StatusCode::kUnavailable);
  CHECK(nowhere.message().find("/no/such/libnccl.so.2") != std::string::npos);
  CHECK(open_nccl("libm.so.6").status().message().find("libm.so.6 is no NCCL") == 0);
}

TEST_CASE("NCCL: the real library is found and tells its version", "[gpu]") {
  const char* const path = std::getenv("ROUNDELAY_TEST_NCCL");
  if (path == nullptr) {
    WARN("not run: ROUNDELAY_TEST_NCCL is not the path of a libnccl.so.2");
    return;
  }
  const auto api = open_nccl(path);
  INFO(api.status().message());
  REQUIRE(api.ok());
  CHECK((*api)->version() >= nccl::kOldestVersion);
  // Found again by its name, as PyTorch's library is.
  const auto again = open_nccl("");
  REQUIRE(again.ok());
  CHECK((*again)->version() == (*api)->version());
}

TEST_CASE("NCCL: a communicator settles when no call is in progress", "[gpu]") {
  const Stage stage;
  CHECK(*stage.communicator->ready());
  script.call = script.state = nccl::kInProgress;
  CHECK(stage.reduce(DType::kFloat32, {}).ok());
  CHECK_FALSE(*stage.communicator->ready());
  script.state = nccl::kSuccess;
  CHECK(*stage.communicator->ready());
}

TEST_CASE("NCCL: errors are in NCCL's words", "[gpu]") {
  const Stage stage;
  script.state = static_cast<Code>(2);
  CHECK(stage.communicator->ready().status() ==
        Status::aborted("NCCL: a call in progress: unhandled system error (socket closed by 10.0.0.1)"));
  script.call = static_cast<Code>(2);
  CHECK(stage.reduce(DType::kFloat32, {}).message() ==
        "NCCL: ncclAllReduce: unhandled system error (socket closed by 10.0.0.1)");
}

TEST_CASE("NCCL: each reduction is an operator of NCCL's, an average too", "[gpu]") {
  const Stage stage;
  REQUIRE(stage.reduce(DType::kFloat16, {.average = true}).ok());
  CHECK(script.op == nccl::kAvg);
  REQUIRE(stage.reduce(DType::kInt8, {.op = ReduceOp::kProduct}).ok());
  CHECK(script.op == nccl::kProd);
}

TEST_CASE("NCCL: a communicator at rest is finalized, one in use or in error is aborted", "[gpu]") {
  { const Stage stage; }
  CHECK(script.calls == Calls{"finalize", "destroy"});
  {
    const Stage stage;
    script.state = nccl::kInProgress;
  }
  CHECK(script.calls == Calls{"abort"});
  {
    const Stage stage;
    stage.communicator->abort();
    CHECK(stage.communicator->ready().status().code() == StatusCode::kAborted);
    CHECK_FALSE(stage.reduce(DType::kFloat32, {}).ok());
    stage.communicator->abort();
  }
  CHECK(script.calls == Calls{"abort"});
}

}  // namespace
}  // namespace roundelay::platform
