#include "bootstrap/mpi/mpi_bootstrap.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <thread>

namespace roundelay::bootstrap {

// Memory of one MPI_Iallgather. It is leaked if the deadline passes, as MPI may still write to it.
struct MpiBootstrap::Exchange {
  Bytes mine, all;
};

MpiBootstrap::MpiBootstrap(mpi::Session& session, MPI_Comm communicator)
    : session_(session), communicator_(communicator) {}

MpiBootstrap::~MpiBootstrap() { session_.release(communicator_); }

Result<std::unique_ptr<Bootstrap>> MpiBootstrap::create(mpi::Session& session, Deadline deadline) {
  Group world;
  for (int rank = 0; rank < session.size(); ++rank) world.ranks.push_back(rank);
  world.index = session.rank();
  Result<MPI_Comm> communicator = session.communicator(world, deadline);
  if (!communicator.ok()) return communicator.status();
  return std::unique_ptr<Bootstrap>(new MpiBootstrap(session, *communicator));
}

Status MpiBootstrap::gather(std::unique_ptr<Exchange>& exchange, int bytes, Deadline deadline) {
  exchange->all.resize(static_cast<std::size_t>(bytes) * static_cast<std::size_t>(size()));
  MPI_Request request = MPI_REQUEST_NULL;
  ROUNDELAY_RETURN_IF_ERROR(
      mpi::check(MPI_Iallgather(exchange->mine.data(), bytes, MPI_BYTE, exchange->all.data(), bytes, MPI_BYTE,
                                communicator_, &request),
                 "MPI_Iallgather"));
  for (int done = 0; done == 0;) {
    Status tested = mpi::check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (!tested.ok()) {
      static_cast<void>(exchange.release());  // MPI may still write to it
      return tested;
    }
    if (done != 0) break;
    if (deadline.passed()) {
      static_cast<void>(exchange.release());
      session_.poison("the start was not completed by all ranks");
      return Status::aborted("not all ranks took part in the exchange at the start before its deadline");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return {};
}

Result<std::vector<Bytes>> MpiBootstrap::all_gather(ConstByteSpan mine, Deadline deadline) {
  ROUNDELAY_RETURN_IF_ERROR(session_.usable());
  const std::uint64_t length = mine.size();
  auto lengths = std::make_unique<Exchange>();
  lengths->mine.resize(sizeof(length));
  std::memcpy(lengths->mine.data(), &length, sizeof(length));
  ROUNDELAY_RETURN_IF_ERROR(gather(lengths, sizeof(length), deadline));
  std::vector<std::uint64_t> length_of(static_cast<std::size_t>(size()));
  std::memcpy(length_of.data(), lengths->all.data(), lengths->all.size());

  const std::uint64_t longest = *std::max_element(length_of.begin(), length_of.end());
  if (longest > INT_MAX) {
    return Status::invalid("an exchange at the start of " + std::to_string(longest) +
                           " bytes a rank is too long");
  }
  auto padded = std::make_unique<Exchange>();
  padded->mine.assign(mine.begin(), mine.end());
  padded->mine.resize(longest);
  if (longest > 0) ROUNDELAY_RETURN_IF_ERROR(gather(padded, static_cast<int>(longest), deadline));
  std::vector<Bytes> result;
  for (std::size_t rank = 0; rank < length_of.size(); ++rank) {
    const auto begin = padded->all.begin() + static_cast<std::ptrdiff_t>(rank * longest);
    result.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(length_of[rank]));
  }
  return result;
}

}  // namespace roundelay::bootstrap
