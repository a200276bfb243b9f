// Seconds of every op of a program, from a calibration: what the simulator asks for.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/cost/measured/calibration.h"
#include "lockstep/cost/op_messages.h"
#include "lockstep/cost/program_bytes.h"
#include "lockstep/mesh/mesh.h"
#include "lockstep/model/arch.h"
#include "lockstep/program/program.h"

namespace lockstep::cost {

// Any thread may read it. Its arguments must outlive it.
class CalibratedPrices {
 public:
  // Refuses a program that has an op which the calibration does not know: a pass, or a collective
  // of another number of ranks. `name` is the calibration's file. REQUIRES: sizes as program_bytes
  // wants them, and as the calibration was made for (check_same).
  static Result<CalibratedPrices> create(const Calibration& calibration,
                                         const program::Program& program, const model::Model& model,
                                         const StepSizes& sizes, const mesh::Mesh& mesh,
                                         const std::string& name);

  // On the op's lane, as sim::Cost wants it.
  Seconds time(Coord coord, const program::Op& op) const;
  // Of its own list for an asynchronous op and for a Wait, as sim::Conditions::host wants it.
  Seconds host(Coord coord, const program::Op& op) const;
  // Where the parts of a simulated or measured list lie; a computation that took longer than it
  // should has longer parts.
  std::vector<program::TimedPart> parts(Coord coord, const program::Timeline& list) const;

 private:
  CalibratedPrices(const Calibration& calibration, const program::Program& program,
                   const model::Model& model, const StepSizes& sizes, const mesh::Mesh& mesh);
  // What is missing; empty when nothing is.
  std::string unknown(Coord coord, const program::Op& op) const;
  std::vector<Message> messages(Coord coord, const program::Op& op) const;  // between several
  Seconds meeting(Coord coord, const program::Op& op) const;                // all of their time
  Seconds tied_in_place(Coord coord) const;
  // Of every pass of the program: as it was measured, less what runs beside collectives.
  Result<void> time_passes(const std::string& name);

  const Calibration& calibration_;
  const program::Program& program_;
  const model::Model& model_;
  const StepSizes& sizes_;
  std::vector<OpMessages> by_coord_;  // of its first rank
  double norm_elements_ = 0;          // of the coordinate that has most
  struct PricedPass {
    Seconds time;
    sim::PassTimes parts;
  };
  std::map<std::string, PricedPass> passes_;  // by pass_name
};

}  // namespace lockstep::cost
