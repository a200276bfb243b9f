// A time that no schedule can beat.
#pragma once

#include "lockstep/base/units.h"
#include "lockstep/pipeline/search/stage_problem.h"

namespace lockstep::pipeline {

// At most the makespan of any schedule that solves the problem. The largest of these, over the
// pipeline ranks c; n is the number of F on c, K = min(max_held, n), "the K longest" are taken
// among all n passes of a kind.
//
// Opening. No pass runs on c before F of its first stage can (head), and until its first I can run
// it has at most K passes F to do, since only W frees. So c loses at least
//     open = max(head, first I - the K longest F),
// and the step takes open + all work of c.
//
// Draining. When the last I on c ends, all F are done and at most K activations are held, so at
// most K of its W follow; and the gradient has yet to go down to stage 0 and become its W (tail).
// So the step takes open + all work - the K longest W + tail.
//
// Turning. Before the last F on c starts, n - K of its W have ended, and with them their I. That F
// has yet to go to the last stage and come back: open + all F + the n - K shortest (I + W) + round
// trip + I + tail; with head for open where n = K, as then no I need precede.
//
// Room. An activation stays on c for stay = F + round trip + I + W. With one chunk, F of microbatch
// k + K follows W of microbatch k, so F of the last, m - 1 = qK + r, starts at head + rF + q stay
// or later. With any chunks, the K places hold stay for every F: their total is at most K (step -
// head), less what is missing while they fill, one F after the other, and while they empty, one W
// after the other.
//
// With costs that are whole numbers of any unit, all are sums, hence exact up to 2^53 of it, but
// for the last, which divides by K. It, and all of them with other costs, are rounded down by far
// more than sums of doubles are off.
Seconds lower_bound(const StageProblem& problem);

// Whether a schedule with this makespan is as good as the bound allows, but for rounding.
bool reaches(Seconds makespan, Seconds bound);

}  // namespace lockstep::pipeline
