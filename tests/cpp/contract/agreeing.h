// Runs agreements through a session.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/cpp/contract/session_world.h"

namespace roundelay::contract {

// One rank's part in an agreement. It stays where it is until finish() has returned.
class Agreement final : private submit::Results {
 public:
  Agreement(std::string name, std::vector<AgreementField> fields, int root = -1, ProcessSetId process_set = 0)
      : process_set_(process_set) {
    request_.name = std::move(name);
    request_.operation = Operation::kAgreement;
    request_.fields = std::move(fields);
    request_.root = root;
  }
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  Status start(runtime::Session& session, std::string values, bool blocking = false) {
    submit::Arguments arguments;
    arguments.request = request_;
    arguments.values = std::move(values);
    arguments.results = this;
    const auto handle = session.submit(std::move(arguments), {process_set_, blocking});
    if (handle.ok()) handle_ = *handle;
    return handle.status();
  }
  // Waits without a deadline, so that a lost wake-up hangs and does not pass late.
  Status finish(runtime::Session& session) { return *session.wait(handle_, Deadline::never()); }
  Status run(runtime::Session& session, std::string values) {
    Status status = start(session, std::move(values), true);
    return status.ok() ? finish(session) : status;
  }

  Agreed agreed;

 private:
  Result<Memory> allocate(std::size_t, const std::vector<std::int64_t>&) override {
    return Status::internal("an agreement has no memory");
  }
  void set_received_splits(std::vector<std::int64_t>) override {}
  void set_agreed(Agreed result) override { agreed = std::move(result); }

  wire::Request request_;
  const ProcessSetId process_set_;
  complete::Handle handle_ = 0;
};

// Returns the error or the difference, "" if there is none.
inline std::string expect(const Agreement& agreement, const Status& status, const Agreed& expected) {
  if (!status.ok()) return status.message();
  if (agreement.agreed == expected) return {};
  return "agreed on '" + agreement.agreed.values + "' with " +
         std::to_string(agreement.agreed.differences.size()) + " differences and without " +
         std::to_string(agreement.agreed.absent.size()) + " ranks, instead of '" + expected.values + "'";
}

}  // namespace roundelay::contract
