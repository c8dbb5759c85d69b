#include "collective/call_watch.h"

namespace roundelay::collective {
namespace {

constexpr unsigned kTestsPerClockRead = 16;  // a clock read costs as much as a test

}  // namespace

Status CallWatch::interrupted(int waiting_for, std::string_view late) {
  const CallOptions& options = options_of(call_);
  if (options.abort != nullptr && options.abort->raised()) return options.abort->cause();
  if (options.deadline == Deadline::never()) return {};
  if (tests_++ % kTestsPerClockRead != 0 || !options.deadline.passed()) return {};
  return explain(std::string(late), waiting_for);
}

Status CallWatch::explain(const std::string& what, int waiting_for) const {
  std::string text(name_of(operation_of(call_)));
  text += " of " + std::to_string(result_bytes(call_)) + " bytes " + what;
  if (waiting_for >= 0) {
    text += ", waiting for rank " + std::to_string(group_.ranks[static_cast<std::size_t>(waiting_for)]);
  }
  return Status::aborted(text);
}

Status CallWatch::dropped() const {
  return Status::aborted(std::string(name_of(operation_of(call_))) + " was dropped before its end");
}

}  // namespace roundelay::collective
