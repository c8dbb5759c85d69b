// The checks that every backend of channel::Channel must pass. A backend's test file makes the channels and
// calls the checks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "channel/channel.h"

namespace roundelay::testing {

// Makes the channels of ranks 0 .. n-1 of one world, all in this process and connected.
using Channels = std::vector<std::unique_ptr<channel::Channel>>;
using MakeChannels = std::function<Channels(int size)>;

// Returns `text`, or `size` bytes that depend on `seed` and the position.
Bytes to_bytes(std::string_view text);
Bytes pattern(std::size_t size, std::uint32_t seed);

// The deadline of a wait that something must end. A wait that lasts so long was forgotten: that is what the
// tests check, because a busy machine delays a wait that was ended, but not as long as this.
constexpr std::chrono::seconds kForgotten{60};

// Returns the next message or loss. Throws if none comes within kForgotten.
channel::Incoming receive_one(channel::Channel& channel);

// Runs one rank of an exchange: all ranks send messages of all sizes to all ranks, themselves included. For
// backends whose ranks are processes. Returns the error, "" if there is none.
std::string talk_to_all(channel::Channel& mine, int rank, int size);

// Runs all checks as Catch sections, each with new channels.
void check_channel(const MakeChannels& make);

}  // namespace roundelay::testing
