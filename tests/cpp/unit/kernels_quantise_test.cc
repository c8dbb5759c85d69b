// Numbers in 8 bits: what arrives, what stays, and numbers that have no multiple.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/table.h"
#include "kernels/quantise.h"
#include "tests/cpp/catch.h"

namespace roundelay::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// What arrives, and what stays.
struct Sent {
  std::vector<float> arrived, left;
};

Sent send_with(const Table& table, std::vector<float> numbers) {
  const EightBits form{numbers.size()};
  std::vector<float> message(form.bytes() / sizeof(float) + 1, -1.0F);  // aligned, with a number after it
  auto* const bytes = reinterpret_cast<std::byte*>(message.data());
  table.quantise(bytes, numbers.data(), numbers.size());
  CHECK(message.back() == -1.0F);
  Sent sent{std::vector<float>(numbers.size(), 9.0F), {}};
  table.dequantise(sent.arrived.data(), bytes, numbers.size());
  sent.left = std::move(numbers);
  return sent;
}

// Sends with every instruction set, which have the same bits.
Sent send(const std::vector<float>& numbers) {
  const auto bits = [](const std::vector<float>& of) {
    std::vector<std::uint32_t> made(of.size());
    std::memcpy(made.data(), of.data(), of.size() * sizeof(float));
    return made;
  };
  Sent portable = send_with(usable_tables().front(), numbers);
  for (const Table& table : usable_tables()) {
    CAPTURE(table.name);
    const Sent sent = send_with(table, numbers);
    CHECK(bits(sent.arrived) == bits(portable.arrived));
    CHECK(bits(sent.left) == bits(portable.left));
  }
  return portable;
}

TEST_CASE("a message has a byte for each number and four for each block", "[kernels][quantise]") {
  CHECK(EightBits{0}.bytes() == 0);
  CHECK(EightBits{1}.bytes() == 8);
  CHECK(EightBits{256}.bytes() == 260);
  CHECK(EightBits{257}.bytes() == 268);
}

TEST_CASE("numbers arrive as multiples, within half a scale, and the rest stays", "[kernels][quantise]") {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const std::size_t count : {1, 3, 255, 256, 257, 1000, 4096}) {
    for (const float size : {1.0F, 1e-30F, 1e30F}) {
      std::vector<float> numbers(count);
      for (float& one : numbers) one = normal(random) * size;
      const Sent sent = send(numbers);
      for (std::size_t first = 0; first < count; first += EightBits::kBlock) {
        float most = 0;
        const std::size_t end = std::min(count, first + EightBits::kBlock);
        for (std::size_t i = first; i < end; ++i) most = std::max(most, std::fabs(numbers[i]));
        const float scale = most / 127;
        for (std::size_t i = first; i < end; ++i) {
          REQUIRE(sent.arrived[i] == std::nearbyint(numbers[i] / scale) * scale);
          REQUIRE(sent.left[i] == numbers[i] - sent.arrived[i]);
          REQUIRE(std::fabs(sent.left[i]) <= 0.5001F * scale);
        }
      }
    }
  }
}

TEST_CASE("blocks may be written and read alone", "[kernels][quantise]") {
  constexpr std::size_t kFirst = 2 * EightBits::kBlock, kCount = kFirst + 300;
  std::mt19937 random(1);
  std::vector<float> numbers(kCount);
  for (float& one : numbers) one = static_cast<float>(random());
  const auto message_of = [&](std::initializer_list<std::size_t> starts) {
    std::vector<float> left = numbers;
    std::vector<std::byte> message(EightBits{kCount}.bytes());
    std::size_t end = kCount;
    for (const std::size_t start : starts) {  // descending
      quantise(message.data() + EightBits{start}.bytes(), left.data() + start, end - start);
      end = start;
    }
    return message;
  };
  const std::vector<std::byte> whole = message_of({0});
  CHECK(message_of({kFirst, 0}) == whole);
  std::vector<float> all(kCount), part(kCount - kFirst);
  dequantise(all.data(), whole.data(), kCount);
  dequantise(part.data(), whole.data() + EightBits{kFirst}.bytes(), part.size());
  CHECK(std::equal(part.begin(), part.end(), all.begin() + kFirst));
}

TEST_CASE("ties go to the even multiple, and the largest number arrives", "[kernels][quantise]") {
  const Sent sent = send({127, 0.5, 1.5, -2.5, -127});
  CHECK(sent.arrived == std::vector<float>{127, 0, 2, -2, -127});
  CHECK(sent.left == std::vector<float>{0, 0.5, -0.5, -0.5, 0});
}

TEST_CASE("zeros arrive, and what is too small for a scale stays", "[kernels][quantise]") {
  CHECK(send({0, -0.0F, 0}).arrived == std::vector<float>{0, 0, 0});
  const float least = std::numeric_limits<float>::denorm_min();
  const Sent sent = send({least, -least});
  CHECK(sent.arrived == std::vector<float>{0, 0});
  CHECK(sent.left == std::vector<float>{least, -least});
  for (const float most : {127 * least, 190 * least, 500 * least, 0x1p-120F, 0x1p-119F}) {
    const Sent larger = send({most, most / 2});
    CHECK(larger.arrived[0] + larger.left[0] == most);
    CHECK(larger.arrived[1] + larger.left[1] == most / 2);
    CHECK((larger.arrived[0] != 0) == (most >= 0x1p-119F));
  }
}

TEST_CASE("a number that is not finite makes its block NaN, of which nothing stays", "[kernels][quantise]") {
  const float largest = std::numeric_limits<float>::max();  // 127 of its 127th parts are infinite
  for (const float bad : {kInfinity, -kInfinity, kNaN, largest}) {
    std::vector<float> numbers(600, 1.0F);
    numbers[300] = bad;
    const Sent sent = send(numbers);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const bool in_block = i >= 256 && i < 512;
      REQUIRE(std::isnan(sent.arrived[i]) == in_block);
      REQUIRE((in_block || sent.arrived[i] == 1.0F));
      REQUIRE(sent.left[i] == 0);
    }
  }
}

TEST_CASE("numbers that are not sent move exactly", "[kernels][quantise]") {
  const std::vector<float> numbers = [] {
    std::vector<float> made(600, 0.3F);
    made[300] = kNaN;
    return made;
  }();
  for (const Table& table : usable_tables()) {
    CAPTURE(table.name);
    std::vector<float> left = numbers, arrived(numbers.size());
    table.move_exactly(arrived.data(), left.data(), left.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const bool in_block = i >= 256 && i < 512;
      REQUIRE((in_block ? std::isnan(arrived[i]) : arrived[i] == 0.3F));
      REQUIRE(left[i] == 0);
    }
  }
}

}  // namespace
}  // namespace roundelay::kernels
