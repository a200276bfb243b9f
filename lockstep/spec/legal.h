// The one answer to "can this be run": plan, verify and train all ask it.
#pragma once

#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/error.h"
#include "lockstep/model/model_config.h"
#include "lockstep/spec/layout.h"

namespace lockstep::spec {

// Every reason why the runtime would refuse, empty when there is none: a model that contradicts
// itself (reported alone), settings that contradict each other (contradictions.h, without its
// warnings), and what can be planned but not run yet (kNotRunYet). Each error names the settings
// with their values and the nearest that are legal.
//
// What runs today: models without model::unsupported() traits (families gpt2, llama, gemma2 and
// moe, and so mistral, qwen2, qwen3, olmo2, mixtral, qwen2_moe, qwen3_moe, olmoe and dots1), in
// f32, bf16 or f64; an ep that divides the experts, and with experts etp = tp or, under sequence
// parallelism, an etp that divides tp; any cp; a tp that divides heads and ffn, and kv_heads or is
// a multiple of them, whatever the vocabulary, with sequence parallelism or without; every ZeRO
// stage, also over a data group of one, where it changes nothing; the schedules of
// schedule_names(), the others can be simulated. A pure function; any thread may call it.
std::vector<Error> legal(const model::ModelConfig& model, const Layout& layout, const Batch& batch,
                         DType dtype);

}  // namespace lockstep::spec
