#include "lockstep/files/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <tuple>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/json_fields.h"

namespace lockstep::files {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::int64_t kLengthBytes = 8;

// Elements times bits, unless it does not fit.
std::optional<std::int64_t> bits_in(const std::vector<std::int64_t>& shape, ElementType type) {
  std::int64_t bits = bits_of(type);
  for (const std::int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(bits, size, &bits)) return std::nullopt;
  return bits;
}

// What a header says, with places that were not compared with each other yet.
struct Declared {
  TensorInfo info;
  std::int64_t begin = 0, end = 0;  // bytes from where the data begins
};

// Reads one header; each function returns what is wrong, or nothing.
class HeaderReader {
 public:
  using Trouble = std::optional<std::string>;

  Trouble read(ByteSpan file) {
    if (file.size() < static_cast<std::size_t>(kLengthBytes))
      return join_parts("it has ", file.size(), " bytes, and the length of a header alone takes 8");
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    if (length > static_cast<std::uint64_t>(kMaxHeaderBytes))
      return join_parts("its header is said to have ", length, " bytes; at most ", kMaxHeaderBytes,
                        " are read");
    if (length > file.size() - kLengthBytes)
      return join_parts("its header is said to have ", length, " bytes, but only ",
                        file.size() - kLengthBytes, " follow");
    data_begin = kLengthBytes + static_cast<std::int64_t>(length);
    const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
    if (!text.starts_with('{')) return "its header does not begin with `{`";
    const Result<Json> header = Json::parse(text);
    if (!header.ok()) return "its header is no JSON: " + header.error().message;
    for (const auto& [name, value] : header->members())
      if (Trouble trouble = name == kMetadataKey ? read_metadata(value) : read_tensor(name, value))
        return trouble;
    return check_places(std::ssize(file) - data_begin);
  }

  std::vector<Declared> tensors;
  Metadata metadata;
  std::int64_t data_begin = 0;

 private:
  Trouble read_metadata(const Json& value) {
    if (!value.is_object()) return join_parts("its ", kMetadataKey, " is not an object");
    for (const auto& [key, text] : value.members()) {
      if (!text.is_text()) return join_parts(kMetadataKey, ".", key, " is not text");
      metadata.emplace(key, text.as_text());
    }
    return std::nullopt;
  }

  Trouble read_tensor(const std::string& name, const Json& value) {
    const std::string who = "tensor `" + name + "` ";
    if (!value.is_object()) return who + "is not an object";
    for (const auto& [key, part] : value.members())
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        return who + "has the unknown key `" + key + "`";
    const Json* const type = value.find("dtype");
    const Json* const shape = value.find("shape");
    const Json* const offsets = value.find("data_offsets");
    if (type == nullptr || !type->is_text()) return who + "has no dtype";
    auto sizes = shape == nullptr ? std::nullopt : counts_in(*shape);
    if (!sizes) return who + "has no shape of whole numbers";
    const auto places = offsets == nullptr ? std::nullopt : counts_in(*offsets);
    if (!places || places->size() != 2) return who + "has no data_offsets of two whole numbers";
    const auto known = parse_element_type(type->as_text());
    if (!known) return who + "has the unknown dtype `" + type->as_text() + "`";
    return keep({{name, *known, *std::move(sizes)}, places->at(0), places->at(1)}, who);
  }

  Trouble keep(Declared made, const std::string& who) {
    const auto bits = bits_in(made.info.shape, made.info.type);
    if (!bits) return who + "has a shape whose size does not fit into 63 bits";
    if (*bits % 8 != 0) return who + "does not end on a whole byte";
    if (made.end < made.begin || made.end - made.begin != *bits / 8)
      return join_parts(who, "is said to lie in bytes [", made.begin, ", ", made.end,
                        "), but its type and shape take ", *bits / 8);
    tensors.push_back(std::move(made));
    return std::nullopt;
  }

  // Sorted by place, they must follow each other from the first byte of the data to the last.
  Trouble check_places(std::int64_t data_bytes) {
    std::ranges::stable_sort(tensors, {},
                             [](const Declared& t) { return std::pair(t.begin, t.end); });
    std::int64_t at = 0;
    for (const Declared& tensor : tensors) {
      if (tensor.begin != at)
        return join_parts("tensor `", tensor.info.name, "` begins at byte ", tensor.begin,
                          " of the data, where ", at, " is due: bytes would ",
                          tensor.begin > at ? "belong to no tensor" : "belong to two tensors");
      at = tensor.end;
    }
    if (at != data_bytes)
      return join_parts(tensors.empty() ? "" : "after tensor `" + tensors.back().info.name + "` ",
                        "the data ends at byte ", at, ", but the file has ", data_bytes);
    return std::nullopt;
  }
};

}  // namespace

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

std::int64_t bytes_of(const TensorInfo& info) {
  const auto bits = bits_in(info.shape, info.type);
  LS_CHECK(bits && *bits % 8 == 0, "tensor ", info.name, " has no whole number of bytes");
  return *bits / 8;
}

Result<Safetensors> Safetensors::open(const std::string& path) {
  MappedFile file = LS_TRY(MappedFile::open(path));
  Result<Safetensors> made = parse(file.bytes(), path);
  if (made.ok()) made->file_ = std::move(file);
  return made;
}

Result<Safetensors> Safetensors::parse(ByteSpan file, const std::string& name) {
  HeaderReader reader;
  if (const auto trouble = reader.read(file))
    return Error{Code::kBadSafetensors, "`" + name + "` is not a safetensors file: " + *trouble};
  Safetensors made;
  made.metadata_ = std::move(reader.metadata);
  made.data_begin_ = reader.data_begin;
  for (Declared& tensor : reader.tensors) {
    made.by_name_.emplace(tensor.info.name, made.entries_.size());
    const std::int64_t begin = reader.data_begin + tensor.begin;
    made.entries_.push_back(
        {std::move(tensor.info), begin, file.subspan(begin, tensor.end - tensor.begin)});
  }
  return made;
}

const TensorEntry* Safetensors::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

std::string safetensors_header(std::span<const TensorInfo> tensors, const Metadata& metadata,
                               std::int64_t align) {
  LS_CHECK(align > 0 && align % kLeastAlign == 0);
  Json::Object members;
  if (!metadata.empty()) {
    Json::Object texts;
    for (const auto& [key, text] : metadata) texts.push_back({key, text});
    members.push_back({std::string(kMetadataKey), Json::object(std::move(texts))});
  }
  std::int64_t at = 0;
  for (const TensorInfo& tensor : tensors) {
    LS_CHECK(tensor.name != kMetadataKey);
    const std::int64_t end = at + bytes_of(tensor);
    members.push_back({tensor.name, Json::object({{"dtype", to_text(tensor.type)},
                                                  {"shape", Json::list(tensor.shape)},
                                                  {"data_offsets", Json::array({at, end})}})});
    at = end;
  }
  std::string text = Json::object(std::move(members)).dump();
  text.resize((kLengthBytes + text.size() + align - 1) / align * align - kLengthBytes, ' ');
  LS_CHECK(std::ssize(text) <= kMaxHeaderBytes, "header of ", text.size(), " bytes");
  const std::uint64_t length = text.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  return file + text;
}

SafetensorsWriter::SafetensorsWriter(Disk& disk, const std::string& path,
                                     std::vector<TensorInfo> tensors, const Metadata& metadata,
                                     std::int64_t align)
    : tensors_(std::move(tensors)) {
  std::ranges::sort(tensors_, [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(b.type, a.name) < std::tie(a.type, b.name);
  });
  const std::string header = safetensors_header(tensors_, metadata, align);
  for (const TensorInfo& tensor : tensors_) left_ += bytes_of(tensor);
  file_bytes_ = std::ssize(header) + left_;
  header_digest_ = xxh3_128(header);
  file_ = disk.create(path, file_bytes_);
  file_->write(as_byte_span(header));
}

void SafetensorsWriter::write(ByteSpan bytes) {
  LS_CHECK(std::cmp_less_equal(bytes.size(), left_), "more bytes than were declared");
  file_->write(bytes);
  left_ -= std::ssize(bytes);
}

void SafetensorsWriter::finish() {
  LS_CHECK(left_ == 0, left_, " declared bytes were not written");
  file_->sync();
  file_->close();
}

}  // namespace lockstep::files
