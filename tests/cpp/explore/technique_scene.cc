#include "tests/cpp/explore/technique_scene.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "collective/present.h"
#include "collective/program/program.h"
#include "collective/shm/programs.h"
#include "collective/shm/rounds.h"
#include "compress/give_back.h"
#include "compress/host_arithmetic.h"
#include "tests/cpp/explore/steps.h"

namespace roundelay::explore {
namespace {

using collective::Call;
using collective::PendingCall;
using collective::ScratchPool;
using collective::shm::History;
using collective::shm::Rounds;
using collective::shm::Segment;

constexpr double kRounding = 1e-4;     // of sums up to 512 in fp32
constexpr std::size_t kScratch = 256;  // floats, more than the scripts need

std::size_t index_of(int member) { return static_cast<std::size_t>(member); }

float element(std::size_t run, int member, std::size_t i) {
  const std::size_t mixed = ((run * 61 + index_of(member) + 1) * 40503 + i) * 2654435761U;
  return static_cast<float>(static_cast<int>(mixed >> 8U & 0xFFU) - 128);
}

// Makes calls over the segment as fabric shm does. test() looks once.
class ExploredFabric final : public collective::Fabric {
 public:
  ExploredFabric(const Segment& segment, int member, bool within_node)
      : Fabric({.within_node = within_node}), history_(segment, member) {
    group_.index = member;
    for (int rank = 0; rank < segment.members(); ++rank) group_.ranks.push_back(rank);
  }
  [[nodiscard]] std::string_view name() const override { return "explored"; }
  [[nodiscard]] const Group& group() const override { return group_; }
  Result<std::unique_ptr<PendingCall>> start(const Call& call) override {
    ++calls_;
    if (collective::is_absent(collective::options_of(call), group_.index)) return collective::finished_call();
    return std::unique_ptr<PendingCall>(std::make_unique<Running>(*this, call));
  }
  [[nodiscard]] bool any_thread() const override { return false; }
  [[nodiscard]] bool poisoned() const override { return false; }
  [[nodiscard]] std::span<Fabric* const> level_fabrics() override { return flat(); }
  [[nodiscard]] std::uint64_t calls() const { return calls_; }

 private:
  class Running final : public PendingCall {
   public:
    Running(ExploredFabric& fabric, const Call& call)
        : call_(collective::among_present(call, fabric.group_.size())),
          rounds_(fabric.history_,
                  collective::present_members(collective::options_of(call), fabric.group_.size()),
                  fabric.calls_, fabric.scratch_),
          program_(collective::shm::program_of(call_, rounds_)) {}
    Result<bool> test() override {
      if (waits_ && !rounds_.all_done()) return false;
      program_.resume();
      waits_ = !program_.done();
      if (waits_) return false;
      if (program_.threw()) throw GivenUp{};
      rounds_.finish();
      return true;
    }

   private:
    const Call call_;
    Rounds rounds_;
    collective::Program program_;
    bool waits_ = false;
  };

  History history_;
  Group group_;
  ScratchPool scratch_;
  std::uint64_t calls_ = 0;
};

class ExploredWorkspace final : public compress::Workspace {
 public:
  ExploredWorkspace(collective::Fabric& fabric, std::span<float> memory) : fabric_(fabric), memory_(memory) {}
  collective::Fabric& fabric() override { return fabric_; }
  [[nodiscard]] GpuStream stream() const override { return nullptr; }
  compress::Arithmetic& math() override { return math_; }
  Result<std::byte*> scratch(std::size_t bytes) override {
    const std::size_t floats = (bytes + sizeof(double) - 1) / sizeof(double) * 2;
    if (used_ + floats > memory_.size()) return Status::unavailable("no memory");
    return reinterpret_cast<std::byte*>(memory_.data() + std::exchange(used_, used_ + floats));
  }
  FramePool& frames() override { return frames_; }
  void end() { used_ = 0; }

 private:
  collective::Fabric& fabric_;
  const std::span<float> memory_;
  std::size_t used_ = 0;
  compress::HostArithmetic math_;
  FramePool frames_;
};

collective::Task dense(compress::Workspace& workspace, compress::Bucket bucket, std::vector<int> absent) {
  collective::AllreduceCall reduce = compress::allreduce_of(bucket.buffer, bucket, workspace);
  reduce.absent = std::move(absent);
  Call call = std::move(reduce);
  co_await collective::Calling(workspace.fabric(), call);
  co_return Status{};
}

std::byte* allocate(int members, std::size_t slot_bytes) {
  constexpr std::align_val_t kPage{Segment::kPageBytes};
  return static_cast<std::byte*>(::operator new(Segment::bytes(members, slot_bytes), kPage));
}

template <typename T>
ConstByteSpan bytes_of_all(const std::vector<T>& elements) {
  return std::as_bytes(std::span(elements));
}

}  // namespace

class TechniqueScene::Worker {
 public:
  Worker(const TechniqueScene& scene, Own& own, int member)
      : fabric_(scene.segment(), member, scene.script_.within_node),
        workspace_(fabric_, own.scratch),
        technique_(*scene.script_.technique) {
    parameters_ = {{0, own.elements.size()}};
    bucket_.reduction.dtype = DType::kFloat32;
    bucket_.count = own.elements.size();
    bucket_.buffer = {own.region.own.data(), 0, own.region.own.size(),
                      scene.script_.in_region ? &own.region : nullptr};
    bucket_.parameters = parameters_;
    bucket_.state = std::as_writable_bytes(std::span(own.state));
  }

  void run(const TechniqueRun& how) {
    using Kind = TechniqueRun::Kind;
    if (how.kind == Kind::kFlush && !compress::give_back(technique_, workspace_, bucket_).ok())
      return fail("the technique keeps what it has");
    collective::Task task = how.kind == Kind::kTechnique ? technique_.run(workspace_, bucket_)
                                                         : dense(workspace_, bucket_, how.absent);
    for (task.resume(); !task.done(); task.resume()) {
      const auto call = fabric_.start(*task.awaited().call);
      if (!call.ok()) return fail("a call could not start");
      while (!*(*call)->test()) stall();
      back_at(fabric_.calls());  // it keeps what memory() has and its history, the same in every order
    }
    if (!task.status().ok()) return fail("the technique failed");
    workspace_.end();
    if (how.kind == Kind::kTechnique) ++bucket_.run;
    if (how.kind == Kind::kFlush) bucket_.run = 0;
  }

 private:
  ExploredFabric fabric_;
  ExploredWorkspace workspace_;
  const compress::Technique& technique_;
  std::vector<compress::Slice> parameters_;
  compress::Bucket bucket_;
};

TechniqueScene::TechniqueScene(TechniqueScript script)
    : script_(std::move(script)),
      memory_(allocate(kMembers, kSlotBytes)),
      own_(kMembers),
      first_results_(script_.runs.size()) {
  const std::array levels = {script_.within_node ? kMembers : 1};
  const std::size_t state = script_.technique->state_bytes(script_.count, DType::kFloat32, levels);
  for (Own& own : own_) {
    own.elements.resize(script_.count);
    own.state.resize(state / sizeof(float));
    own.scratch.resize(kScratch);
    own.came.resize(script_.count);
    own.got.resize(script_.count);
    own.region.key = 1;
    own.region.own = std::as_writable_bytes(std::span(own.elements));
    for (Own& other : own_) {
      other.elements.resize(script_.count);
      own.region.parts.push_back(reinterpret_cast<std::byte*>(other.elements.data()));
    }
  }
}

void TechniqueScene::reset() {
  std::memset(memory_.get(), 0, Segment::bytes(kMembers, kSlotBytes));
  for (Own& own : own_) {
    for (Elements* const all : {&own.elements, &own.state, &own.scratch}) std::ranges::fill(*all, 0.0F);
    for (std::vector<double>* const all : {&own.came, &own.got}) std::ranges::fill(*all, 0.0);
  }
}

std::vector<ConstByteSpan> TechniqueScene::memory() const {
  const std::byte* const slots = segment().slot(0, 0);
  const auto* const words = reinterpret_cast<const std::byte*>(&segment().doorbell(kMembers));
  std::vector<ConstByteSpan> all;
  all.emplace_back(memory_.get(), words);
  all.emplace_back(slots, kMembers * Segment::kSlots * kSlotBytes);
  for (const Own& own : own_) {
    for (const Elements* const floats : {&own.elements, &own.state, &own.scratch})
      all.push_back(bytes_of_all(*floats));
    for (const std::vector<double>* const sums : {&own.came, &own.got}) all.push_back(bytes_of_all(*sums));
  }
  return all;
}

void TechniqueScene::check(std::size_t run, int member) {
  Own& own = own_[index_of(member)];
  if (first_results_[run].empty()) first_results_[run] = own.elements;
  if (own.elements != first_results_[run]) fail("another result than in the first order");
  std::ranges::transform(own.got, own.elements, own.got.begin(), std::plus<>());
  const auto near = [](double got, double came) { return std::abs(got - came) <= kRounding; };
  if (script_.runs[run].kind == TechniqueRun::Kind::kFlush && !std::ranges::equal(own.got, own.came, near))
    fail("gradients were lost");
}

void TechniqueScene::run(int member) {
  Own& own = own_[index_of(member)];
  Worker worker(*this, own, member);
  for (std::size_t number = 0; number < script_.runs.size(); ++number) {
    const TechniqueRun& how = script_.runs[number];
    const auto away = [&how](int one) { return std::ranges::find(how.absent, one) != how.absent.end(); };
    for (std::size_t i = 0; i < script_.count && !away(member); ++i) {
      own.elements[i] = element(number, member, i);
      for (int one = 0; one < kMembers; ++one)
        own.came[i] += away(one) ? 0.0 : static_cast<double>(element(number, one, i));
    }
    worker.run(how);
    if (!away(member)) check(number, member);
  }
}

}  // namespace roundelay::explore
