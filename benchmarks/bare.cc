// The bare memory work of an allreduce: P processes that share memory sum P buffers of floats in place, and
// do only necessary work. Each process owns a part: it reads the part from all buffers, and writes the sums
// to all.
//
//   bare RANKS BYTES [ROUNDS]     each line on stdin is one measurement: so many rounds, one if not given;
//                                 answers with the seconds of the median round, of the slowest rank
//
// Build: c++ -std=c++20 -O3 -march=native bare.cc

#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

namespace {

constexpr int kMostRanks = 16;
constexpr size_t kLine = 64;  // bytes per cache line
constexpr size_t kFloats = kLine / sizeof(float);
constexpr int kSpins = 200;  // then another rank gets the core

struct Shared {
  alignas(kLine) std::atomic<int> arrived{0};
  alignas(kLine) std::atomic<int> round{0};
  alignas(kLine) std::atomic<bool> wrong{false};
  std::array<double, kMostRanks> seconds{};
};

struct Job {
  int ranks;
  size_t count;
  int rounds;
  Shared* shared;
  std::array<float*, kMostRanks> buffers;
};

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

void* share(size_t bytes) {
  void* memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) fail("bare: mmap");
  return memory;
}

void barrier(const Job& job) {
  const int round = job.shared->round.load(std::memory_order_relaxed);
  if (job.shared->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == job.ranks) {
    job.shared->arrived.store(0, std::memory_order_relaxed);
    job.shared->round.store(round + 1, std::memory_order_release);
    return;
  }
  for (int spin = 0; job.shared->round.load(std::memory_order_acquire) == round; ++spin) {
    if (spin >= kSpins) ::sched_yield();
    __builtin_ia32_pause();
  }
}

// Sums a part in one pass: the number of ranks is a constant. It works line by line, so that the compiler
// vectorises it without a proof that buffers do not overlap. Buffers are whole pages, so the last line need
// not be full.
template <size_t... kRank>
void reducePart(const Job& job, size_t begin, size_t end, std::index_sequence<kRank...> /*ranks*/) {
  const std::array<float*, sizeof...(kRank)> all{job.buffers[kRank]...};
  for (size_t line = begin; line < end; line += kFloats) {
    std::array<float, kFloats> sums;
    for (size_t i = 0; i < kFloats; ++i) sums[i] = (all[kRank][line + i] + ...);
    (std::memcpy(all[kRank] + line, sums.data(), kLine), ...);
  }
}

void reduce(const Job& job, int rank) {
  const size_t lines = (job.count + kFloats - 1) / kFloats;
  const size_t part = (lines + job.ranks - 1) / job.ranks * kFloats;
  const size_t begin = std::min(job.count, part * rank);
  const size_t end = std::min(job.count, begin + part);
  switch (job.ranks) {
    case 1:
      return reducePart(job, begin, end, std::make_index_sequence<1>());
    case 2:
      return reducePart(job, begin, end, std::make_index_sequence<2>());
    case 4:
      return reducePart(job, begin, end, std::make_index_sequence<4>());
    case 8:
      return reducePart(job, begin, end, std::make_index_sequence<8>());
    default:
      std::abort();  // main has checked the number
  }
}

// Returns a small integer, so that sums are exact.
float value(size_t i, int rank) { return static_cast<float>(i % 7 + rank); }

void measure(const Job& job, int rank) {
  float* own = job.buffers[rank];
  for (size_t i = 0; i < job.count; ++i) own[i] = value(i, rank);
  barrier(job);
  const auto begin = std::chrono::steady_clock::now();
  barrier(job);  // all processes have their values, and readers must know it
  reduce(job, rank);
  barrier(job);  // all parts are complete
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  job.shared->seconds[rank] = taken.count();
  const float ofRanks = static_cast<float>(job.ranks * (job.ranks - 1)) / 2;
  for (size_t i = 0; i < job.count; ++i)
    if (own[i] != value(i, 0) * job.ranks + ofRanks) job.shared->wrong = true;
  barrier(job);
}

// Runs a rank other than the first: each byte that it reads starts one measurement. It sleeps in between.
[[noreturn]] void serve(const Job& job, int rank, int commands) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (char command; ::read(commands, &command, 1) == 1;)
    for (int round = 0; round < job.rounds; ++round) measure(job, rank);
  ::_exit(0);
}

// Runs all rounds of one measurement on the first rank. The others write the seconds of a round only after
// this rank has begun the next one.
double median(const Job& job) {
  std::vector<double> slowest;
  for (int round = 0; round < job.rounds; ++round) {
    measure(job, 0);
    const auto seconds = job.shared->seconds.begin();
    slowest.push_back(*std::max_element(seconds, seconds + job.ranks));
  }
  const auto middle = slowest.begin() + job.rounds / 2;
  std::nth_element(slowest.begin(), middle, slowest.end());
  return *middle;
}

// Starts a rank. The child closes all writing ends, so that it sees the end when the first rank closes its
// own.
int fork(const Job& job, int rank, std::array<int, kMostRanks>& writers) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) fail("bare: pipe");
  const pid_t child = ::fork();
  if (child < 0) fail("bare: fork");
  if (child == 0) {
    for (int other = 1; other < rank; ++other) ::close(writers[other]);
    ::close(ends[1]);
    serve(job, rank, ends[0]);
  }
  ::close(ends[0]);
  return writers[rank] = ends[1];
}

}  // namespace

int main(int argc, char** argv) {
  const bool given = argc == 3 || argc == 4;
  const int ranks = given ? std::atoi(argv[1]) : 0;
  const size_t count = given ? std::strtoull(argv[2], nullptr, 10) / sizeof(float) : 0;
  const int rounds = argc == 4 ? std::atoi(argv[3]) : 1;
  if (count == 0 || rounds < 1 || (ranks != 1 && ranks != 2 && ranks != 4 && ranks != 8)) {
    std::fputs("usage: bare RANKS BYTES [ROUNDS], with 1, 2, 4 or 8 ranks and at least 4 bytes\n", stderr);
    return 2;
  }
  Job job{ranks, count, rounds, new (share(sizeof(Shared))) Shared, {}};
  for (int rank = 0; rank < ranks; ++rank)
    job.buffers[rank] = static_cast<float*>(share(count * sizeof(float)));
  std::array<int, kMostRanks> writers{};
  for (int rank = 1; rank < ranks; ++rank) fork(job, rank, writers);

  for (int command = std::getchar(); command != EOF; command = std::getchar()) {
    for (int rank = 1; rank < ranks; ++rank)
      if (::write(writers[rank], "", 1) != 1) fail("bare: write");
    const double seconds = median(job);
    if (job.shared->wrong) {
      std::fputs("bare: wrong sums\n", stderr);
      return 1;
    }
    std::printf("%.9f\n", seconds);
    std::fflush(stdout);
  }
  for (int rank = 1; rank < ranks; ++rank) ::close(writers[rank]);
  while (::wait(nullptr) > 0) {
  }
  return 0;
}
