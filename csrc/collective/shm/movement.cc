// The programs that move bytes and compute nothing.
#include <algorithm>
#include <cstring>
#include <vector>

#include "collective/shm/chunks.h"
#include "collective/shm/programs.h"

namespace roundelay::collective::shm {
namespace {

void put(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

}  // namespace

Program broadcast(Rounds& net, const BroadcastCall& call) {
  const Cuts chunks{call.buffer.size(), net.slot_bytes()};
  for (std::uint64_t round = 0; round < chunks.count(); ++round) {
    std::byte* const here = call.buffer.data() + chunks[round].offset;
    if (net.index() == call.root) {
      co_await net.writable(round);
      net.put(round, 0, here, chunks[round].bytes);
      net.stage(round);
    } else {
      co_await net.staged(call.root, round);
      put(here, net.slot_of(call.root, round), chunks[round].bytes);
    }
    net.release(round);
  }
}

Program barrier(Rounds& net) {
  net.stage(0);
  co_await net.staged(0);
}

// Members with more bytes have more rounds in this program and the next. Each waits only for the bytes that
// it gets.
Program all_gather(Rounds& net, const AllgatherCall& call) {
  const std::vector<std::size_t> offsets = offsets_of(call.receive_bytes);
  const auto self = static_cast<std::size_t>(net.index());
  const Cuts own{call.receive_bytes[self], net.slot_bytes()};
  std::byte* const output = call.output.data();
  std::uint64_t rounds = 0, staged = 0;
  for (const std::size_t bytes : call.receive_bytes) {
    rounds = std::max(rounds, Cuts{bytes, net.slot_bytes()}.count());
  }
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (; staged < own.count() && staged <= round + 1; ++staged) {
      co_await net.writable(staged);
      net.put(staged, 0, call.input + own[staged].offset, own[staged].bytes);
      net.stage(staged);
    }
    for (int step = 1; step < net.size(); ++step) {
      const int member = (net.index() + step) % net.size();
      const auto from = static_cast<std::size_t>(member);
      const ByteRange range = Cuts{call.receive_bytes[from], net.slot_bytes()}[round];
      if (range.bytes == 0) continue;
      co_await net.staged(member, round);
      put(output + offsets[from] + range.offset, net.slot_of(member, round), range.bytes);
    }
    net.release(round);
  }
  put(output + offsets[self], call.input, own.bytes);
}

// In a call with a mark nobody has compared what members send and expect: the size of each part comes first.
Program alltoall(Rounds& net, const AlltoallCall& call) {
  const std::vector<std::size_t> from_here = offsets_of(call.send_bytes), to = offsets_of(call.receive_bytes);
  const auto self = static_cast<std::size_t>(net.index()), members = from_here.size();
  const std::size_t header = call.mark.set() ? kLine : 0;
  const std::size_t stride = whole_lines_down(net.slot_bytes() / members), piece = stride - header;
  std::uint64_t sends = call.mark.set() ? 1 : 0, rounds = sends, staged = 0;
  for (std::size_t member = 0; member < members; ++member) {
    if (member == self) continue;
    sends = std::max(sends, Cuts{call.send_bytes[member], piece}.count());
    rounds = std::max({rounds, sends, Cuts{call.receive_bytes[member], piece}.count()});
  }
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (; staged < sends && staged <= round + 1; ++staged) {
      co_await net.writable(staged);
      for (std::size_t member = 0; member < members; ++member) {
        const ByteRange range = Cuts{call.send_bytes[member], piece}[staged];
        if (member == self) continue;
        if (header != 0 && staged == 0) {
          const std::uint64_t bytes = call.send_bytes[member];
          net.put(0, member * stride, reinterpret_cast<const std::byte*>(&bytes), sizeof bytes);
        }
        net.put(staged, member * stride + header, call.input + from_here[member] + range.offset, range.bytes);
      }
      net.stage(staged);
    }
    for (std::size_t step = 1; step < members; ++step) {
      const std::size_t member = (self + step) % members;
      const ByteRange range = Cuts{call.receive_bytes[member], piece}[round];
      const bool compares = header != 0 && round == 0;
      if (range.bytes == 0 && !compares) continue;
      co_await net.staged(static_cast<int>(member), round);
      const std::byte* const part = net.slot_of(static_cast<int>(member), round) + self * stride;
      if (compares) {
        std::uint64_t bytes = 0;
        std::memcpy(&bytes, part, sizeof bytes);
        if (bytes != call.receive_bytes[member]) {
          net.refuse(static_cast<int>(member), bytes, call.receive_bytes[member]);
          co_await net.staged(static_cast<int>(member), round);
        }
      }
      put(call.output.data() + to[member] + range.offset, part + header, range.bytes);
    }
    net.release(round);
  }
  put(call.output.data() + to[self], call.input + from_here[self], call.send_bytes[self]);
}

}  // namespace roundelay::collective::shm
