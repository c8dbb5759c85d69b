// libFuzzer entry: what a peer says on a data stream, and at the port of one.
#ifdef ROUNDELAY_FUZZER

#include <array>
#include <cstdlib>
#include <vector>

#include "collective/tcp/in_stream.h"
#include "collective/tcp/out_stream.h"
#include "connect/greeting.h"
#include "connect/tcp_address.h"
#include "tests/cpp/socket_pair.h"

namespace {

using namespace roundelay;
using testing::socket_pair;

// The first byte chooses how many receives are posted, and with which tags and sizes.
void say_to_receiver(ConstByteSpan bytes) {
  auto [here, there] = socket_pair();
  collective::tcp::InStream stream;
  std::vector<collective::TransferId> over;
  std::array<Bytes, 8> memory;
  const unsigned choice = std::to_integer<unsigned>(bytes.front());
  for (unsigned i = 0; i < choice % memory.size(); ++i) {
    memory[i].resize((i * choice) % 5 == 4 ? collective::tcp::kMostSmall + i : i * choice);
    static_cast<void>(stream.receive(i, memory[i], {i % 3, {.sequence = i % 2}}, over));
  }
  stream.connect(std::move(here));
  const ConstByteSpan said = bytes.subspan(1);
  static_cast<void>(there.write(std::span(&said, 1)));
  if (!stream.read(over).ok()) stream.close();
  for (const collective::TransferId id : over) {
    if (id >= memory.size()) std::abort();
  }
}

void say_to_sender(ConstByteSpan bytes) {
  auto [here, there] = socket_pair();
  collective::tcp::OutStream stream;
  const Bytes large(collective::tcp::kMostSmall + 1);
  static_cast<void>(stream.send(0, large, {1, {.sequence = 1}}));
  stream.connect(std::move(here));
  static_cast<void>(there.write(std::span(&bytes, 1)));
  std::vector<collective::TransferId> over;
  if (stream.read_notices().ok()) static_cast<void>(stream.write(over));
}

void greet(ConstByteSpan bytes) {
  connect::Handshake handshake{.key = {}, .dialler = 1, .acceptor = 0};
  static_cast<void>(connect::decode_opening(bytes, handshake));
  static_cast<void>(connect::decode_answer(bytes, handshake));
  for (const trust::Role role : {trust::Role::kCall, trust::Role::kWelcome}) {
    if (connect::decode_greeting(bytes, handshake, role)) std::abort();  // nobody can guess a proof
  }
  static_cast<void>(connect::decode_tcp_address(bytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ConstByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  say_to_receiver(bytes);
  say_to_sender(bytes);
  greet(bytes);
  return 0;
}

#endif
