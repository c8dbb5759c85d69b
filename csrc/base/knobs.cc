#include "base/knobs.h"

#include <array>
#include <chrono>

namespace roundelay {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::string_view kOurs;  // for knobs that Horovod does not have
constexpr bool kShared = true;
constexpr bool kOwn = false;

// In the order of the fields of Config. A test checks that cache_capacity's limit equals wire::kMaxIds.
const auto kKnobs = std::to_array<Knob>({
    {"FUSION_THRESHOLD", "FUSION_THRESHOLD", IntegerKnob{&Config::fusion_threshold}, kShared,
     "the largest fused operation in bytes; 0 turns fusion off"},
    {"THETA", kOurs, AutoIntegerKnob{&Config::theta, &Config::theta_auto}, kShared,
     "the size of a gradient bucket in bytes; other ready tensors start an operation when they reach this "
     "size; auto: measurements choose the buckets, other tensors start at 16 MiB"},
    {"GRADIENT_POOL", kOurs, SwitchKnob{&Config::gradient_pool}, kShared,
     "an optimizer's gradients lie in buckets and are reduced in place"},
    {"STRATEGY", kOurs, TextKnob{&Config::strategy}, kShared,
     "the strategy of every DistributedOptimizer that is given none, such as dense:wire=bf16; empty: dense"},
    {"AUTOTUNE", "AUTOTUNE", SwitchKnob{&Config::autotune}, kShared,
     "the first steps try several bucket sizes and keep the fastest"},
    {"AUTOTUNE_LOG", "AUTOTUNE_LOG", TextKnob{&Config::autotune_log}, kOwn,
     "the file to which rank 0 appends a JSON line for each size that it tried; empty: no file"},
    {"AUTOTUNE_STEPS_PER_SAMPLE", "AUTOTUNE_STEPS_PER_SAMPLE",
     IntegerKnob{&Config::autotune_steps_per_sample, 1, 1000000}, kShared,
     "the number of steps that try each size"},
    {"CYCLE_TIME", "CYCLE_TIME", DurationKnob{&Config::cycle_time, milliseconds(1), true}, kShared,
     "the longest time in milliseconds that a ready tensor waits for others"},
    {"CACHE_CAPACITY", "CACHE_CAPACITY", IntegerKnob{&Config::cache_capacity, 0, 65536}, kShared,
     "the number of names in the response cache; 0 turns the cache off"},
    {"SCHEDULE_LOCK", kOurs, SwitchKnob{&Config::schedule_lock}, kShared,
     "operations that repeat in the same sequence in every step start without negotiation as soon as all "
     "ranks have submitted them"},
    {"DETERMINISTIC", kOurs, SwitchKnob{&Config::deterministic}, kShared,
     "the fusion plan is fixed, so that sums do not depend on the order of arrival"},
    {"EXACT_GRADIENTS", kOurs, SwitchKnob{&Config::exact_gradients}, kShared,
     "allgather, broadcast and reducescatter give the gradients of the sum of all ranks' losses; off: they "
     "give Horovod's gradients"},
    {"STALL_CHECK_DISABLE", "STALL_CHECK_DISABLE", SwitchKnob{&Config::stall_check_disable}, kShared,
     "no warning names the ranks that submit nothing"},
    {"STALL_CHECK_TIME_SECONDS", "STALL_CHECK_TIME_SECONDS",
     DurationKnob{&Config::stall_check_time, seconds(1)}, kShared,
     "the time in seconds after which a warning names the missing ranks and their tensors"},
    {"STALL_SHUTDOWN_TIME_SECONDS", "STALL_SHUTDOWN_TIME_SECONDS",
     DurationKnob{&Config::stall_shutdown_time, seconds(1), true}, kShared,
     "the time in seconds after which a missing rank is an error; 0: it never is"},
    {"STALL_STACKS", kOurs, SwitchKnob{&Config::stall_stacks}, kOwn,
     "a rank that others wait for reports its Python stack"},
    {"PROGRESS_TIMEOUT", kOurs, DurationKnob{&Config::progress_timeout, seconds(1)}, kShared,
     "the time in seconds without progress, beyond the transfer's own time, after which a running "
     "operation fails"},
    {"START_TIMEOUT", "START_TIMEOUT", DurationKnob{&Config::start_timeout, seconds(1)}, kShared,
     "the time in seconds that init() waits for all ranks"},
    {"BOOTSTRAP", kOurs, ChoiceKnob{&Config::bootstrap, "auto|mpi|store|single"}, kShared,
     "how ranks find each other; auto: the launcher's environment decides"},
    {"CHANNEL", kOurs, ChoiceKnob{&Config::channel, "auto|shm|tcp|mpi"}, kShared,
     "how control messages travel; auto: shared memory within a node, TCP between nodes"},
    {"FABRIC", kOurs, ChoiceKnob{&Config::fabric, "auto|shm|mpi|c10d"}, kShared,
     "how tensors travel; auto: shared memory within a node; between nodes MPI, or torch's Gloo if there "
     "is no MPI"},
    {"GPU_FABRIC", kOurs, ChoiceKnob{&Config::gpu_fabric, "auto|nccl|staged|two_level"}, kShared,
     "how tensors on GPUs travel; auto: NCCL, or host memory where NCCL cannot be used; two_level: NCCL "
     "within a node, host memory between nodes"},
    {"NODE_ID", kOurs, TextKnob{&Config::node_id}, kOwn,
     "a name that all ranks of one node share; empty: hostname and boot id"},
    {"INTERFACE", "GLOO_IFACE", TextKnob{&Config::interface}, kOwn,
     "the network interfaces for control messages, comma separated; empty: any"},
    {"TIMELINE", "TIMELINE", TextKnob{&Config::timeline}, kOwn,
     "the file for the timeline, or DYNAMIC to wait for start_timeline(); empty: no timeline"},
    {"TIMELINE_MARK_CYCLES", "TIMELINE_MARK_CYCLES", SwitchKnob{&Config::timeline_mark_cycles}, kOwn,
     "the timeline marks each order"},
    {"LOG_LEVEL", "LOG_LEVEL", LogLevelKnob{&Config::log_level}, kOwn,
     "the least severe messages that are shown"},
    {"LOG_HIDE_TIME", "LOG_HIDE_TIME", SwitchKnob{&Config::log_hide_time}, kOwn,
     "messages do not show the time of day"},
});

constexpr std::string_view kFewCandidates =
    "ROUNDELAY_AUTOTUNE tries the few sizes that a cost model prefers, each for the same number of steps";
constexpr std::string_view kOneLevel =
    "Roundelay chooses the levels itself: shared memory inside the nodes, another fabric between them";
constexpr std::string_view kGpuAsItIs =
    "on GPUs packing is batched, completion is asynchronous, a process set has one stream; no NVTX ranges";
constexpr std::string_view kNoGloo =
    "ranks find each other through the launcher, without a rendezvous server";
constexpr std::string_view kNoElastic =
    "the number of ranks is fixed while a job runs; elastic training comes with a later version";
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
    {"CONTROLLER", "ROUNDELAY_BOOTSTRAP and ROUNDELAY_CHANNEL replace it"},
    {"CPU_OPERATIONS", "ROUNDELAY_FABRIC replaces it"},
    {"CCL_CACHE", "oneCCL is not supported"},
    {"GLOO_TIMEOUT_SECONDS", "ROUNDELAY_START_TIMEOUT and ROUNDELAY_PROGRESS_TIMEOUT are the time limits"},
    {"GLOO_RENDEZVOUS_ADDR", kNoGloo},
    {"GLOO_RENDEZVOUS_PORT", kNoGloo},
    {"HOSTNAME", "ROUNDELAY_NODE_ID names a node"},
    {"RANK", kByLauncher},
    {"SIZE", kByLauncher},
    {"LOCAL_RANK", kByLauncher},
    {"LOCAL_SIZE", kByLauncher},
    {"CROSS_RANK", kByLauncher},
    {"CROSS_SIZE", kByLauncher},
    {"SECRET_KEY", "the launcher has no services to protect"},
    {"ELASTIC", kNoElastic},
    {"ELASTIC_TIMEOUT", kNoElastic},
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
