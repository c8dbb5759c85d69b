// Calls by which a member's code tells the explorer of its steps. looked(), before_write() and wrote() do
// nothing outside an exploration; the others may only be called inside one.
#pragma once

#include <cstdint>

namespace roundelay::explore {

// The running member has read a shared word. All others may move before it goes on. `kept`: it may remember
// the value beyond its next access.
void looked(const void* word, std::uint64_t value, bool kept);
// The running member is about to write a shared word. It may die here.
void before_write();
// The running member has written a shared word. `seen`: the value that it read in the same access, or 0.
void wrote(const void* word, std::uint64_t seen);
// The running member looked in vain. It looks again when the word that it looked at last has changed.
void stall();
// These serve a wait that is a loop. before_last_look() returns the member's place before it looked in vain.
// back_at() says that the member is at this place again, past_last_word() that it is past the word that it
// looked at last: nothing else since then makes a difference to it.
std::uint64_t before_last_look();
void back_at(std::uint64_t place);
void past_last_word(std::uint64_t place);
// The running member sleeps on `word` until wake(word). Nothing else wakes it, so a lost wake-up is a dead
// end.
void sleep_on(const void* word);
void wake(const void* word);
// The running member has found a wrong result. The exploration ends.
void fail(const char* complaint);

// All of these throw it through a member's code when the explorer gives its run up.
struct GivenUp {};

}  // namespace roundelay::explore
