// Whether transformers computes the same from a Hugging Face directory as Lockstep from the
// checkpoint beside it: the output of each unit for one text of drawn tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/helper.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/json.h"
#include "lockstep/base/result.h"

namespace lockstep::cli {

// How far one unit's rows are from those of f64, as the norm of the difference over that of the
// row; of the row where it is greatest.
struct UnitDifference {
  std::string unit;         // "embedding", "blocks.0", ..., "logits"
  double theirs = 0;        // of transformers, in f32
  double rounding = 0;      // of Lockstep, in f32
  std::int64_t tokens = 0;  // rows of theirs beyond the bound
};

struct OutputCheck {
  std::vector<UnitDifference> units;
  std::int64_t tokens = 0;
  std::string versions;  // "transformers 5.1, torch 2.13"

  // The first unit that differs; null where none does.
  const UnitDifference* different() const;
  std::string told() const;  // a sentence
  Json json() const;
};

// What f32 may do to transformers' rows, given what it does to Lockstep's. Both round as often, but
// not at the same places: tiny models of gpt2, llama, gemma2 and dots1 had at most 1.2 times as
// much. Where f32 moves a row by more than 1e-4, no difference can be told from a turned choice.
double difference_bound(double rounding);

// A process of Python with transformers for the directory `name`, which need not be there yet.
// LS0602 where something is missing, LS0601 without an engine.
Result<Helper> start_check(const std::string& name);

// Rows that transformers computed against those of Lockstep in f64 and in f32, [tokens, columns].
UnitDifference compare_rows(std::span<const double> exact, std::span<const double> rounded,
                            std::span<const float> theirs, std::int64_t tokens);

// Loads the directory's model in f32 there, and the checkpoint's in f32 and f64, one after the
// other, here. `stored`: what weights of the directory were rounded to.
Result<OutputCheck> check_outputs(Helper& transformers, const std::string& directory,
                                  const std::string& checkpoint, DType stored);

}  // namespace lockstep::cli
