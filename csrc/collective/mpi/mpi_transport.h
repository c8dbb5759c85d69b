#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

#include "collective/engine/slots.h"
#include "collective/program/transport.h"
#include "platform/mpi/session.h"

namespace roundelay::collective {

// A Transport over a communicator, which it owns. The communicator's ranks are the group's indices.
class MpiTransport final : public Transport {
 public:
  MpiTransport(mpi::Session& session, MPI_Comm communicator, std::size_t most_message_bytes);
  // Frees the communicator, unless transfers are still on their way: then it stays.
  ~MpiTransport() override;

  [[nodiscard]] int index() const override { return index_; }
  [[nodiscard]] int size() const override { return size_; }
  Result<TransferId> send(int peer, ConstByteSpan data, int tag) override;
  Result<TransferId> receive(int peer, ByteSpan data, int tag) override;
  Result<bool> test(TransferId id) override;

 private:
  // One transfer: the requests of the message's parts, in order.
  struct Slot {
    std::vector<MPI_Request> requests;
    std::size_t next = 0;  // the first request that is not done
  };
  template <typename Post>
  Result<TransferId> post(std::size_t bytes, const Post& post_part);

  mpi::Session& session_;
  const MPI_Comm communicator_;
  const std::size_t most_bytes_;
  int index_ = 0;
  int size_ = 1;
  Slots<Slot> slots_;
};

}  // namespace roundelay::collective
