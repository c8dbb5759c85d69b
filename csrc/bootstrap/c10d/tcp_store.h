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
  // `listener`: this process serves, over this socket, of which the store becomes the owner. `serve` without
  // one: through a store that PyTorch serves on that port in this process already (kUnavailable if it does
  // not). The server ends with the last TcpStore or torch.distributed store of the process on its port.
  static Result<std::shared_ptr<TcpStore>> open(const std::string& host, std::uint16_t port, bool serve,
                                                std::optional<int> listener, Deadline deadline);
  ~TcpStore() override;

  Status set(const std::string& key, ConstByteSpan value, Deadline deadline) override;
  Result<bool> wait(const std::vector<std::string>& keys, Deadline deadline) override;
  Result<bool> has(const std::string& key, Deadline deadline) override;
  Result<std::vector<Bytes>> get(const std::vector<std::string>& keys, Deadline deadline) override;
  Status erase(const std::string& key, Deadline deadline) override;
  // False after an error: all later calls fail, too.
  [[nodiscard]] bool usable() const { return error_.ok(); }

 private:
  struct Torch;
  TcpStore(std::shared_ptr<Torch> torch, std::string where);
  template <typename T>
  Result<T> ask(Deadline deadline, const std::function<T(Torch&)>& question);

  const std::shared_ptr<Torch> torch_;  // a question without an answer keeps it, too
  const std::string where_;             // host:port
  Status error_;                        // the first
};

}  // namespace roundelay::bootstrap
