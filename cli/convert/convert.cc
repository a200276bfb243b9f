// lockstep convert: a Hugging Face directory becomes a checkpoint to start from, and a checkpoint a
// directory that transformers loads.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cli/convert/byte_tokenizer.h"
#include "cli/convert/check.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "lockstep/base/json.h"
#include "lockstep/base/units.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/data/byte_text.h"
#include "lockstep/files/durable.h"
#include "lockstep/hf/config_json.h"
#include "lockstep/hf/export.h"
#include "lockstep/hf/import.h"
#include "lockstep/model/arch.h"

namespace lockstep::cli {
namespace {

using model::ModelConfig;

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// "step-00000010" of "runs/a/step-00000010/".
std::string last_name(const std::string& path) {
  return (std::filesystem::path(path + "/.").lexically_normal()).parent_path().filename().string();
}

Error conflict(const std::string& message, const std::string& help) {
  return {Code::kConflict, message, help};
}

// What was done, as rows of a label and a text, and as JSON.
class Conversion {
 public:
  explicit Conversion(std::string direction)
      : json_(Json::object({{"schema", "lockstep.convert/1"}, {"to", std::move(direction)}})) {}

  void row(const char* label, const std::string& text) { rows_.push_back({label, text}); }
  void set(const Json::Object& members) {
    for (const auto& [key, value] : members) json_.set(key, value);
  }

  // What is made stays where it differs, to be looked at.
  Result<void> check(const Result<OutputCheck>& done, const std::string& made) {
    if (!done.ok()) {
      Error error = done.error();
      error.help += join_parts(error.help.empty() ? "" : "; ", "`", made,
                               "` is whole, and has not been checked");
      return error;
    }
    row("checked", done->told());
    set({{"check", done->json()}});
    if (done->different() != nullptr)
      verdict_ = join_parts("It DIFFERS. `", made, "` is left to be looked at; do not use it.");
    return {};
  }

  ExitCode print(Output& output, const std::string& next) {
    if (output.json) {
      print_json(output, json_);
    } else {
      print_table(output.out, rows_, "ll");
      output.out << "\n" << verdict_.value_or(next) << "\n";
    }
    return verdict_ ? ExitCode::kCheckFailed : ExitCode::kOk;
  }

 private:
  std::optional<std::string> verdict_;  // where a check failed
  Rows rows_;
  Json json_;
};

void tell_model(const ModelConfig& model, const std::string& type, std::int64_t parameters,
                Conversion& summary) {
  summary.row("model", join_parts(model.name, ": ", type, ", ", with_commas(parameters),
                                  " parameters", model.tied ? ", head tied to the embedding" : ""));
  summary.set({{"model", model.name}, {"model_type", type}, {"parameters", parameters}});
}

// A list short enough for a row.
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kMost ? join_parts(text, " and ", names.size() - kMost, " more") : text;
}

Result<ExitCode> import(const std::string& from, const std::string& to, Helper* transformers,
                        Output& output) {
  config::Report report;
  const auto directory = hf::open_directory(from, report);
  if (!directory) return fail(output, report, from);
  const hf::Imported done =
      LS_TRY(hf::write_checkpoint(*directory, files::real_disk(), to, LOCKSTEP_VERSION));
  Conversion summary("checkpoint");
  tell_model(directory->config.model, directory->model_type, count(directory->model).total,
             summary);
  summary.row("read", join_parts(counted(std::ssize(directory->weights.all()), "tensor"), " from ",
                                 counted(directory->weights.num_files(), "file"), " of ", from));
  summary.row("written",
              join_parts(done.checkpoint, ": ", counted(done.tensors, "parameter tensor"), ", ",
                         to_text(done.bytes)));
  summary.row("", done.model_file);
  std::vector<std::string> notes = directory->config.notes;
  if (const auto& passed = directory->params.passed_over(); !passed.empty())
    notes.push_back("no parameters, so left out: " + some_of(passed));
  for (const std::string& text : notes) summary.row("note", text);
  summary.set({{"checkpoint", done.checkpoint},
               {"model_file", done.model_file},
               {"tensors", done.tensors},
               {"bytes", done.bytes.value},
               {"notes", Json::list(notes)}});
  if (transformers != nullptr)
    LS_TRY(summary.check(check_outputs(*transformers, from, done.checkpoint, DType::kF32), to));
  return summary.print(output,
                       join_parts("To train it:\n\n  lockstep train run.toml --set model.name=",
                                  done.model_file, " --weights ", to));
}

// As narrow as loses nothing, unless asked for.
Result<DType> stored_type(const Args& args, const hf::CheckpointSource& source) {
  if (args.has("dtype")) return *parse_dtype(args.text("dtype"));
  if (source.trained_type() == DType::kF64)
    return conflict("the checkpoint's weights are f64, which directories are not written in",
                    "say what to round them to: --dtype f32 or --dtype bf16");
  return source.trained_type() == DType::kBF16 ? DType::kBF16 : DType::kF32;
}

Result<ExitCode> export_to(const Args& args, const std::string& from, const std::string& to,
                           Helper* transformers, Output& output) {
  checkpoint::Checkpoint opened = LS_TRY(checkpoint::open_at(files::real_disk(), from));
  const std::string path = opened.path();
  hf::CheckpointSource source = LS_TRY(hf::CheckpointSource::open(std::move(opened)));
  const DType stored = LS_TRY(stored_type(args, source));
  ModelConfig model = source.model();
  model.name = last_name(to);
  Json config = LS_TRY(hf::config_json(model, stored));
  hf::TokenizerFiles tokenizer;
  std::vector<hf::JsonFile> byte_tokenizer;
  if (args.has("tokenizer")) {
    tokenizer = LS_TRY(hf::tokenizer_files(args.text("tokenizer")));
  } else if (model.vocab == data::kByteVocab) {
    byte_tokenizer = byte_tokenizer_files();
    for (const char* key : {"bos_token_id", "eos_token_id"})
      tokenizer.special.set(key, data::kByteEnd);
  }
  for (const auto& [key, token] : tokenizer.special.members()) config.set(key, token);
  const model::Model described = *model::describe(model);
  const auto done = LS_TRY(
      hf::write_directory(described, config, source, files::real_disk(), to,
                          {stored, args.has("shard") ? args.bytes("shard") : Bytes{5'000'000'000},
                           tokenizer.paths, byte_tokenizer}));
  Conversion summary("huggingface");
  tell_model(model, config.find("model_type")->as_text(), done.parameters, summary);
  summary.row("read", join_parts(path, ", after step ", with_commas(source.manifest().step)));
  summary.row("written", join_parts(to, ": config.json, ", counted(done.tensors, "tensor"), " in ",
                                    counted(done.files, "file"), ", ", to_text(stored), ", ",
                                    to_text(done.bytes)));
  if (!tokenizer.paths.empty())
    summary.row("", join_parts(counted(std::ssize(tokenizer.paths), "file"),
                               " of the tokenizer in ", args.text("tokenizer")));
  else if (!byte_tokenizer.empty())
    summary.row("note", join_parts("its tokenizer is that of bytes, as a vocabulary of ",
                                   model.vocab, " says; --tokenizer DIR copies another"));
  else
    summary.row("note", "it has no tokenizer; --tokenizer DIR copies one");
  const bool rounds = size_of(stored) < size_of(source.trained_type());
  if (rounds)
    summary.row("note", join_parts("weights were rounded from ", to_text(source.trained_type()),
                                   " to ", to_text(stored)));
  summary.set({{"checkpoint", path},
               {"step", source.manifest().step},
               {"directory", to},
               {"dtype", to_text(stored)},
               {"rounded", rounds},
               {"tensors", done.tensors},
               {"files", done.files},
               {"bytes", done.bytes.value}});
  if (transformers != nullptr)
    LS_TRY(summary.check(check_outputs(*transformers, to, path, stored), to));
  return summary.print(output,
                       "In Python:\n\n  AutoModelForCausalLM.from_pretrained(\"" + to + "\")");
}

Result<ExitCode> run_convert(const Args& args, Output& output) {
  const std::string from = args.text("FROM");
  const std::string to = args.text("TO");
  const bool is_directory = exists(from + "/config.json");
  if (!exists(from))
    return Error{Code::kFileUnreadable, "cannot read `" + from + "`: it is not there", ""};
  if (exists(to))
    return conflict("`" + to + "` exists already, and nothing is overwritten",
                    "give another name, or remove it");
  // Before anything is made: it may be missing.
  std::optional<Helper> python;
  if (args.flag("check")) python.emplace(LS_TRY(start_check(is_directory ? from : to)));
  Helper* const transformers = python ? &*python : nullptr;
  if (!is_directory) return export_to(args, from, to, transformers, output);
  if (checkpoint::is_checkpoint(from))
    return conflict("`" + from + "` has a config.json and a MANIFEST.json",
                    "keep Hugging Face directories and checkpoints apart");
  for (const char* option : {"dtype", "shard", "tokenizer"})
    if (args.has(option))
      return conflict(join_parts("--", option, " is for writing a Hugging Face ",
                                 "directory, but `", from, "` is one"),
                      "leave it out: a checkpoint keeps the types of the tensors it "
                      "is made of, in one file");
  return import(from, to, transformers, output);
}

}  // namespace

Verb convert_verb() {
  return {
      .name = "convert",
      .summary = "Hugging Face directories to checkpoints, and back",
      .description =
          "Which way is seen from FROM: a directory with a config.json becomes a checkpoint of "
          "weights to start a training from, and a checkpoint, or the newest in a folder of them, "
          "becomes a directory that transformers loads. gpt2, llama, mistral, qwen2, qwen3, "
          "olmo2, gemma2, mixtral, qwen2_moe, qwen3_moe, olmoe and dots1; a model that would "
          "compute "
          "something else there than here is refused. Nothing is overwritten, and TO is there only "
          "when it is whole.",
      .examples = {{"lockstep convert Llama-3.2-1B start",
                    "a checkpoint start/step-00000000 and the model file start/model.toml"},
                   {"lockstep convert runs/a my-llama --dtype bf16 --tokenizer Llama-3.2-1B",
                    "the newest checkpoint of a run as a Hugging Face directory"}},
      .options =
          {choice("dtype", "TYPE", {"bf16", "f32"},
                  "Type of the weights of a Hugging Face directory [default: that of the "
                  "checkpoint's, f32 or bf16]"),
           bytes("shard", "SIZE",
                 "Most bytes of weights in one file of a Hugging Face directory [default: 5GB]"),
           text("tokenizer", "DIR",
                "Hugging Face directory whose tokenizer and special tokens the new one gets"),
           flag("check",
                "Then compare every layer's output and the logits with transformers', in Python, "
                "and name the first layer that differs. Holds the model in f64")},
      .positionals = {{.name = "FROM",
                       .help = "Hugging Face directory, checkpoint or folder of checkpoints"},
                      {.name = "TO", .help = "What to make; it must not exist"}},
      .run = run_convert};
}

}  // namespace lockstep::cli
