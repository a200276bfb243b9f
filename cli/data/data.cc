#include "cli/data/data.h"

#include "cli/verbs.h"

namespace lockstep::cli {

Verb data_verb() {
  return {.name = "data",
          .summary = "Make, check and look into token files",
          .description =
              "Token files are Megatron pairs, PREFIX.bin and PREFIX.idx, or llm.c files ending in "
              ".bin. `tools/tokenize` makes pairs from JSONL with any tokenizer.json; from-text "
              "makes one from plain text, byte by byte, to try things out.",
          .examples = {{"lockstep data from-text poems.txt --out poems", "text to token files"},
                       {"lockstep data inspect poems", "what is in them"},
                       {"lockstep data verify poems --vocab 257", "read and check every token"},
                       {"lockstep data blend run.toml --dry-run",
                        "what a run would take from each file"}},
          .verbs = {data_inspect_verb(), data_verify_verb(), data_blend_verb(), data_sample_verb(),
                    data_text_verb()}};
}

}  // namespace lockstep::cli
