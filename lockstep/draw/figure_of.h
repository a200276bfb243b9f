// Figures of what was timed: a schedule at the grain of stages, or the whole program of a step.
// Ops that take no time, and the time a list stands still in waits, make no bar. The caller sets
// `title`, and `time_unit` when its costs are no seconds.
#pragma once

#include "lockstep/draw/figure.h"
#include "lockstep/pipeline/schedule.h"
#include "lockstep/program/memory_walk.h"
#include "lockstep/program/program.h"
#include "lockstep/program/timeline.h"
#include "lockstep/sim/simulator.h"
#include "lockstep/sim/stage_sim.h"

namespace lockstep::draw {

// Memory in activations of one microbatch of a whole pipeline rank: F adds 1/chunks when it begins,
// W or B frees as much when it ends. REQUIRES of all three: times of this schedule or program.
Figure figure_of(const pipeline::Schedule& schedule, const sim::StageTimes& times);

// A lane for each group that collectives reach and for each direction to each peer, beside compute.
// Memory counts what blocks keep for their backward pass, in activations of one microbatch of a
// whole pipeline rank; the input alone, kept by a block that is recomputed, counts nothing.
Figure figure_of(const program::Program& program, const sim::Simulation& simulation);

// The same with memory in bytes, the peak inside ops included.
Figure figure_of(const program::Program& program, const sim::Simulation& simulation,
                 const program::ProgramBytes& bytes);

// What was measured: a band for each rank. Memory is that of the walk, at the measured times.
Figure figure_of(const program::Program& program, const program::StepTimeline& measured,
                 const program::ProgramBytes& bytes);

}  // namespace lockstep::draw
