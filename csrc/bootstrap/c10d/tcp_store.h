// PyTorch's TCPStore, without its headers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bootstrap/key_value_store.h"

namespace roundelay::bootstrap {

class TcpStore final : public KeyValueStore {
 public:
  // Connects to the store at host:port. `serve`: this process serves it, over the socket `listener`, which
  // the store then owns. Without a listener PyTorch must serve a store on that port in this process already.
  // The server ends with the last TcpStore or torch.distributed store of the process on its port.
  // Errors: kUnavailable (the store does not answer by the deadline, or this process cannot serve it).
  static Result<std::shared_ptr<TcpStore>> open(const std::string& host, std::uint16_t port, bool serve,
                                                std::optional<int> listener, Deadline deadline);
  ~TcpStore() override;

  Status set(const std::string& key, ConstByteSpan value, Deadline deadline) override;
  Result<bool> wait(const std::vector<std::string>& keys, Deadline until, Deadline deadline) override;
  Result<bool> has(const std::string& key, Deadline deadline) override;
  Result<std::vector<Bytes>> get(const std::vector<std::string>& keys, Deadline deadline) override;
  Status erase(const std::string& key, Deadline deadline) override;
  // Returns false after an error: all later calls fail, too.
  [[nodiscard]] bool usable() const { return error_.ok(); }

 private:
  struct Torch;
  TcpStore(std::shared_ptr<Torch> torch, std::string where);
  template <typename T>
  Result<T> ask(Deadline deadline, const std::function<T(Torch&)>& question);

  const std::shared_ptr<Torch> torch_;  // shared with questions that have no answer yet
  const std::string where_;             // host:port
  Status error_;                        // the first error; later calls return it
};

}  // namespace roundelay::bootstrap
