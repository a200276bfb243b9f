// One function per family, one file per function; describe() in arch.h picks among them.
// REQUIRES of all: problems(config) is empty.
#pragma once

#include "lockstep/model/arch.h"

namespace lockstep::model {

Model describe_gpt2(const ModelConfig& config);
Model describe_llama(const ModelConfig& config);
Model describe_moe(const ModelConfig& config);
Model describe_deepseek(const ModelConfig& config);
Model describe_gemma2(const ModelConfig& config);

}  // namespace lockstep::model
