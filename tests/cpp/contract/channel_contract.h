// What every backend of channel::Channel must do. A backend's test file makes the ranks and calls the checks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "channel/channel.h"

namespace roundelay::testing {

// Ranks 0 .. n-1 of one world, all in this process, ready to talk.
using Channels = std::vector<std::unique_ptr<channel::Channel>>;
using MakeChannels = std::function<Channels(int size)>;

// `text`, or `size` bytes that depend on `seed` and the position.
Bytes to_bytes(std::string_view text);
Bytes pattern(std::size_t size, std::uint32_t seed);

// The next thing that arrives, waiting for up to 20 s (then it throws).
channel::Incoming receive_one(channel::Channel& channel);

// One rank's part in an exchange of many messages of all sizes between all ranks, to oneself too; for
// backends whose ranks are processes. Returns what is wrong, "" if nothing.
std::string talk_to_all(channel::Channel& mine, int rank, int size);

// Runs all checks, each over fresh channels, as Catch sections.
void check_channel(const MakeChannels& make);

}  // namespace roundelay::testing
