// Writes a Megatron pair as its tokens come, in memory that grows by 4 bytes a document.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/data/token_index.h"
#include "lockstep/files/durable.h"

namespace lockstep::data {

struct Written {
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
};

// Both files are written under temporary names and take their own in finish(), PREFIX.bin first: a
// reader finds nothing, the old pair or the new one, or a mixture that the index refuses. One
// thread at a time. All calls throw IoError (LS0820).
class TokenWriter {
 public:
  // REQUIRES: a type that has a code.
  TokenWriter(files::Disk& disk, const std::string& prefix, TokenType type);
  ~TokenWriter();  // without finish(), what was written is removed
  TokenWriter(TokenWriter&&) = delete;

  // One document, as one piece. Refuses (LS0802) a token that does not fit the type, and (LS0801)
  // more tokens than an index can count (2^31 - 1); then nothing of it was written.
  Result<void> add(std::span<const std::int64_t> tokens);
  Written finish();

 private:
  void flush();
  void write_index();

  files::Disk& disk_;
  std::string prefix_, bin_part_, idx_part_;
  TokenType type_;
  std::unique_ptr<files::OutputFile> bin_;
  std::vector<std::byte> pending_;
  std::vector<std::int32_t> lengths_;
  std::int64_t tokens_ = 0;
  bool is_finished_ = false;
};

}  // namespace lockstep::data
