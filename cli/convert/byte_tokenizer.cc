#include "cli/convert/byte_tokenizer.h"

#include <string>

#include "lockstep/data/byte_text.h"

namespace lockstep::cli {
namespace {

constexpr const char* kEnd = "<|endoftext|>";

// The code point that stands for a byte in GPT-2's byte-level vocabularies: what can be printed
// stands for itself, the others follow from 256 on, in order.
std::string letter_of(int byte) {
  const auto prints = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  };
  int point = byte;
  if (!prints(byte)) {
    point = 256;
    for (int other = 0; other < byte; ++other) point += prints(other) ? 0 : 1;
  }
  if (point < 0x80) return {static_cast<char>(point)};
  return {static_cast<char>(0xC0 | point >> 6), static_cast<char>(0x80 | (point & 0x3F))};
}

Json byte_level() {
  return Json::object({{"type", "ByteLevel"},
                       {"add_prefix_space", false},
                       {"trim_offsets", true},
                       {"use_regex", false}});
}

}  // namespace

std::vector<hf::JsonFile> byte_tokenizer_files() {
  Json::Object vocab;
  for (int byte = 0; byte < data::kByteEnd; ++byte) vocab.push_back({letter_of(byte), byte});
  const Json end = Json::object({{"id", data::kByteEnd},
                                 {"content", kEnd},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", true}});
  const Json model = Json::object(
      {{"type", "BPE"}, {"vocab", Json::object(std::move(vocab))}, {"merges", Json::array()}});
  return {{"tokenizer.json", Json::object({{"version", "1.0"},
                                           {"added_tokens", Json::array({end})},
                                           {"normalizer", nullptr},
                                           {"pre_tokenizer", byte_level()},
                                           {"post_processor", nullptr},
                                           {"decoder", byte_level()},
                                           {"model", model}})},
          {"tokenizer_config.json", Json::object({{"tokenizer_class", "PreTrainedTokenizerFast"},
                                                  {"bos_token", kEnd},
                                                  {"eos_token", kEnd},
                                                  {"clean_up_tokenization_spaces", false}})}};
}

}  // namespace lockstep::cli
