// Checks the environment for roundelayrun before it starts ranks
// (python/roundelay/run/arguments/settings.py). This is a library of its own, so that it loads at once,
// without torch's libraries.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"

namespace roundelay {
namespace {

// Returns the error of load_config(), "" if it has none. `entries` is an environ: "NAME=VALUE" texts, null at
// the end.
std::string refusal(const char* const* entries) {
  std::vector<std::string> names;
  std::vector<std::string> values;
  for (; *entries != nullptr; ++entries) {
    const std::string_view entry(*entries);
    const auto end = std::min(entry.find('='), entry.size());
    names.emplace_back(entry.substr(0, end));
    values.emplace_back(entry.substr(std::min(end + 1, entry.size())));
  }
  const Environment environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return std::nullopt;
    return values[static_cast<std::size_t>(found - names.begin())];
  };
  return load_config(environment, names).status().message();
}

}  // namespace
}  // namespace roundelay

// Returns why init() would refuse this environment; "" if it would not. The text is valid until this thread's
// next call. `entries` is an environ: "NAME=VALUE" texts, null at the end.
extern "C" __attribute__((visibility("default"))) const char* roundelay_refusal(const char* const* entries) {
  thread_local std::string text;
  text = roundelay::refusal(entries);
  return text.c_str();
}
