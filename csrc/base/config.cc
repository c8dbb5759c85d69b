#include "base/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/knobs.h"

namespace roundelay {
namespace {

constexpr std::string_view kOurPrefix = "ROUNDELAY_";
constexpr std::string_view kHorovodPrefix = "HOROVOD_";

// The build, the launcher and Python use these variables; the core has no knobs for them.
constexpr std::array<std::string_view, 3> kOthers = {"ROUNDELAY_MPI_HOME", "ROUNDELAY_SECRET",
                                                     "ROUNDELAY_SECRET_FILE"};
constexpr std::string_view kLauncherPrefix = "ROUNDELAY_RUN_";
constexpr const char* kStartedByLauncher = "ROUNDELAY_RUN_STARTED";  // run/agent/horovod_variables.py

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

// Parses a number that makes up the whole text: no spaces, no '+', nothing after it.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Returns the shortest text that parses to the same number, without an exponent.
std::string show_number(double value) {
  std::array<char, 400> text{};
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  return error == std::errc() ? std::string(text.data(), end) : std::string();
}

// read() and show() for each type of knob. read() returns the allowed values if it refuses the text; show()
// returns text that read() accepts.
using Refusal = std::optional<std::string>;

Refusal read(const KnobOf<std::int64_t>& knob, std::string_view text, Config& config) {
  const auto value = parse_number<std::int64_t>(text);
  if (value && *value >= knob.least && *value <= knob.most) {
    config.*knob.member = *value;
    return std::nullopt;
  }
  const bool bounded = knob.most < std::numeric_limits<std::int64_t>::max();
  return "a whole number from " + std::to_string(knob.least) +
         (bounded ? " to " + std::to_string(knob.most) : " on");
}
std::string show(const KnobOf<std::int64_t>& knob, const Config& config) {
  return std::to_string(config.*knob.member);
}

Refusal read(const KnobOf<AutoInteger>& knob, std::string_view text, Config& config) {
  AutoInteger& value = config.*knob.member;
  value.automatic = lower(text) == "auto";
  if (value.automatic) return std::nullopt;
  const auto number = parse_number<std::int64_t>(text);
  if (!number || *number < 0) return "auto or a whole number from 0 on";
  value.number = *number;
  return std::nullopt;
}
std::string show(const KnobOf<AutoInteger>& knob, const Config& config) {
  const AutoInteger& value = config.*knob.member;
  return value.automatic ? "auto" : std::to_string(value.number);
}

Refusal read(const KnobOf<Duration>& knob, std::string_view text, Config& config) {
  const auto unit = static_cast<double>(knob.unit.count());
  const double most = static_cast<double>(kLongest.count()) / unit;
  const auto value = parse_number<double>(text);
  if (value && *value >= 0 && *value <= most) {  // NaN fails here too
    const Duration duration{std::llround(*value * unit)};
    if (duration > Duration::zero() || (knob.zero_allowed && *value == 0)) {
      config.*knob.member = duration;
      return std::nullopt;
    }
  }
  const std::string name = knob.unit == std::chrono::seconds(1) ? "seconds" : "milliseconds";
  return name + (knob.zero_allowed ? " from 0 to " : " above 0 up to ") + show_number(most) + " (a year)";
}
std::string show(const KnobOf<Duration>& knob, const Config& config) {
  return show_number(static_cast<double>((config.*knob.member).count()) /
                     static_cast<double>(knob.unit.count()));
}

Refusal read(const KnobOf<bool>& knob, std::string_view text, Config& config) {
  const std::string word = lower(text);
  const auto number = parse_number<std::int64_t>(text);  // as in Horovod, any number above 0 means on
  const bool on = word == "true" || word == "yes" || word == "on";
  const bool off = word == "false" || word == "no" || word == "off";
  if (!on && !off && !number) return "0, 1, true, false, yes, no, on or off";
  config.*knob.member = on || (number && *number > 0);
  return std::nullopt;
}
std::string show(const KnobOf<bool>& knob, const Config& config) { return config.*knob.member ? "1" : "0"; }

bool is_choice(std::string_view choices, std::string_view word) {
  while (!choices.empty()) {
    const auto bar = std::min(choices.find('|'), choices.size());
    if (choices.substr(0, bar) == word) return true;
    choices.remove_prefix(std::min(bar + 1, choices.size()));
  }
  return false;
}

Refusal read(const KnobOf<std::string>& knob, std::string_view text, Config& config) {
  std::string word = knob.choices.empty() ? std::string(text) : lower(text);
  if (!knob.choices.empty() && !is_choice(knob.choices, word)) return "one of " + std::string(knob.choices);
  config.*knob.member = std::move(word);
  return std::nullopt;
}
std::string show(const KnobOf<std::string>& knob, const Config& config) { return config.*knob.member; }

Refusal read(const KnobOf<LogLevel>& knob, std::string_view text, Config& config) {
  const auto* const level = std::ranges::find(kLogLevelNames, lower(text));
  if (level == kLogLevelNames.end()) return "one of trace, debug, info, warning, error, fatal";
  config.*knob.member = static_cast<LogLevel>(level - kLogLevelNames.begin());
  return std::nullopt;
}
std::string show(const KnobOf<LogLevel>& knob, const Config& config) {
  return std::string(name_of(config.*knob.member));
}

Refusal read(const KnobOf<StatedTopology>& knob, std::string_view text, Config& config) {
  auto stated = StatedTopology::parse(text);
  if (!stated) {
    return "empty, or counts from outside in with that of nodes last, such as rack=2,node=4, or names from "
           "outside in, such as pod1/rack3";
  }
  config.*knob.member = std::move(*stated);
  return std::nullopt;
}
std::string show(const KnobOf<StatedTopology>& knob, const Config& config) {
  return (config.*knob.member).text();
}

Refusal read(const KnobOf<FactorLists>& knob, std::string_view text, Config& config) {
  auto lists = FactorLists::parse(text);
  if (!lists) {
    return "empty, or whole numbers from 1 on, innermost first, such as 4,2,3, or several such lists with + "
           "between them, each once";
  }
  config.*knob.member = std::move(*lists);
  return std::nullopt;
}
std::string show(const KnobOf<FactorLists>& knob, const Config& config) {
  return (config.*knob.member).text();
}

std::string show(const Knob& knob, const Config& config) {
  return std::visit([&](const auto& value) { return show(value, config); }, knob.value);
}

std::string with_prefix(std::string_view prefix, std::string_view name) {
  return std::string(prefix).append(name);
}

// Returns whether the variable sets the knob. Lists a bad value, and leaves the knob as it is.
bool read_variable(const Knob& knob, const std::string& variable, const Environment& environment,
                   LoadedConfig& loaded) {
  const std::optional<std::string> text = environment(variable);
  if (!text) return false;
  const Config before = loaded.config;
  const Refusal allowed =
      std::visit([&](const auto& value) { return read(value, *text, loaded.config); }, knob.value);
  if (!allowed) return true;
  loaded.config = before;
  const std::string use(knob.meaning.substr(0, knob.meaning.find(';')));
  loaded.bad.push_back(
      {variable, *text, *allowed,
       variable + "=\"" + *text + "\" is not valid: it must be " + *allowed + " (" + use + ")"});
  return false;
}

void read_knob(const Knob& knob, const Environment& environment, LoadedConfig& loaded) {
  ConfigLine line{with_prefix(kOurPrefix, knob.name), "", "default", std::string(knob.meaning)};
  const std::string horovods = knob.horovod.empty() ? "" : with_prefix(kHorovodPrefix, knob.horovod);
  if (read_variable(knob, line.variable, environment, loaded)) {
    line.source = line.variable;
  } else if (!horovods.empty() && read_variable(knob, horovods, environment, loaded)) {
    line.source = horovods;
  }
  line.value = show(knob, loaded.config);
  loaded.lines.push_back(std::move(line));
}

// Returns how many letters must be inserted, deleted or replaced to turn one text into the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row[b.size()];
}

// Returns the complaint about a variable's name; empty if the name is good.
std::string complaint_of_name(const std::string& variable) {
  if (!variable.starts_with(kOurPrefix) || variable.starts_with(kLauncherPrefix)) return {};
  if (std::ranges::find(kOthers, variable) != kOthers.end()) return {};
  const std::string_view name = std::string_view(variable).substr(kOurPrefix.size());
  const auto distance = [&](const Knob& knob) { return edit_distance(knob.name, name); };
  const Knob& nearest = *std::ranges::min_element(knobs(), {}, distance);
  if (nearest.name == name) return {};
  return variable + " is set, but there is no such variable; the nearest is " +
         with_prefix(kOurPrefix, nearest.name);
}

// Returns the value, or if it is long its begin and its hash: a greeting has room for all settings.
std::string shortened(std::string value) {
  constexpr std::size_t kLongest = 64;
  if (value.size() <= kLongest) return value;
  std::uint64_t hash = 14695981039346656037ULL;  // 64-bit FNV-1a
  for (const char c : value) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "... (hash %016llx)", static_cast<unsigned long long>(hash));
  std::size_t cut = kLongest / 2;
  while (cut > 0 && (static_cast<unsigned char>(value[cut]) & 0xc0U) == 0x80)
    --cut;  // not within a character
  return value.substr(0, cut) + text.data();
}

std::string setting_text(const Knob& knob, const Config& config) {
  return with_prefix(kOurPrefix, knob.name) + "=\"" + shortened(show(knob, config)) + "\"";
}

std::string_view variable_of(std::string_view setting) { return setting.substr(0, setting.find('=')); }

// Returns a rank's setting of this variable. `all`: the settings that are not the default there.
std::string setting_of(std::string_view variable, const std::vector<std::string>& all) {
  const auto set = std::ranges::find(all, variable, variable_of);
  if (set != all.end()) return *set;
  for (const Knob& knob : knobs()) {
    if (with_prefix(kOurPrefix, knob.name) == variable) return setting_text(knob, Config{});
  }
  return "no " + std::string(variable);
}

}  // namespace

std::vector<std::string> Config::shared_settings() const {
  std::vector<std::string> settings;
  for (const Knob& knob : knobs()) {
    std::string own = setting_text(knob, *this);
    if (knob.shared && own != setting_text(knob, Config{})) settings.push_back(std::move(own));
  }
  return settings;
}

std::pair<std::string, std::string> different_settings(const std::vector<std::string>& a,
                                                       const std::vector<std::string>& b) {
  std::pair<std::string, std::string> found;
  const auto compare = [&](std::string_view variable) {
    const std::string of_a = setting_of(variable, a);
    const std::string of_b = setting_of(variable, b);
    if (of_a == of_b) return;
    const std::string_view joint = found.first.empty() ? "" : " and ";
    found.first.append(joint).append(of_a);
    found.second.append(joint).append(of_b);
  };
  for (const std::string& setting : a) compare(variable_of(setting));
  for (const std::string& setting : b) {
    if (std::ranges::find(a, variable_of(setting), variable_of) == a.end()) compare(variable_of(setting));
  }
  return found;
}

LoadedConfig read_config(const Environment& environment, const std::vector<std::string>& set_variables) {
  LoadedConfig loaded;
  for (const std::string& variable : set_variables) {
    if (std::string complaint = complaint_of_name(variable); !complaint.empty())
      loaded.bad.push_back({variable, environment(variable).value_or(""), "", std::move(complaint)});
  }
  for (const Knob& knob : knobs()) read_knob(knob, environment, loaded);
  const bool launched = environment(kStartedByLauncher).has_value();
  for (const NoEffect& entry : without_effect()) {
    if (launched && entry.launchers) continue;
    const std::string variable = with_prefix(kHorovodPrefix, entry.name);
    if (environment(variable))
      loaded.no_effect.push_back(variable + " has no effect, because " + std::string(entry.reason));
  }
  return loaded;
}

Result<LoadedConfig> load_config(const Environment& environment,
                                 const std::vector<std::string>& set_variables) {
  LoadedConfig loaded = read_config(environment, set_variables);
  if (!loaded.bad.empty()) return Status::invalid(std::move(loaded.bad.front().complaint));
  return loaded;
}

}  // namespace roundelay
