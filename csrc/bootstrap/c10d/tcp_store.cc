#include "bootstrap/c10d/tcp_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/within.h"
#include "platform/c10d/cause.h"

namespace roundelay::bootstrap {
namespace {

using std::chrono::milliseconds;

// A wait may take so much longer than its limit, until the server answers that the time is over.
constexpr Duration kGrace = std::chrono::seconds(1);

// Returns the time that is left, at least 1 ms: PyTorch takes 0 for no limit.
milliseconds time_left(Deadline deadline) {
  constexpr milliseconds kLongest = std::chrono::hours(24);
  if (deadline == Deadline::never()) return kLongest;
  return std::max(std::chrono::ceil<milliseconds>(deadline.when() - steady_now()), milliseconds(1));
}

// Runs the call on another thread and waits for it up to the deadline. TCPStore itself limits only the time
// of a wait, not that of its start or of other questions to the server.
template <typename T>
Result<T> limited(Deadline deadline, std::function<T()> call) {
  try {
    auto answer = within<Result<T>>(deadline, [call = std::move(call)]() -> Result<T> {
      try {
        return call();
      } catch (const std::exception& error) {
        return Status::aborted(platform::cause_of(error));
      }
    });
    if (answer) return *std::move(answer);
    return Status::aborted("no answer in time");
  } catch (const std::system_error& error) {
    return Status::aborted(std::string("no thread: ") + error.what());
  }
}

}  // namespace

struct TcpStore::Torch {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

TcpStore::TcpStore(std::shared_ptr<Torch> torch, std::string where)
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
  auto torch = limited<std::shared_ptr<Torch>>(deadline, [host, options] {
    auto made = std::make_shared<Torch>();
    made->store = c10::make_intrusive<c10d::TCPStore>(host, options);
    return made;
  });
  if (torch.ok()) return std::shared_ptr<TcpStore>(new TcpStore(std::move(torch).value(), where));
  const std::string what = serve ? "cannot serve a store on " : "no store of PyTorch answers on ";
  return Status::unavailable(what + where + ": " + torch.status().message());
}

template <typename T>
Result<T> TcpStore::ask(Deadline deadline, const std::function<T(Torch&)>& question) {
  if (!error_.ok()) return error_;
  Result<T> answer = limited<T>(deadline, [torch = torch_, question] { return question(*torch); });
  if (!answer.ok()) {
    error_ = Status::aborted("the store on " + where_ + ", where ranks meet, is gone (" +
                             answer.status().message() + "): the process that served it ended or stopped");
    return error_;
  }
  return answer;
}

Status TcpStore::set(const std::string& key, ConstByteSpan value, Deadline deadline) {
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(value.data());
  const std::function<bool(Torch&)> question =
      [key, bytes = std::vector(begin, begin + value.size())](Torch& torch) {
        torch.store->set(key, bytes);
        return true;
      };
  return ask(deadline, question).status();
}

Result<bool> TcpStore::wait(const std::vector<std::string>& keys, Deadline until, Deadline deadline) {
  const milliseconds limit = time_left(until);
  const std::function<bool(Torch&)> question = [keys, limit](Torch& torch) {
    try {
      torch.store->wait(keys, limit);
      return true;
    } catch (const c10::DistStoreError&) {
      return torch.store->check(keys);  // the time is up, or the store is gone: then this throws too
    }
  };
  return ask(deadline.later(Deadline::after(limit + kGrace)), question);
}

Result<bool> TcpStore::has(const std::string& key, Deadline deadline) {
  const std::function<bool(Torch&)> question = [key](Torch& torch) { return torch.store->check({key}); };
  return ask(deadline, question);
}

Result<std::vector<Bytes>> TcpStore::get(const std::vector<std::string>& keys, Deadline deadline) {
  const std::function<std::vector<Bytes>(Torch&)> question = [keys](Torch& torch) {
    std::vector<Bytes> values;
    for (const std::vector<std::uint8_t>& value : torch.store->multiGet(keys)) {
      const auto* const begin = reinterpret_cast<const std::byte*>(value.data());
      values.emplace_back(begin, begin + value.size());
    }
    return values;
  };
  return ask(deadline, question);
}

Status TcpStore::erase(const std::string& key, Deadline deadline) {
  const std::function<bool(Torch&)> question = [key](Torch& torch) { return torch.store->deleteKey(key); };
  return ask(deadline, question).status();
}

}  // namespace roundelay::bootstrap
