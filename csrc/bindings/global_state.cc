#include "bindings/global_state.h"

#include <dlfcn.h>
#include <pthread.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "adapter/gil.h"
#include "adapter/operand.h"
#include "adapter/process.h"
#include "base/annotations.h"
#include "base/version.h"
#include "bindings/config.h"
#include "bindings/errors.h"
#include "bindings/secret.h"
#include "bindings/topics.h"
#include "bindings/whereabouts.h"

namespace roundelay::bindings {
namespace {

struct GlobalState {
  Mutex change;  // init and shutdown hold it all the time
  Mutex mutex;   // held for a moment only, and never while a thread takes the GIL
  std::shared_ptr<const LoadedConfig> config GUARDED_BY(mutex);  // the last init()'s
  // Counts the inits by the ranks in the job. Inits with a communicator count together.
  std::map<std::pair<std::vector<int>, bool>, std::uint32_t> generation GUARDED_BY(change);
  std::shared_ptr<PythonWhereabouts> whereabouts GUARDED_BY(change);
  gpu::GpuParts gpu GUARDED_BY(change);
  std::atomic<bool> used{false};  // init() was called
  // Of an elastic job: the last generation that is over, the one that starts, and whether it is over, too.
  std::uint32_t over GUARDED_BY(mutex) = 0;
  std::uint32_t starting GUARDED_BY(mutex) = 0;
  std::atomic<bool> given_up{false};
};

// Never destroyed: at exit, and in a forked child, other threads may still use it or hold its locks.
GlobalState& global_state() {
  static auto& state = *new GlobalState;
  return state;
}

void in_forked_child() {
  if (global_state().used) adapter::note_fork();
}

Result<runtime::Backend*> load_backend(const std::string& path) {
  // RTLD_GLOBAL, because plug-ins of the MPI library look for its symbols globally. The module is never
  // unloaded, as MPI lives until exit.
  void* module = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) return Status::unavailable("cannot load " + path + ": " + ::dlerror());
  const auto entry = reinterpret_cast<runtime::BackendEntry>(::dlsym(module, runtime::kBackendEntry));
  if (entry == nullptr) return Status::unavailable(path + " is no module of Roundelay");
  runtime::Backend* backend = entry();
  if (backend->version() != version())
    return Status::unavailable(path + " is of version " + backend->version() + ", the core of version " +
                               version() + "; install the package again");
  return backend;
}

using bootstrap::Rendezvous;

// Returns the timeline's file of an elastic job's generation: the first one's is the given one, "job.json",
// the next one's "job.2.json".
std::string timeline_of(const std::filesystem::path& path, std::uint32_t generation) {
  if (generation < 2 || path.empty() || path == "DYNAMIC") return path;
  const std::string name =
      path.stem().string() + "." + std::to_string(generation) + path.extension().string();
  return std::filesystem::path(path).replace_filename(name);
}

// Begins an elastic job's generation, or another init (0).
void begin_generation(std::uint32_t generation) {
  GlobalState& the = global_state();
  MutexLock lock(the.mutex);
  the.starting = generation;
  the.given_up = generation != 0 && generation <= the.over;
}

// Ends the init() of a generation, running or yet to come, before its deadline. Any thread may call it.
void give_up_generation(std::uint32_t generation) {
  GlobalState& the = global_state();
  MutexLock lock(the.mutex);
  the.over = std::max(the.over, generation);
  if (the.starting != 0 && the.starting <= the.over) the.given_up = true;
}

Status start(LoadedConfig loaded, const std::optional<std::string>& backend_path, runtime::Start with) {
  GlobalState& the = global_state();
  MutexLock changing(the.change);
  if (adapter::has_context()) return {};
  runtime::Backend* backend = nullptr;
  if (backend_path) {
    Result<runtime::Backend*> result = load_backend(*backend_path);
    if (!result.ok()) return result.status();
    backend = *result;
  }
  the.used = true;
  with.gpu = the.gpu;
  the.whereabouts = std::make_shared<PythonWhereabouts>();
  with.whereabouts = the.whereabouts;
  begin_generation(with.generation);
  loaded.config.timeline = timeline_of(loaded.config.timeline, with.generation);
  with.given_up = &the.given_up;
  with.ranks_changed = with.generation > 1;
  if (with.generation == 0) with.generation = ++the.generation[{with.ranks, with.communicator.has_value()}];
  auto context = runtime::Context::create(loaded.config, backend, with);
  if (!context.ok()) return context.status();
  {
    MutexLock lock(the.mutex);
    the.config = std::make_shared<const LoadedConfig>(std::move(loaded));
  }
  adapter::exchange_context(std::move(context).value());
  return {};
}

void init(const std::optional<std::string>& backend_path, const std::optional<Rendezvous>& rendezvous,
          const std::vector<int>& ranks, const std::optional<int>& communicator,
          const std::string& launcher_rack, const std::string& tuning, const std::string& tuning_error,
          const py::bytes& secret, std::uint32_t generation) {
  check(adapter::refuse_in_child());
  LoadedConfig loaded = load_config_from_environment();
  runtime::Start with;
  with.rendezvous = rendezvous;
  with.ranks = ranks;
  with.communicator = communicator;
  with.launcher_rack = launcher_rack;
  with.tuning = tuning;
  with.tuning_error = tuning_error;
  with.secret = key_of(secret);
  with.generation = generation;
  Status status;
  {
    const adapter::GilReleased no_gil;
    status = start(std::move(loaded), backend_path, std::move(with));
  }
  check(status);
}

// Frees the tensors of handles that were never synchronized, unless the medium may still write to them.
void drop_operands(runtime::Context& context) {
  for (const complete::Handle handle : adapter::operands().handles()) {
    const std::optional<Status> status = context.wait(handle, Deadline::at(steady_now()));
    adapter::OperandPtr operand = adapter::operands().take(handle);
    if (!status || status->code() == StatusCode::kAborted) {
      (void)operand.release();
    } else if (operand) {
      adapter::operands().retire(std::move(operand));
    }
  }
  adapter::reclaim_operands();
}

void shutdown() {
  GlobalState& the = global_state();
  if (!adapter::refuse_in_child().ok()) return;  // a child calls this when it exits
  std::shared_ptr<runtime::Context> context;
  {
    const adapter::GilReleased no_gil;
    MutexLock changing(the.change);
    context = adapter::exchange_context(nullptr);
    if (context) context->shutdown();
    if (the.whereabouts) the.whereabouts->close();
  }
  if (!context) return;
  drop_operands(*context);
  const adapter::GilReleased no_gil;  // the context's destructor joins threads
  context = nullptr;
}

// Tells the peers that the interpreter ends by an unhandled exception. Does nothing before init.
void fail(const std::string& why) {
  if (!adapter::has_context()) return;
  const auto context = global_context();
  const adapter::GilReleased no_gil;
  context->fail(why);
}

// Returns the levels, innermost first: the name of each, and its parts' names and ranks.
auto topology() {
  using PartTuple = std::pair<std::string, std::vector<int>>;
  std::vector<std::pair<std::string, std::vector<PartTuple>>> levels;
  for (const bootstrap::Level& level : global_context()->topology().levels) {
    auto& parts = levels.emplace_back(level.name, std::vector<PartTuple>()).second;
    for (const bootstrap::Part& part : level.parts) parts.emplace_back(part.name, part.ranks);
  }
  return levels;
}

// Returns the levels, innermost first, with their parts, and alpha and W of their links; the plans, of which
// the first one is used, with the members, the first and the last level of each stage; and the algorithm.
auto allreduce_ways() {
  const runtime::AllreduceWays& ways = global_context()->allreduce_ways();
  std::vector<std::tuple<int, double, double>> levels;
  for (const auto& level : ways.cluster.levels)
    levels.emplace_back(level.parts, level.link.latency, level.link.bandwidth);
  std::vector<std::vector<std::tuple<int, std::size_t, std::size_t>>> plans;
  for (const runtime::AllreduceWays::Stages& plan : ways.plans) {
    auto& stages = plans.emplace_back();
    for (const auto& stage : plan) stages.emplace_back(stage.members, stage.first_level, stage.last_level);
  }
  return std::tuple(std::move(levels), std::move(plans), ways.algorithm);
}

// Returns the getter of one member of this process's rank info.
template <typename T>
auto place(T bootstrap::RankInfo::*member) {
  return [member] { return global_context()->rank_info().*member; };
}

}  // namespace

std::shared_ptr<runtime::Context> global_context() { return value_of(adapter::current_context()); }

std::shared_ptr<const LoadedConfig> global_config() {
  static_cast<void>(global_context());  // raises without one
  MutexLock lock(global_state().mutex);
  return global_state().config;
}

void set_gpu_parts(const gpu::GpuParts& parts) {
  MutexLock changing(global_state().change);
  global_state().gpu = parts;
}

gpu::GpuParts gpu_parts() {
  MutexLock reading(global_state().change);
  return global_state().gpu;
}

void bind_global_state(py::module_& module) {
  ::pthread_atfork(nullptr, nullptr, in_forked_child);
  py::class_<Rendezvous>(module, "Rendezvous")
      .def(py::init<int, int, std::string, std::uint16_t, bool, std::optional<int>, std::string,
                    std::optional<int>, std::optional<int>>(),
           py::kw_only(), py::arg("rank"), py::arg("size"), py::arg("host"), py::arg("port"),
           py::arg("serve"), py::arg("listener"), py::arg("job"), py::arg("local_rank"),
           py::arg("local_size"));
  module.def("init", init, py::arg("backend_path"), py::arg("rendezvous") = std::nullopt,
             py::arg("ranks") = std::vector<int>(), py::arg("communicator") = std::nullopt,
             py::arg("launcher_rack") = "", py::arg("tuning") = "", py::arg("tuning_error") = "",
             py::arg("secret") = py::bytes(std::string(trust::kTrustBytes, '\0')), py::arg("generation") = 0);
  module.def("give_up_generation", give_up_generation, py::arg("generation"));
  module.def("shutdown", shutdown);
  module.def("is_initialized", adapter::has_context);
  module.def("after_fork", in_forked_child);
  module.def("fail", fail, py::arg("why"));
  module.def("rank", place(&bootstrap::RankInfo::rank));
  module.def("size", place(&bootstrap::RankInfo::size));
  module.def("local_rank", place(&bootstrap::RankInfo::local_rank));
  module.def("local_size", place(&bootstrap::RankInfo::local_size));
  module.def("cross_rank", place(&bootstrap::RankInfo::cross_rank));
  module.def("cross_size", place(&bootstrap::RankInfo::cross_size));
  module.def("is_homogeneous", place(&bootstrap::RankInfo::homogeneous));
  module.def("topology", topology);
  module.def("allreduce_ways", allreduce_ways);
  module.def("transports", [] {
    const auto context = global_context();
    return std::map<std::string, std::string>{{"bootstrap", context->bootstrap_name()},
                                              {"channel", context->channel_name()},
                                              {"fabric", context->fabric_name()}};
  });
  module.def("stats", [] { return global_context()->stats(); });
  module.def(
      "backend_description",
      [](const std::string& path) {
        const adapter::GilReleased no_gil;
        Result<runtime::Backend*> backend = load_backend(path);
        if (!backend.ok()) throw std::runtime_error(backend.status().message());
        return (*backend)->description();
      },
      py::arg("path"));
}

}  // namespace roundelay::bindings
