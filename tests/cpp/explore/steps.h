// What a member's code tells the explorer. Outside an exploration these do nothing.
#pragma once

#include <cstdint>

namespace roundelay::explore {

// The member that runs has made one access to a shared word: all others may move before it goes on.
// `kept`: it may remember the value for longer than until its next access.
void looked(const void* word, std::uint64_t value, bool kept);
void wrote(const void* word, std::uint64_t seen);
// It looked in vain, and does the same again when the word that it looked at last has changed.
void stall();
// For a wait that is done in a loop. Where the member was before it looked in vain, and that it is there
// again, or past the word that it looked at last: nothing else since makes a difference to it.
std::uint64_t before_last_look();
void back_at(std::uint64_t place);
void past_last_word(std::uint64_t place);
// It sleeps on `word` until wake(word); nothing else ends that, so a lost wake-up is a dead end.
void sleep_on(const void* word);
void wake(const void* word);
// What it found is wrong: the exploration ends.
void fail(const char* complaint);

// Thrown through a member's code by all of these when its run is given up.
struct GivenUp {};

}  // namespace roundelay::explore
