// Ranks with different versions are told so, whatever their messages look like.
#include "runtime/startup/introductions.h"
#include "base/version.h"
#include "tests/cpp/catch.h"

namespace roundelay::runtime {
namespace {

Bytes of_rank(int rank) {
  wire::Introduction one;
  one.hello = {rank, 0, version(), {}};
  one.node = std::string("a\0b", 3);
  return encode_introduction(one);
}

std::string refusal(const Bytes& of_rank_1) {
  const std::vector<Bytes> gathered = {of_rank(0), of_rank_1, of_rank(2)};
  const auto all = decode_introductions(gathered);
  REQUIRE_FALSE(all.ok());
  CHECK(all.status().code() == StatusCode::kUnavailable);
  return all.status().message();
}

TEST_CASE("introductions are read back in the order of ranks") {
  const std::vector<Bytes> gathered = {of_rank(0), of_rank(1)};
  const auto all = decode_introductions(gathered);
  REQUIRE(all.ok());
  REQUIRE(all->size() == 2);
  CHECK((*all)[1].hello.rank == 1);
  CHECK((*all)[1].node == std::string("a\0b", 3));
}

TEST_CASE("another version is named before its message is read") {
  const std::string text = refusal(to_bytes(std::string("9.9.9\0of another layout", 23)));
  CHECK(text.find("rank 0 has \"" + version() + "\", rank 1 has \"9.9.9\"") != std::string::npos);
}

TEST_CASE("another build of the same version is named") {
  const std::string text = refusal(to_bytes(version() + std::string("\0of another layout", 18)));
  CHECK(text.find("rank 1 runs another build of Roundelay \"" + version() + '"') != std::string::npos);
}

TEST_CASE("bytes without a version come from another build") {
  for (const std::string& bytes : {std::string(), std::string("no end"), std::string(200, 'x')}) {
    CHECK(refusal(to_bytes(bytes)).find("rank 1 has a build that states no version") != std::string::npos);
  }
}

}  // namespace
}  // namespace roundelay::runtime
