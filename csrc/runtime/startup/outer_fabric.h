// The fabric between nodes: TCP, or the backend's, MPI or a process group of PyTorch.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/config.h"
#include "base/group.h"
#include "base/status.h"
#include "collective/fabric.h"
#include "collective/program/transport.h"
#include "collective/tcp/plane.h"
#include "collective/tuning/select.h"
#include "connect/greeter.h"
#include "connect/tcp_address.h"
#include "runtime/backend.h"

namespace roundelay::runtime {

// One thread at a time may use it.
class OuterFabric {
 public:
  // `backend` outlives this object. It may be null if there is one rank.
  OuterFabric(Config config, Backend* backend) : config_(std::move(config)), backend_(backend) {}

  // Returns the fabric's name in ROUNDELAY_FABRIC: "tcp", "mpi", "c10d".
  [[nodiscard]] std::string name() const;
  // Errors: kUnavailable if the backend does not have the fabric that ROUNDELAY_FABRIC names.
  [[nodiscard]] Status check() const;
  // Opens this rank's end of a data plane over TCP, and returns its address; "" for other fabrics. Call it
  // once. Errors: kUnavailable, kInvalidArgument (ROUNDELAY_INTERFACE names no interface).
  Result<std::string> open(bool one_host);
  // Begins to answer the peers at that address. `addresses`: what open() returned on all ranks, by rank;
  // `identity`: this rank's. Errors: kUnavailable (out of descriptors).
  Status begin(connect::Identity identity, std::span<const Bytes> addresses);
  // Makes a fabric for a group. The rules of Backend::fabric() hold. `crowded`: ranks outnumber cores. Call
  // it after begin().
  Result<std::unique_ptr<collective::Fabric>> make(const Group& group, const collective::Select& select,
                                                   bool crowded);

  // Makes a transport of its own for a group. Members make those of one group in the same order. Errors:
  // kUnavailable, also if the fabric is not tcp.
  Result<std::unique_ptr<collective::Transport>> make_transport(const Group& group);

 private:
  const Config config_;
  Backend* const backend_;
  std::optional<connect::TcpListener> listener_;  // from open() to begin()
  std::shared_ptr<collective::tcp::TcpPlane> plane_;
};

}  // namespace roundelay::runtime
