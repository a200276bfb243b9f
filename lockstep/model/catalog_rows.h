// The rows behind catalog.h, in parts that are short enough to read.
#pragma once

#include <vector>

#include "lockstep/model/catalog.h"

namespace lockstep::model {

struct RowShape {
  std::int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, positions;
};
ModelConfig shaped(const char* name, Family family, const RowShape& shape);

std::vector<CatalogRow> gpt_rows();
std::vector<CatalogRow> llama_rows();  // llama, mistral, yi
std::vector<CatalogRow> qwen_rows();
std::vector<CatalogRow> olmo_and_gemma_rows();
std::vector<CatalogRow> expert_rows();  // mixtral, qwen mixtures, deepseek
std::vector<CatalogRow> tiny_rows();    // one per family, small enough to train on a laptop

}  // namespace lockstep::model
