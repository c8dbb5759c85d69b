#include "platform/mpi/session.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "base/cores.h"
#include "platform/mpi/launch_check.h"
#include "platform/mpi/time_limit.h"

namespace roundelay::mpi {
namespace {

// MPI_Finalize waits for all ranks, and one rank may evaluate or save for hours after the others have ended.
constexpr Duration kFinalizeTime = std::chrono::hours(6);
constexpr int kGroupTags = 1 << 14;

std::atomic<Session*> g_session{nullptr};
// The process that called MPI_Init_thread. A forked child inherits its exit handlers, but cannot use its MPI.
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

// Makes a communicator of these ranks of `parent` that returns errors. Collective over the ranks.
Result<MPI_Comm> create_group(MPI_Comm parent, const std::vector<int>& ranks, int tag) {
  MPI_Group all = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  Status status = check(MPI_Comm_group(parent, &all), "MPI_Comm_group");
  if (status.ok()) {
    status =
        check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members), "MPI_Group_incl");
  }
  if (status.ok()) {
    status = check(MPI_Comm_create_group(parent, members, tag, &made), "MPI_Comm_create_group");
  }
  if (status.ok()) {
    status = check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  if (members != MPI_GROUP_NULL) MPI_Group_free(&members);
  if (all != MPI_GROUP_NULL) MPI_Group_free(&all);
  if (!status.ok()) return status;
  return made;
}

}  // namespace

std::string library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "an unknown MPI";
  const std::string all(text.data(), static_cast<std::size_t>(length));
  return all.substr(0, all.find_first_of(",\n"));  // drops the details of the build
}

Status check(int code, const char* call) {
  if (code == MPI_SUCCESS) return {};
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  return Status::aborted(std::string(call) + ": " +
                         std::string(text.data(), static_cast<std::size_t>(length)));
}

Session* Session::current() { return g_session.load(); }

Result<Session*> Session::open(const Environment& environment, const Members& members, Deadline deadline) {
  static Mutex opening;
  MutexLock lock(opening);
  if (current() == nullptr) {
    static Status failure;  // a second start would fail as the first did
    ROUNDELAY_RETURN_IF_ERROR(failure);
    auto* session = new Session;  // never deleted, because MPI keeps its address
    failure = session->start(environment, deadline);
    ROUNDELAY_RETURN_IF_ERROR(failure);
    g_session = session;
  }
  Session* session = current();
  ROUNDELAY_RETURN_IF_ERROR(session->usable());
  ROUNDELAY_RETURN_IF_ERROR(session->enter(members, deadline));
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
    const TimeLimit limit("MPI_Init", deadline);
    const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &thread_level_);
    if (code != MPI_SUCCESS) return Status::unavailable(check(code, "MPI_Init_thread").message());
    ours_ = true;
    g_starter = getpid();
    // Registered after MPI's own handlers, so it runs before them.
#ifdef __GLIBC__
    on_exit([](int exit_code, void*) { finalize_at_exit(exit_code); }, nullptr);
#else
    std::atexit([] { finalize_at_exit(EXIT_SUCCESS); });
#endif
  }
  if (Status error = ask(environment); !error.ok()) return Status::unavailable(error.message());
  if (thread_level_ < MPI_THREAD_SERIALIZED) {
    return Status::unavailable(
        library_ + " gives only " + name_of_level(thread_level_) +
        "; roundelay needs MPI_THREAD_SERIALIZED, better MPI_THREAD_MULTIPLE: start MPI "
        "with it (mpi4py: its default), or let roundelay start MPI");
  }
  return {};
}

Status Session::ask(const Environment& environment) {
  library_ = library_version();
  ROUNDELAY_RETURN_IF_ERROR(check(MPI_Query_thread(&thread_level_), "MPI_Query_thread"));
  int started = 0;
  ROUNDELAY_RETURN_IF_ERROR(check(MPI_Comm_size(MPI_COMM_WORLD, &started), "MPI_Comm_size"));
  if (const auto problem = launch_problem(environment, started, library_)) {
    return Status::unavailable(*problem);
  }
  if (ours_) {
    ROUNDELAY_RETURN_IF_ERROR(
        check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
  }
  // MPI_Finalize deletes this attribute first, whoever calls it. After that no call of this class may enter
  // MPI.
  int key = MPI_KEYVAL_INVALID;
  ROUNDELAY_RETURN_IF_ERROR(check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &key, this),
                                  "MPI_Comm_create_keyval"));
  return check(MPI_Comm_set_attr(MPI_COMM_SELF, key, this), "MPI_Comm_set_attr");
}

Status Session::enter(const Members& members, Deadline deadline) {
  // A user's communicator is never reused: the user may have freed it and made another with the same handle.
  if (base_ != MPI_COMM_NULL && members == members_ && !members.communicator) return {};
  const TimeLimit limit("MPI's first exchange", deadline);
  Result<MPI_Comm> base = members.communicator    ? members_of(*members.communicator, deadline)
                          : members.ranks.empty() ? duplicate(MPI_COMM_WORLD, deadline)
                                                  : members_of_world(members.ranks);
  if (!base.ok()) return base.status();
  // The earlier communicator is not freed: freeing is collective over ranks that may not make this call.
  base_ = *base;
  members_ = members;
  ROUNDELAY_RETURN_IF_ERROR(check(MPI_Comm_rank(base_, &rank_), "MPI_Comm_rank"));
  ROUNDELAY_RETURN_IF_ERROR(check(MPI_Comm_size(base_, &size_), "MPI_Comm_size"));
  count_ranks_of_node();
  return {};
}

Result<MPI_Comm> Session::members_of_world(const std::vector<int>& ranks) const {
  int rank = 0, size = 0;
  ROUNDELAY_RETURN_IF_ERROR(check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank"));
  ROUNDELAY_RETURN_IF_ERROR(check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size"));
  if (const int last = *std::max_element(ranks.begin(), ranks.end()); last >= size) {
    return Status::invalid("init(comm=...): there is no rank " + std::to_string(last) + ", only " +
                           std::to_string(size) + " ranks were started");
  }
  if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) {
    return Status::invalid("init(comm=...): this is rank " + std::to_string(rank) +
                           ", which is not in the list; only ranks that are in it may call");
  }
  return create_group(MPI_COMM_WORLD, ranks, 0);
}

Result<MPI_Comm> Session::members_of(int communicator, Deadline deadline) {
  MPI_Comm const given = MPI_Comm_f2c(static_cast<MPI_Fint>(communicator));
  int between_groups = 0;
  if (given != MPI_COMM_NULL) {
    ROUNDELAY_RETURN_IF_ERROR(check(MPI_Comm_test_inter(given, &between_groups), "MPI_Comm_test_inter"));
  }
  if (given == MPI_COMM_NULL || between_groups != 0) {
    return Status::invalid("init(comm=...): the communicator must be one that this rank is in, of one group");
  }
  return duplicate(given, deadline);
}

int Session::on_finalize(MPI_Comm /*communicator*/, int /*key*/, void* attribute, void* /*extra*/) {
  static_cast<Session*>(attribute)->finalized_ = true;
  return MPI_SUCCESS;
}

void Session::count_ranks_of_node() {
  MPI_Comm node = MPI_COMM_NULL;
  int ranks = size_;
  if (MPI_Comm_split_type(base_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node) == MPI_SUCCESS) {
    MPI_Comm_size(node, &ranks);
    MPI_Comm_free(&node);
  }
  crowded_ = outnumber_cores(ranks);
}

std::string Session::description() const { return library_ + ", " + name_of_level(thread_level_); }

Result<MPI_Comm> Session::duplicate(MPI_Comm parent, Deadline deadline) {
  // Lives on the heap, because MPI may still write to it after the deadline.
  auto made = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  ROUNDELAY_RETURN_IF_ERROR(check(MPI_Comm_idup(parent, made.get(), &request), "MPI_Comm_idup"));
  for (int done = 0; done == 0;) {
    ROUNDELAY_RETURN_IF_ERROR(check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test"));
    if (done == 0 && deadline.passed()) {
      static_cast<void>(made.release());
      poison("not all ranks came to make a communicator");
      return Status::aborted("not all ranks came to make a communicator of them all before the deadline");
    }
    if (done == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  ROUNDELAY_RETURN_IF_ERROR(
      check(MPI_Comm_set_errhandler(*made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
  return *made;
}

Result<MPI_Comm> Session::communicator(const Group& group, Deadline deadline) {
  ROUNDELAY_RETURN_IF_ERROR(usable());
  if (group.size() == size_) return duplicate(base_, deadline);
  const TimeLimit limit("making a communicator for process set " + std::to_string(group.id), deadline);
  return create_group(base_, group.ranks, static_cast<int>(group.id % kGroupTags));
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

// Does not finalize MPI in a rank that fails, because that would wait for the other ranks' work. Its exit
// code ends the job: the launcher treats a rank that ends without MPI_Finalize as failed.
void Session::finalize_at_exit(int exit_code) {
  if (exit_code != EXIT_SUCCESS || getpid() != g_starter) return;
  const Session* session = current();
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0 || (session != nullptr && session->poisoned_)) return;
  const TimeLimit limit("MPI_Finalize", Deadline::after(kFinalizeTime));
  MPI_Finalize();
}

}  // namespace roundelay::mpi
