#include "tests/cpp/explore/chunk_scene.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "collective/algorithms/doubling.h"
#include "collective/present.h"
#include "collective/shm/chunks.h"
#include "tests/cpp/explore/steps.h"

namespace roundelay {

// Models the kernel: it looks and falls asleep in one step.
void futex_wait(const FutexWord& word, std::uint32_t seen, Duration /*most*/) {
  if (word.peek() == seen) return explore::sleep_on(&word);
  explore::looked(&word, word.peek(), true);
}

void futex_wake(const FutexWord& word) { explore::wake(&word); }

}  // namespace roundelay

namespace roundelay::explore {
namespace {

using collective::Call;
using collective::ScratchPool;
using collective::shm::History;
using collective::shm::Rounds;
using collective::shm::Segment;

constexpr std::size_t kElementBytes = sizeof(std::uint32_t);

// Returns another value for every call, member and place, so that a value that is read too early or too late
// shows.
std::uint32_t value(std::size_t call, std::size_t member, std::size_t i, ReduceOp op) {
  const std::size_t mixed = ((call * 61 + member + 1) * 40503 + i) * 2654435761U;
  const auto small = static_cast<std::uint32_t>(mixed >> 8U & 0xFFFFU) + 1;
  if (op != ReduceOp::kAdasum) return small;
  const auto real = static_cast<float>(small);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &real, sizeof(bits));
  return bits;
}

std::size_t index_of(int member) { return static_cast<std::size_t>(member); }

std::size_t total(std::span<const std::size_t> lengths) {
  std::size_t sum = 0;
  for (const std::size_t length : lengths) sum += length;
  return sum;
}

std::span<const std::size_t> row(const Planned& planned, std::size_t giver, std::size_t members) {
  return std::span(planned.lengths).subspan(giver * members, members);
}

std::size_t length_given(const Planned& planned, std::size_t member, std::size_t members) {
  switch (planned.operation) {
    case Operation::kAllgather:
      return planned.lengths[member];
    case Operation::kAlltoall:
      return total(row(planned, member, members));
    case Operation::kReducescatter:
      return total(planned.lengths);
    default:
      return planned.lengths.empty() ? 0 : planned.lengths.front();
  }
}

using Given = std::vector<std::vector<std::uint32_t>>;

std::vector<std::uint32_t> reduced(const Planned& planned, const std::vector<int>& present,
                                   const Given& given) {
  std::vector<std::uint32_t> sum = given[index_of(present.front())];
  for (std::size_t i = 1; i < present.size(); ++i) {
    const auto& part = given[index_of(present[i])];
    if (planned.op == ReduceOp::kAdasum) {
      collective::Reduction how;
      how.reduce_op = planned.op;
      collective::merge(how, reinterpret_cast<std::byte*>(sum.data()),
                        reinterpret_cast<const std::byte*>(part.data()), sum.size());
    } else {
      std::transform(sum.begin(), sum.end(), part.begin(), sum.begin(), std::plus<>());
    }
  }
  return sum;
}

// Returns what a member that takes part has in the end.
std::vector<std::uint32_t> result(const Planned& planned, const std::vector<int>& present, const Given& given,
                                  std::size_t member) {
  std::vector<std::uint32_t> got;
  const auto append = [&got](const auto& from, std::size_t first, std::size_t length) {
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(first);
    got.insert(got.end(), begin, begin + static_cast<std::ptrdiff_t>(length));
  };
  const std::size_t members = given.size();
  switch (planned.operation) {
    case Operation::kBroadcast:
      return given[index_of(planned.root)];
    case Operation::kAllgather:
      for (const auto& part : given) append(part, 0, part.size());
      return got;
    case Operation::kAlltoall:
      for (std::size_t giver = 0; giver < members; ++giver) {
        const auto lengths = row(planned, giver, members);
        append(given[giver], total(lengths.first(member)), lengths[member]);
      }
      return got;
    case Operation::kReducescatter:
      append(reduced(planned, present, given), total(std::span(planned.lengths).first(member)),
             planned.lengths[member]);
      return got;
    default:
      return reduced(planned, present, given);
  }
}

// Returns where the bytes that a member gives (or gets) begin in the call's memory, in elements.
std::size_t place_given(const Planned& planned, std::size_t member) {
  const bool parts = planned.in_region && planned.operation == Operation::kAllgather;
  return parts ? total(std::span(planned.lengths).first(member)) : 0;
}
std::size_t place_got(const Planned& planned, std::size_t member) {
  const bool shards = planned.in_region && planned.operation == Operation::kReducescatter;
  return shards ? total(std::span(planned.lengths).first(member)) : 0;
}

std::vector<std::size_t> bytes_of(std::span<const std::size_t> lengths) {
  std::vector<std::size_t> bytes;
  for (const std::size_t length : lengths) bytes.push_back(length * kElementBytes);
  return bytes;
}

std::byte* allocate(const Script& script) {
  constexpr std::align_val_t kPage{Segment::kPageBytes};
  return static_cast<std::byte*>(::operator new(Segment::bytes(script.members, script.slot_bytes), kPage));
}

template <typename T>
ConstByteSpan bytes_of_all(const std::vector<T>& elements) {
  return std::as_bytes(std::span(elements));
}

}  // namespace

void nap(Rounds& rounds, collective::shm::Doorbell& /*own*/) { rounds.nap(std::chrono::seconds(1)).wait(); }

class ChunkScene::Heap final : public collective::shm::Heap {
 public:
  Heap(ChunkScene& scene, int member) : scene_(scene), member_(member) {}
  void begin(const Planned& planned) { used_ = std::ranges::count(planned.in_heap, member_) > 0; }

  [[nodiscard]] std::optional<std::uint64_t> find(ConstByteSpan bytes) const override {
    if (!used_) return std::nullopt;
    return static_cast<std::uint64_t>(bytes.data() - at(member_, 0));
  }
  [[nodiscard]] std::byte* at(int member, std::uint64_t place) const override {
    return reinterpret_cast<std::byte*>(scene_.outputs_[index_of(member)].data()) + place;
  }

 private:
  ChunkScene& scene_;
  const int member_;
  bool used_ = false;
};

ChunkScene::ChunkScene(Script script)
    : script_(std::move(script)),
      memory_(allocate(script_)),
      gives_(script_.calls.size()),
      gets_(script_.calls.size()) {
  const std::size_t members = index_of(script_.members);
  std::size_t most_given = 0, most_got = 0;
  for (std::size_t number = 0; number < script_.calls.size(); ++number) {
    const Planned& planned = script_.calls[number];
    collective::CallOptions options;
    options.absent = planned.absent;
    const auto present = collective::present_members(options, script_.members);
    for (std::size_t member = 0; member < members; ++member) {
      Elements& given = gives_[number].emplace_back(length_given(planned, member, members));
      for (std::size_t i = 0; i < given.size(); ++i) given[i] = value(number, member, i, planned.op);
      most_given = std::max(most_given, given.size());
    }
    for (std::size_t member = 0; member < members; ++member) {
      gets_[number].push_back(result(planned, present, gives_[number], member));
      most_got = std::max(most_got, gets_[number].back().size());
    }
  }
  inputs_.assign(members, Elements(most_given));
  outputs_.assign(members, Elements(std::max(most_given, most_got)));
  regions_.resize(members);
  for (std::size_t member = 0; member < members; ++member) {
    regions_[member].key = 1;
    regions_[member].own = std::as_writable_bytes(std::span(outputs_[member]));
    for (Elements& part : outputs_)
      regions_[member].parts.push_back(reinterpret_cast<std::byte*>(part.data()));
  }
}

void ChunkScene::reset() {
  std::memset(memory_.get(), 0, Segment::bytes(script_.members, script_.slot_bytes));
  for (auto* const all : {&inputs_, &outputs_}) {
    for (Elements& elements : *all) std::fill(elements.begin(), elements.end(), 0);
  }
  scratch_.clear();
  pools_.clear();
  const bool adasum = std::any_of(script_.calls.begin(), script_.calls.end(),
                                  [](const Planned& planned) { return planned.op == ReduceOp::kAdasum; });
  for (int member = 0; member < script_.members; ++member) {
    pools_.push_back(std::make_unique<ScratchPool>());
    for (int block = 0; adasum && block < 2; ++block) {
      const std::size_t bytes = outputs_.front().size() * kElementBytes;
      std::shared_ptr<std::byte> memory(new std::byte[bytes](), std::default_delete<std::byte[]>());
      scratch_.emplace_back(memory.get(), bytes);
      pools_.back()->release({std::move(memory), bytes});
    }
  }
}

std::vector<ConstByteSpan> ChunkScene::memory() const {
  const std::byte* const slots = segment().slot(0, 0);
  const auto* const words = reinterpret_cast<const std::byte*>(&segment().doorbell(script_.members));
  std::vector<ConstByteSpan> all = scratch_;
  all.emplace_back(memory_.get(), words);
  all.emplace_back(slots, index_of(script_.members) * Segment::kSlots * script_.slot_bytes);
  for (const auto* const elements : {&inputs_, &outputs_}) {
    for (const Elements& of_member : *elements) all.push_back(bytes_of_all(of_member));
  }
  return all;
}

Call ChunkScene::call_of(std::size_t number, int member) {
  Call call = kind_of(number, member);
  collective::options_of(call).absent = script_.calls[number].absent;
  return call;
}

Call ChunkScene::kind_of(std::size_t number, int member) {
  const Planned& planned = script_.calls[number];
  const std::size_t self = index_of(member), members = index_of(script_.members);
  const Region* const region = planned.in_region ? &regions_[self] : nullptr;
  const Elements& given = planned.in_region ? outputs_[self] : inputs_[self];
  const auto* const input = reinterpret_cast<const std::byte*>(given.data() + place_given(planned, self));
  const ByteSpan output = std::as_writable_bytes(
      std::span(outputs_[self]).subspan(place_got(planned, self), gets_[number][self].size()));
  const DType dtype = planned.op == ReduceOp::kAdasum ? DType::kFloat32 : DType::kInt32;
  const collective::Reduction how{.dtype = dtype, .reduce_op = planned.op};
  switch (planned.operation) {
    case Operation::kAllreduce:
      return collective::AllreduceCall{{}, how, {output.data(), 0, output.size(), region}};
    case Operation::kBroadcast:
      return collective::BroadcastCall{{}, output, planned.root};
    case Operation::kAllgather:
      return collective::AllgatherCall{{}, input, output, bytes_of(planned.lengths), region};
    case Operation::kReducescatter:
      return collective::ReducescatterCall{{}, how, input, output, bytes_of(planned.lengths), region};
    case Operation::kAlltoall: {
      std::vector<std::size_t> received;
      for (std::size_t giver = 0; giver < members; ++giver) {
        received.push_back(row(planned, giver, members)[self] * kElementBytes);
      }
      return collective::AlltoallCall{{}, input, output, bytes_of(row(planned, self, members)), received};
    }
    default:
      return collective::BarrierCall{};
  }
}

// Waits after the program has looked in vain.
void ChunkScene::wait(Rounds& rounds, int member) {
  if (script_.sleep == nullptr) {
    do stall();
    while (!rounds.all_done());
    return;
  }
  const std::uint64_t place = before_last_look();
  while (!rounds.all_done()) {
    script_.sleep(rounds, segment().doorbell(member));
    back_at(place);
  }
  past_last_word(place);
}

// Makes one call, as ShmRun does.
void ChunkScene::make(std::size_t number, History& history) {
  const int member = history.index;
  const std::size_t self = index_of(member);
  const Call call = call_of(number, member);
  if (collective::is_absent(collective::options_of(call), member)) return;
  const Elements& given = gives_[number][self];
  const Operation operation = collective::operation_of(call);
  const bool in_place = script_.calls[number].in_region || operation == Operation::kAllreduce ||
                        operation == Operation::kBroadcast;
  Elements& memory = (in_place ? outputs_ : inputs_)[self];
  std::ranges::copy(given,
                    memory.begin() + static_cast<std::ptrdiff_t>(place_given(script_.calls[number], self)));
  Rounds rounds(history, collective::present_members(collective::options_of(call), script_.members),
                number + 1, *pools_[self]);
  const Call among_present = collective::among_present(call, script_.members);
  collective::Program program = script_.program(among_present, rounds);
  program.resume();
  while (!program.done()) {
    wait(rounds, member);
    program.resume();
  }
  if (program.threw()) throw GivenUp{};
  rounds.finish();
  const Elements& expected = gets_[number][self];
  if (!std::ranges::equal(
          expected,
          std::span(outputs_[self]).subspan(place_got(script_.calls[number], self), expected.size()))) {
    fail("a wrong result");
  }
  back_at(number + 1);  // it keeps only its history between calls, which is the same in every order
}

void ChunkScene::run(int member) {
  Heap heap(*this, member);
  History history(segment(), member, &heap);
  for (std::size_t number = 0; number < script_.calls.size(); ++number) {
    heap.begin(script_.calls[number]);
    make(number, history);
  }
}

}  // namespace roundelay::explore
