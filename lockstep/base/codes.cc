#include "lockstep/base/codes.h"

#include <cctype>
#include <cstdio>

#include "lockstep/base/text.h"

namespace lockstep {
namespace {

// Kept in ascending order; tests/base/codes_test.cc checks that and that every enumerator has a
// row.
constexpr CodeRow kCodeRows[] = {
    {Code::kUnknownCommand, "no such command",
     "The first word after `lockstep` is not one of its commands.", "no command `simulat`",
     "`lockstep --help` lists the commands; a name that is close to one is suggested."},
    {Code::kUnknownOption, "no such option",
     "The command does not take it. A misspelt option that was ignored would train something else.",
     "`lockstep plan` has no option `--modle`", "`lockstep COMMAND --help` lists what it takes."},
    {Code::kBadOptionValue, "an option's value cannot be used",
     "The value has the wrong form, is out of range, or is missing.",
     "--ranks must be at least 2 and at most 64, not 1",
     "Give a value as the message says, or leave the option out for its default."},
    {Code::kFileUnreadable, "a file cannot be read",
     "It does not exist, may not be read, is a directory, or one without files of the kind.",
     "cannot read `run.tml`: no such file or directory",
     "Check the name and the permissions. Files that a run file names lie beside it."},
    {Code::kSyntax, "a file is not well-formed",
     "A TOML or JSON file could not be parsed; nothing after the first such error can be trusted.",
     "key `tp` has no value",
     "Mend the place shown; mistakes in values are then reported all together."},
    {Code::kUnknownKey, "no such key",
     "A misspelt key that was ignored would leave a default in place without a word.",
     "no key `tensor` in [layout]",
     "`lockstep config fields` lists all keys, `config fields layout` those of one table."},
    {Code::kWrongType, "a value has the wrong type",
     "The key exists, but its value is of another type. Numbers are never read from text.",
     "`batch.seq` must be a whole number, not text",
     "Write a value of that type: numbers without quotes, text with them."},
    {Code::kOutOfRange, "a value is out of range",
     "The value has the right type but lies outside the range the key allows.",
     "`layout.zero` must be between 0 and 3, not 4",
     "Take a value within the range that the message gives, in its unit."},
    {Code::kUnknownChoice, "a value is not one of the choices",
     "The key takes one of a fixed set of names.", "`train.dtype` has no choice `float32`",
     "Take one of the names that the message lists; the nearest is suggested."},
    {Code::kMissingKey, "a required key is missing",
     "The key has no default, because any default would hide a decision only you can take.",
     "`batch.global_batch` is missing", "Add the key to the file, or give it with --set."},
    {Code::kConflict, "two values contradict each other",
     "Each is legal alone, but not beside the other, or would do nothing there and hide a mistake.",
     "prefetch = 2 is about gathered parameters, but zero = 1 gathers none while it computes",
     "Change one of the two; both places are shown, and the nearest values."},
    {Code::kDegreesDoNotMatchWorld, "the degrees do not multiply to the number of ranks",
     "tp x cp x pp x dp must equal the number of ranks: each has one place in the mesh.",
     "tp x cp x pp = 7 x 1 x 1 = 7 does not divide the 512 devices of h100:512",
     "Take a degree of the help, or leave dp out: it is then what the others leave."},
    {Code::kBadDegree, "a degree is not usable",
     "A degree must be at least 1 and one that the axis supports; a stage needs a layer.",
     "pp = 9 needs 9 layers, but tiny has 4",
     "Take a degree within the limit; 1 leaves an axis out."},
    {Code::kDoesNotDivide, "a size is not divisible by a degree",
     "The axis cuts this size into equal pieces, so the degree must divide it.",
     "seq = 8200 is not a multiple of tp = 16",
     "Take one of the nearest values in the help; they are of the key that was set last."},
    {Code::kBadSchedule, "a pipeline schedule cannot run",
     "Every stage must run each microbatch once forward and once backward, weight gradients in "
     "microbatch order, and no pass may wait for one that can only come after it.",
     "interleaved needs a multiple of pp = 4 microbatches, not 6",
     "Change the shape as the help says, or the pass of a CSV file; see docs/schedules.md."},
    {Code::kNotRunYet, "this can be planned, but not run yet",
     "It can be priced, but this version does not execute it, nor something near it in its place.",
     "cp = 2 (with pp = 1, dp = 4) can be planned but not run yet",
     "Take the settings of the help; `lockstep plan --runnable` seeks among what runs."},
    {Code::kDeadlock, "ranks of a program would wait for each other for ever",
     "Each of some ranks waits for a call that another makes only later.",
     "on a transport of level in-order rank 0 waits for rank 1, which waits for rank 0",
     "Change the order of the passes named; of a schedule that is built in, report it."},
    {Code::kBadRunTable, "a table of published runs cannot be read",
     "The first line of the CSV file must name all columns, each rightly, and no others.",
     "the table does not have the columns of published runs; missing: `gpus`",
     "Mend the first line; rows that cannot be priced are listed with the reason."},
    {Code::kRowNotPriced, "a published run does not say enough to be priced",
     "A row lacks a size or a degree, or names a device that is not known.",
     "global_batch is not given",
     "Fill in the column that the message names, from the source of the row."},
    {Code::kNothingFits, "no layout fits into the memory of the devices",
     "Every layout needs more memory on some device than it has, with all sharded and recomputed.",
     "gpt3-175b does not fit: every layout needs at least 910.5 GiB on some device, which has 80.0",
     "Use more devices, devices with more memory, or a shorter sequence."},
    {Code::kNothingDivides, "no layout divides the devices",
     "Degrees must multiply to the devices, tp divide the heads, and each stage needs a layer, "
     "each data-parallel rank a sequence. No choice does all of that here.",
     "global_batch = 1 cannot be divided over 16,384 devices by any layout of llama3-405b",
     "Take the nearest global_batch in the help, or a number of devices with more divisors."},
    {Code::kTargetMissed, "no number of devices meets the target",
     "None of the numbers of devices up to the cluster's trains --tokens in --target-days, or for "
     "--max-cost.",
     "llama3-8b on at most 8 devices does not train 15 T tokens in 30 days",
     "Name a larger cluster, or take the nearest days or cost in the help."},
    {Code::kUnknownModel, "no such model",
     "The name is neither a row of the model catalogue nor a model file.",
     "no model is called `llama3-80b`",
     "`lockstep model --list` shows the catalogue, --fields the keys of a file of your own."},
    {Code::kBadModel, "a model description contradicts itself",
     "Two sizes of the model exclude each other.",
     "model `llama3-8b-variant`: heads is 32, which kv_heads 5 does not divide",
     "Change one of the two values that the message names."},
    {Code::kUnknownDevice, "no such device or cluster",
     "The name is neither a row of the device catalogue nor a cluster file.",
     "no device is called `h1000`",
     "`lockstep cluster --list` shows the catalogue, --fields the keys of a file of your own."},
    {Code::kBadCluster, "a cluster description contradicts itself",
     "For example tiers whose sizes do not grow, or a number of devices that nodes do not fill.",
     "`h100:12`: 12 devices do not fill nodes of 8",
     "Take one of the nearest counts, or describe an unusual machine in a cluster file."},
    {Code::kMismatchedCalls, "members of a group called different operations",
     "All members of a group must call the same operations with the same sizes in the same order.",
     "rank 1 holds another program than the others",
     "This is a bug of ours; the message has what each of two members called. Report it."},
    {Code::kPeerLost, "a peer is gone",
     "A process of the job ended or its connection broke while others waited for it.",
     "all_reduce on tp failed: rank 2 is gone",
     "Look at what that rank said last, then resume from the last checkpoint with --resume."},
    {Code::kPeerStalled, "a peer did not answer before the deadline",
     "It is alive, but hangs, is stopped, or is far slower than the deadline allows.",
     "all_reduce on tp did not finish before its deadline: rank 3 is stopped",
     "Look at the rank named last, which waits for nobody, then continue with --resume."},
    {Code::kPoisoned, "the communicator failed earlier",
     "After a first failure nobody can tell which bytes arrived, so all further work is refused.",
     "all_reduce on tp after an earlier failure: rank 2 is gone",
     "The first failure, which the message repeats, is the one to look into."},
    {Code::kStoreLost, "the rendezvous store does not answer",
     "Ranks find each other through it. Rank 0, or a launcher, hosts it: that ended or is stopped.",
     "rank 1 cannot reach the store at 10.0.0.1:29500",
     "Look at rank 0 first, then at MASTER_ADDR, MASTER_PORT and the way between the machines."},
    {Code::kInterrupted, "asked to stop before the first step",
     "A signal came while ranks met or weights were drawn; nothing was trained or saved.",
     "asked to stop: waiting at 10.0.0.1:29500 for 1 of 4 ranks: 3",
     "Start the job again; of a wait, see first that the ranks named are started."},
    {Code::kNeedsTorch, "this build or machine has no LibTorch",
     "Either the program was built with LOCKSTEP_TORCH=OFF (preset `core`), or its module "
     "liblockstep_torch.so or a library of LibTorch cannot be loaded; the message says which.",
     "`lockstep train` needs LibTorch, which this build does not have",
     "Build the preset `dev`: `cmake --preset dev && cmake --build build/dev`."},
    {Code::kUnsuitableEnvironment, "this machine or process cannot do it",
     "A device, port, permission or variable that the command needs is missing or unusable.",
     "cannot write `/etc/plan.json`: permission denied",
     "Mend what the message names. `lockstep doctor` shows what this machine offers."},
    {Code::kDiverged, "training diverged",
     "The loss or the gradient norm is not finite. No parameter was changed by that step.",
     "loss or gradient norm of step 812 is not finite",
     "Try a smaller train.lr, a longer train.warmup or a limit of the gradient norm, train.clip."},
    {Code::kBadMetrics, "metrics of another run, or not metrics at all",
     "A run does not touch metrics.jsonl of an earlier one, nor what it cannot read.",
     "`out/metrics.jsonl` is there already",
     "Resume that run with --resume, or name another directory."},
    {Code::kCorruptState, "a rank's state was silently corrupted",
     "A check (train.check_interval) found bits that no step has written: replicas that differ, a "
     "piece that changed between two steps, or an update that another rank computes otherwise. The "
     "step was not applied and nothing of it was saved.",
     "before step 812 rank 3 lost bits of its first moment of blocks.7.mlp.up.weight",
     "The run resumes from its newest checkpoint that was checked, where there is one. Take a host "
     "that is named twice out of the job, and test its memory."},
    {Code::kBadTokenFile, "a token file is not what it says",
     "PREFIX.idx and PREFIX.bin must agree to the byte, and an llm.c file with its header: it was "
     "cut short, damaged or made by something else.",
     "`corpus.idx`, byte 9: it is of version 3, only 1 is known",
     "Make it again, with `tools/tokenize` or `lockstep data from-text`."},
    {Code::kTokenBeyondVocab, "a token the model does not know",
     "The file was made with another tokenizer, or model.vocab is too small.",
     "`corpus`, document 3, token 17: id 50256 is not below the vocabulary of 32000",
     "`lockstep data verify` shows the largest id; raise model.vocab, or tokenize anew."},
    {Code::kTooLittleData, "the data cannot fill the demand",
     "A split has no document or too few tokens for one sample (a sequence and the token after "
     "it), or a file gives more samples than can be numbered.",
     "the validation split of `corpus` is empty: of 12 documents none falls to it",
     "Change data.split, add files, or shorten batch.seq."},
    {Code::kDiskFailed, "a disk failed",
     "A file could not be written, synced or renamed. Checkpoints before it are as they were.",
     "cannot write `out/step-00000010.tmp-1/rank-00000.safetensors`: No space left on device",
     "Make room or mend the disk, then continue with --resume."},
    {Code::kBadSafetensors, "a safetensors file is not well-formed",
     "Its header contradicts itself or the file's size: usually a copy was cut short.",
     "`model.safetensors` is not a safetensors file: tensor `wte.weight` ends beyond it",
     "Fetch or copy the file again; of a checkpoint, take an earlier one."},
    {Code::kBadManifest, "a checkpoint's manifest is not usable",
     "MANIFEST.json, which says where each element lies, is damaged, of another version, or does "
     "not cover every element exactly once.",
     "`MANIFEST.json` is of step 10, but its folder is called `step-00000020`",
     "Take another: `lockstep checkpoint ls` lists them, `verify` says which are whole."},
    {Code::kCorruptCheckpoint, "a checkpoint is damaged",
     "A file is missing, has another size, or bytes that are not those that were written.",
     "`out/step-00000010/rank-00001.safetensors` has 4100 bytes, but had 8196",
     "`lockstep checkpoint verify` looks at everything; an earlier checkpoint may be whole."},
    {Code::kOtherCheckpoint, "a checkpoint is of another job",
     "Model, data or settings that decide what is trained differ. Layouts may differ.",
     "`out/step-00000010` holds weights alone, without a training to go on with",
     "Set them back to those of the checkpoint, or begin with its weights alone: --weights."},
    {Code::kNoCheckpoint, "no checkpoint",
     "Training never starts from random weights in place of a checkpoint that is missing.",
     "there is no checkpoint in `out`",
     "Name a checkpoint, a folder step-N, or the run folder that holds them."},
    {Code::kBadAuditDump, "a dump of a training step cannot be audited",
     "It is not whole, its pieces overlap or do not fit the model of its config, or its batch is "
     "one that no reference is computed of. A verdict on part of a step would be none.",
     "gradient `model.norm.weight`: 64 of 128 elements are in no piece, the first at 64",
     "docs/formats/audit.md says what a dump holds; every rank writes two files of it."},
    {Code::kBadHfConfig, "a config.json describes no model that can be trained here",
     "A directory is taken over only when Lockstep computes what transformers would; another "
     "activation, rotary scaling, bias or window would not. Dropout is ignored, and said so.",
     "config.json: `hidden_act` is `relu`, an activation that is not written",
     "Take a model of a family that docs/huggingface.md lists; the message names the key."},
    {Code::kBadHfWeights, "the weights of a directory do not fit its config.json",
     "Every tensor must be there once, in F32, BF16 or F16, with the shape that config.json "
     "implies, and none may be left over: it would be silently dropped. None may hold NaN or "
     "infinite elements, in either direction.",
     "2 tensors in `model.safetensors` are no parameter of the model",
     "Mend config.json or fetch the weights again; all misfits are listed."},
    {Code::kNoHfForm, "the model has no Hugging Face form",
     "It has a trait that none of gpt2, llama, mistral, qwen2, qwen3, olmo2 and gemma2 has.",
     "model `mixtral-8x7b` is a mixtral to transformers",
     "Keep the checkpoint, or train a model without the trait that the message names."},
    {Code::kBug, "a bug in Lockstep", "An invariant of the program itself does not hold.",
     "lockstep/mesh/group.cc:88: rank < world failed: 8 < 8",
     "Please report the message together with the output of `lockstep doctor --json`."},
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
  const auto number = text.size() > 4 ? std::nullopt : number_in<int>(text);
  for (const CodeRow& row : kCodeRows)
    if (number == static_cast<int>(row.code)) return row.code;
  return std::nullopt;
}

}  // namespace lockstep
