#include "lockstep/checkpoint/file_writer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <future>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/error.h"

namespace lockstep::checkpoint {
namespace {

// From here on another thread takes digests while the device is busy.
constexpr std::size_t kLeastAside = std::size_t{4} << 20;

files::TensorInfo info_of(const TypedSlice& typed) {
  const Slice& slice = typed.slice;
  std::vector<std::int64_t> shape = {slice.size()};
  if (slice.size() == slice.box.volume()) shape = slice.box.extent;
  return {entry_name(slice), typed.type, std::move(shape)};
}

}  // namespace

FileWriter::FileWriter(files::Disk& disk, const std::string& folder, std::string name,
                       std::vector<TypedSlice> slices)
    : slices_(std::move(slices)), pieces_(slices_.size()) {
  // As the file holds them.
  std::ranges::sort(slices_, [](const TypedSlice& a, const TypedSlice& b) {
    return std::pair(b.type, entry_name(a.slice)) < std::pair(a.type, entry_name(b.slice));
  });
  std::vector<files::TensorInfo> infos;
  for (const TypedSlice& slice : slices_) infos.push_back(info_of(slice));
  file_ = std::make_unique<files::SafetensorsWriter>(disk, folder + "/" + name, std::move(infos),
                                                     files::Metadata{{"format", "pt"}},
                                                     files::kPageAlign);
  record_ = {std::move(name), file_->file_bytes(), file_->header_digest()};
  leave_full_slices();
}

void FileWriter::write(ByteSpan bytes) {
  if (bytes.size() < kLeastAside) {
    add_digests(bytes);
    return file_->write(bytes);
  }
  auto digests = std::async(std::launch::async, [&] { add_digests(bytes); });
  file_->write(bytes);
  digests.get();
}

void FileWriter::leave_full_slices() {
  while (current_ < slices_.size() && in_slice_ == slices_[current_].bytes()) {
    ++current_;
    in_slice_ = 0;
  }
}

void FileWriter::add_digests(ByteSpan bytes) {
  while (!bytes.empty()) {
    LS_CHECK(current_ < slices_.size(), "more bytes than were declared");
    const std::int64_t slice_end = slices_[current_].bytes();
    const std::int64_t piece_begin = in_slice_ / kPieceBytes * kPieceBytes;
    const std::int64_t piece_end = std::min(piece_begin + kPieceBytes, slice_end);
    const auto take = std::min(bytes.size(), static_cast<std::size_t>(piece_end - in_slice_));
    const ByteSpan part = bytes.first(take);
    bytes = bytes.subspan(take);
    const bool is_begin = in_slice_ == piece_begin;
    in_slice_ += static_cast<std::int64_t>(take);
    const bool is_end = in_slice_ == piece_end;
    if (is_begin && is_end) {
      pieces_[current_].push_back(xxh3_64(part));
    } else {
      if (is_begin) open_.emplace();
      open_->update(part);
      if (is_end) pieces_[current_].push_back(open_->digest64());
    }
    leave_full_slices();
  }
}

Manifest FileWriter::finish() {
  file_->finish();
  Manifest made;
  made.files = {record_};
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    const Slice& slice = slices_[i].slice;
    made.tensors.push_back({slice.tensor,
                            slice.role,
                            slices_[i].type,
                            slice.shape,
                            {{0, slice.box, slice.begin, slice.end, std::move(pieces_[i])}}});
  }
  return made;
}

Staging::Staging(std::int64_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const std::size_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  if (size == 0) return;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, size)));
  if (data_ == nullptr)
    throw WorldError({Code::kUnsuitableEnvironment,
                      "no memory for a copy of " + std::to_string(bytes) + " bytes of state",
                      "save without it is not possible; use more ranks or a sharded layout"});
  ::madvise(data_.get(), size, MADV_HUGEPAGE);
  std::memset(data_.get(), 0, size);
}

void Staging::Free::operator()(std::byte* memory) const { std::free(memory); }

}  // namespace lockstep::checkpoint
