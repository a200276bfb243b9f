#include "cli/generate/tokenizer.h"

#include <optional>
#include <utility>

#include "cli/helper.h"
#include "cli/text_file.h"
#include "lockstep/base/json.h"
#include "lockstep/data/byte_text.h"
#include "lockstep/files/durable.h"
#include "lockstep/hf/weights.h"

namespace lockstep::cli {

extern const char* const kTokenizerScript;  // tokenizer.py, by CMake

namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() {
    name = "bytes";
    ends = {data::kByteEnd};
    empty = data::kByteEnd;
    num_ids = data::kByteVocab;
  }
  Result<std::vector<std::int64_t>> encode(const std::string& text) override {
    std::vector<std::int64_t> ids;
    for (const char letter : text) ids.push_back(static_cast<unsigned char>(letter));
    return ids;
  }
  Result<void> begin(std::span<const std::int64_t> /*prompt*/) override { return {}; }
  Result<std::string> next(std::int64_t token) override {
    return token < data::kByteEnd ? std::string(1, static_cast<char>(token)) : std::string();
  }
  Result<std::string> finish() override { return std::string(); }
};

class HfTokenizer final : public Tokenizer {
 public:
  explicit HfTokenizer(Helper helper) : helper_(std::move(helper)) {}

  Result<std::vector<std::int64_t>> encode(const std::string& text) override {
    // A text of JSON is UTF-8, and other bytes would become U+FFFD on their way.
    if (const Json as_sent = text; Json::parse(as_sent.dump())->as_text() != text)
      return Error{Code::kBadOptionValue, "the prompt is not UTF-8, which this tokenizer reads",
                   "only models of bytes take other bytes"};
    const Json answer = LS_TRY(helper_.ask("encode", text));
    std::vector<std::int64_t> ids;
    for (const Json& id : answer.find("ids")->items()) ids.push_back(id.as_int());
    return ids;
  }
  Result<void> begin(std::span<const std::int64_t> prompt) override {
    LS_TRY(helper_.ask("begin", Json::list(prompt)));
    return {};
  }
  Result<std::string> next(std::int64_t token) override { return text_of("next", token); }
  Result<std::string> finish() override { return text_of("rest", nullptr); }

 private:
  Result<std::string> text_of(const char* word, Json value) {
    const Json answer = LS_TRY(helper_.ask(word, std::move(value)));
    return answer.find("text")->as_text();
  }

  Helper helper_;
};

// Of a Hugging Face directory's files the first that names it.
std::vector<std::int64_t> special_tokens(const std::string& folder, const char* key) {
  for (const char* file : {"/generation_config.json", "/config.json"}) {
    const Result<std::string> text = read_text(folder + file);
    const Result<Json> json = text.ok() ? Json::parse(*text) : text.error();
    const Json* const found = json.ok() && json->is_object() ? json->find(key) : nullptr;
    if (found == nullptr) continue;
    if (found->is_int()) return {found->as_int()};
    std::vector<std::int64_t> ids;
    if (found->is_array())
      for (const Json& id : found->items())
        if (id.is_int()) ids.push_back(id.as_int());
    if (!ids.empty()) return ids;
  }
  return {};
}

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

Result<std::unique_ptr<Tokenizer>> hf_tokenizer(const std::string& file) {
  if (!hf::is_file(file))
    return Error{Code::kFileUnreadable, "`" + file + "` is not there",
                 "tokenizer.json is what the `tokenizers` package writes; older files, vocab.json "
                 "or tokenizer.model, become one by transformers' save_pretrained"};
  auto made = std::make_unique<HfTokenizer>(
      LS_TRY(Helper::start({kTokenizerScript, "tokenizers", "--prompt-ids needs none"}, file)));
  const std::string folder = files::parent_of(file);
  made->name = file;
  made->ends = special_tokens(folder, "eos_token_id");
  if (const auto begins = special_tokens(folder, "bos_token_id"); !begins.empty())
    made->empty = begins[0];
  return Result<std::unique_ptr<Tokenizer>>(std::move(made));
}

}  // namespace lockstep::cli
