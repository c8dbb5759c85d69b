// The table of knobs (settings), one entry each. config.cc uses it to read, check, print and hash them.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/config.h"

namespace roundelay {

// The kinds of knob. Each names the field that receives the value, and the values it accepts.
struct IntegerKnob {
  std::int64_t Config::*field;
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};
// Accepts a number or "auto". "auto" leaves the number field unchanged.
struct AutoIntegerKnob {
  std::int64_t Config::*field;
  bool Config::*automatic;
};
struct DurationKnob {
  Duration Config::*field;
  Duration unit;              // the unit of the text: seconds or milliseconds
  bool zero_allowed = false;  // negative values and values above kLongest are never allowed
};
struct SwitchKnob {
  bool Config::*field;
};
struct ChoiceKnob {
  std::string Config::*field;
  std::string_view choices;  // the allowed words: "auto|mpi"
};
struct TextKnob {
  std::string Config::*field;
};
struct LogLevelKnob {
  LogLevel Config::*field;
};

// The longest duration that a knob accepts. A TimePoint plus this does not overflow.
inline constexpr Duration kLongest = std::chrono::hours(24 * 365);

struct Knob {
  std::string_view name;     // without "ROUNDELAY_"
  std::string_view horovod;  // without "HOROVOD_"; read if ROUNDELAY_<name> is unset; "": Horovod has none
  std::variant<IntegerKnob, AutoIntegerKnob, DurationKnob, SwitchKnob, ChoiceKnob, TextKnob, LogLevelKnob>
      kind;
  bool shared;               // the value must be equal on all ranks
  std::string_view meaning;  // for users; docs/configuration.md shows it
};
// Returns the whole table, in the order of the fields of Config.
std::span<const Knob> knobs();

// A HOROVOD_ variable that users may set and that does nothing.
struct NoEffect {
  std::string_view name;  // without "HOROVOD_"
  std::string_view reason;
};
std::span<const NoEffect> without_effect();

}  // namespace roundelay
