#include "platform/c10d/process_group.h"

#include <ATen/ops/from_blob.h>
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "base/within.h"
#include "platform/c10d/cause.h"

namespace roundelay::platform {
namespace {

namespace py = pybind11;
using std::chrono::milliseconds;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// The time that create() allows in addition to Gloo's own limit.
constexpr milliseconds kGrace = std::chrono::seconds(1);
// Waits have no limit in Gloo: callers keep their own deadlines, and a wait that passes Gloo's limit makes it
// close all connections.
constexpr milliseconds kNoLimit = std::chrono::hours(24 * 365);

class Work final : public GroupWork {
 public:
  explicit Work(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
  Status wait() override {
    try {
      if (work_->wait(kNoLimit)) return {};
      return Status::aborted("the transfer was given up");
    } catch (const std::exception& error) {
      return Status::aborted(cause_of(error));
    }
  }
  void abort() override { work_->abort(); }

 private:
  const c10::intrusive_ptr<c10d::Work> work_;
};

class GlooGroup final : public ProcessGroup {
 public:
  explicit GlooGroup(BackendPtr backend) : backend_(std::move(backend)) {}

  Result<std::shared_ptr<GroupWork>> send(int peer, ConstByteSpan data, int tag) override {
    // Gloo does not write to the data.
    return post(const_cast<std::byte*>(data.data()), data.size(),
                [&](std::vector<at::Tensor>& tensors) { return backend_->send(tensors, peer, tag); });
  }
  Result<std::shared_ptr<GroupWork>> receive(int peer, ByteSpan data, int tag) override {
    return post(data.data(), data.size(),
                [&](std::vector<at::Tensor>& tensors) { return backend_->recv(tensors, peer, tag); });
  }

 private:
  template <typename Post>
  static Result<std::shared_ptr<GroupWork>> post(std::byte* data, std::size_t bytes, const Post& start) {
    try {
      std::vector<at::Tensor> tensors{at::from_blob(data, {static_cast<std::int64_t>(bytes)}, at::kByte)};
      return std::shared_ptr<GroupWork>(std::make_shared<Work>(start(tensors)));
    } catch (const std::exception& error) {
      return Status::aborted(cause_of(error));
    }
  }

  const BackendPtr backend_;
};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// Calls Python, because ProcessGroupGloo's header includes Gloo's headers, which PyTorch does not ship.
BackendPtr make_gloo(const GroupPlace& place, milliseconds limit) {
  const py::module_ distributed = py::module_::import("torch.distributed");
  const py::object gloo = distributed.attr("ProcessGroupGloo");
  const py::object store = distributed.attr("TCPStore")(
      place.store_host, place.store_port, py::arg("is_master") = false, py::arg("timeout") = limit);
  const py::object prefixed = distributed.attr("PrefixStore")(place.prefix, store);
  const py::object options = gloo.attr("_Options")();
  options.attr("_timeout") = limit;
  py::object device;
  if (!place.own_address.empty()) {
    device = gloo.attr("create_device")(py::arg("hostname") = place.own_address);
  } else if (!place.interface.empty()) {
    const std::string first = place.interface.substr(0, place.interface.find(','));
    device = gloo.attr("create_device")(py::arg("interface") = first);
  } else if (is_loopback(place.store_host)) {
    device = gloo.attr("create_device")(py::arg("hostname") = place.store_host);
  } else {
    return py::cast<BackendPtr>(gloo(prefixed, place.index, place.size, limit));
  }
  py::list devices;
  devices.append(device);
  options.attr("_devices") = devices;
  return py::cast<BackendPtr>(gloo(prefixed, place.index, place.size, options));
}

Status not_made(const GroupPlace& place, const std::string& cause) {
  const std::string over = place.interface.empty() ? "the interface of their hosts' names" : place.interface;
  return Status::unavailable("no process group of PyTorch: " + cause + "; can all hosts be reached over " +
                             over + "? ROUNDELAY_INTERFACE names another");
}

Result<std::unique_ptr<ProcessGroup>> create_gloo(const GroupPlace& place, milliseconds limit) {
  const py::gil_scoped_acquire gil;
  try {
    return std::unique_ptr<ProcessGroup>(std::make_unique<GlooGroup>(make_gloo(place, limit)));
  } catch (const std::exception& error) {  // Python's exceptions too; they are destroyed under the lock
    return not_made(place, cause_of(error));
  }
}

}  // namespace

Result<std::unique_ptr<ProcessGroup>> ProcessGroup::create(const GroupPlace& place, Deadline deadline) {
  const milliseconds limit =
      std::max(std::chrono::ceil<milliseconds>(deadline.when() - steady_now()), milliseconds(1));
  using Made = Result<std::unique_ptr<ProcessGroup>>;
  try {
    // Gloo keeps the limit, but the store that it uses may stop answering.
    auto made = within<Made>(deadline.later(Deadline::after(limit + kGrace)),
                             [place, limit] { return create_gloo(place, limit); });
    if (made) return *std::move(made);
    return not_made(place, "ranks did not connect in time");
  } catch (const std::system_error& error) {
    return Status::unavailable(std::string("no thread to make a process group: ") + error.what());
  }
}

std::string torch_version() { return TORCH_VERSION; }

}  // namespace roundelay::platform
