// Waits for a change of a word, which may lie in memory that processes share.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/shared_word.h"

namespace roundelay {

using FutexWord = SharedWord<std::uint32_t>;
static_assert(FutexWord::is_always_lock_free && sizeof(FutexWord) == sizeof(std::uint32_t));

// Sleeps while `word` equals `seen`. Returns after a wake-up, a signal or the time `most`, and at once if the
// word differs. A thread that wakes others changes the word first; otherwise a sleeper could miss it.
void futex_wait(const FutexWord& word, std::uint32_t seen, Duration most);
// The same until the deadline.
void futex_wait(const FutexWord& word, std::uint32_t seen, Deadline deadline);
// Wakes all threads, of all processes, that sleep on `word`.
void futex_wake(const FutexWord& word);

}  // namespace roundelay
