// What a published run says of its software, and what is known of that software: which kernels it
// fuses, what it overlaps, what it keeps. Rules look at the row's description alone, never at what
// was measured.
#pragma once

#include <cstdint>

#include "lockstep/backtest/run_table.h"
#include "lockstep/cost/analytic/price.h"

namespace lockstep::backtest {

// Software that leaves its devices idle between kernels to a different degree.
enum class StackClass : std::uint8_t {
  kTuned,    // the vendor's stack (Megatron's kernels, also under DeepSpeed), or a compiled program
  kSharded,  // PyTorch FSDP, eager
  kOther,    // home-made trainers, and pipelines that DeepSpeed's engine drives
};
StackClass stack_class_of(const PublishedRun& run, int zero);

// Stack::gaps, Stack::jitter and Stack::network_share of the classes. Fitted on calibration rows
// together with the rates of devices: the tuned stack's gaps and network are the reference, and
// ranks of sharded data meet in collectives that are priced apart.
struct StackHabits {
  double gaps_sharded, gaps_other;
  double jitter_tuned, jitter_other;
  double network_other;
};
extern const StackHabits kFittedHabits;
void set_habits(const StackHabits& habits, StackClass kind, cost::Stack& stack);

// Everything but the habits.
cost::Stack stack_of(const PublishedRun& run, int zero);

bool is_torchtitan(const PublishedRun& run);
bool is_nanotron(const PublishedRun& run);

// Whether the column holds the words as they stand.
bool says(const PublishedRun& run, std::string_view column, std::string_view words);

}  // namespace lockstep::backtest
