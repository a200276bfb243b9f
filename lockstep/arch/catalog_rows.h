// The rows behind catalog.h, in parts that are short enough to read.
#pragma once

#include <vector>

#include "lockstep/arch/catalog.h"

namespace lockstep::arch {

std::vector<CatalogRow> gpt_rows();
std::vector<CatalogRow> llama_rows();  // llama, mistral, yi
std::vector<CatalogRow> qwen_rows();
std::vector<CatalogRow> olmo_and_gemma_rows();
std::vector<CatalogRow> expert_rows();  // mixtral, qwen mixtures, deepseek
std::vector<CatalogRow> tiny_rows();    // one per family, small enough to train on a laptop

}  // namespace lockstep::arch
