#include "lockstep/base/codes.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

namespace lockstep {
namespace {

// Kept in ascending order; tests/base/codes_test.cc checks that and that every enumerator has a
// row.
constexpr CodeRow kCodeRows[] = {
    {Code::kUnknownCommand, "no such command",
     "The first word after `lockstep` is not one of its commands. `lockstep --help` lists them; a "
     "name\n"
     "that is close to an existing one is suggested."},
    {Code::kUnknownOption, "no such option",
     "The command does not take this option or argument. `lockstep <command> --help` lists what "
     "it\n"
     "takes. Unknown options are never ignored: a misspelt option would silently train something "
     "else."},
    {Code::kBadOptionValue, "an option's value cannot be used",
     "The value given to an option has the wrong form or is out of range, or the option needs a "
     "value\n"
     "and none was given. The message says what is accepted."},
    {Code::kFileUnreadable, "a file cannot be read",
     "The file does not exist, is a directory, or may not be read by this user; or it is a "
     "directory\n"
     "that was to hold files of some kind and has none. The message carries the reason."},
    {Code::kSyntax, "a file is not well-formed",
     "A TOML or JSON file could not be parsed. Nothing after the first syntax error can be "
     "trusted, so\n"
     "only that one is reported; errors in values are reported together once the file parses."},
    {Code::kUnknownKey, "no such key",
     "A configuration file or --set names a key that does not exist. Unknown keys are refused, "
     "because\n"
     "a misspelt key would leave a default in place without a word. `lockstep config fields` lists "
     "all."},
    {Code::kWrongType, "a value has the wrong type",
     "The key exists, but its value is of another type: for example text where a whole number is\n"
     "needed. Numbers are never read from text."},
    {Code::kOutOfRange, "a value is out of range",
     "The value has the right type but lies outside the range the key allows. The message gives "
     "the\n"
     "range and its unit."},
    {Code::kUnknownChoice, "a value is not one of the choices",
     "The key takes one of a fixed set of names. The message lists them and suggests the nearest."},
    {Code::kMissingKey, "a required key is missing",
     "The key has no default, because any default would hide a decision only you can take."},
    {Code::kConflict, "two values contradict each other",
     "Each value is legal alone, but not together with the other. The message shows both places."},
    {Code::kDegreesDoNotMatchWorld, "the degrees do not multiply to the number of ranks",
     "tp x cp x pp x dp must equal the number of ranks. Every rank has exactly one place in the "
     "mesh;\n"
     "a rank without a place would idle, and a place without a rank can not run."},
    {Code::kBadDegree, "a degree is not usable",
     "A degree must be a whole number of at least 1 that the axis supports."},
    {Code::kDoesNotDivide, "a size is not divisible by a degree",
     "The axis cuts this size into equal pieces, so the degree must divide it. The message lists "
     "the\n"
     "nearest degrees that do."},
    {Code::kBadSharding, "a tensor cannot be sharded this way",
     "A layout shards one tensor dimension by more axes than it has room for, or names the same "
     "axis\n"
     "twice."},
    {Code::kWrongTensorState, "a collective does not fit what the ranks hold",
     "Along each axis a tensor is replicated, sharded or partial. all_gather starts from sharded,\n"
     "all_reduce and reduce_scatter start from partial; from another state they would compute\n"
     "something, but not what the model means."},
    {Code::kBadSchedule, "a pipeline schedule can not run",
     "A schedule must run every stage and microbatch exactly once forward and once backward, on "
     "the\n"
     "coordinate that holds the stage, weight gradients in microbatch order, and in an order in "
     "which\n"
     "no pass waits for one that can only come after it. The message names the pass."},
    {Code::kNotRunYet, "this can be planned, but not run yet",
     "The request makes sense and can be priced, but the runtime of this version does not execute "
     "it.\n"
     "It is refused rather than replaced by something near it. The message gives the nearest "
     "settings\n"
     "that run."},
    {Code::kDeadlock, "ranks of a program would wait for each other for ever",
     "Every rank runs its part of the step in order, and here each of some ranks waits for a call "
     "that\n"
     "another makes only later. Whether it happens depends on how much order the transport keeps; "
     "the\n"
     "message tells who waits for whom."},
    {Code::kBadRunTable, "a table of published runs can not be read",
     "`lockstep backtest` reads a CSV file whose first line names its columns. All of them must be "
     "there\n"
     "and no others, so that a misspelt column is not silently left out. Values are not strict: a "
     "row that\n"
     "can not be priced is listed with the reason."},
    {Code::kRowNotPriced, "a published run does not say enough to be priced",
     "A row lacks a size or a degree that its time or memory depends on, or names a device or a "
     "shape that\n"
     "is not known. The message names the column and its value."},
    {Code::kNothingFits, "no layout fits into the memory of the devices",
     "Every layout of the model on these devices needs more memory on some device than it has, "
     "with "
     "all\n"
     "states sharded and everything recomputed. The message says how much the smallest needs."},
    {Code::kNothingDivides, "no layout divides the devices",
     "tp x cp x pp x dp must be the number of devices, tp must divide the heads, stages need a "
     "layer\n"
     "each and data-parallel ranks a sequence each. No choice of degrees does all of that here."},
    {Code::kUnknownModel, "no such model",
     "The name is neither a row of the model catalogue (`lockstep model --list`) nor a model "
     "file."},
    {Code::kBadModel, "a model description contradicts itself",
     "For example a number of heads that its number of key-value heads does not divide. The "
     "message\n"
     "names both values."},
    {Code::kUnknownDevice, "no such device or cluster",
     "The name is neither a row of the device catalogue (`lockstep cluster --list`) nor a cluster "
     "file."},
    {Code::kBadCluster, "a cluster description contradicts itself",
     "For example tiers whose sizes do not grow, or a device count that the node size does not "
     "divide."},
    {Code::kMismatchedCalls, "members of a group called different operations",
     "All members of a group must call the same operations with the same sizes in the same order. "
     "The\n"
     "message names two members and what each of them called. This is a bug in the caller."},
    {Code::kPeerLost, "a peer is gone",
     "A process of the job ended or its connection broke while others waited for it. The message "
     "names\n"
     "the rank and the operation. The communicator can not be used any more; restart the job from "
     "its\n"
     "last checkpoint."},
    {Code::kPeerStalled, "a peer did not answer before the deadline",
     "A process of the job is alive to the operating system but did not take part in an operation "
     "in\n"
     "time: it hangs, is stopped, or is far slower than the deadline allows."},
    {Code::kPoisoned, "the communicator failed earlier",
     "After a lost peer or a missed deadline nobody can tell which bytes arrived, so a "
     "communicator\n"
     "refuses all further work. The message repeats the first failure."},
    {Code::kStoreLost, "the rendezvous store does not answer",
     "The store through which ranks find each other is gone. Rank 0 hosts it unless a launcher "
     "does, so\n"
     "this usually means that rank 0 ended or is stopped."},
    {Code::kNeedsTorch, "this build has no LibTorch",
     "The binary was built with LOCKSTEP_TORCH=OFF (preset `core`): planning, simulating and "
     "formats\n"
     "work, everything that computes tensors does not. Build the preset `dev` for those."},
    {Code::kUnsuitableEnvironment, "this machine or process can not do it",
     "A device, port, permission or environment variable that the command needs is missing or "
     "unusable.\n"
     "`lockstep doctor` shows what this machine offers."},
    {Code::kDiverged, "training diverged",
     "The loss or the gradient norm of a step is infinite or not a number. No rank has changed "
     "any\n"
     "parameter by that step. A smaller learning rate, a longer warm-up or a limit of the "
     "gradient\n"
     "norm usually help."},
    {Code::kBadMetrics, "metrics of another run, or not metrics at all",
     "A run writes what it measures to metrics.jsonl. A new run does not touch the file of an "
     "earlier "
     "one:\n"
     "resume that run, or name another directory. A file that a resumed run can not read is left "
     "as it is."},
    {Code::kBadTokenFile, "a token file is not what it says",
     "The index of a token file (PREFIX.idx) and its tokens (PREFIX.bin) must agree with each "
     "other "
     "to\n"
     "the byte, and an llm.c file with its own header. The message names the file, the offset and "
     "what\n"
     "is wrong there. The file was cut short, damaged or made by something else: make it again, "
     "with\n"
     "`tools/tokenize` or `lockstep data from-text`. `lockstep data verify` checks files before a "
     "run."},
    {Code::kTokenBeyondVocab, "a token the model does not know",
     "A token file holds an id that is negative or not below the model's vocabulary: it was made "
     "with\n"
     "another tokenizer, or `model.vocab` is too small. `lockstep data verify` shows the largest "
     "id."},
    {Code::kTooLittleData, "the data can not fill the demand",
     "A split of the data has no document, or not enough tokens for one sample (a sequence and the "
     "token\n"
     "after it), or a single file would give more samples than can be numbered. Change data.split, "
     "add\n"
     "files, or shorten batch.seq."},
    {Code::kDiskFailed, "a disk failed",
     "The operating system could not write, sync or rename a file; the message carries its reason. "
     "A\n"
     "checkpoint that was being written is given up, and those before it are as they were."},
    {Code::kBadSafetensors, "a safetensors file is not well-formed",
     "The header of the file, its types, shapes and offsets contradict each other or the file's "
     "size.\n"
     "Usually a download or a copy was cut short. The message names the tensor."},
    {Code::kBadManifest, "a checkpoint's manifest is not usable",
     "MANIFEST.json says which file holds which elements of which tensor. It is damaged, of "
     "another\n"
     "format version, or does not cover every element exactly once; the message names the place."},
    {Code::kCorruptCheckpoint, "a checkpoint is damaged",
     "A file is missing, has another size, or its bytes do not have the digest that was taken "
     "before\n"
     "they were written. `lockstep checkpoint verify` looks at everything; an earlier checkpoint "
     "may be\n"
     "whole."},
    {Code::kOtherCheckpoint, "a checkpoint is of another job",
     "Model, data or settings that decide what is trained differ between the job and the "
     "checkpoint.\n"
     "The message shows both values. The layout, in contrast, may differ: any layout loads any\n"
     "checkpoint."},
    {Code::kNoCheckpoint, "no checkpoint",
     "There is no complete checkpoint where one was asked for. Training never starts from random\n"
     "weights in place of a checkpoint that is missing."},
    {Code::kBadHfConfig, "a config.json describes no model that can be trained here",
     "A Hugging Face directory is taken over only when Lockstep computes what transformers would "
     "compute\n"
     "from it. Another activation, a rule of rotary scaling that is not written, biases or windows "
     "where\n"
     "there are none here would train another model, so they are refused. The message names the "
     "key.\n"
     "Dropout is no part of what a model computes when it is used; it is ignored, and said so."},
    {Code::kBadHfWeights, "the weights of a directory do not fit its config.json",
     "Every tensor that the model needs must be there once, with the shape that config.json "
     "implies and\n"
     "elements in F32, BF16 or F16, and no tensor may be left over: it would be silently dropped. "
     "All\n"
     "misfits are listed, with file and tensor."},
    {Code::kNoHfForm, "the model has no Hugging Face form",
     "Checkpoints are exported as gpt2, llama, mistral, qwen2 or qwen3, whichever computes the "
     "same. A\n"
     "model with a trait that none of these has can be trained here, but transformers has no class "
     "that\n"
     "would load it."},
    {Code::kBug, "a bug in Lockstep",
     "An invariant of the program itself does not hold. Please report the message together with "
     "the\n"
     "output of `lockstep doctor --json`."},
};

}  // namespace

std::span<const CodeRow> code_table() { return kCodeRows; }

std::string to_text(Code code) {
  char text[8];
  std::snprintf(text, sizeof text, "LS%04d", static_cast<int>(code) % 10000);
  return text;
}

std::optional<Code> parse_code(std::string_view text) {
  if (text.size() > 2 && std::tolower(text[0]) == 'l' && std::tolower(text[1]) == 's')
    text.remove_prefix(2);
  if (text.empty() || text.size() > 4 ||
      !std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c); }))
    return std::nullopt;
  int number = 0;
  for (char c : text) number = number * 10 + (c - '0');
  for (const CodeRow& row : kCodeRows)
    if (static_cast<int>(row.code) == number) return row.code;
  return std::nullopt;
}

}  // namespace lockstep
