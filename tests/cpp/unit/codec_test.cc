#include "wire/codec.h"

#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/cpp/catch.h"

namespace roundelay::wire {
namespace {

constexpr auto kMaxU32 = std::numeric_limits<std::uint32_t>::max();
constexpr auto kMaxU64 = std::numeric_limits<std::uint64_t>::max();
constexpr auto kMinI32 = std::numeric_limits<std::int32_t>::min();
constexpr auto kMaxI32 = std::numeric_limits<std::int32_t>::max();
constexpr auto kMinI64 = std::numeric_limits<std::int64_t>::min();
constexpr auto kMaxI64 = std::numeric_limits<std::int64_t>::max();

std::vector<CacheId> ids(CacheId first, std::size_t count) {
  std::vector<CacheId> result(count);
  std::iota(result.begin(), result.end(), first);
  return result;
}

constexpr int kFormat = 10;  // the first byte of every message

Request full_request() {
  Request request;
  request.name = std::string("layer1.0/weight\0bytes", 20);
  request.operation = Operation::kBarrier;
  request.dtype = DType::kBool;
  request.device = DeviceType::kGpu;
  request.reduce_op = ReduceOp::kProduct;
  request.root = kMaxI32;
  request.prescale = {.factor = -0.125, .divisor = 3};
  request.postscale = {.factor = std::numeric_limits<double>::infinity(), .divisor = kMaxI64};
  request.region = {kMaxU64, 64};
  request.shape = {0, 1, 127, 128, kMaxI64};
  request.others = {{DType::kInt8, {}}, {DType::kFloat64, {3, kMaxI64}}};
  request.ranks = {0, 1, 300, kMaxI32};
  request.fields = {{Merge::kEqual, 0}, {Merge::kRoot, kMostAgreementBytes}};
  request.unnamed = kMaxU64;
  request.cacheable = false;
  request.technique = "cyclic:parts=4 flush";
  request.error = "not a tensor";
  return request;
}

Report full_report() {
  Report report;
  report.lane = {.process_set = kMaxU32, .device = kMinI32};
  report.last_order = kMaxU64;
  report.end_linger = true;
  report.leaving = true;
  report.removing = true;
  report.frozen = kMaxU64;
  report.requests = {full_request(), Request{}};
  report.cached = {1, 2, 3, 5, 7, 8, 1000, kMaxU32 - 1, kMaxU32};
  report.contributions = {{0, {{0, "a"}, {1, std::string(1, '\0')}}}, {10, {{kMaxU32, "values"}}}};
  return report;
}

Order full_order() {
  Order order;
  order.lane = {.process_set = 3, .device = 7};
  order.sequence = 1ULL << 63;
  order.operations = {
      {.tensors = {{1, "a"}, {2, ""}, {kMaxU32, "b"}, {0, "unnamed.1"}, {0, "unnamed.2"}, {5, ""}},
       .extents = {},
       .absent = {0, 5, kMaxI32}},
      {.tensors = {}, .extents = {}, .absent = {}},
      {.tensors = {{kMaxU32, ""}}, .extents = {0, 7, kMaxI64}, .absent = {1}},
      {.tensors = {{7, ""}}, .extents = {}, .absent = {}, .merged = Merged{}},
      {.tensors = {{8, ""}},
       .extents = {},
       .absent = {2},
       .merged = Merged{{{3, "abc"}, {300, "d"}},
                        {{0, 1, kMaxI32, "", std::string(200, 'x')}, {7, 0, 1, "a", "b"}}}}};
  order.failures = {{"a", StatusCode::kMismatch, "ranks differ", {0, 300, kMaxU64}},
                    {"", StatusCode::kInternal, ""}};
  order.evicted = {9, 3, kMaxU32};
  order.joined = {.last_rank = 3, .counters = {0, 300, kMaxU64}};
  order.lock = Lock{kMaxU64, {{1, 2, kMaxU32}, {7}}};
  order.freeze = true;
  order.unlock = 300;
  order.tickets = {.operations = {0, 2}, .tickets = {.first = kMaxU64, .previous = {0, 300, kMaxU64}}};
  order.shutdown_by = 0;
  order.removed = true;
  return order;
}

std::vector<Message> samples() {
  return {
      Hello{},
      Hello{.rank = kMinI32, .generation = kMaxU32, .version = "0.1.0+abc", .settings = {"a=b", ""}},
      Report{},
      full_report(),
      Order{},
      full_order(),
      Abort{},
      Abort{.culprit = 3, .text = "rank 3 was killed"},
      Stuck{},
      Stuck{.lane = {}, .sequence = 12, .waiting_for = 1, .text = "allreduce of a"},
      Ping{.token = 1, .sent = kMinI64},
      Pong{.token = kMaxU64, .sent = -1, .here = kMaxI64},
      TimelineChunk{},
      TimelineSwitch{},
      TimelineSwitch{.on = true, .mark_cycles = true},
      Introduction{.hello = {.rank = 1, .generation = 2, .version = "0.1.0", .settings = {"c"}},
                   .node = "n",
                   .machine = "m",
                   .topology = "rack=2,node=4",
                   .launcher_rack = "switch",
                   .tcp_address = std::string(3, '\0'),
                   .data_address = "e",
                   .shm_socket = "d",
                   .tuning = "fabric mpi\n"},
      TicketMembers{},
      TicketMembers{.lane = {.process_set = kMaxU32}, .ranks = {0, 300, kMaxI32}},
      TicketRequest{.lane = {.process_set = 2}, .sequence = kMaxU64, .operations = kMaxU32},
      TicketGrant{},
      TicketGrant{.lane = {.process_set = 2}, .sequence = 7, .tickets = Tickets{1, {0, kMaxU64}}},
      StateQuestion{},
      StateAnswer{},
      StateAnswer{.text = "its process 1 computes"},
      Announced{},
      Announced{.lane = {3, 0},
                .word = std::uint64_t{7} << 40,
                .cells = {{.member = 2, .number = 5, .submission = 300, .words = {1, 0, ~std::uint64_t{0}}}}},
      Reports{},
      Reports{.lane = {3, 0},
              .reports = {{.member = 5, .report = full_report()},
                          {.member = kMaxI32,
                           .all_below = true,
                           .report = full_report(),
                           .others = {{7, 0, {{2, "x"}}}, {8, 0, {}}, {2, 1, {{0, "y"}, {3, "z"}}}}}}},
      TimelineChunk{.rank = 2, .last = true, .events = std::string(1000, '\x7f')},
  };
}

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

std::string error_of(ConstByteSpan bytes) {
  const Result<Message> result = decode(bytes);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().code() == StatusCode::kInternal);
  return result.status().message();
}

TEST_CASE("every message comes back as it was", "[codec]") {
  for (const Message& message : samples()) {
    INFO("kind " << message.index());
    const Result<Message> back = decode(encode(message));
    REQUIRE(back.ok());
    CHECK(*back == message);
  }
}

TEST_CASE("the samples cover every kind of message", "[codec]") {
  std::vector<bool> seen(std::variant_size_v<Message>);
  for (const Message& message : samples()) seen[message.index()] = true;
  CHECK(seen == std::vector<bool>(std::variant_size_v<Message>, true));
}

TEST_CASE("bytes are laid out as documented, on every machine", "[codec]") {
  CHECK(encode(Ping{.token = 300, .sent = 0x0102030405060708}) ==
        bytes_of({kFormat, 5, 0xAC, 0x02, 8, 7, 6, 5, 4, 3, 2, 1}));
}

TEST_CASE("a step of cached tensors costs a few bytes", "[codec]") {
  Report report;
  report.cached = ids(1, 161);
  CHECK(encode(report).size() <= 12);
  report.cached = ids(4'000'000'000, 161);
  CHECK(encode(report).size() <= 16);

  Order order;
  order.operations.resize(1);
  for (const CacheId id : ids(1, 161)) order.operations[0].tensors.push_back({id, ""});
  CHECK(encode(order).size() <= 161 + 16);
}

TEST_CASE("what most orders and reports do not have costs at most a byte each", "[codec]") {
  // Format, kind, lane (2), last order, flags, requests, cached.
  CHECK(encode(Report{}).size() == 8);
  // Format, kind, lane (2), sequence, operations, failures, evicted, joined, shut down by, removed.
  CHECK(encode(Order{}).size() == 11);
  Order order;
  order.operations.resize(1);
  CHECK(encode(order).size() == 11 + 4);  // members, extents, absent, merged
}

TEST_CASE("every prefix of a message is an error", "[codec]") {
  for (const Message& message : samples()) {
    const Bytes bytes = encode(message);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      INFO("kind " << message.index() << ", " << length << " of " << bytes.size() << " bytes");
      CHECK_FALSE(error_of(ConstByteSpan(bytes).first(length)).empty());
    }
  }
}

TEST_CASE("a changed byte gives an error or another message with one encoding", "[codec]") {
  for (const Message& message : samples()) {
    const Bytes original = encode(message);
    for (std::size_t at = 0; at < original.size(); ++at) {
      for (int value = 0; value < 256; ++value) {
        Bytes bytes = original;
        bytes[at] = static_cast<std::byte>(value);
        const Result<Message> result = decode(bytes);
        if (result.ok() && encode(*result) != bytes) FAIL("byte " << at << " set to " << value);
      }
    }
  }
}

TEST_CASE("trailing bytes are an error", "[codec]") {
  for (const Message& message : samples()) {
    Bytes bytes = encode(message);
    bytes.push_back(std::byte{0});
    CHECK(error_of(bytes).find("followed by more bytes") != std::string::npos);
  }
}

TEST_CASE("errors name the field and the offset", "[codec]") {
  CHECK(error_of({}).find("format is cut off (at byte 0 of 0)") != std::string::npos);
  CHECK(error_of(bytes_of({1, 0})).find("format is not this build's") != std::string::npos);
  CHECK(error_of(bytes_of({kFormat, 200})).find("kind is none") != std::string::npos);
  // Abort: culprit 0, a text of 5 bytes of which 1 is there
  CHECK(error_of(bytes_of({kFormat, 3, 0, 5, 'x'}))
            .find("abort.text is longer than the message (at byte 4 of 5)") != std::string::npos);
  // Abort: culprit beyond 32 bits
  CHECK(error_of(bytes_of({kFormat, 3, 0x80, 0x80, 0x80, 0x80, 0x40, 0}))
            .find("abort.culprit is out of range") != std::string::npos);
}

TEST_CASE("numbers have one form and fit their type", "[codec]") {
  CHECK(error_of(bytes_of({kFormat, 3, 0x80, 0x00, 0})).find("more bytes than it needs") !=
        std::string::npos);
  Bytes endless = bytes_of({kFormat, 3});
  endless.insert(endless.end(), 20, std::byte{0xFF});
  CHECK(error_of(endless).find("more than 64 bits") != std::string::npos);
}

// Report up to its two lists: format, kind, lane (0, -1), last order, flags.
Bytes report_head() { return bytes_of({kFormat, 1, 0, 1, 0, 0}); }

TEST_CASE("counts that the rest cannot hold are refused", "[codec]") {
  Bytes bytes = report_head();
  for (const int value : {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01})
    bytes.push_back(static_cast<std::byte>(value));
  CHECK(error_of(bytes).find("report.requests has more items than bytes follow") != std::string::npos);
}

TEST_CASE("each flag of a report is a bit, and there are no others", "[codec]") {
  Bytes bytes = report_head();
  bytes.insert(bytes.end(), 2, std::byte{0});
  bytes[5] = std::byte{4};
  const Result<Message> removing = decode(bytes);
  REQUIRE(removing.ok());
  Report expected;
  expected.removing = true;
  CHECK(*removing == Message{expected});
  bytes[5] = std::byte{32};
  CHECK(error_of(bytes).find("report.flags has a flag this build does not know") != std::string::npos);
}

TEST_CASE("a run of ids cannot grow without bound", "[codec]") {
  Report report;
  report.cached = ids(1, kMaxIds);
  CHECK(decode(encode(report)).ok());
  report.cached = ids(1, kMaxIds + 1);
  CHECK(error_of(encode(report)).find("more ids than any cache holds") != std::string::npos);

  Bytes wrap = report_head();  // no requests, one run of 1 id beyond 2^32
  for (const int value : {0, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0})
    wrap.push_back(static_cast<std::byte>(value));
  CHECK(error_of(wrap).find("report.cached is out of range") != std::string::npos);
}

TEST_CASE("values that no message may carry are refused", "[codec]") {
  Report report;
  report.requests.resize(1);
  report.requests[0].prescale.divisor = 0;
  CHECK(error_of(encode(report)).find("scale.divisor") != std::string::npos);
  report.requests[0] = Request{};
  report.requests[0].shape = {-1};
  CHECK(error_of(encode(report)).find("request.shape is negative") != std::string::npos);

  report.requests[0] = Request{};
  report.requests[0].others = {{DType::kFloat32, {4, -1}}};
  CHECK(error_of(encode(report)).find("tensor.shape is negative") != std::string::npos);
  report.requests[0] = Request{};
  report.requests[0].ranks = {-1};
  CHECK(error_of(encode(report)).find("request.ranks is negative") != std::string::npos);

  Order order;
  order.operations = {{.tensors = {}, .extents = {-2}, .absent = {}}};
  CHECK(error_of(encode(order)).find("operation.extents is negative") != std::string::npos);
  order.operations = {{.tensors = {}, .extents = {}, .absent = {-2}}};
  CHECK(error_of(encode(order)).find("operation.absent is negative") != std::string::npos);
  order.operations = {{.tensors = {FusedTensor{}}, .extents = {}, .absent = {}}};
  CHECK(error_of(encode(order)).find("neither an id nor named") != std::string::npos);
  order.operations.clear();
  order.failures = {{"a", StatusCode::kOk, ""}};
  CHECK(error_of(encode(order)).find("failure.code is success") != std::string::npos);
  order.failures.clear();
  order.tickets = OrderTickets{{}, {1, {}}};
  CHECK(error_of(encode(order)).find("tickets.operations is empty") != std::string::npos);
  order.tickets = OrderTickets{{-1}, {1, {}}};
  CHECK(error_of(encode(order)).find("tickets.operations is negative") != std::string::npos);
  CHECK(error_of(encode(TicketGrant{{}, 1, Tickets{}})).find("tickets.first is 0") != std::string::npos);
  CHECK(error_of(encode(TicketMembers{{}, {-1}})).find("tickets.ranks is negative") != std::string::npos);
}

TEST_CASE("contributions that no report may carry are refused", "[codec]") {
  const auto refused = [](std::vector<Contribution> contributions) {
    Report report;
    report.requests.resize(1);
    report.cached = {3};
    report.contributions = std::move(contributions);
    return error_of(encode(report));
  };
  CHECK(refused({{2, {{0, "a"}}}}).find("contribution.request is none of the report's") != std::string::npos);
  CHECK(refused({{1, {{0, "a"}}}, {1, {{0, "a"}}}}).find("contribution.request does not ascend") !=
        std::string::npos);
  CHECK(refused({{0, {}}, {1, {{0, "abcdef"}}}}).find("contribution.change is empty") != std::string::npos);
  CHECK(refused({{1, {{0, ""}, {1, "abcdef"}}}}).find("run.bytes is empty") != std::string::npos);
  CHECK(refused({{1, {{0, "ab"}, {1, "c"}}}}).find("run.offset does not ascend") != std::string::npos);
  Bytes none = encode(Report{});
  none[5] = std::byte{16};  // says that there are some
  none.push_back(std::byte{0});
  CHECK(error_of(none).find("report.contributions is empty") != std::string::npos);
}

TEST_CASE("a request with more fields or bytes than an agreement may have is refused", "[codec]") {
  const auto refused = [](std::vector<AgreementField> fields) {
    Report report;
    report.requests.resize(1);
    report.requests[0].fields = std::move(fields);
    return error_of(encode(report));
  };
  CHECK(refused(std::vector<AgreementField>(256)).find("request.fields has too many") != std::string::npos);
  CHECK(refused({{Merge::kOr, 1U << 20}, {Merge::kOr, 1}}).find("request.fields is too large") !=
        std::string::npos);
  CHECK(refused({{Merge::kOr, 1U << 21}}).find("field.bytes is too large") != std::string::npos);
}

}  // namespace
}  // namespace roundelay::wire
