// The MAC by BLAKE2's official vectors, and the protocol by the vectors that its Python meets too.
#include "trust/trust.h"

#include <blake2/blake2.h>

#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "tests/cpp/catch.h"

namespace roundelay::trust {
namespace {

std::ifstream open(const std::string& name) {
  std::ifstream file(std::string(ROUNDELAY_SOURCE) + "/" + name);
  REQUIRE(file.good());
  return file;
}

Bytes from_hex(const std::string& text) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST_CASE("trust: BLAKE2b gives the official results") {
  std::ifstream file = open("third_party/blake2/blake2b-kat.txt");
  Bytes in;
  Bytes key;
  int results = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::string value;
    words >> name >> value;
    if (name == "in:") in = from_hex(value);
    if (name == "key:") key = from_hex(value);
    if (name != "hash:") continue;
    Bytes out(64);
    REQUIRE(blake2b(out.data(), out.size(), in.data(), in.size(), key.data(), key.size()) == 0);
    CHECK(out == from_hex(value));
    ++results;
  }
  CHECK(results == 256);
}

TEST_CASE("trust: MACs and proofs are those of vectors.txt") {
  std::ifstream file = open("csrc/trust/vectors.txt");
  int results = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string key_text, label, parts_text, mac_text;
    words >> key_text >> label >> parts_text >> mac_text;
    Key key{};
    const Bytes key_bytes = from_hex(key_text);
    std::copy(key_bytes.begin(), key_bytes.end(), key.begin());
    std::vector<Bytes> parts;
    std::istringstream list(parts_text == "." ? "" : parts_text);
    for (std::string part; std::getline(list, part, ',');) parts.push_back(from_hex(part == "-" ? "" : part));
    Mac mac{};
    Challenge challenge;
    switch (parts.size()) {
      case 0:
        mac = mac_of(key, label, {});
        break;
      case 1:
        mac = mac_of(key, label, {parts[0]});
        break;
      case 2:
        mac = mac_of(key, label, {parts[0], parts[1]});
        break;
      default:
        REQUIRE(parts.size() == 4);
        std::copy(parts[1].begin(), parts[1].end(), challenge.caller.begin());
        std::copy(parts[2].begin(), parts[2].end(), challenge.answerer.begin());
        const Role role = label == "answer" ? Role::kAnswer : label == "call" ? Role::kCall : Role::kWelcome;
        mac = proof_of(key, role, to_text(parts[0]), challenge, parts[3]);
    }
    CHECK(Bytes(mac.begin(), mac.end()) == from_hex(mac_text));
    ++results;
  }
  CHECK(results == 18);
}

TEST_CASE("trust: bytes are the same only if all are") {
  const Bytes one = to_bytes("0123456789");
  CHECK(same_bytes(one, to_bytes("0123456789")));
  for (std::size_t i = 0; i < one.size(); ++i) {
    Bytes other = one;
    other[i] ^= std::byte{0x80};
    CHECK_FALSE(same_bytes(one, other));
  }
  CHECK_FALSE(same_bytes(one, to_bytes("012345678")));
}

TEST_CASE("trust: nonces differ") {
  std::set<Nonce> seen;
  for (int i = 0; i < 100; ++i) seen.insert(*new_nonce());
  CHECK(seen.size() == 100);
}

}  // namespace
}  // namespace roundelay::trust
