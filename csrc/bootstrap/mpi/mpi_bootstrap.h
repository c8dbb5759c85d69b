// The bootstrap of ranks that MPI numbers.
#pragma once

#include "bootstrap/bootstrap.h"
#include "platform/mpi/session.h"

namespace roundelay::bootstrap {

class MpiBootstrap final : public Bootstrap {
 public:
  // All ranks have to call it. `session` outlives the bootstrap. Errors: as Session::communicator().
  static Result<std::unique_ptr<Bootstrap>> create(mpi::Session& session, Deadline deadline);
  ~MpiBootstrap() override;

  [[nodiscard]] std::string_view name() const override { return "mpi"; }
  [[nodiscard]] int rank() const override { return session_.rank(); }
  [[nodiscard]] int size() const override { return session_.size(); }
  Result<std::vector<Bytes>> all_gather(ConstByteSpan mine, Deadline deadline) override;

 private:
  MpiBootstrap(mpi::Session& session, MPI_Comm communicator);
  struct Exchange;
  Status gather(std::unique_ptr<Exchange>& exchange, int bytes, Deadline deadline);

  mpi::Session& session_;
  const MPI_Comm communicator_;
};

}  // namespace roundelay::bootstrap
