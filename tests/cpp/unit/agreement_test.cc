// How values merge, and how changes carry them, beside a reference that does it byte by byte.
#include "base/agreement.h"

#include <random>
#include <string>
#include <vector>

#include "tests/cpp/agreement_reference.h"
#include "tests/cpp/catch.h"

namespace roundelay {
namespace {

using testing::reference_of;
using testing::ValuesByRank;

class Random {
 public:
  explicit Random(std::uint64_t seed) : random_(seed) {}
  std::size_t below(std::size_t bound) { return random_() % bound; }
  // Few different bytes, so that some are equal.
  std::string bytes(std::size_t count) {
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(below(3) == 0 ? random_() : 0x80 * below(2));
    return bytes;
  }

 private:
  std::mt19937_64 random_;
};

Agreed merged(const std::vector<AgreementField>& fields, int root, const ValuesByRank& ranks) {
  Merger merger(fields, root);
  for (const auto& [rank, values] : ranks) merger.add(rank, values);
  return merger.finish();
}

std::string applied(const ByteChange& change, std::string values) {
  REQUIRE(fits(change, values.size()));
  apply_change(change, values);
  return values;
}

TEST_CASE("each kind of merge does what it says", "[agreement]") {
  const auto of = [](Merge merge, int root = -1) {
    return merged({{merge, 2}}, root, {{3, "\x81\x0f"}, {5, "\x41\xf0"}, {9, "\x01\x10"}});
  };
  CHECK(of(Merge::kAnd).values == std::string("\x01\x00", 2));
  CHECK(of(Merge::kOr).values == "\xc1\xff");
  CHECK(of(Merge::kMax).values == "\x81\xf0");  // bytes have no sign
  CHECK(of(Merge::kRoot, 9).values == "\x01\x10");
  CHECK(of(Merge::kRoot, 4).values == std::string(2, '\0'));  // the root takes no part
  CHECK(of(Merge::kEqual).values == "\x81\x0f");
  CHECK(of(Merge::kEqual).differences == std::vector<Difference>{{0, 3, 5, "\x81\x0f", "\x41\xf0"}});
}

TEST_CASE("values merge as the reference does, whatever the fields", "[agreement]") {
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    Random random(seed);
    std::vector<AgreementField> fields;
    for (auto n = random.below(6); n > 0; --n)
      fields.push_back(
          {static_cast<Merge>(random.below(kMergeCount)), static_cast<std::uint32_t>(random.below(20))});
    ValuesByRank ranks;
    for (auto n = 1 + random.below(5); n > 0; --n)
      ranks[static_cast<int>(random.below(9))] = random.bytes(bytes_of(fields));
    const int root = static_cast<int>(random.below(10)) - 1;
    INFO("seed " << seed);
    REQUIRE(merged(fields, root, ranks) == reference_of(fields, root, ranks));
  }
}

TEST_CASE("sums of doubles have the bits of additions in the order of ranks", "[agreement]") {
  const auto bytes_of_double = [](double value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const std::vector<AgreementField> fields{{Merge::kSum, sizeof(double)}};
  const ValuesByRank ranks{
      {0, bytes_of_double(1e16)}, {3, bytes_of_double(1.0)}, {5, bytes_of_double(-1e16)}};
  CHECK(merged(fields, -1, ranks).values == bytes_of_double(1e16 + 1.0 - 1e16));
}

TEST_CASE("a change turns its base into the values, in few runs", "[agreement]") {
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    Random random(seed);
    const std::string base = random.bytes(random.below(40));
    std::string values = base;
    for (auto n = random.below(4); n > 0 && !values.empty(); --n) values[random.below(values.size())] ^= 1;
    const ByteChange change = change_between(base, values);
    INFO("seed " << seed);
    REQUIRE(applied(change, base) == values);
    REQUIRE(change.empty() == (base == values));
    std::size_t least = 0;
    for (const ByteRun& run : change) {  // no run could be shorter, or part of the one before
      REQUIRE(run.offset >= least);
      REQUIRE(run.bytes.front() != base[run.offset]);
      REQUIRE(run.bytes.back() != base[run.offset + run.bytes.size() - 1]);
      least = run.offset + run.bytes.size() + 4;
    }
  }
}

TEST_CASE("runs that are near each other are one", "[agreement]") {
  const std::string zeros(12, '\0');
  const auto change = [&](std::size_t gap) {
    std::string values = zeros;
    values[2] = values[3 + gap] = 'x';
    return change_between(zeros, values);
  };
  CHECK(change(3) == ByteChange{{2, std::string("x\0\0\0x", 5)}});
  CHECK(change(4) == ByteChange{{2, "x"}, {7, "x"}});
}

TEST_CASE("a change that goes past its values does not fit", "[agreement]") {
  CHECK(fits({{0, "abc"}}, 3));
  CHECK(fits({}, 0));
  CHECK_FALSE(fits({{1, "abc"}}, 3));
  CHECK_FALSE(fits({{4, "a"}}, 3));
  CHECK_FALSE(fits({{0, "a"}, {UINT32_MAX, "a"}}, 3));
}

}  // namespace
}  // namespace roundelay
