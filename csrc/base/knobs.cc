#include "base/knobs.h"

#include <array>
#include <chrono>

namespace roundelay {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::string_view kOurs;  // Horovod has no such knob
constexpr bool kShared = true;
constexpr bool kOwn = false;

// In the order of the struct. cache_capacity's limit is wire::kMaxIds (checked by a test).
const auto kKnobs = std::to_array<Knob>({
    {"FUSION_THRESHOLD", "FUSION_THRESHOLD", IntegerKnob{&Config::fusion_threshold}, kShared,
     "bytes a fused operation may have at most; 0: no fusion"},
    {"THETA", kOurs, AutoIntegerKnob{&Config::theta, &Config::theta_auto}, kShared,
     "bytes of a bucket of gradients, and of ready tensors that start an operation at once; auto: buckets by "
     "measurement, 16 MiB for others"},
    {"GRADIENT_POOL", kOurs, SwitchKnob{&Config::gradient_pool}, kShared,
     "keep an optimizer's gradients in buckets that are reduced where they lie"},
    {"AUTOTUNE", "AUTOTUNE", SwitchKnob{&Config::autotune}, kShared,
     "try sizes of buckets in the first steps and keep the fastest"},
    {"AUTOTUNE_LOG", "AUTOTUNE_LOG", TextKnob{&Config::autotune_log}, kOwn,
     "file that rank 0 appends a JSON line to for each size that was tried; empty: none"},
    {"AUTOTUNE_STEPS_PER_SAMPLE", "AUTOTUNE_STEPS_PER_SAMPLE",
     IntegerKnob{&Config::autotune_steps_per_sample, 1, 1000000}, kShared,
     "steps that each size is tried for"},
    {"CYCLE_TIME", "CYCLE_TIME", DurationKnob{&Config::cycle_time, milliseconds(1), true}, kShared,
     "milliseconds that ready tensors wait for others at most"},
    {"CACHE_CAPACITY", "CACHE_CAPACITY", IntegerKnob{&Config::cache_capacity, 0, 65536}, kShared,
     "names in the response cache; 0: off"},
    {"SCHEDULE_LOCK", kOurs, SwitchKnob{&Config::schedule_lock}, kShared,
     "start what comes in the same sequence in every step as soon as all ranks have it, without negotiating"},
    {"DETERMINISTIC", kOurs, SwitchKnob{&Config::deterministic}, kShared,
     "pin the fusion plan, so that sums do not depend on the order of arrival"},
    {"EXACT_GRADIENTS", kOurs, SwitchKnob{&Config::exact_gradients}, kShared,
     "gradients of allgather, broadcast and reducescatter are those of the sum of all ranks' losses; off: "
     "Horovod's"},
    {"STALL_CHECK_DISABLE", "STALL_CHECK_DISABLE", SwitchKnob{&Config::stall_check_disable}, kShared,
     "do not warn of ranks that submit nothing"},
    {"STALL_CHECK_TIME_SECONDS", "STALL_CHECK_TIME_SECONDS",
     DurationKnob{&Config::stall_check_time, seconds(1)}, kShared,
     "seconds after which missing ranks and their tensors are named"},
    {"STALL_SHUTDOWN_TIME_SECONDS", "STALL_SHUTDOWN_TIME_SECONDS",
     DurationKnob{&Config::stall_shutdown_time, seconds(1), true}, kShared,
     "seconds after which a missing rank is an error; 0: never"},
    {"STALL_STACKS", kOurs, SwitchKnob{&Config::stall_stacks}, kOwn,
     "a rank that others wait for says where its Python is"},
    {"PROGRESS_TIMEOUT", kOurs, DurationKnob{&Config::progress_timeout, seconds(1)}, kShared,
     "seconds without progress, beyond the transfer's own time, after which a running operation fails"},
    {"START_TIMEOUT", "START_TIMEOUT", DurationKnob{&Config::start_timeout, seconds(1)}, kShared,
     "seconds that init waits for all ranks"},
    {"BOOTSTRAP", kOurs, ChoiceKnob{&Config::bootstrap, "auto|mpi|store|single"}, kShared,
     "how ranks find each other; auto: as the launcher's environment says"},
    {"CHANNEL", kOurs, ChoiceKnob{&Config::channel, "auto|shm|tcp|mpi"}, kShared,
     "how control messages travel; auto: shared memory within a node, TCP between nodes"},
    {"FABRIC", kOurs, ChoiceKnob{&Config::fabric, "auto|shm|mpi|c10d"}, kShared,
     "how tensors travel; auto: shared memory within a node; between nodes MPI, or torch's Gloo without it"},
    {"GPU_FABRIC", kOurs, ChoiceKnob{&Config::gpu_fabric, "auto|nccl|staged|two_level"}, kShared,
     "how tensors on GPUs travel; auto: NCCL, or staged through host memory where that cannot be; two_level: "
     "NCCL within a node, host memory between nodes"},
    {"NODE_ID", kOurs, TextKnob{&Config::node_id}, kOwn,
     "what ranks of one node share; empty: hostname and boot id"},
    {"INTERFACE", "GLOO_IFACE", TextKnob{&Config::interface}, kOwn,
     "network interfaces for control messages, comma separated; empty: any"},
    {"TIMELINE", "TIMELINE", TextKnob{&Config::timeline}, kOwn,
     "file for the timeline, or DYNAMIC for start_timeline(); empty: off"},
    {"TIMELINE_MARK_CYCLES", "TIMELINE_MARK_CYCLES", SwitchKnob{&Config::timeline_mark_cycles}, kOwn,
     "mark each order in the timeline"},
    {"LOG_LEVEL", "LOG_LEVEL", LogLevelKnob{&Config::log_level}, kOwn,
     "least severe messages that are shown"},
    {"LOG_HIDE_TIME", "LOG_HIDE_TIME", SwitchKnob{&Config::log_hide_time}, kOwn,
     "messages without the time of day"},
});

constexpr std::string_view kFewCandidates =
    "ROUNDELAY_AUTOTUNE tries the few sizes that a cost model prefers, each for as many steps";
constexpr std::string_view kOneLevel =
    "levels follow from where the ranks are: shared memory inside the nodes, one more fabric between them";
constexpr std::string_view kGpuAsItIs =
    "on GPUs packing is batched, completion asynchronous, a process set has one stream, and NVTX no ranges";
constexpr std::string_view kNoGloo =
    "ranks find each other through the launcher, without a rendezvous server";
constexpr std::string_view kNoElastic =
    "the number of ranks is fixed while a job runs; elastic training comes with a later version";
constexpr std::string_view kByLauncher = "ranks are numbered by the bootstrap, not by the environment";
constexpr std::string_view kOtherFramework = "only PyTorch is supported";
constexpr std::string_view kNoSpark = "Spark is not supported";
constexpr std::string_view kHorovodsTests = "it steers Horovod's own tests";

constexpr auto kWithoutEffect = std::to_array<NoEffect>({
    {"AUTOTUNE_WARMUP_SAMPLES", kFewCandidates},
    {"AUTOTUNE_BAYES_OPT_MAX_SAMPLES", kFewCandidates},
    {"AUTOTUNE_GAUSSIAN_PROCESS_NOISE", kFewCandidates},
    {"HIERARCHICAL_ALLREDUCE", kOneLevel},
    {"HIERARCHICAL_ALLGATHER", kOneLevel},
    {"TORUS_ALLREDUCE", kOneLevel},
    {"ADASUM_MPI_CHUNK_SIZE", "messages are cut to what the fabric carries at once, whatever the operation"},
    {"BATCH_D2D_MEMCOPIES", kGpuAsItIs},
    {"NUM_NCCL_STREAMS", kGpuAsItIs},
    {"ENABLE_ASYNC_COMPLETION", kGpuAsItIs},
    {"DISABLE_NVTX_RANGES", kGpuAsItIs},
    {"DISABLE_GROUP_FUSION",
     "a group is all or nothing whatever it is fused with; ROUNDELAY_FUSION_THRESHOLD=0 fuses nothing"},
    {"DYNAMIC_PROCESS_SETS", "process sets can always be added and removed"},
    {"THREAD_AFFINITY", "a rank's threads share the CPUs that its launcher gives it"},
    {"MPI_THREADS_DISABLE", "the thread level that MPI grants decides"},
    {"CONTROLLER", "ROUNDELAY_BOOTSTRAP and ROUNDELAY_CHANNEL choose what the controller chose"},
    {"CPU_OPERATIONS", "ROUNDELAY_FABRIC chooses what moves the data"},
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
