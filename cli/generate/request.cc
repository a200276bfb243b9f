#include "cli/generate/request.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "cli/text_file.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/config/glyphs.h"
#include "lockstep/data/byte_text.h"
#include "lockstep/hf/directory_source.h"
#include "lockstep/hf/weights.h"

namespace lockstep::cli {
namespace {

constexpr const char* kTokenizerFile = "/tokenizer.json";

Error contradiction(std::string message, std::string help) {
  return {Code::kConflict, std::move(message), std::move(help)};
}

Result<void> check_options(const Args& args) {
  std::vector<std::string> given;
  for (const char* option : {"prompt", "prompt-file", "prompt-ids"})
    if (args.has(option)) given.push_back(join_parts("--", option));
  if (given.empty())
    return contradiction(
        "there is no prompt",
        "--prompt TEXT, --prompt-file FILE or --prompt-ids IDS says what to go on from; "
        "--prompt '' begins a text");
  if (given.size() > 1)
    return contradiction(join_parts(given[0], " and ", given[1], " both say what to go on from"),
                         "keep one of them");
  if (args.real("temperature") == 0.0)
    for (const char* option : {"top-k", "top-p", "seed"})
      if (args.has(option))
        return contradiction(join_parts("--temperature 0 takes the likeliest token, which --",
                                        option, " ", args.text(option), " has no say in"),
                             "leave one of them out");
  if (args.has("top-p") && args.real("top-p") == 0.0)
    return Error{Code::kOutOfRange, "--top-p is 0, and no tokens have no probability",
                 "above 0, up to 1; --temperature 0 takes the likeliest token alone"};
  if (args.has("prompt-ids"))
    for (const char* option : {"stop", "tokenizer"})
      if (args.has(option))
        return contradiction(join_parts("--", option,
                                        " is about text, but --prompt-ids goes from ids "
                                        "to ids"),
                             "leave one of them out");
  for (const std::string& stop : args.texts("stop"))
    if (stop.empty())
      return contradiction("--stop has no text", "name one that is to end the answer");
  return {};
}

Result<std::vector<std::int64_t>> ids_in(const std::string& text) {
  std::vector<std::int64_t> ids;
  for (const std::string_view word : split(text, ',')) {
    const auto id = number_in<std::int64_t>(word);
    if (!id)
      return Error{Code::kBadOptionValue,
                   join_parts("--prompt-ids has `", word, "`, which is no whole number"),
                   "ids with commas between them: --prompt-ids 5,17,3"};
    ids.push_back(*id);
  }
  return ids;
}

// Of a .jsonl file each line is JSON, a text or an object with one called "prompt"; of others each
// line is a prompt. Blank lines are passed over.
Result<std::vector<Prompt>> prompts_in(const std::string& file) {
  const std::string text = LS_TRY(read_text(file));
  const bool is_json = file.ends_with(".jsonl");
  std::vector<Prompt> prompts;
  std::int64_t number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    if (!is_json) {
      prompts.push_back({std::string(line), {}});
      continue;
    }
    const Result<Json> json = Json::parse(line);
    const Json* prompt = json.ok() ? &*json : nullptr;
    if (prompt != nullptr && prompt->is_object()) prompt = prompt->find("prompt");
    if (prompt == nullptr || !prompt->is_text())
      return Error{Code::kSyntax, join_parts(file, ":", number, ": no prompt"),
                   R"(each line is a text, "Once upon", or an object, {"prompt": "Once upon"})"};
    prompts.push_back({prompt->as_text(), {}});
  }
  if (prompts.empty())
    return Error{Code::kTooLittleData, "`" + file + "` has no prompts", "each line is one"};
  return prompts;
}

}  // namespace

std::string shown(std::string_view text) {
  std::string made;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of("\n\t"), text.size());
    for (const config::Glyph& glyph : config::glyphs(text.substr(0, end))) made += glyph.text;
    made += text.substr(end, 1);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return made;
}

Result<std::vector<Prompt>> read_prompts(const Args& args) {
  LS_TRY(check_options(args));
  if (args.has("prompt")) return std::vector<Prompt>{{args.text("prompt"), {}}};
  if (args.has("prompt-file")) return prompts_in(args.text("prompt-file"));
  return std::vector<Prompt>{{"", LS_TRY(ids_in(args.text("prompt-ids")))}};
}

std::optional<WeightSource> open_weights(const std::string& path, config::Report& report) {
  WeightSource made;
  if (hf::is_file(path + "/config.json")) {
    std::optional<hf::Directory> directory = hf::open_directory(path, report);
    if (!directory) return std::nullopt;
    made.path = path;
    made.directory = std::make_unique<hf::Directory>(*std::move(directory));
    made.model = made.directory->model;
    made.params = std::make_unique<hf::DirectorySource>(*made.directory);
    made.stored = made.params->type();
    return made;
  }
  Result<checkpoint::Checkpoint> opened = checkpoint::open_at(files::real_disk(), path);
  if (!opened.ok()) {
    Error error = opened.error();
    if (error.code == Code::kNoCheckpoint)
      error.help += "; a Hugging Face directory has a config.json, and it has none";
    return report.add(error), std::nullopt;
  }
  made.path = opened->path();
  Result<hf::CheckpointSource> source = hf::CheckpointSource::open(*std::move(opened));
  if (!source.ok()) return report.add(source.error()), std::nullopt;
  Result<model::Model> model = model::describe(source->model());
  if (!model.ok()) return report.add(model.error()), std::nullopt;
  made.model = *std::move(model);
  made.stored = source->trained_type();
  made.params = std::make_unique<hf::CheckpointSource>(*std::move(source));
  return made;
}

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const Args& args, const WeightSource& weights) {
  if (args.has("prompt-ids")) return std::unique_ptr<Tokenizer>();
  const std::int64_t vocab = weights.model.config.vocab;
  if (args.has("tokenizer")) {
    const std::string name = args.text("tokenizer");
    if (name == "bytes" && vocab < data::kByteVocab)
      return contradiction(join_parts("--tokenizer bytes has ", data::kByteVocab,
                                      " ids, and the model's vocabulary ", vocab),
                           "it was trained on other tokens");
    if (name == "bytes") return byte_tokenizer();
    return hf_tokenizer(std::filesystem::is_directory(name) ? name + kTokenizerFile : name);
  }
  if (weights.directory && hf::is_file(weights.path + kTokenizerFile))
    return hf_tokenizer(weights.path + kTokenizerFile);
  if (vocab == data::kByteVocab) return byte_tokenizer();
  return Error{
      Code::kMissingKey,
      join_parts("`", weights.path, "` does not say which tokenizer its ", vocab, " ids are of"),
      "--tokenizer takes a tokenizer.json, or a directory with one; --prompt-ids goes "
      "from ids to ids"};
}

Result<void> encode(std::vector<Prompt>& prompts, Tokenizer& tokenizer) {
  for (Prompt& prompt : prompts) {
    prompt.ids = LS_TRY(tokenizer.encode(prompt.text));
    if (!prompt.ids.empty()) continue;
    if (!tokenizer.empty)
      return Error{Code::kConflict,
                   "the prompt is empty, and `" + tokenizer.name +
                       "` names no token that begins a text (bos_token_id)",
                   "give the model some text to go on from"};
    prompt.ids = {*tokenizer.empty};
  }
  return {};
}

}  // namespace lockstep::cli
