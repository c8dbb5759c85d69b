#include "base/knobs.h"

#include <array>
#include <chrono>

#include "base/algorithms.h"

namespace roundelay {
namespace {

// The words of knobs.def
constexpr std::string_view kOurs;  // for knobs that Horovod does not have
constexpr bool kShared = true;
constexpr bool kOwn = false;
constexpr Duration kSeconds = std::chrono::seconds(1);
constexpr Duration kMilliseconds = std::chrono::milliseconds(1);
constexpr bool kOrZero = true;
constexpr bool kLaunchers = true;

#define KNOB(type, member, fallback, name, horovod, scope, meaning, ...) \
  Knob{name, horovod, KnobOf<type>{&Config::member __VA_OPT__(, ) __VA_ARGS__}, scope, meaning},
const auto kKnobs = std::to_array<Knob>({
#include "base/knobs.def"
});
#undef KNOB

constexpr std::string_view kFewCandidates =
    "ROUNDELAY_AUTOTUNE tries the few sizes that a cost model prefers, each for the same number of steps";
constexpr std::string_view kOneLevel =
    "Roundelay chooses the levels itself: shared memory inside the nodes, another fabric between them";
constexpr std::string_view kGpuAsItIs =
    "on GPUs packing is batched, completion is asynchronous, a process set has one stream; no NVTX ranges";
constexpr std::string_view kNoGloo =
    "ranks find each other through the launcher, without a rendezvous server";
constexpr std::string_view kByElasticJobs = "roundelayrun's --min-np makes a job elastic, and reads it";
constexpr std::string_view kByLauncher = "the bootstrap numbers the ranks, the environment does not";
constexpr std::string_view kOtherFramework = "only PyTorch is supported";
constexpr std::string_view kNoSpark = "Spark is not supported";
constexpr std::string_view kHorovodsTests = "it controls Horovod's own tests";

constexpr auto kWithoutEffect = std::to_array<NoEffect>({
    {"AUTOTUNE_WARMUP_SAMPLES", kFewCandidates},
    {"AUTOTUNE_BAYES_OPT_MAX_SAMPLES", kFewCandidates},
    {"AUTOTUNE_GAUSSIAN_PROCESS_NOISE", kFewCandidates},
    {"HIERARCHICAL_ALLREDUCE", kOneLevel},
    {"HIERARCHICAL_ALLGATHER", kOneLevel},
    {"TORUS_ALLREDUCE", kOneLevel},
    {"ADASUM_MPI_CHUNK_SIZE", "the fabric chooses the size of messages, for every operation"},
    {"BATCH_D2D_MEMCOPIES", kGpuAsItIs},
    {"NUM_NCCL_STREAMS", kGpuAsItIs},
    {"ENABLE_ASYNC_COMPLETION", kGpuAsItIs},
    {"DISABLE_NVTX_RANGES", kGpuAsItIs},
    {"DISABLE_GROUP_FUSION", "a group always runs as a whole; ROUNDELAY_FUSION_THRESHOLD=0 turns fusion off"},
    {"DYNAMIC_PROCESS_SETS", "process sets can always be added and removed"},
    {"THREAD_AFFINITY", "a rank's threads share the CPUs that the launcher gives the rank"},
    {"MPI_THREADS_DISABLE", "Roundelay uses the thread level that MPI grants"},
    {"CONTROLLER", "ROUNDELAY_BOOTSTRAP and ROUNDELAY_CHANNEL replace it", kLaunchers},
    {"CPU_OPERATIONS", "ROUNDELAY_FABRIC replaces it", kLaunchers},
    {"CCL_CACHE", "oneCCL is not supported"},
    {"GLOO_TIMEOUT_SECONDS", "ROUNDELAY_START_TIMEOUT and ROUNDELAY_PROGRESS_TIMEOUT are the time limits"},
    {"GLOO_RENDEZVOUS_ADDR", kNoGloo},
    {"GLOO_RENDEZVOUS_PORT", kNoGloo},
    {"HOSTNAME", "ROUNDELAY_NODE_ID names a node", kLaunchers},
    {"RANK", kByLauncher, kLaunchers},
    {"SIZE", kByLauncher, kLaunchers},
    {"LOCAL_RANK", kByLauncher, kLaunchers},
    {"LOCAL_SIZE", kByLauncher, kLaunchers},
    {"CROSS_RANK", kByLauncher, kLaunchers},
    {"CROSS_SIZE", kByLauncher, kLaunchers},
    {"SECRET_KEY", "the launcher has no services to protect"},
    {"ELASTIC", kByElasticJobs, kLaunchers},
    {"ELASTIC_TIMEOUT", kByElasticJobs, kLaunchers},
    {"ENABLE_XLA_OPS", kOtherFramework},
    {"SPARK_START_TIMEOUT", kNoSpark},
    {"SPARK_USE_LOCAL_RANK_GPU_INDEX", kNoSpark},
    {"SPARK_PYTHONPATH", kNoSpark},
    {"SPARK_WORK_DIR", kNoSpark},
    {"TEST_GPU", kHorovodsTests},
    {"MIXED_INSTALL", kHorovodsTests},
});

}  // namespace

std::span<const Knob> knobs() { return kKnobs; }
std::span<const NoEffect> without_effect() { return kWithoutEffect; }

}  // namespace roundelay
