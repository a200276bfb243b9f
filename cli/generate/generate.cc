// lockstep generate: its command line. What it does is in torch/run.cc.
#include "cli/engine.h"
#include "cli/verbs.h"

namespace lockstep::cli {

Verb generate_verb() {
  return {
      .name = "generate",
      .summary = "Let a model go on from a text",
      .description =
          "The model is the newest checkpoint of a run, one checkpoint, or a Hugging Face "
          "directory "
          "of any family that trains. Models of bytes (`lockstep data from-text`) take text as it "
          "is; others need the tokenizer.json that they were trained with, which is read by "
          "Python's `tokenizers`. A text ends after --max-tokens, at a --stop, at the token that "
          "ends a text, or by Ctrl-C. Tokens are drawn from softmax of logits / temperature, of "
          "the "
          "--top-k likeliest, of these the fewest that have a share of --top-p; with the same seed "
          "the same ones.",
      .examples = {{"lockstep generate out --prompt 'Once upon a time'",
                    "the newest checkpoint of the run in out/"},
                   {"lockstep generate out --prompt '' --temperature 0 --max-tokens 50",
                    "always the likeliest token, from the beginning of a text"},
                   {"lockstep generate my-llama --prompt 'To be' --top-k 40 --top-p 0.9 --stop .",
                    "a Hugging Face directory, to the end of the sentence"},
                   {"lockstep generate out --prompt-file prompts.jsonl --json",
                    "many prompts, for programs"}},
      .options = grouped(
          {{"Prompt",
            {text("prompt", "TEXT", "Text to go on from; an empty one begins a text"),
             text("prompt-file", "FILE",
                  "A prompt on each line; of a .jsonl file each line is a JSON text, which may "
                  "have line ends, or an object with one called \"prompt\""),
             text("prompt-ids", "IDS",
                  "Ids of tokens with commas between them; prints ids, and "
                  "needs no tokenizer"),
             text(
                 "tokenizer", "PATH",
                 "A tokenizer.json, a directory that has one, or `bytes`; a Hugging Face directory "
                 "has its own, and a vocabulary of 257 is bytes")}},
           {"Sampling",
            {real("temperature", "T", "What logits are divided by; 0: the likeliest token")
                 .initially("0.8")
                 .between(0, 100),
             integer("top-k", "K", "Draw among the K likeliest tokens").at_least(1),
             real("top-p", "P", "Of these among the fewest that have this share of probability")
                 .between(0, 1),
             integer("seed", "N", "Of the draws [default: 0]").at_least(0)}},
           {"Options",
            {integer("max-tokens", "N",
                     "Most tokens of an answer [default: 256, or as many as the model's positions "
                     "leave]")
                 .at_least(1),
             text("stop", "TEXT", "End the answer before this text").repeats(),
             choice("dtype", "TYPE", {"f32", "bf16"},
                    "What to compute in [default: as weights are stored]")}}}),
      .positionals = {{.name = "MODEL",
                       .help = "Run folder, checkpoint or Hugging Face directory"}},
      .engine = &Engine::generate};
}

}  // namespace lockstep::cli
