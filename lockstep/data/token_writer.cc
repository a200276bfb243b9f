#include "lockstep/data/token_writer.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "lockstep/base/check.h"

namespace lockstep::data {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

template <class Number>
void append(std::vector<std::byte>& bytes, Number number) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof number);
  std::memcpy(bytes.data() + at, &number, sizeof number);
}

}  // namespace

TokenWriter::TokenWriter(files::Disk& disk, const std::string& prefix, TokenType type)
    : disk_(disk),
      prefix_(prefix),
      bin_part_(join_parts(prefix, ".bin.part-", ::getpid())),
      idx_part_(join_parts(prefix, ".idx.part-", ::getpid())),
      type_(type),
      bin_(disk.create(bin_part_, 0)) {
  LS_CHECK(code_of(type).has_value(), "an index has no number for ", to_text(type));
}

TokenWriter::~TokenWriter() {
  if (is_finished_) return;
  bin_.reset();
  for (const std::string& part : {bin_part_, idx_part_}) {
    std::error_code ignored;  // it may never have been made
    std::filesystem::remove(part, ignored);
  }
}

Result<void> TokenWriter::add(std::span<const std::int64_t> tokens) {
  if (tokens.size() > std::numeric_limits<std::int32_t>::max())
    return Error{Code::kBadTokenFile,
                 join_parts("document ", lengths_.size(), " has ", tokens.size(),
                            " tokens; an index counts at most 2147483647"),
                 "divide the document"};
  const std::size_t at = pending_.size();
  pending_.resize(at + tokens.size() * static_cast<std::size_t>(width_of(type_)));
  if (!narrow(type_, tokens, pending_.data() + at)) {
    pending_.resize(at);
    return Error{
        Code::kTokenBeyondVocab,
        join_parts("document ", lengths_.size(), " has a token that does not fit ", to_text(type_)),
        "choose a wider type"};
  }
  lengths_.push_back(static_cast<std::int32_t>(tokens.size()));
  tokens_ += std::ssize(tokens);
  if (pending_.size() >= kBufferBytes) flush();
  return {};
}

void TokenWriter::flush() {
  bin_->write(pending_);
  pending_.clear();
}

void TokenWriter::write_index() {
  const auto file = disk_.create(idx_part_, 0);
  std::vector<std::byte> bytes;
  const auto put = [&](auto number) {
    append(bytes, number);
    if (bytes.size() < kBufferBytes) return;
    file->write(bytes);
    bytes.clear();
  };
  for (const char letter : std::string_view("MMIDIDX\0\0", 9)) put(letter);
  put(std::uint64_t{1});
  put(*code_of(type_));
  put(static_cast<std::uint64_t>(lengths_.size()));
  put(static_cast<std::uint64_t>(lengths_.size() + 1));
  for (const std::int32_t length : lengths_) put(length);
  std::int64_t offset = 0;
  for (const std::int32_t length : lengths_) {
    put(offset);
    offset += length * width_of(type_);
  }
  for (std::size_t document = 0; document <= lengths_.size(); ++document)
    put(static_cast<std::int64_t>(document));
  file->write(bytes);
  file->sync();
  file->close();
}

Written TokenWriter::finish() {
  LS_CHECK(!is_finished_, "finished twice");
  flush();
  bin_->sync();
  bin_->close();
  write_index();
  disk_.rename(bin_part_, prefix_ + ".bin");
  disk_.rename(idx_part_, prefix_ + ".idx");
  is_finished_ = true;
  disk_.sync_folder(files::parent_of(prefix_));
  return {std::ssize(lengths_), tokens_};
}

}  // namespace lockstep::data
