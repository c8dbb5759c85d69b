#include "base/config.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/knobs.h"
#include "base/overload.h"
#include "tests/cpp/catch.h"
#include "wire/codec.h"

namespace roundelay {
namespace {

using std::chrono::milliseconds;
using Variables = std::map<std::string, std::string>;

Result<LoadedConfig> load(const Variables& variables) {
  return load_config([&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

Config config_of(const Variables& variables) {
  const Result<LoadedConfig> loaded = load(variables);
  INFO(loaded.status().message());
  REQUIRE(loaded.ok());
  return loaded->config;
}

std::string error_of(const std::string& variable, const std::string& value) {
  const Result<LoadedConfig> loaded = load({{variable, value}});
  INFO(variable << "=" << value);
  REQUIRE_FALSE(loaded.ok());
  CHECK(loaded.status().code() == StatusCode::kInvalidArgument);
  return loaded.status().message();
}

TEST_CASE("nothing set: the defaults, each said to be one", "[config]") {
  const Result<LoadedConfig> loaded = load({});
  REQUIRE(loaded.ok());
  CHECK(loaded->config.shared_settings().empty());
  CHECK(loaded->config.fusion_threshold == 134217728);
  CHECK(loaded->no_effect.empty());
  REQUIRE(loaded->lines.size() == knobs().size());
  for (const ConfigLine& line : loaded->lines) {
    CHECK(line.source == "default");
    CHECK_FALSE(line.meaning.empty());
  }
  CHECK(loaded->lines[0].variable == "ROUNDELAY_FUSION_THRESHOLD");
  CHECK(loaded->lines[0].value == "134217728");
}

TEST_CASE("bad variables are listed and read as if they were not set", "[config]") {
  const Variables variables{{"ROUNDELAY_THETA", "many"},
                            {"ROUNDELAY_CYCLE_TIME", "-1"},
                            {"HOROVOD_CYCLE_TIME", "3"},
                            {"ROUNDELAY_CHANEL", "tcp"}};
  const LoadedConfig loaded = read_config(
      [&](const std::string& name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      },
      {"ROUNDELAY_CHANEL", "ROUNDELAY_THETA"});
  REQUIRE(loaded.bad.size() == 3);
  CHECK(loaded.bad[0].variable == "ROUNDELAY_CHANEL");
  CHECK(loaded.bad[0].value == "tcp");
  CHECK(loaded.bad[0].allowed.empty());
  CHECK(loaded.bad[1].variable == "ROUNDELAY_THETA");
  CHECK(loaded.bad[1].allowed == "auto or a whole number from 0 on");
  CHECK(loaded.bad[1].complaint == "ROUNDELAY_THETA=\"many\" is not valid: it must be " +
                                       loaded.bad[1].allowed + " (the size of a gradient bucket in bytes)");
  CHECK(loaded.bad[2].variable == "ROUNDELAY_CYCLE_TIME");
  CHECK(loaded.config.theta.number == Config{}.theta.number);
  CHECK(loaded.config.theta.automatic);
  CHECK(loaded.config.cycle_time == milliseconds(3));
}

// Returns text for a value of the knob that is not its default.
std::string other_value(const Knob& knob) {
  const Config defaults;
  return std::visit(
      Overload{
          [&](const KnobOf<std::int64_t>& value) {
            return std::to_string(defaults.*value.member == value.least ? value.least + 1 : value.least);
          },
          [](const KnobOf<AutoInteger>&) { return std::string("1"); },
          [](const KnobOf<Duration>&) { return std::string("7"); },
          [&](const KnobOf<bool>& value) { return std::string(defaults.*value.member ? "0" : "1"); },
          [](const KnobOf<std::string>& value) {
            return value.choices.empty() ? "x"
                                         : std::string(value.choices.substr(value.choices.rfind('|') + 1));
          },
          [](const KnobOf<LogLevel>&) { return std::string("error"); },
          [](const KnobOf<StatedTopology>&) { return std::string("rack=2,node=3"); },
          [](const KnobOf<FactorLists>&) { return std::string("4,2,3+4,6"); },
      },
      knob.value);
}

TEST_CASE("every knob is read from its variable into its member, and changes no other", "[config]") {
  const Result<LoadedConfig> defaults = load({});
  REQUIRE(defaults.ok());
  for (const Knob& knob : knobs()) {
    const std::string variable = "ROUNDELAY_" + std::string(knob.name);
    INFO(variable);
    const Result<LoadedConfig> loaded = load({{variable, other_value(knob)}});
    REQUIRE(loaded.ok());
    for (std::size_t i = 0; i < loaded->lines.size(); ++i) {
      const ConfigLine& line = loaded->lines[i];
      const bool own = line.variable == variable;
      CHECK(line.source == (own ? variable : "default"));
      CHECK(line.value == (own ? other_value(knob) : defaults->lines[i].value));
    }
    const std::vector<std::string> setting = {variable + "=\"" + other_value(knob) + "\""};
    CHECK(loaded->config.shared_settings() == (knob.shared ? setting : std::vector<std::string>{}));
  }
}

TEST_CASE("values of each type reach the members", "[config]") {
  const Config config = config_of({{"ROUNDELAY_FUSION_THRESHOLD", "0"},
                                   {"ROUNDELAY_THETA", "1048576"},
                                   {"ROUNDELAY_AUTOTUNE_LOG", "a.JSONL"},
                                   {"ROUNDELAY_CYCLE_TIME", "2.5"},
                                   {"ROUNDELAY_SCHEDULE_LOCK", "off"},
                                   {"ROUNDELAY_DETERMINISTIC", "yes"},
                                   {"ROUNDELAY_STALL_CHECK_TIME_SECONDS", "0.2"},
                                   {"ROUNDELAY_BOOTSTRAP", "MPI"},
                                   {"ROUNDELAY_INTERFACE", "eth0,ib0"},
                                   {"ROUNDELAY_LOG_LEVEL", "Debug"}});
  CHECK(config.fusion_threshold == 0);
  CHECK(config.theta.number == 1048576);
  CHECK_FALSE(config.theta.automatic);
  CHECK(config.autotune_log == "a.JSONL");
  CHECK(config.cycle_time == std::chrono::microseconds(2500));
  CHECK_FALSE(config.schedule_lock);
  CHECK(config.deterministic);
  CHECK(config.stall_check_time == milliseconds(200));
  CHECK(config.bootstrap == "mpi");
  CHECK(config.interface == "eth0,ib0");
  CHECK(config.log_level == LogLevel::kDebug);
}

TEST_CASE("ROUNDELAY_X wins over HOROVOD_X", "[config]") {
  CHECK(config_of({{"HOROVOD_FUSION_THRESHOLD", "5"}}).fusion_threshold == 5);
  CHECK(
      config_of({{"HOROVOD_FUSION_THRESHOLD", "5"}, {"ROUNDELAY_FUSION_THRESHOLD", "6"}}).fusion_threshold ==
      6);
  CHECK(config_of({{"HOROVOD_GLOO_IFACE", "eth1"}}).interface == "eth1");
  CHECK(config_of({{"HOROVOD_THETA", "5"}}).theta.automatic);

  const Result<LoadedConfig> loaded = load({{"HOROVOD_CYCLE_TIME", "1.250"}, {"ROUNDELAY_THETA", "9"}});
  REQUIRE(loaded.ok());
  const std::set<std::string> sources = [&] {
    std::set<std::string> all;
    for (const ConfigLine& line : loaded->lines)
      all.insert(line.variable + " " + line.value + " " + line.source);
    return all;
  }();
  CHECK(sources.count("ROUNDELAY_CYCLE_TIME 1.25 HOROVOD_CYCLE_TIME") == 1);
  CHECK(sources.count("ROUNDELAY_THETA 9 ROUNDELAY_THETA") == 1);
}

TEST_CASE("a bad value is an error that names variable, value, what is allowed and what for", "[config]") {
  CHECK(error_of("ROUNDELAY_THETA", "-1") ==
        "ROUNDELAY_THETA=\"-1\" is not valid: it must be auto or a whole number from 0 on (the size of a "
        "gradient bucket in bytes)");
  CHECK(error_of("HOROVOD_CYCLE_TIME", "(None,)") ==
        "HOROVOD_CYCLE_TIME=\"(None,)\" is not valid: it must be milliseconds from 0 to 31536000000 (a year) "
        "(the longest time in milliseconds that a ready tensor waits for others)");
  CHECK(error_of("ROUNDELAY_BOOTSTRAP", "gloo") ==
        "ROUNDELAY_BOOTSTRAP=\"gloo\" is not valid: it must be one of auto|mpi|store|single (how ranks find "
        "each other)");
  for (const char* bad :
       {"12abc", "", " 12", "12 ", "0x10", "1e3", "1.5", "+5", "9223372036854775808", "-0.0"})
    error_of("HOROVOD_FUSION_THRESHOLD", bad);
  for (const char* bad : {"", "abc", "-1", "nan", "inf", "-inf", "1e300", "1,5", "1s", "0x1p3"})
    error_of("ROUNDELAY_CYCLE_TIME", bad);
  for (const char* bad : {"", "maybe", "1.5", "1 ", "99999999999999999999"})
    error_of("ROUNDELAY_DETERMINISTIC", bad);
  for (const char* bad : {"", "tcp|mpi", "au", "auto "}) error_of("ROUNDELAY_CHANNEL", bad);
  for (const char* bad : {"", "verbose", "2"}) error_of("HOROVOD_LOG_LEVEL", bad);
  // Limits that can never be met, also those that round to nothing.
  for (const char* bad : {"0", "1e-12"}) error_of("ROUNDELAY_PROGRESS_TIMEOUT", bad);
  error_of("ROUNDELAY_STALL_SHUTDOWN_TIME_SECONDS", "1e-12");
  error_of("ROUNDELAY_CACHE_CAPACITY", "65537");
}

TEST_CASE("switches take words and Horovod's numbers", "[config]") {
  for (const char* on : {"1", "true", "TRUE", "yes", "on", "On", "2", "100"})
    CHECK(config_of({{"HOROVOD_STALL_CHECK_DISABLE", on}}).stall_check_disable);
  for (const char* off : {"0", "false", "no", "off", "-1"})
    CHECK_FALSE(config_of({{"HOROVOD_STALL_CHECK_DISABLE", off}}).stall_check_disable);
}

TEST_CASE("theta is a size, or auto, which is another value than the size that auto means", "[config]") {
  CHECK(config_of({}).theta.automatic);
  CHECK(config_of({{"ROUNDELAY_THETA", "Auto"}}).theta.number == Config{}.theta.number);
  CHECK(config_of({{"ROUNDELAY_THETA", "AUTO"}}).shared_settings().empty());
  const Config fixed = config_of({{"ROUNDELAY_THETA", std::to_string(Config{}.theta.number)}});
  CHECK_FALSE(fixed.theta.automatic);
  CHECK_FALSE(fixed.shared_settings().empty());
  for (const char* bad : {"", "auto ", "automatic", "-1"}) error_of("ROUNDELAY_THETA", bad);
}

TEST_CASE("the cache holds no more ids than a report can carry", "[config]") {
  CHECK(config_of({{"ROUNDELAY_CACHE_CAPACITY", std::to_string(wire::kMaxIds)}}).cache_capacity ==
        static_cast<std::int64_t>(wire::kMaxIds));
}

TEST_CASE("variables of Horovod without counterpart are listed with the reason", "[config]") {
  const Result<LoadedConfig> loaded =
      load({{"HOROVOD_CONTROLLER", "mpi"}, {"HOROVOD_NUM_NCCL_STREAMS", "bad"}});
  REQUIRE(loaded.ok());
  REQUIRE(loaded->no_effect.size() == 2);
  CHECK(loaded->no_effect[0].rfind("HOROVOD_NUM_NCCL_STREAMS has no effect, because ", 0) == 0);
  CHECK(loaded->no_effect[1].rfind("HOROVOD_CONTROLLER has no effect, because ", 0) == 0);
  for (const NoEffect& entry : without_effect())
    for (const Knob& knob : knobs()) CHECK(entry.name != knob.horovod);
}

// Every variable that Horovod reads at run time, without its prefix.
constexpr std::string_view kOfHorovod =
    "FUSION_THRESHOLD CYCLE_TIME CACHE_CAPACITY BATCH_D2D_MEMCOPIES HIERARCHICAL_ALLREDUCE "
    "HIERARCHICAL_ALLGATHER TORUS_ALLREDUCE NUM_NCCL_STREAMS DISABLE_GROUP_FUSION ENABLE_ASYNC_COMPLETION "
    "DYNAMIC_PROCESS_SETS THREAD_AFFINITY MPI_THREADS_DISABLE CONTROLLER CPU_OPERATIONS "
    "ADASUM_MPI_CHUNK_SIZE AUTOTUNE AUTOTUNE_LOG AUTOTUNE_WARMUP_SAMPLES AUTOTUNE_STEPS_PER_SAMPLE "
    "AUTOTUNE_BAYES_OPT_MAX_SAMPLES AUTOTUNE_GAUSSIAN_PROCESS_NOISE TIMELINE TIMELINE_MARK_CYCLES "
    "STALL_CHECK_DISABLE STALL_CHECK_TIME_SECONDS STALL_SHUTDOWN_TIME_SECONDS LOG_LEVEL LOG_HIDE_TIME "
    "DISABLE_NVTX_RANGES ELASTIC GLOO_IFACE GLOO_TIMEOUT_SECONDS GLOO_RENDEZVOUS_ADDR GLOO_RENDEZVOUS_PORT "
    "HOSTNAME RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE START_TIMEOUT ELASTIC_TIMEOUT "
    "SECRET_KEY ENABLE_XLA_OPS CCL_CACHE SPARK_START_TIMEOUT SPARK_USE_LOCAL_RANK_GPU_INDEX "
    "SPARK_PYTHONPATH SPARK_WORK_DIR TEST_GPU MIXED_INSTALL";

TEST_CASE("every variable of Horovod's is a knob or has a reason to be none", "[config]") {
  std::istringstream names{std::string(kOfHorovod)};
  for (std::string name; names >> name;) {
    INFO(name);
    const auto as_knob = std::ranges::count(knobs(), name, &Knob::horovod);
    const auto as_reason = std::ranges::count(without_effect(), name, &NoEffect::name);
    CHECK(as_knob + as_reason == 1);
  }
  for (const NoEffect& entry : without_effect()) CHECK_FALSE(entry.reason.empty());
}

TEST_CASE("what is shown reads back as the same value", "[config]") {
  const Variables set = {{"ROUNDELAY_CYCLE_TIME", "0.1"},
                         {"ROUNDELAY_STALL_CHECK_TIME_SECONDS", "1e-3"},
                         {"ROUNDELAY_LOG_LEVEL", "FATAL"},
                         {"ROUNDELAY_DETERMINISTIC", "ON"},
                         {"ROUNDELAY_START_TIMEOUT", "31536000"}};
  const Result<LoadedConfig> first = load(set);
  REQUIRE(first.ok());
  Variables shown;
  for (const ConfigLine& line : first->lines) shown[line.variable] = line.value;
  CHECK(shown["ROUNDELAY_CYCLE_TIME"] == "0.1");
  const Result<LoadedConfig> second = load(shown);
  REQUIRE(second.ok());
  for (std::size_t i = 0; i < first->lines.size(); ++i)
    CHECK(second->lines[i].value == first->lines[i].value);
  CHECK(second->config.shared_settings() == first->config.shared_settings());
}

TEST_CASE("settings that differ between ranks are named with both values", "[config]") {
  const auto settings = [](const Variables& set) { return config_of(set).shared_settings(); };
  const auto ours = settings({{"ROUNDELAY_THETA", "1000"}, {"HOROVOD_CYCLE_TIME", "2"}});
  const auto theirs = settings({{"ROUNDELAY_CYCLE_TIME", "2"}, {"ROUNDELAY_STRATEGY", "dense:wire=bf16"}});
  const auto [of_us, of_them] = different_settings(ours, theirs);
  CHECK(of_us == "ROUNDELAY_THETA=\"1000\" and ROUNDELAY_STRATEGY=\"\"");
  CHECK(of_them == "ROUNDELAY_THETA=\"auto\" and ROUNDELAY_STRATEGY=\"dense:wire=bf16\"");
  CHECK(different_settings(ours, ours).first.empty());
  CHECK(different_settings({"ROUNDELAY_NEW=\"1\""}, {}).second == "no ROUNDELAY_NEW");
}

TEST_CASE("a long setting is short for other ranks, and differs where it differed", "[config]") {
  const auto strategy = [](const std::string& text) {
    return config_of({{"ROUNDELAY_STRATEGY", text}}).shared_settings().at(0);
  };
  const std::string same(5000, 'a');
  const std::string one = strategy(same + "1");
  const std::string other = strategy(same + "2");
  CHECK(one.size() < 100);
  CHECK(one.find("ROUNDELAY_STRATEGY=\"aaaa") == 0);
  CHECK(different_settings({one}, {other}) == std::pair(one, other));
  std::string umlauts = "x";
  for (int i = 0; i < 50; ++i) umlauts += "\xc3\xa4";
  CHECK(strategy(umlauts).find("\xc3\xa4... (hash ") != std::string::npos);
}

TEST_CASE("a greeting has room for all settings", "[config]") {
  Variables all;
  for (const Knob& knob : knobs()) all["ROUNDELAY_" + std::string(knob.name)] = other_value(knob);
  all["ROUNDELAY_STRATEGY"] = std::string(5000, 'x');
  std::size_t bytes = 0;
  for (const std::string& setting : config_of(all).shared_settings()) bytes += setting.size();
  CHECK(bytes < 2048);  // of connect::kLongestGreeting
}

TEST_CASE("a misspelt ROUNDELAY_ variable is an error with the nearest name", "[config]") {
  const auto check = [](const std::string& name) {
    return load_config([](const std::string&) { return std::nullopt; }, {"PATH", "HOROVOD_WHATEVER", name})
        .status();
  };
  CHECK(check("ROUNDELAY_TETHA").message() ==
        "ROUNDELAY_TETHA is set, but there is no such variable; the nearest is ROUNDELAY_THETA");
  CHECK(check("ROUNDELAY_TIME_LINE").message().find("ROUNDELAY_TIMELINE") != std::string::npos);
  CHECK(check("ROUNDELAY_").code() == StatusCode::kInvalidArgument);
  CHECK(check("ROUNDELAY_CACHE_CAPACITY").ok());
  CHECK(check("ROUNDELAY_MPI_HOME").ok());
  CHECK(check("ROUNDELAY_SECRET_FILE").ok());
  CHECK(check("ROUNDELAY_RUN_ID").ok());
}

}  // namespace
}  // namespace roundelay
