// The same contract as in tests/cpp/contract, linked into this program.
#include "tests/cpp/contract/message_contract.cc"  // NOLINT(bugprone-suspicious-include)
