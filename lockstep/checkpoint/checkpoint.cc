#include "lockstep/checkpoint/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/files/elements.h"

namespace lockstep::checkpoint {
namespace {

// So little that what was read is still near the core when it is hashed: a tenth faster than a MiB.
constexpr std::size_t kReadBytes = std::size_t{256} << 10;

// Of a folder "a/b/" too.
std::string last_name(const std::string& path) {
  return files::name_of(files::without_end_slashes(path));
}

std::int64_t bytes_of_slice(const TensorRecord& tensor, const StoredSlice& stored) {
  return (stored.end - stored.begin) * files::bits_of(tensor.type) / 8;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  const std::string name = path + "/" + std::string(kManifestName);
  const Result<MappedFile> file = MappedFile::open(name);
  if (!file.ok())
    return Error{Code::kNoCheckpoint, "`" + path + "` is no checkpoint: " + file.error().message,
                 "a checkpoint is a folder with a " + std::string(kManifestName)};
  Manifest manifest = LS_TRY(parse_manifest(file->text(), name));
  LS_TRY(check_coverage(manifest, name));
  if (const auto step = step_of(last_name(path)); step && *step != manifest.step)
    return Error{Code::kBadManifest,
                 join_parts("`", name, "` is of step ", manifest.step,
                            ", but its folder is called `", last_name(path), "`"),
                 "give the folder its name back: " + folder_name(manifest.step)};
  return Checkpoint(path, std::move(manifest));
}

Checkpoint::Checkpoint(std::string path, Manifest manifest)
    : path_(std::move(path)), manifest_(std::move(manifest)) {
  for (std::size_t i = 0; i < manifest_.tensors.size(); ++i)
    by_name_.emplace(std::pair(manifest_.tensors[i].name, manifest_.tensors[i].role), i);
}

std::int64_t Checkpoint::file_bytes() const {
  std::int64_t sum = 0;
  for (const FileRecord& file : manifest_.files) sum += file.bytes;
  return sum;
}

Error Checkpoint::damaged(const std::string& file, const std::string& what) const {
  return {Code::kCorruptCheckpoint, "`" + path_ + "/" + file + "`" + what,
          "`lockstep checkpoint verify` looks at a whole checkpoint; use another, or a copy of "
          "this one"};
}

Result<Checkpoint::OpenFile*> Checkpoint::file(int index) {
  if (const auto known = open_.find(index); known != open_.end()) return &known->second;
  const FileRecord& record = manifest_.files[index];
  const std::string name = path_ + "/" + record.name;
  // What is lost with it, for the message.
  const auto holds = [&] {
    std::string first;
    int others = -1;
    for (const TensorRecord& tensor : manifest_.tensors)
      for (const StoredSlice& slice : tensor.slices)
        if (slice.file == index) {
          if (first.empty()) first = entry_name(slice_of(tensor, slice));
          ++others;
        }
    if (first.empty()) return std::string(", which holds no tensor");
    return join_parts(", which holds tensor `", first, "`", others > 0 ? " and " : "",
                      others > 0 ? std::to_string(others) + " more" : "");
  };
  Result<InputFile> input = InputFile::open(name);
  if (!input.ok())
    return damaged(record.name, holds() + ", cannot be read: " + input.error().message);
  if (input->size() != record.bytes)
    return damaged(record.name, join_parts(holds(), ", has ", input->size(), " bytes, but had ",
                                           record.bytes, " when it was written"));
  Result<files::Safetensors> view = files::Safetensors::open(name);
  if (!view.ok()) return damaged(record.name, holds() + ": " + view.error().message);
  std::vector<std::byte> header(view->data_begin());
  if (!input->read(0, header) || xxh3_128(ByteSpan(header)) != record.header)
    return damaged(record.name, holds() + ", has another header than when it was written");
  return &open_.emplace(index, OpenFile{*std::move(input), *std::move(view)}).first->second;
}

Result<void> Checkpoint::check_files() {
  for (std::size_t i = 0; i < manifest_.files.size(); ++i) LS_TRY(file(static_cast<int>(i)));
  return {};
}

Result<const files::TensorEntry*> Checkpoint::entry_of(OpenFile& file, const TensorRecord& tensor,
                                                       const StoredSlice& stored) const {
  const std::string name = entry_name(slice_of(tensor, stored));
  const files::TensorEntry* const entry = file.view.find(name);
  if (entry == nullptr || entry->info.type != tensor.type ||
      std::cmp_not_equal(entry->bytes.size(), bytes_of_slice(tensor, stored)))
    return damaged(manifest_.files[stored.file].name,
                   " does not hold tensor `" + name + "` as the manifest says");
  return entry;
}

Result<void> Checkpoint::read_piece(OpenFile& file, const TensorRecord& tensor,
                                    const StoredSlice& stored, std::int64_t piece,
                                    std::span<std::byte> into) const {
  const auto entry = LS_TRY(entry_of(file, tensor, stored));
  const std::int64_t at = entry->begin + piece * kPieceBytes;
  const std::string& name = manifest_.files[stored.file].name;
  const auto where = [&] {
    return join_parts(": bytes ", piece * kPieceBytes, " to ",
                      piece * kPieceBytes + std::ssize(into), " of tensor `",
                      entry_name(slice_of(tensor, stored)), "`");
  };
  Xxh3 hash;
  for (std::size_t done = 0; done < into.size(); done += kReadBytes) {
    const auto part = into.subspan(done, std::min(kReadBytes, into.size() - done));
    if (!file.input.read(at + static_cast<std::int64_t>(done), part))
      return damaged(name, where() + " are gone");
    hash.update(ByteSpan(part));
  }
  const std::uint64_t found = hash.digest64();
  const std::uint64_t due = stored.pieces[piece];
  if (found == due) return {};
  return damaged(name, join_parts(where(), " have the digest ", to_hex(found), ", not ",
                                  to_hex(due), " as when they were written"));
}

Result<void> Checkpoint::read_from(const TensorRecord& tensor, const StoredSlice& stored,
                                   const Slice& wanted, DType dtype, std::span<std::byte> target) {
  const auto runs = common_runs(slice_of(tensor, stored), wanted);
  if (runs.empty()) return {};
  OpenFile* const opened = LS_TRY(file(stored.file));
  const DType from = *files::dtype_of(tensor.type);
  const auto from_size = static_cast<std::int64_t>(size_of(from));
  const auto to_size = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t per_piece = kPieceBytes / from_size;
  std::int64_t loaded = -1;
  for (const Run& run : runs)
    for (std::int64_t done = 0; done < run.length;) {
      const std::int64_t source = run.source + done, piece = source / per_piece;
      const auto elements = std::min(stored.end - stored.begin - piece * per_piece, per_piece);
      const auto piece_bytes = static_cast<std::size_t>(elements * from_size);
      // A whole piece goes where it belongs, without a stop.
      if (from == dtype && source == piece * per_piece && run.length - done >= elements) {
        const std::int64_t at = (run.target + done) * to_size;
        LS_TRY(read_piece(*opened, tensor, stored, piece, target.subspan(at, piece_bytes)));
        done += elements;
        continue;
      }
      if (piece != loaded) {
        piece_.resize(piece_bytes);
        LS_TRY(read_piece(*opened, tensor, stored, piece, piece_));
        loaded = piece;
      }
      const std::int64_t in_piece = source - piece * per_piece;
      const std::int64_t length = std::min(run.length - done, per_piece - in_piece);
      files::convert(ByteSpan(piece_).subspan(in_piece * from_size, length * from_size), from,
                     target.subspan((run.target + done) * to_size, length * to_size), dtype);
      done += length;
    }
  return {};
}

Result<void> Checkpoint::read(const Slice& wanted, DType dtype, std::span<std::byte> target) {
  LS_CHECK(target.size() == static_cast<std::size_t>(wanted.size()) * size_of(dtype));
  const auto found = by_name_.find({wanted.tensor, wanted.role});
  const std::string who = join_parts(to_text(wanted.role), " of tensor `", wanted.tensor, "`");
  if (found == by_name_.end())
    return Error{Code::kOtherCheckpoint, "`" + path_ + "` has no " + who};
  const TensorRecord& tensor = manifest_.tensors[found->second];
  if (tensor.shape != wanted.shape)
    return Error{
        Code::kOtherCheckpoint,
        join_parts("`", path_, "` has ", who, " of shape ", files::shape_text(tensor.shape),
                   ", here it has ", files::shape_text(wanted.shape))};
  const auto from = files::dtype_of(tensor.type);
  if (!from || !files::widens(*from, dtype))
    return Error{Code::kOtherCheckpoint,
                 join_parts("`", path_, "` has ", who, " as ", files::to_text(tensor.type),
                            ", which cannot become ", to_text(dtype), " without rounding")};
  for (const StoredSlice& stored : tensor.slices)
    LS_TRY(read_from(tensor, stored, wanted, dtype, target));
  return {};
}

Result<void> Checkpoint::verify(const std::function<void(std::int64_t)>& on_bytes) {
  LS_TRY(check_files());
  for (const TensorRecord& tensor : manifest_.tensors)
    for (const StoredSlice& stored : tensor.slices) {
      OpenFile& opened = **file(stored.file);
      LS_TRY(entry_of(opened, tensor, stored));
      const std::int64_t bytes = bytes_of_slice(tensor, stored);
      for (std::int64_t at = 0; at < bytes; at += kPieceBytes) {
        piece_.resize(std::min(bytes - at, kPieceBytes));
        LS_TRY(read_piece(opened, tensor, stored, at / kPieceBytes, piece_));
        if (on_bytes) on_bytes(std::ssize(piece_));
      }
    }
  return {};
}

Result<Choice> newest(files::Disk& disk, const std::string& folder,
                      std::optional<std::int64_t> older_than) {
  std::vector<Error> skipped;
  std::vector<std::string> damaged;
  for (std::string& path : candidates(disk, folder)) {
    if (older_than && *step_of(last_name(path)) >= *older_than) continue;
    Result<Checkpoint> opened = Checkpoint::open(path);
    const Result<void> whole = opened.ok() ? opened->check_files() : opened.error();
    if (whole.ok()) return Choice{*std::move(opened), std::move(skipped), std::move(damaged)};
    skipped.push_back(whole.error());
    damaged.push_back(std::move(path));
  }
  if (skipped.empty())
    return Error{Code::kNoCheckpoint, "there is no checkpoint in `" + folder + "`",
                 "checkpoints are folders step-N in it"};
  return Error{Code::kCorruptCheckpoint,
               join_parts("none of ", skipped.size(), " checkpoints in `", folder,
                          "` is whole; of the newest: ", skipped[0].message),
               skipped[0].help};
}

Result<Checkpoint> open_at(files::Disk& disk, const std::string& path) {
  if (is_checkpoint(path)) return Checkpoint::open(path);
  Choice found = LS_TRY(newest(disk, path));
  if (!found.skipped.empty())
    return Error{found.skipped[0].code, found.skipped[0].message,
                 "to take an older one, name it: " + found.checkpoint.path()};
  return std::move(found.checkpoint);
}

bool is_checkpoint(const std::string& path) {
  struct stat status = {};
  return ::stat((path + "/" + std::string(kManifestName)).c_str(), &status) == 0 ||
         step_of(last_name(path)).has_value();
}

}  // namespace lockstep::checkpoint
