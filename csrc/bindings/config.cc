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

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

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

std::string log_level(const LoadedConfig& loaded) {
  for (const ConfigLine& line : loaded.lines)
    if (line.variable == "ROUNDELAY_LOG_LEVEL") return line.value;
  return {};
}

// Return the getter of a property that reads one field, as it is or in seconds.
template <typename T>
auto field(T Config::*member) {
  return [member](const LoadedConfig& loaded) { return loaded.config.*member; };
}
auto in_seconds(Duration Config::*member) {
  return [member](const LoadedConfig& loaded) { return seconds(loaded.config.*member); };
}

}  // namespace

LoadedConfig load_config_from_environment() { return value_of(load_config(variable, set_variables())); }

void bind_config(py::module_& module) {
  py::class_<LoadedConfig>(module, "Config", "What one init() read from the environment; read-only.")
      .def_property_readonly("fusion_threshold", field(&Config::fusion_threshold))
      .def_property_readonly("theta", field(&Config::theta))
      .def_property_readonly("theta_auto", field(&Config::theta_auto))
      .def_property_readonly("gradient_pool", field(&Config::gradient_pool))
      .def_property_readonly("strategy", field(&Config::strategy))
      .def_property_readonly("autotune", field(&Config::autotune))
      .def_property_readonly("autotune_log", field(&Config::autotune_log))
      .def_property_readonly("autotune_steps_per_sample", field(&Config::autotune_steps_per_sample))
      .def_property_readonly(
          "cycle_time_ms", [](const LoadedConfig& loaded) { return seconds(loaded.config.cycle_time) * 1e3; })
      .def_property_readonly("cache_capacity", field(&Config::cache_capacity))
      .def_property_readonly("deterministic", field(&Config::deterministic))
      .def_property_readonly("exact_gradients", field(&Config::exact_gradients))
      .def_property_readonly("stall_check_disable", field(&Config::stall_check_disable))
      .def_property_readonly("stall_check_time", in_seconds(&Config::stall_check_time))
      .def_property_readonly("stall_shutdown_time", in_seconds(&Config::stall_shutdown_time))
      .def_property_readonly("progress_timeout", in_seconds(&Config::progress_timeout))
      .def_property_readonly("start_timeout", in_seconds(&Config::start_timeout))
      .def_property_readonly("bootstrap", field(&Config::bootstrap))
      .def_property_readonly("channel", field(&Config::channel))
      .def_property_readonly("node_id", field(&Config::node_id))
      .def_property_readonly("interface", field(&Config::interface))
      .def_property_readonly("timeline", field(&Config::timeline))
      .def_property_readonly("timeline_mark_cycles", field(&Config::timeline_mark_cycles))
      .def_property_readonly("log_level", log_level)
      .def_property_readonly("log_hide_time", field(&Config::log_hide_time))
      .def_property_readonly("lines", lines)
      .def_property_readonly("no_effect", [](const LoadedConfig& loaded) { return loaded.no_effect; })
      .def_property_readonly("bad", bad);
  module.def("load_config", load_config_from_environment);
  module.def("read_config", [] { return read_config(variable, set_variables()); });
  module.def("config", [] { return *global_config(); });
  module.def("log_info", [](const std::string& message) { log(LogLevel::kInfo, message); });
}

}  // namespace roundelay::bindings
