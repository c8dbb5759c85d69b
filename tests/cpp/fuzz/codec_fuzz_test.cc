// Seeded fuzzing of the codec: structured round trips, mutated messages, random bytes. This binary's operator
// new counts: decoding may allocate only a small multiple of its input.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "tests/cpp/catch.h"
#include "wire/codec.h"

namespace {
thread_local std::size_t t_allocated = 0;

void* counted(std::size_t size) {
  t_allocated += size;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size == 0 ? 1 : size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace roundelay::wire {
namespace {

// All magnitudes are equally likely, so the edges of a varint are hit often.
class Source {
 public:
  explicit Source(std::uint64_t seed) : random_(seed) {}

  std::uint64_t bits() { return random_(); }
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  bool coin() { return (random_() & 1) != 0; }
  template <typename T>
  T number() {
    return static_cast<T>(random_() >> below(64));
  }
  template <typename T>
  T natural() {
    return static_cast<T>(number<std::uint64_t>() &
                          static_cast<std::uint64_t>(std::numeric_limits<T>::max()));
  }
  template <typename E>
  E one_of(int count) {
    return static_cast<E>(below(static_cast<std::uint64_t>(count)));
  }
  std::string text() {
    std::string text(below(4) == 0 ? below(300) : below(12), '\0');
    for (char& c : text) c = static_cast<char>(random_());
    return text;
  }
  LaneId lane() { return {.process_set = number<std::uint32_t>(), .device = number<std::int32_t>()}; }
  Scale scale() {
    return {.factor = static_cast<double>(number<std::int64_t>()) / 8,
            .divisor = 1 + static_cast<std::int64_t>(bits() >> (2 + below(62)))};
  }

 private:
  std::mt19937_64 random_;
};

ByteChange random_change(Source& source, std::uint64_t most) {
  ByteChange change;
  std::uint64_t next = 0;
  for (auto n = source.below(most + 1); n > 0 && next < kMostAgreementBytes; --n) {
    next += source.number<std::uint32_t>() % 1000;
    change.push_back({static_cast<std::uint32_t>(next), "x" + source.text()});
    next += change.back().bytes.size();
  }
  return change;
}

Merged random_merged(Source& source) {
  Merged merged{random_change(source, 3), {}};
  for (auto n = source.below(3); n > 0; --n) {
    merged.differences.push_back({source.number<std::uint32_t>(), source.number<std::int32_t>(),
                                  source.number<std::int32_t>(), source.text(), source.text()});
  }
  return merged;
}

Request random_request(Source& source) {
  Request request;
  request.name = source.text();
  request.operation = source.one_of<Operation>(kOperationCount);
  request.dtype = source.one_of<DType>(kMovedDTypeCount);
  request.device = source.one_of<DeviceType>(kDeviceTypeCount);
  request.reduce_op = source.one_of<ReduceOp>(kReduceOpCount);
  request.root = source.number<std::int32_t>();
  request.prescale = source.scale();
  request.region = {source.number<std::uint64_t>(), source.number<std::uint64_t>()};
  request.postscale = source.scale();
  for (auto n = source.below(5); n > 0; --n) request.shape.push_back(source.natural<std::int64_t>());
  if (source.below(3) == 0) {
    for (auto n = source.below(5); n > 0; --n) {
      auto& tensor = request.others.emplace_back();
      tensor.dtype = source.one_of<DType>(kMovedDTypeCount);
      for (auto d = source.below(4); d > 0; --d) tensor.shape.push_back(source.natural<std::int64_t>());
    }
    for (auto n = source.below(5); n > 0; --n) request.ranks.push_back(source.natural<std::int32_t>());
  }
  if (source.below(4) == 0) {
    for (auto n = source.below(6); n > 0; --n)
      request.fields.push_back({source.one_of<Merge>(kMergeCount), source.number<std::uint32_t>() % 5000});
  }
  if (source.coin()) request.unnamed = source.number<std::uint64_t>();
  request.cacheable = source.coin();
  if (source.below(4) == 0) request.technique = source.text();
  if (source.below(4) == 0) request.error = source.text();
  return request;
}

Report random_report(Source& source) {
  Report report{.lane = source.lane(),
                .last_order = source.number<std::uint64_t>(),
                .end_linger = source.coin(),
                .leaving = source.coin(),
                .removing = source.coin(),
                .frozen = {},
                .requests = {},
                .cached = {}};
  for (auto n = source.below(4); n > 0; --n) report.requests.push_back(random_request(source));
  if (source.below(4) == 0) report.frozen = source.number<std::uint64_t>();
  std::uint64_t next = 1;
  for (auto runs = source.below(6); runs > 0; --runs) {
    next += source.number<std::uint32_t>() >> 4;
    for (auto n = source.below(40); n > 0; --n, ++next) report.cached.push_back(static_cast<CacheId>(next));
  }
  for (std::size_t request = 0; request < report.requests.size() + report.cached.size(); ++request) {
    if (source.below(8) != 0) continue;
    ByteChange change = random_change(source, 3);
    if (!change.empty())
      report.contributions.push_back({static_cast<std::uint32_t>(request), std::move(change)});
  }
  return report;
}

Tickets random_tickets(Source& source) {
  Tickets tickets{std::max<std::uint64_t>(1, source.number<std::uint64_t>()), {}};
  for (auto n = source.below(9); n > 0; --n) tickets.previous.push_back(source.number<std::uint64_t>());
  return tickets;
}

Order random_order(Source& source) {
  Order order{.lane = source.lane(),
              .sequence = source.number<std::uint64_t>(),
              .operations = {},
              .failures = {},
              .evicted = {},
              .joined = {},
              .lock = {},
              .freeze = source.coin(),
              .shutdown_by = source.number<std::int32_t>(),
              .removed = source.coin()};
  for (auto n = source.below(4); n > 0; --n) {
    auto& [members, extents, absent, merged] = order.operations.emplace_back();
    if (source.below(4) == 0) merged = random_merged(source);
    for (auto m = source.below(6); m > 0; --m) extents.push_back(source.natural<std::int64_t>());
    for (auto m = source.below(3); m > 0; --m) absent.push_back(source.natural<std::int32_t>());
    auto id = source.number<CacheId>();
    for (auto m = source.below(30); m > 0; --m) {
      id = source.below(8) == 0 ? source.number<CacheId>() : id + 1;
      members.push_back({id, id == kNoCacheId || source.coin() ? "n" + source.text() : ""});
    }
  }
  for (auto n = source.below(3); n > 0; --n) {
    const auto code = static_cast<StatusCode>(1 + source.below(static_cast<int>(StatusCode::kInternal)));
    auto& failure = order.failures.emplace_back(Failure{source.text(), code, source.text()});
    if (source.below(3) == 0) {
      for (auto c = source.below(9); c > 0; --c) failure.counters.push_back(source.number<std::uint64_t>());
    }
  }
  for (auto n = source.below(10); n > 0; --n) order.evicted.push_back(source.number<CacheId>());
  if (source.below(4) == 0) {
    auto& [last_rank, counters] = order.joined.emplace();
    last_rank = source.number<std::int32_t>();
    for (auto n = source.below(9); n > 0; --n) counters.push_back(source.number<std::uint64_t>());
  }
  if (source.below(4) == 0) {
    auto& [number, operations] = order.lock.emplace();
    number = source.number<std::uint64_t>();
    for (auto n = 1 + source.below(20); n > 0; --n) {
      auto& ids = operations.emplace_back();
      for (auto m = 1 + source.below(9); m > 0; --m) ids.push_back(source.number<CacheId>());
    }
  }
  if (source.below(4) == 0) order.unlock = source.number<std::uint64_t>();
  if (source.below(4) == 0) {
    auto& [operations, tickets] = order.tickets.emplace();
    for (auto n = 1 + source.below(9); n > 0; --n) operations.push_back(source.natural<std::int32_t>());
    tickets = random_tickets(source);
  }
  return order;
}

Hello random_hello(Source& source) {
  Hello hello{source.number<std::int32_t>(), source.number<std::uint32_t>(), source.text(), {}};
  for (auto n = source.below(5); n > 0; --n) hello.settings.push_back(source.text());
  return hello;
}

Reports random_reports(Source& source) {
  Reports reports{source.lane(), {}};
  for (auto n = source.below(4); n > 0; --n) {
    MemberReport& one = reports.reports.emplace_back();
    one.member = source.natural<std::int32_t>();
    one.all_below = source.coin();
    one.report = random_report(source);
    const std::size_t requests = one.report.requests.size() + one.report.cached.size();
    for (std::uint32_t request = 0; request < requests && source.coin(); ++request)
      one.others.push_back({source.natural<std::int32_t>(), request, random_change(source, 3)});
  }
  return reports;
}

Message random_message(Source& source) {
  switch (source.below(std::variant_size_v<Message>)) {
    case 0:
      return random_hello(source);
    case 1:
      return random_report(source);
    case 2:
      return random_order(source);
    case 3:
      return Abort{source.number<std::int32_t>(), source.text()};
    case 4:
      return Stuck{source.lane(), source.number<std::uint64_t>(), source.number<std::int32_t>(),
                   source.text()};
    case 5:
      return Ping{source.number<std::uint64_t>(), source.number<std::int64_t>()};
    case 6:
      return Pong{source.number<std::uint64_t>(), source.number<std::int64_t>(),
                  source.number<std::int64_t>()};
    case 7:
      return TimelineChunk{source.number<std::int32_t>(), source.coin(), source.text()};
    case 8:
      return TimelineSwitch{source.coin(), source.coin()};
    case 9: {
      TicketMembers members{source.lane(), {}};
      for (auto n = source.below(9); n > 0; --n) members.ranks.push_back(source.natural<std::int32_t>());
      return members;
    }
    case 10:
      return TicketRequest{source.lane(), source.number<std::uint64_t>(), source.number<std::uint32_t>()};
    case 11: {
      TicketGrant grant{source.lane(), source.number<std::uint64_t>(), {}};
      if (source.coin()) grant.tickets = random_tickets(source);
      return grant;
    }
    case 12:
      return StateAnswer{source.text()};
    case 13:
      return StateQuestion{};
    case 14: {
      Announced announced{source.lane(), source.number<std::uint64_t>(), {}};
      for (auto n = source.below(4); n > 0; --n) {
        ShownCell& cell = announced.cells.emplace_back();
        cell.member = source.number<std::int32_t>();
        cell.number = source.number<std::uint32_t>();
        cell.submission = source.number<std::uint64_t>();
        for (std::uint64_t& word : cell.words) word = source.number<std::uint64_t>();
      }
      return announced;
    }
    case 15:
      return random_reports(source);
    default:
      return Introduction{random_hello(source), source.text(), source.text(), source.text(), source.text(),
                          source.text(),        source.text(), source.text(), source.text()};
  }
}

// Decodes within its allowance. An accepted message must encode to exactly these bytes. Returns true if
// accepted.
bool survives(ConstByteSpan bytes) {
  const std::size_t before = t_allocated;
  const Result<Message> result = decode(bytes);
  const std::size_t used = t_allocated - before;
  // A report's run of ids may grow to kMaxIds whatever the report's length, and so may the last of several. A
  // vector that doubles allocates twice its size.
  const std::size_t kind = bytes.size() > 1 ? std::to_integer<std::size_t>(bytes[1]) : 0;
  const std::size_t runs = kind == Message(Report{}).index() ? 1 : kind == Message(Reports{}).index() ? 2 : 0;
  const std::size_t allowance = 64 * bytes.size() + 512 + runs * 2 * sizeof(CacheId) * kMaxIds;
  if (used > allowance) FAIL(used << " bytes were allocated for " << bytes.size());
  if (!result.ok()) return false;
  const Bytes again = encode(*result);
  if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()))
    FAIL("accepted, but not canonical");
  return true;
}

TEST_CASE("random messages come back as they were", "[codec][fuzz]") {
  for (std::uint64_t seed = 0; seed < 100'000; ++seed) {
    Source source(seed);
    const Message message = random_message(source);
    const Result<Message> back = decode(encode(message));
    if (!back.ok()) FAIL("seed " << seed << ": " << back.status().message());
    if (!(*back == message)) FAIL("seed " << seed << ": the message changed");
  }
}

TEST_CASE("mutated messages are refused or understood, within memory", "[codec][fuzz]") {
  std::size_t accepted = 0;
  for (std::uint64_t seed = 0; seed < 150'000; ++seed) {
    INFO("seed " << seed);
    Source source(seed);
    Bytes bytes = encode(random_message(source));
    for (auto n = 1 + source.below(4); n > 0; --n) {
      const auto at = static_cast<std::ptrdiff_t>(source.below(bytes.size() + 1));
      const auto value = static_cast<std::byte>(source.bits());
      switch (source.below(4)) {
        case 0:
          bytes.insert(bytes.begin() + at, value);
          break;
        case 1:
          if (at < std::ssize(bytes)) bytes.erase(bytes.begin() + at);
          break;
        case 2:
          bytes.resize(static_cast<std::size_t>(at));
          break;
        default:
          if (at < std::ssize(bytes)) bytes[static_cast<std::size_t>(at)] ^= value;
      }
    }
    accepted += survives(bytes) ? 1U : 0U;
  }
  CHECK(accepted > 1000);  // otherwise the mutations would never pass the first checks
}

TEST_CASE("random bytes are refused or understood, within memory", "[codec][fuzz]") {
  for (std::uint64_t seed = 0; seed < 150'000; ++seed) {
    INFO("seed " << seed);
    Source source(seed);
    Bytes bytes = {encode(Ping{}).front(),
                   static_cast<std::byte>(source.below(std::variant_size_v<Message> + 1))};
    for (auto n = source.below(64); n > 0; --n)
      bytes.push_back(static_cast<std::byte>(source.coin() ? source.below(4) : source.bits()));
    survives(bytes);
  }
}

}  // namespace
}  // namespace roundelay::wire
