// The table of knobs (settings), made from knobs.def. config.cc uses it to read, check, print and hash them.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/config.h"

namespace roundelay {

// The member of Config that receives a knob's value, and the limits of the value. A type without limits takes
// each value that its text can have: a switch, a log level, a number or "auto".
template <typename T>
struct KnobOf {
  T Config::*member;
};
template <>
struct KnobOf<std::int64_t> {
  std::int64_t Config::*member;
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};
template <>
struct KnobOf<Duration> {
  Duration Config::*member;
  Duration unit;              // the unit of the text: seconds or milliseconds
  bool zero_allowed = false;  // negative values and values above kLongest are never allowed
};
template <>
struct KnobOf<std::string> {
  std::string Config::*member;
  std::string_view choices{};  // the allowed words: "auto|mpi"; empty: any text
};

// The longest duration that a knob accepts. A TimePoint plus this does not overflow.
inline constexpr Duration kLongest = std::chrono::hours(24 * 365);

struct Knob {
  std::string_view name;     // without "ROUNDELAY_"
  std::string_view horovod;  // without "HOROVOD_"; read if ROUNDELAY_<name> is unset; "": Horovod has none
  std::variant<KnobOf<std::int64_t>, KnobOf<AutoInteger>, KnobOf<Duration>, KnobOf<bool>, KnobOf<std::string>,
               KnobOf<LogLevel>, KnobOf<StatedTopology>, KnobOf<FactorLists>>
      value;
  bool shared;               // the value must be equal on all ranks
  std::string_view meaning;  // for users; docs/configuration.md shows it
};
// Returns the whole table, in the order of knobs.def.
std::span<const Knob> knobs();

// A HOROVOD_ variable that users may set and that does nothing.
struct NoEffect {
  std::string_view name;  // without "HOROVOD_"
  std::string_view reason;
  bool launchers = false;  // roundelayrun sets it, too, as horovodrun does: programs look for it
};
// Returns all of them.
std::span<const NoEffect> without_effect();

}  // namespace roundelay
