// libFuzzer entry: clang++ -fsanitize=fuzzer,address,undefined -DROUNDELAY_FUZZER ... codec_fuzzer.cc
#ifdef ROUNDELAY_FUZZER

#include <algorithm>
#include <cstdlib>

#include "wire/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace roundelay;
  const ConstByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  const Result<wire::Message> message = wire::decode(bytes);
  if (!message.ok()) return 0;
  const Bytes again = wire::encode(*message);
  if (!std::equal(again.begin(), again.end(), bytes.begin(), bytes.end())) std::abort();
  return 0;
}

#endif
