#include "collective/mpi/mpi_transport.h"

#include <algorithm>

namespace roundelay::collective {

MpiTransport::MpiTransport(mpi::Session& session, MPI_Comm communicator, std::size_t most_message_bytes)
    : session_(session), communicator_(communicator), most_bytes_(most_message_bytes) {
  MPI_Comm_rank(communicator_, &index_);
  MPI_Comm_size(communicator_, &size_);
}

MpiTransport::~MpiTransport() {
  if (slots_.all_free()) session_.release(communicator_);
}

// Calls post_part(offset, count, request) for each part; an empty message is one empty part.
template <typename Post>
Result<TransferId> MpiTransport::post(std::size_t bytes, const Post& post_part) {
  const TransferId id = slots_.acquire();
  Slot& slot = slots_[id];
  slot.requests.clear();
  slot.next = 0;
  std::size_t offset = 0;
  do {
    const std::size_t part = std::min(bytes - offset, most_bytes_);
    slot.requests.push_back(MPI_REQUEST_NULL);
    ROUNDELAY_RETURN_IF_ERROR(post_part(offset, static_cast<int>(part), &slot.requests.back()));
    offset += part;
  } while (offset < bytes);
  return id;
}

Result<TransferId> MpiTransport::send(int peer, ConstByteSpan data, int tag) {
  return post(data.size(), [&](std::size_t offset, int count, MPI_Request* request) {
    return mpi::check(MPI_Isend(data.data() + offset, count, MPI_BYTE, peer, tag, communicator_, request),
                      "MPI_Isend");
  });
}

Result<TransferId> MpiTransport::receive(int peer, ByteSpan data, int tag) {
  return post(data.size(), [&](std::size_t offset, int count, MPI_Request* request) {
    return mpi::check(MPI_Irecv(data.data() + offset, count, MPI_BYTE, peer, tag, communicator_, request),
                      "MPI_Irecv");
  });
}

Result<bool> MpiTransport::test(TransferId id) {
  Slot& slot = slots_[id];
  for (; slot.next < slot.requests.size(); ++slot.next) {
    int done = 0;
    ROUNDELAY_RETURN_IF_ERROR(
        mpi::check(MPI_Test(&slot.requests[slot.next], &done, MPI_STATUS_IGNORE), "MPI_Test"));
    if (done == 0) return false;
  }
  slots_.release(id);
  return true;
}

}  // namespace roundelay::collective
