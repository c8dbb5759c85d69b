#include "platform/mpi/session.h"

#include <sched.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "platform/mpi/launch_check.h"
#include "platform/mpi/watchdog.h"

namespace roundelay::mpi {
namespace {

// MPI_Finalize waits for all ranks, and one may well evaluate or save for hours after the others have ended.
constexpr Duration kFinalizeTime = std::chrono::hours(6);
constexpr int kGroupTags = 1 << 14;

std::atomic<Session*> g_session{nullptr};
// Who called MPI_Init_thread: a forked child has its exit handlers, but not its MPI.
pid_t g_starter = -1;

const char* name_of_level(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "MPI_THREAD_MULTIPLE";
  }
}

// "Open MPI v5.0.11" out of a text that goes on with build details.
std::string library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "an unknown MPI";
  const std::string all(text.data(), static_cast<std::size_t>(length));
  return all.substr(0, all.find_first_of(",\n"));
}

}  // namespace

Status check(int code, const char* call) {
  if (code == MPI_SUCCESS) return {};
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  return Status::aborted(std::string(call) + ": " +
                         std::string(text.data(), static_cast<std::size_t>(length)));
}

Session* Session::current() { return g_session.load(); }

Result<Session*> Session::open(const Environment& environment, Deadline deadline) {
  static Mutex opening;
  MutexLock lock(opening);
  if (Session* session = current()) {
    ROUNDELAY_RETURN_IF_ERROR(session->usable());
    return session;
  }
  static Status failure;  // a start is tried once: what failed would fail again
  ROUNDELAY_RETURN_IF_ERROR(failure);
  auto* session = new Session;  // never deleted: MPI keeps its address
  failure = session->start(environment, deadline);
  ROUNDELAY_RETURN_IF_ERROR(failure);
  g_session = session;
  return session;
}

Status Session::start(const Environment& environment, Deadline deadline) {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    return Status::unavailable("MPI was finalised by this process already and cannot be started again");
  }
  if (initialized == 0) {
    const Watchdog watchdog("MPI_Init", deadline);
    const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &thread_level_);
    if (code != MPI_SUCCESS) return Status::unavailable(check(code, "MPI_Init_thread").message());
    ours_ = true;
    g_starter = getpid();
    // After MPI's own handlers were registered: runs before them.
#ifdef __GLIBC__
    on_exit([](int exit_code, void*) { finalize_at_exit(exit_code); }, nullptr);
#else
    std::atexit([] { finalize_at_exit(EXIT_SUCCESS); });
#endif
  }
  if (Status error = ask(); !error.ok()) return Status::unavailable(error.message());
  if (const auto problem = launch_problem(environment, size_, library_)) return Status::unavailable(*problem);
  if (thread_level_ < MPI_THREAD_SERIALIZED) {
    return Status::unavailable(
        library_ + " gives only " + name_of_level(thread_level_) +
        "; roundelay needs MPI_THREAD_SERIALIZED, better MPI_THREAD_MULTIPLE: start MPI "
        "with it (mpi4py: its default), or let roundelay start MPI");
  }
  const Watchdog watchdog("MPI's first exchange", deadline);
  count_cores();
  Group world;
  for (int rank = 0; rank < size_; ++rank) world.ranks.push_back(rank);
  Result<MPI_Comm> base = duplicate_world(deadline);
  if (!base.ok()) return base.status();
  base_ = *base;
  return {};
}

Status Session::ask() {
  library_ = library_version();
  ROUNDELAY_RETURN_IF_ERROR(check(MPI_Query_thread(&thread_level_), "MPI_Query_thread"));
  ROUNDELAY_RETURN_IF_ERROR(check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank"));
  ROUNDELAY_RETURN_IF_ERROR(check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size"));
  if (ours_) {
    ROUNDELAY_RETURN_IF_ERROR(
        check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
  }
  // MPI_Finalize deletes this attribute first, whoever calls it: from then on no call of ours may enter MPI.
  int key = MPI_KEYVAL_INVALID;
  ROUNDELAY_RETURN_IF_ERROR(check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &key, this),
                                  "MPI_Comm_create_keyval"));
  return check(MPI_Comm_set_attr(MPI_COMM_SELF, key, this), "MPI_Comm_set_attr");
}

int Session::on_finalize(MPI_Comm /*communicator*/, int /*key*/, void* attribute, void* /*extra*/) {
  static_cast<Session*>(attribute)->finalized_ = true;
  return MPI_SUCCESS;
}

void Session::count_cores() {
  MPI_Comm node = MPI_COMM_NULL;
  int ranks = size_;
  if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node) == MPI_SUCCESS) {
    MPI_Comm_size(node, &ranks);
    MPI_Comm_free(&node);
  }
  cpu_set_t cores;
  CPU_ZERO(&cores);
  int allowed = static_cast<int>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) {
    // Ranks bound to a core each have it for themselves.
    allowed = CPU_COUNT(&cores) < allowed ? ranks : CPU_COUNT(&cores);
  }
  crowded_ = ranks > allowed;
}

std::string Session::description() const { return library_ + ", " + name_of_level(thread_level_); }

Result<MPI_Comm> Session::duplicate_world(Deadline deadline) {
  // On the heap: should the deadline pass, MPI may still write here.
  auto made = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  const MPI_Comm parent = base_ == MPI_COMM_NULL ? MPI_COMM_WORLD : base_;
  ROUNDELAY_RETURN_IF_ERROR(check(MPI_Comm_idup(parent, made.get(), &request), "MPI_Comm_idup"));
  for (int done = 0; done == 0;) {
    ROUNDELAY_RETURN_IF_ERROR(check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test"));
    if (done == 0 && deadline.passed()) {
      static_cast<void>(made.release());
      poison("not all ranks came to make a communicator");
      return Status::aborted("not all ranks came to make a communicator of the world before the deadline");
    }
    if (done == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  ROUNDELAY_RETURN_IF_ERROR(
      check(MPI_Comm_set_errhandler(*made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
  return *made;
}

Result<MPI_Comm> Session::communicator(const Group& group, Deadline deadline) {
  ROUNDELAY_RETURN_IF_ERROR(usable());
  if (group.size() == size_) return duplicate_world(deadline);
  const Watchdog watchdog("making a communicator for process set " + std::to_string(group.id), deadline);
  MPI_Group all = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  Status status = check(MPI_Comm_group(base_, &all), "MPI_Comm_group");
  if (status.ok()) {
    status = check(MPI_Group_incl(all, group.size(), group.ranks.data(), &members), "MPI_Group_incl");
  }
  if (status.ok()) {
    const int tag = static_cast<int>(group.id % kGroupTags);
    status = check(MPI_Comm_create_group(base_, members, tag, &made), "MPI_Comm_create_group");
  }
  if (status.ok()) {
    status = check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  if (members != MPI_GROUP_NULL) MPI_Group_free(&members);
  if (all != MPI_GROUP_NULL) MPI_Group_free(&all);
  if (!status.ok()) return status;
  return made;
}

void Session::release(MPI_Comm communicator) {
  if (usable().ok()) MPI_Comm_free(&communicator);
}

void Session::poison(const std::string& why) {
  MutexLock lock(mutex_);
  if (poison_.empty()) poison_ = why;
  poisoned_ = true;
}

Status Session::usable() const {
  if (finalized_) return Status::unavailable("MPI was finalised");
  if (!poisoned_) return {};
  MutexLock lock(mutex_);
  return Status::unavailable("MPI cannot be used again in this process after an earlier fault: " + poison_);
}

// A rank that fails does not wait for the others, which may be at work for long: its exit code ends the job,
// and to the launcher a rank that ends without MPI_Finalize has failed.
void Session::finalize_at_exit(int exit_code) {
  if (exit_code != EXIT_SUCCESS || getpid() != g_starter) return;
  const Session* session = current();
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0 || (session != nullptr && session->poisoned_)) return;
  const Watchdog watchdog("MPI_Finalize", Deadline::after(kFinalizeTime));
  MPI_Finalize();
}

}  // namespace roundelay::mpi
