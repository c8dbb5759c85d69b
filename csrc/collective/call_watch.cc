#include "collective/call_watch.h"

namespace roundelay::collective {
namespace {

constexpr unsigned kTestsPerClockRead = 16;  // a clock read costs as much as a test

}  // namespace

Status CallWatch::interrupted(int waiting_for, std::string_view late) {
  if (call_.abort != nullptr && call_.abort->raised()) return call_.abort->cause();
  if (call_.deadline == Deadline::never()) return {};
  if (tests_++ % kTestsPerClockRead != 0 || !call_.deadline.passed()) return {};
  return explain(std::string(late), waiting_for);
}

Status CallWatch::explain(const std::string& what, int waiting_for) const {
  std::string text(name_of(call_.operation));
  text += " of " + std::to_string(call_.buffer.bytes) + " bytes " + what;
  if (waiting_for >= 0) {
    text += ", waiting for rank " + std::to_string(group_.ranks[static_cast<std::size_t>(waiting_for)]);
  }
  return Status::aborted(text);
}

Status CallWatch::dropped() const {
  return Status::aborted(std::string(name_of(call_.operation)) + " was dropped before its end");
}

}  // namespace roundelay::collective
