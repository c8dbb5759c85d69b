// Two prototypes of a data plane between nodes, ucx.cc and sockets.cc, obey the same commands: lines on
// standard input, each answered by a line of JSON. python -m benchmarks.wires runs and compares them.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace wires {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The connections of one process. One send and one receive at a time. One thread.
class Wire {
 public:
  virtual ~Wire() = default;
  // Returns what a peer needs to connect, without spaces.
  virtual std::string address() = 0;
  // Makes one more connection: one end connects to the other one's address, and the other accepts.
  virtual void connect(const std::string& peer) = 0;
  virtual void accept(const std::string& peer) = 0;
  // Start a transfer on a connection, numbered from 0. The memory is in use until it is over.
  virtual void send(std::size_t connection, const std::byte* data, std::size_t bytes) = 0;
  virtual void receive(std::size_t connection, std::byte* data, std::size_t bytes) = 0;
  // Does what can be done at once. Returns whether that was something.
  virtual bool step() = 0;
  // Sleeps until step() has work, or so long.
  virtual void sleep(int milliseconds) = 0;
  [[nodiscard]] virtual bool sending() const = 0;
  [[nodiscard]] virtual bool receiving() const = 0;
  // Ends both transfers, and all connections. No memory of theirs is used any more.
  virtual void give_up() = 0;
  // Returns the first error of a connection, or "".
  [[nodiscard]] const std::string& error() const { return error_; }

 protected:
  void fail(const std::string& why) {
    if (error_.empty()) error_ = why;
  }

 private:
  std::string error_;
};

std::unique_ptr<Wire> make_wire();
std::string version();

inline double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Obeys the commands.
class End {
 public:
  std::string obey(const std::string& line) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    const auto command = commands_.find(what);
    return command == commands_.end() ? "\"unknown\"" : command->second(words);
  }

 private:
  // Value of all bytes that a sender sends, of a receiver's memory before, and after it was given up.
  static constexpr std::byte kSent{0x11}, kEmpty{0}, kMine{0x5a};

  // Makes progress until the transfers are over, something has failed, or the time has passed.
  void progress(double seconds) {
    const auto begin = Clock::now();
    while (wire_->error().empty() && (wire_->sending() || wire_->receiving())) {
      const double left = seconds - seconds_since(begin);
      if (left <= 0) return;
      if (!wire_->step()) wire_->sleep(static_cast<int>(left * 1e3) + 1);
    }
  }
  void resize(std::size_t bytes, std::byte value) { memory_.assign(bytes, value); }
  [[nodiscard]] bool all(std::byte value) const {
    return std::all_of(memory_.begin(), memory_.end(), [&](std::byte one) { return one == value; });
  }
  static std::string quoted(const std::string& text) { return '"' + text + '"'; }

  std::string address(std::istream&) { return quoted(wire_->address()); }
  std::string version(std::istream&) { return quoted(wires::version()); }
  std::string connect(std::istream& words) {
    std::string peer;
    words >> peer;
    wire_->connect(peer);
    return quoted(wire_->error());
  }
  std::string accept(std::istream& words) {
    std::string peer;
    words >> peer;
    wire_->accept(peer);
    return quoted(wire_->error());
  }

  // start send|receive CONNECTION BYTES: prints the address of the memory.
  std::string start(std::istream& words) {
    std::string which;
    std::size_t connection = 0;
    std::size_t bytes = 0;
    words >> which >> connection >> bytes;
    sends_ = which == "send";
    resize(bytes, sends_ ? kSent : kEmpty);
    if (sends_) {
      wire_->send(connection, memory_.data(), bytes);
    } else {
      wire_->receive(connection, memory_.data(), bytes);
    }
    return std::to_string(reinterpret_cast<std::uintptr_t>(memory_.data()));
  }
  // wait SECONDS: until the transfer is over. "right": it is, and the bytes are those that were sent.
  // "first": what the memory begins with.
  std::string wait(std::istream& words) {
    double seconds = 0;
    words >> seconds;
    const auto begin = Clock::now();
    progress(seconds);
    const bool over = !wire_->sending() && !wire_->receiving();
    const bool right = over && wire_->error().empty() && (sends_ || all(kSent));
    std::ostringstream said;
    said << "{\"seconds\": " << seconds_since(begin) << ", \"over\": " << (over ? "true" : "false")
         << ", \"error\": " << quoted(wire_->error()) << ", \"right\": " << (right ? "true" : "false")
         << ", \"first\": " << std::to_integer<int>(memory_.front()) << "}";
    return said.str();
  }

  // measure one_way|ping_pong first|second BYTES REPETITIONS: wall and CPU seconds of each repetition.
  std::string measure(std::istream& words) {
    std::string what;
    std::string role;
    std::size_t bytes = 0;
    int repetitions = 0;
    words >> what >> role >> bytes >> repetitions;
    const bool first = role == "first";
    const std::size_t back = what == "ping_pong" ? bytes : 1;  // one way: a byte says that all has come
    resize(std::max(bytes, back), kSent);
    std::ostringstream wall;
    std::ostringstream cpu;
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      const auto begin = Clock::now();
      const double cpu_begin = cpu_seconds();
      move(first, bytes);
      move(!first, back);
      const char* comma = repetition == 0 ? "" : ", ";
      wall << comma << seconds_since(begin);
      cpu << comma << cpu_seconds() - cpu_begin;
    }
    return "{\"wall\": [" + wall.str() + "], \"cpu\": [" + cpu.str() +
           "], \"error\": " + quoted(wire_->error()) + "}";
  }
  void move(bool sends, std::size_t bytes) {
    if (sends) {
      wire_->send(0, memory_.data(), bytes);
    } else {
      wire_->receive(0, memory_.data(), bytes);
    }
    progress(kPatience);
  }

  // Gives up what is in progress, and marks the memory as ours. Prints the seconds that it took.
  std::string give_up(std::istream&) {
    const auto begin = Clock::now();
    wire_->give_up();
    const double seconds = seconds_since(begin);
    std::fill(memory_.begin(), memory_.end(), kMine);
    return std::to_string(seconds);
  }
  // untouched SECONDS: makes progress so long, and tells whether the memory is as give_up() left it.
  std::string untouched(std::istream& words) {
    double seconds = 0;
    words >> seconds;
    for (const auto begin = Clock::now(); seconds_since(begin) < seconds;) {
      if (!wire_->step()) wire_->sleep(10);
    }
    return all(kMine) ? "true" : "false";
  }
  std::string remake(std::istream&) {
    wire_.reset();
    wire_ = make_wire();
    return "true";
  }

  static constexpr double kPatience = 60;
  using Command = std::function<std::string(std::istream&)>;
  Command bound(std::string (End::*command)(std::istream&)) {
    return [this, command](std::istream& words) { return (this->*command)(words); };
  }
  std::unique_ptr<Wire> wire_ = make_wire();
  std::vector<std::byte> memory_;
  bool sends_ = false;
  const std::map<std::string, Command> commands_ = {
      {"address", bound(&End::address)}, {"version", bound(&End::version)},
      {"connect", bound(&End::connect)}, {"accept", bound(&End::accept)},
      {"start", bound(&End::start)},     {"wait", bound(&End::wait)},
      {"measure", bound(&End::measure)}, {"give_up", bound(&End::give_up)},
      {"remake", bound(&End::remake)},   {"untouched", bound(&End::untouched)},
  };
};

inline int obey_all() {
  End end;
  for (std::string line; std::getline(std::cin, line);) std::cout << end.obey(line) << std::endl;
  return 0;
}

}  // namespace wires
