// Answers a coordinator that asks what this rank's program does: with what the kernel shows of the process,
// and with what the program itself says, if that comes in time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/annotations.h"
#include "base/clock.h"

namespace roundelay::control {

// Says where the program is at this moment. bindings/whereabouts.h implements it for Python.
class Whereabouts {
 public:
  virtual ~Whereabouts() = default;
  // Never blocks; any thread may call it. Calls `tell` once, from any thread, when the program can be looked
  // at, with one sentence. Drops the question, and never calls `tell`, if an earlier one is still open.
  virtual void ask(std::function<void(const std::string&)> tell) = 0;
};

// Thread-safe.
class Inquiry {
 public:
  // The time that the program may take to answer.
  static constexpr Duration kTimeout = std::chrono::milliseconds(1500);

  // Sends the answer to the rank that asked. It is called from any thread, but not after the Inquiry's
  // destruction.
  using Answer = std::function<void(int by_rank, std::string text)>;
  // `whereabouts`: null if the answers are to have only what the kernel shows.
  Inquiry(std::shared_ptr<Whereabouts> whereabouts, Answer answer);
  ~Inquiry();
  Inquiry(const Inquiry&) = delete;
  Inquiry& operator=(const Inquiry&) = delete;

  // Takes the question of a rank. Never blocks.
  void asked(int by_rank, TimePoint now);
  // Answers the questions that the program has left open for too long. Returns when to call it again.
  Deadline look(TimePoint now);

 private:
  struct Open;  // the open questions; the program's thread shares them, as it may answer late

  const std::shared_ptr<Whereabouts> whereabouts_;
  const std::shared_ptr<Open> open_;
};

}  // namespace roundelay::control
