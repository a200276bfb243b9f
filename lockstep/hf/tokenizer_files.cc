#include "lockstep/hf/tokenizer_files.h"

#include <filesystem>

#include "lockstep/base/mapped_file.h"

namespace lockstep::hf {
namespace {

constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "tokenizer.model",
                                           "chat_template.jinja"};
constexpr const char* kGeneration = "generation_config.json";

bool has(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace

Result<TokenizerFiles> tokenizer_files(const std::string& folder) {
  TokenizerFiles found;
  for (const char* name : kTokenizerFiles)
    if (has(folder + "/" + name)) found.paths.push_back(folder + "/" + name);
  if (found.paths.empty())
    return Error{Code::kFileUnreadable, "`" + folder + "` has no tokenizer",
                 "tokenizer.json is the usual name of its file"};
  if (has(folder + "/" + kGeneration)) found.paths.push_back(folder + "/" + kGeneration);
  const Result<MappedFile> config = MappedFile::open(folder + "/config.json");
  if (!config.ok()) return found;
  const Result<Json> json = Json::parse(config->text());
  if (!json.ok() || !json->is_object()) return found;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (const Json* const token = json->find(key)) found.special.set(key, *token);
  return found;
}

}  // namespace lockstep::hf
