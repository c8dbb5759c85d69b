// The table of knobs: one line each. base/config.cc reads, checks, prints and hashes by it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/config.h"

namespace roundelay {

// How a knob's text becomes a field, and which values it may have.
struct IntegerKnob {
  std::int64_t Config::*field;
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};
// A number, or "auto", which leaves the number as it is.
struct AutoIntegerKnob {
  std::int64_t Config::*field;
  bool Config::*automatic;
};
struct DurationKnob {
  Duration Config::*field;
  Duration unit;              // of the text
  bool zero_allowed = false;  // never negative, and at most kLongest
};
struct SwitchKnob {
  bool Config::*field;
};
struct ChoiceKnob {
  std::string Config::*field;
  std::string_view choices;  // "auto|mpi"
};
struct TextKnob {
  std::string Config::*field;
};
struct LogLevelKnob {
  LogLevel Config::*field;
};

// Far beyond any use, and far from overflow when added to the time.
inline constexpr Duration kLongest = std::chrono::hours(24 * 365);

struct Knob {
  std::string_view name;  // ROUNDELAY_<name>
  std::string_view
      horovod;  // HOROVOD_<horovod>, honoured when ROUNDELAY_<name> is unset; empty: Horovod has none
  std::variant<IntegerKnob, AutoIntegerKnob, DurationKnob, SwitchKnob, ChoiceKnob, TextKnob, LogLevelKnob>
      kind;
  bool shared;  // must be equal on all ranks
  std::string_view meaning;
};
std::span<const Knob> knobs();

// A HOROVOD_ variable that is accepted and does nothing.
struct NoEffect {
  std::string_view name;  // HOROVOD_<name>
  std::string_view reason;
};
std::span<const NoEffect> without_effect();

}  // namespace roundelay
