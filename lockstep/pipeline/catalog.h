// Schedules known by name. Adding one takes a file in generators/, its declaration, and a row here.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "lockstep/base/result.h"
#include "lockstep/pipeline/schedule.h"

namespace lockstep::pipeline {

// Formulas are in p pipeline ranks, v chunks, m microbatches, groups of N, pipeline rank r, and tF,
// tB, tW: the times of F, I and W of one microbatch on a whole pipeline rank, of which a chunk
// takes 1/v.
struct PipelineTerms {
  double p = 1, v = 1, m = 1;     // whole numbers
  double tf = 1, tb = 1, tw = 1;  // of any unit
};
inline PipelineTerms terms_of(int p, int v, std::int64_t m) {
  return {static_cast<double>(p), static_cast<double>(v), static_cast<double>(m)};
}

struct CatalogRow {
  std::string_view name;
  Result<Schedule> (*build)(const Shape& shape);
  std::string_view summary;  // one line
  std::string_view use;      // when to choose it; sentences
  std::string_view source;   // who proposed it, the year, arXiv numbers
  std::string_view accepts;  // shapes
  int chunks = 1;            // that it needs; 0: any number
  Placement placement = Placement::kLoop;
  bool is_planned = false;  // the planner chooses from it
  // Idle time of a pipeline rank in one step, communication taking none. After "where": only there.
  std::string_view bubble;
  // Microbatches whose activations pipeline rank r holds at once; a chunk of one counts 1/v.
  std::string_view peak;
  // The two as functions, which prices use: p at least 2, groups of p. Where `holds` says so both
  // are what a simulation of equal stages says, exactly; elsewhere no pipeline rank holds more than
  // held().
  double (*idle)(const PipelineTerms&);
  double (*held)(const PipelineTerms&, double r);
  bool (*holds)(const PipelineTerms&);
  // The same with groups of a given size; none where microbatches do not go in groups.
  Result<Schedule> (*build_grouped)(const Shape& shape, int group) = nullptr;
  std::string_view pytorch = {};  // its name there, where that is another word
};

// In the order shown to users.
std::span<const CatalogRow> catalog();

// The row of that name. REQUIRES: there is one.
const CatalogRow& row(std::string_view name);

// kUnknownChoice for a name that is no row; the error lists the names.
Result<CatalogRow> find(std::string_view name);

}  // namespace lockstep::pipeline
