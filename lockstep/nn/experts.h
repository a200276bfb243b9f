// Kernels of a mixture of experts on a CPU, behind its router (router.h): rows ordered by expert,
// products with the weights of each. By hand where LibTorch's leave open in which order rows are
// added up (index_add). A row is a token and one of the experts that it is sent to; rows of an
// expert stand side by side, in the order of tokens.
#pragma once

#include "lockstep/nn/pass_run.h"

namespace lockstep::nn {

// experts -> the row of each token and choice, the end of each expert's rows.
void sort_rows(PassRun& r);

// What is of tokens, to rows, and the sums of a token's rows in the order of its choices, which is
// its derivative; of weights, of which each row has its own, to rows and back.
void take_rows(PassRun& r);
void return_rows(PassRun& r);
void take_weights(PassRun& r);
void return_weights(PassRun& r);

void expert_linear(PassRun& r);
void expert_linear_grad(PassRun& r);
void expert_linear_weight(PassRun& r);

// Ends -> rows of each expert.
void count_rows(PassRun& r);
// Rows from each rank to each own expert -> where each row goes, by expert, then by rank; the end
// of each own expert's rows.
void sort_met(PassRun& r);
// Rows to the ranks of their experts, or back. From here on the pass knows Dim::kMet.
void exchange_rows(PassRun& r);

// silu(gate) up weight.
void expert_swiglu(PassRun& r);
void expert_swiglu_grad(PassRun& r);

}  // namespace lockstep::nn
