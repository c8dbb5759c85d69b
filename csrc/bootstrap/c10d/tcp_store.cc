#include "bootstrap/c10d/tcp_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace roundelay::bootstrap {
namespace {

using std::chrono::milliseconds;

// At least 1 ms, as PyTorch takes 0 for no limit.
milliseconds time_left(Deadline deadline) {
  constexpr milliseconds kLongest = std::chrono::hours(24);
  const int left = deadline.poll_milliseconds(steady_now());
  return left < 0 ? kLongest : milliseconds(std::max(left, 1));
}

// The first line: what follows is a C++ backtrace.
std::string cause_of(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace

struct TcpStore::Torch {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

TcpStore::TcpStore(std::unique_ptr<Torch> torch, std::string where)
    : torch_(std::move(torch)), where_(std::move(where)) {}

TcpStore::~TcpStore() = default;

Result<std::shared_ptr<TcpStore>> TcpStore::open(const std::string& host, std::uint16_t port, bool serve,
                                                 std::optional<int> listener, Deadline deadline) {
  const std::string where = host + ":" + std::to_string(port);
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = serve;
  options.waitWorkers = false;
  options.timeout = time_left(deadline);
  options.multiTenant = true;  // torch.distributed.init_process_group may use the same port
  options.masterListenFd = listener;
  try {
    auto torch = std::make_unique<Torch>();
    torch->store = c10::make_intrusive<c10d::TCPStore>(host, options);
    return std::shared_ptr<TcpStore>(new TcpStore(std::move(torch), where));
  } catch (const std::exception& error) {
    const std::string what = serve ? "cannot serve a store on " : "no store of PyTorch answers on ";
    return Status::unavailable(what + where + ": " + cause_of(error));
  }
}

template <typename Action>
Status TcpStore::guarded(const Action& action) {
  try {
    action(*torch_->store);
    return {};
  } catch (const std::exception& error) {
    return Status::aborted("the store on " + where_ + ", where ranks meet, is gone (" + cause_of(error) +
                           "): the process that served it has ended");
  }
}

Status TcpStore::set(const std::string& key, ConstByteSpan value) {
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(value.data());
  return guarded([&](c10d::Store& store) { store.set(key, std::vector(begin, begin + value.size())); });
}

Result<bool> TcpStore::wait(const std::vector<std::string>& keys, Deadline deadline) {
  bool there = false;
  const Status status = guarded([&](c10d::Store& store) {
    try {
      store.wait(keys, time_left(deadline));
      there = true;
    } catch (const c10::DistStoreError&) {
      there = store.check(keys);  // the time is up, or the store is gone: then this throws, too
    }
  });
  if (!status.ok()) return status;
  return there;
}

Result<bool> TcpStore::has(const std::string& key) {
  bool there = false;
  const Status status = guarded([&](c10d::Store& store) { there = store.check({key}); });
  if (!status.ok()) return status;
  return there;
}

Result<std::vector<Bytes>> TcpStore::get(const std::vector<std::string>& keys) {
  std::vector<Bytes> values;
  const Status status = guarded([&](c10d::Store& store) {
    for (const std::vector<std::uint8_t>& value : store.multiGet(keys)) {
      const auto* const begin = reinterpret_cast<const std::byte*>(value.data());
      values.emplace_back(begin, begin + value.size());
    }
  });
  if (!status.ok()) return status;
  return values;
}

Status TcpStore::erase(const std::string& key) {
  return guarded([&](c10d::Store& store) { store.deleteKey(key); });
}

}  // namespace roundelay::bootstrap
