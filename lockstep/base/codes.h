// Stable names of everything that can go wrong: LS0001, LS0002, ... A code, once released, keeps
// its meaning for ever; `lockstep explain LS0203` prints its row. Ranges: 00 usage and input files,
// 01 configuration values, 02 layouts, 03 models, 04 clusters, 05 communication, 06 environment, 07
// training, 08 data and durable state, 09 bugs of ours.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

enum class Code : std::uint16_t {
  kUnknownCommand = 1,
  kUnknownOption = 2,
  kBadOptionValue = 3,
  kFileUnreadable = 4,
  kSyntax = 5,

  kUnknownKey = 101,
  kWrongType = 102,
  kOutOfRange = 103,
  kUnknownChoice = 104,
  kMissingKey = 105,
  kConflict = 106,

  kDegreesDoNotMatchWorld = 201,
  kBadDegree = 202,
  kDoesNotDivide = 203,
  kBadSchedule = 206,
  kNotRunYet = 207,
  kDeadlock = 208,

  kBadRunTable = 211,
  kRowNotPriced = 212,
  kNothingFits = 214,
  kNothingDivides = 215,
  kTargetMissed = 216,

  kUnknownModel = 301,
  kBadModel = 302,

  kUnknownDevice = 401,
  kBadCluster = 402,

  kMismatchedCalls = 501,
  kPeerLost = 502,
  kPeerStalled = 503,
  kPoisoned = 504,
  kStoreLost = 505,
  kInterrupted = 506,

  kNeedsTorch = 601,
  kUnsuitableEnvironment = 602,

  kDiverged = 701,
  kBadMetrics = 702,
  kCorruptState = 703,

  kBadTokenFile = 801,
  kTokenBeyondVocab = 802,
  kTooLittleData = 803,
  kDiskFailed = 820,
  kBadSafetensors = 821,
  kBadManifest = 822,
  kCorruptCheckpoint = 823,
  kOtherCheckpoint = 824,
  kNoCheckpoint = 825,
  kBadAuditDump = 826,

  kBadHfConfig = 840,
  kBadHfWeights = 841,
  kNoHfForm = 842,

  kBug = 900,
};

struct CodeRow {
  Code code;
  std::string_view title;        // at most one line, lower case, no full stop
  std::string_view explanation;  // what it means, why it is refused; sentences, as the last two
  std::string_view example;      // a message that carries it
  std::string_view remedy;       // what to do
};

// Every code, in ascending order.
std::span<const CodeRow> code_table();

// "LS0203".
std::string to_text(Code code);

// Accepts "LS0203", "ls203" and "203"; nothing for a code that is not in the table.
std::optional<Code> parse_code(std::string_view text);

}  // namespace lockstep
