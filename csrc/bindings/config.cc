#include "bindings/config.h"

#include <pybind11/stl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "base/log.h"
#include "bindings/errors.h"
#include "bindings/global_state.h"
#include "bindings/topics.h"

namespace roundelay::bindings {
namespace {

std::optional<std::string> variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::vector<std::string> set_variables() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

using Line = std::tuple<std::string, std::string, std::string, std::string>;
std::vector<Line> lines(const LoadedConfig& loaded) {
  std::vector<Line> result;
  for (const ConfigLine& line : loaded.lines)
    result.emplace_back(line.variable, line.value, line.source, line.meaning);
  return result;
}

std::vector<Line> bad(const LoadedConfig& loaded) {
  std::vector<Line> result;
  for (const BadVariable& each : loaded.bad)
    result.emplace_back(each.variable, each.value, each.allowed, each.complaint);
  return result;
}

// Return the Python value of a setting. Durations are in seconds.
std::int64_t python_value(const AutoInteger& value) { return value.number; }
double python_value(Duration value) { return std::chrono::duration<double>(value).count(); }
std::string python_value(LogLevel value) { return std::string(name_of(value)); }
std::string python_value(const StatedTopology& value) { return value.text(); }
std::string python_value(const FactorLists& value) { return value.text(); }
template <typename T>
T python_value(const T& value) {
  return value;
}

}  // namespace

LoadedConfig load_config_from_environment() { return value_of(load_config(variable, set_variables())); }

void bind_config(py::module_& module) {
  py::class_<LoadedConfig>(module, "Config", "What one init() read from the environment; read-only.")
#define KNOB(type, member, ...)   \
  .def_property_readonly(#member, \
                         [](const LoadedConfig& loaded) { return python_value(loaded.config.member); })
#include "base/knobs.def"
#undef KNOB
      .def_property_readonly("sizes_are_measured",
                             [](const LoadedConfig& loaded) {
                               return loaded.config.theta.automatic && !loaded.config.deterministic;
                             })
      .def_property_readonly("shared_settings",
                             [](const LoadedConfig& loaded) { return loaded.config.shared_settings(); })
      .def_property_readonly("lines", lines)
      .def_property_readonly("no_effect", [](const LoadedConfig& loaded) { return loaded.no_effect; })
      .def_property_readonly("bad", bad);
  module.def("load_config", load_config_from_environment);
  module.def("read_config", [] { return read_config(variable, set_variables()); });
  module.def("config", [] { return *global_config(); });
  module.def("log_info", [](const std::string& message) { log(LogLevel::kInfo, message); });
  module.def("log_warning", [](const std::string& message) { log(LogLevel::kWarning, message); });
}

}  // namespace roundelay::bindings
