// What this rank says when it is asked what its program does: what the kernel shows, and where the program
// itself says it is, if it says so in time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/annotations.h"
#include "base/clock.h"

namespace roundelay::runtime {

// The program, asked by another thread.
class Whereabouts {
 public:
  virtual ~Whereabouts() = default;
  // Never blocks. Calls `tell` once, from any thread, when the program can be looked at; or never, while an
  // earlier question is still open.
  virtual void ask(std::function<void(const std::string&)> tell) = 0;
};

// Thread-safe.
class Inquiry {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(1500);

  // `answer` is called from any thread, not after the Inquiry is gone. No whereabouts: the kernel's word
  // alone.
  using Answer = std::function<void(int by_rank, std::string text)>;
  Inquiry(std::shared_ptr<Whereabouts> whereabouts, Answer answer);
  ~Inquiry();
  Inquiry(const Inquiry&) = delete;
  Inquiry& operator=(const Inquiry&) = delete;

  void asked(int by_rank, TimePoint now);
  // Answers what the program leaves open for too long; says when to look again.
  Deadline look(TimePoint now);

 private:
  struct Open;  // shared with the program's thread, which may come back late

  const std::shared_ptr<Whereabouts> whereabouts_;
  const std::shared_ptr<Open> open_;
};

}  // namespace roundelay::runtime
