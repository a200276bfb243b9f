// What failures leave of a cluster's time: devices fail, the job starts again from its last save,
// and saving takes time too. With failures at random, t seconds of work between saves make progress
// for a share of
//   t / ((mtbf + restart) (exp((t + save) / mtbf) - 1))
// of the time (Daly 2006; Young's sqrt(2 save mtbf) is its first approximation); t is the one that
// makes it highest.
#pragma once

namespace lockstep::planner {

struct Reliability {
  // Device-hours between interruptions. 419 unexpected ones in 54 days on 16,384 H100, of which 148
  // were faulty GPUs and 78 % were hardware (Llama 3, arXiv 2407.21783, section 3.3.4): 50,700.
  double device_hours = 16384.0 * 54 * 24 / 419;
  double save_s = 5;       // that a save holds training up
  double restart_s = 300;  // from a failure to the next step, lost work not counted
};

struct Goodput {
  double share = 1;       // of the time that makes progress
  double mtbf_s = 0;      // mean time between interruptions of the job
  double interval_s = 0;  // of work between two saves
};

// REQUIRES: all positive.
Goodput goodput(double devices, const Reliability& reliability);

}  // namespace lockstep::planner
