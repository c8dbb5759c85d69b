// The contract of point to point over MPI, one process a member.
#include "collective/mpi/mpi_transport.h"
#include "tests/cpp/catch.h"
#include "tests/cpp/contract/message_contract.h"
#include "tests/cpp/mpi/session.h"

namespace roundelay::contract {
namespace {

class MpiMessages final : public MessageMedium {
 public:
  explicit MpiMessages(std::size_t most_message_bytes) : most_message_bytes_(most_message_bytes) {}
  [[nodiscard]] int largest_group() const override { return session().size(); }
  std::string run(int size, const MemberPart& part) override {
    if (session().rank() >= size) return {};
    Group group = first_ranks(size);
    group.id = static_cast<ProcessSetId>(size);
    const auto communicator = session().communicator(group, patience());
    if (!communicator.ok()) return communicator.status().message();
    return run_member(
        std::make_unique<collective::MpiTransport>(session(), *communicator, most_message_bytes_),
        message_group(size, group.index), part);
  }

 private:
  const std::size_t most_message_bytes_;
};

TEST_CASE("mpi: messages keep their contract", "[mpi]") {
  for (const std::size_t most : {std::size_t{1} << 30U, std::size_t{1000}}) {
    MpiMessages medium(most);
    for (const MessageTest& test : message_contract()) {
      for (int size = 2; size <= medium.largest_group(); ++size) {
        INFO(test.name << ", " << size << " members, messages up to " << most);
        CHECK(medium.run(size, test.part) == "");
      }
    }
  }
}

}  // namespace
}  // namespace roundelay::contract
