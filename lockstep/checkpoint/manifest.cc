#include "lockstep/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>

#include "lockstep/base/check.h"
#include "lockstep/base/json_fields.h"
#include "lockstep/files/safetensors.h"

namespace lockstep::checkpoint {
namespace {

using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

std::string box_text(const Box& box) {
  std::vector<std::int64_t> end = box.begin;
  for (std::size_t dim = 0; dim < end.size(); ++dim) end[dim] += box.extent[dim];
  return files::shape_text(box.begin) + " to " + files::shape_text(end);
}

bool overlap(const Box& a, const Box& b) {
  for (std::size_t dim = 0; dim < a.begin.size(); ++dim)
    if (a.begin[dim] >= b.begin[dim] + b.extent[dim] ||
        b.begin[dim] >= a.begin[dim] + a.extent[dim])
      return false;
  return true;
}

std::optional<std::string> trouble_in_box(const Box& box, Ranges& ranges) {
  std::ranges::sort(ranges);
  std::int64_t at = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != at)
      return join_parts("elements ", std::min(begin, at), " to ", std::max(begin, at), " of box ",
                        box_text(box), begin > at ? " are in no slice" : " are in two slices");
    at = end;
  }
  if (at == box.volume()) return std::nullopt;
  return join_parts("elements ", at, " to ", box.volume(), " of box ", box_text(box),
                    " are in no slice");
}

// Boxes lie in the tensor (parse_manifest), so disjoint ones of its volume tile it.
std::optional<std::string> trouble_in(const TensorRecord& tensor) {
  std::map<Box, Ranges> boxes;
  for (const StoredSlice& s : tensor.slices) boxes[s.box].emplace_back(s.begin, s.end);
  std::int64_t volume = 0;
  for (auto a = boxes.begin(); a != boxes.end(); ++a) {
    volume += a->first.volume();
    for (auto b = std::next(a); b != boxes.end(); ++b)
      if (overlap(a->first, b->first))
        return join_parts("boxes ", box_text(a->first), " and ", box_text(b->first), " overlap");
    if (auto trouble = trouble_in_box(a->first, a->second)) return trouble;
  }
  const std::int64_t all = whole(tensor.shape).volume();
  if (volume == all) return std::nullopt;
  return join_parts("boxes hold ", volume, " of its ", all, " elements");
}

// The digest lies at a fixed place before the text that it is of, so that no parser is needed to
// check it.
constexpr std::string_view kBeforeDigest = "{\"sha256\":\"";
constexpr std::string_view kAfterDigest = "\",\n\"checkpoint\":";
constexpr std::string_view kEnd = "\n}\n";
constexpr std::size_t kDigestDigits = 64;
// Of any number of steps, samples, tokens, or bytes of a file: whole numbers that every reader of
// JSON has.
constexpr std::int64_t kMaxCount = std::int64_t{1} << 53;

std::string digest_text(std::string_view body) { return to_hex(ByteSpan(sha256(body))); }

// --- writing ---

Json file_json(const FileRecord& file) {
  return Json::object(
      {{"name", file.name}, {"bytes", file.bytes}, {"header_xxh3", to_hex(file.header)}});
}

Json slice_json(const StoredSlice& slice) {
  std::string digests;
  for (const std::uint64_t piece : slice.pieces) digests += to_hex(piece);
  return Json::object(
      {{"file", slice.file},
       {"box", Json::array({Json::list(slice.box.begin), Json::list(slice.box.extent)})},
       {"range", Json::array({slice.begin, slice.end})},
       {"xxh3", std::move(digests)}});
}

Json tensor_json(const TensorRecord& tensor) {
  return Json::object({{"name", tensor.name},
                       {"role", to_text(tensor.role)},
                       {"dtype", files::to_text(tensor.type)},
                       {"shape", Json::list(tensor.shape)},
                       {"slices", Json::list(tensor.slices, slice_json)}});
}

// --- reading ---

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

std::optional<std::int64_t> volume_of(const std::vector<std::int64_t>& extent, std::int64_t unit) {
  for (const std::int64_t length : extent)
    if (__builtin_mul_overflow(unit, length, &unit)) return std::nullopt;
  return unit;
}

// 16 hexadecimal digits, lower case.
std::optional<std::uint64_t> parse_hex(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (text.size() != 16) return std::nullopt;
  std::uint64_t number = 0;
  for (const char digit : text) {
    const auto value = kDigits.find(digit);
    if (value == std::string_view::npos) return std::nullopt;
    number = number << 4 | value;
  }
  return number;
}

Hash128 read_hash(JsonFields& fields, std::string_view key) {
  const std::string digits = fields.text(key);
  const auto high = parse_hex(std::string_view(digits).substr(0, 16));
  const auto low =
      digits.size() == 32 ? parse_hex(std::string_view(digits).substr(16)) : std::nullopt;
  if (high && low) return {*high, *low};
  fields.refuse(key, "is no digest of 32 hexadecimal digits");
  return {};
}

class ManifestReader {
 public:
  Manifest read(const Json& json) {
    JsonFields fields(json, "", trouble);
    if (const std::string format = fields.text("format"); format != kFormat)
      fields.refuse("format", join_parts("is `", format, "`; this version reads `", kFormat, "`"));
    if (fields.count("piece_bytes") != kPieceBytes)
      fields.refuse("piece_bytes", "is not " + std::to_string(kPieceBytes));
    made_.step = fields.count("step");
    made_.updates = fields.count("updates");
    made_.samples = fields.count("samples");
    made_.tokens = fields.count("tokens");
    if (fields.json().find("checked") != nullptr) made_.checked = fields.count("checked");
    made_.model = fields.texts("model");
    made_.config = fields.texts("config");
    made_.data = fields.text("data");
    made_.state = fields.texts("state");
    made_.layout = fields.text("layout");
    made_.lockstep = fields.text("lockstep");
    made_.torch = fields.text("torch");
    const std::size_t files = fields.list("files").size(), tensors = fields.list("tensors").size();
    fields.done();
    check_counts(fields);
    for (std::size_t i = 0; i < files; ++i) read_file(fields.item("files", i));
    for (std::size_t i = 0; i < tensors; ++i) read_tensor(fields.item("tensors", i));
    return std::move(made_);
  }

  JsonTrouble trouble;

 private:
  void at_most(JsonFields& fields, std::string_view key, std::int64_t value, std::int64_t most) {
    if (value > most) fields.refuse(key, join_parts("is ", value, ", above ", most));
  }

  // A setting of the run as a number; where it has none, none that bounds anything.
  std::int64_t setting(std::string_view key) const {
    for (const auto& [name, text] : made_.config) {
      std::int64_t value = 0;
      if (name != key) continue;
      std::from_chars(text.data(), text.data() + text.size(), value);
      return std::clamp<std::int64_t>(value, 0, kMaxCount);
    }
    return kMaxCount;
  }

  // Steps bound what they took.
  void check_counts(JsonFields& fields) {
    const auto product = [](std::int64_t count, std::int64_t each) {
      return std::min(volume_of({count, each}, 1).value_or(kMaxCount), kMaxCount);
    };
    at_most(fields, "step", made_.step, kMaxCount);
    at_most(fields, "updates", made_.updates, made_.step);
    at_most(fields, "checked", made_.checked.value_or(0), made_.step);
    at_most(fields, "samples", made_.samples, product(made_.step, setting("global_batch")));
    at_most(fields, "tokens", made_.tokens, product(made_.samples, setting("seq")));
  }

  void read_file(JsonFields fields) {
    FileRecord file{fields.text("name"), fields.count("bytes"), read_hash(fields, "header_xxh3")};
    fields.done();
    at_most(fields, "bytes", file.bytes, kMaxCount);
    if (!is_plain_name(file.name)) fields.refuse("name", "is no name of a file in its folder");
    if (!file_names_.insert(file.name).second) fields.refuse("name", "is that of another file too");
    made_.files.push_back(std::move(file));
  }

  void read_tensor(JsonFields fields) {
    TensorRecord tensor;
    tensor.name = fields.text("name");
    const auto role = parse_role(fields.text("role"));
    const auto type = files::parse_element_type(fields.text("dtype"));
    tensor.shape = fields.counts("shape");
    const std::size_t slices = fields.list("slices").size();
    fields.done();
    if (!role) fields.refuse("role", "is unknown");
    if (!type || files::bits_of(*type) % 8 != 0) fields.refuse("dtype", "is unknown");
    if (trouble) return;
    tensor.role = *role;
    tensor.type = *type;
    if (!tensor_names_.insert({tensor.name, tensor.role}).second)
      fields.refuse("name", "is that of another tensor of this role too: " + tensor.name);
    if (!volume_of(tensor.shape, files::bits_of(*type)))
      fields.refuse("shape", "does not fit into 63 bits");
    for (std::size_t i = 0; i < slices && !trouble; ++i)
      read_slice(fields.item("slices", i), tensor);
    made_.tensors.push_back(std::move(tensor));
  }

  void read_slice(JsonFields fields, TensorRecord& tensor) {
    StoredSlice slice;
    const std::int64_t file = fields.count("file");
    if (std::cmp_greater_equal(file, made_.files.size())) fields.refuse("file", "is in no list");
    slice.file = static_cast<int>(file);
    read_box(fields, tensor.shape, slice.box);
    const auto range = fields.counts("range");
    const std::string digests = fields.text("xxh3");
    fields.done();
    if (trouble) return;
    if (range.size() != 2 || range[0] > range[1] || range[1] > slice.box.volume())
      return fields.refuse("range", "does not lie in its box");
    slice.begin = range[0];
    slice.end = range[1];
    read_digests(fields, digests, (slice.end - slice.begin) * files::bits_of(tensor.type) / 8,
                 slice);
    tensor.slices.push_back(std::move(slice));
  }

  void read_box(JsonFields& fields, const std::vector<std::int64_t>& shape, Box& box) {
    const Json::Array& corners = fields.list("box");
    const auto begin = corners.size() == 2 ? counts_in(corners[0]) : std::nullopt;
    const auto extent = corners.size() == 2 ? counts_in(corners[1]) : std::nullopt;
    if (!begin || !extent || begin->size() != shape.size() || extent->size() != shape.size())
      return fields.refuse("box", "is no pair of lists with one number per dim");
    for (std::size_t dim = 0; dim < shape.size(); ++dim)
      if ((*begin)[dim] > shape[dim] || (*extent)[dim] > shape[dim] - (*begin)[dim])
        return fields.refuse("box", "does not lie in its tensor");
    box = {*begin, *extent};
  }

  void read_digests(JsonFields& fields, std::string_view digits, std::int64_t bytes,
                    StoredSlice& slice) {
    const std::int64_t pieces = bytes / kPieceBytes + (bytes % kPieceBytes != 0 ? 1 : 0);
    if (digits.size() % 16 != 0 || std::cmp_not_equal(digits.size() / 16, pieces))
      return fields.refuse("xxh3", "does not have " + std::to_string(pieces) + " digests");
    for (std::size_t at = 0; at < digits.size(); at += 16) {
      const auto piece = parse_hex(digits.substr(at, 16));
      if (!piece) return fields.refuse("xxh3", "is not hexadecimal");
      slice.pieces.push_back(*piece);
    }
  }

  Manifest made_;
  std::set<std::string> file_names_;
  std::set<std::pair<std::string, Role>> tensor_names_;
};

}  // namespace

Json to_json(const Facts& facts) {
  Json::Object members;
  for (const auto& [key, value] : facts) members.push_back({key, value});
  return Json::object(std::move(members));
}

Hash128 digest_of(const Facts& facts) {
  std::string text;
  for (const auto& [key, value] : facts) text += key + " = " + value + "\n";
  return xxh3_128(text);
}

Slice slice_of(const TensorRecord& tensor, const StoredSlice& stored) {
  return {tensor.name, tensor.role, tensor.shape, stored.box, stored.begin, stored.end};
}

const TensorRecord* Manifest::find(std::string_view name, Role role) const {
  for (const TensorRecord& tensor : tensors)
    if (tensor.role == role && tensor.name == name) return &tensor;
  return nullptr;
}

std::string to_text(const Manifest& manifest) {
  Json json = Json::object({{"format", kFormat},
                            {"piece_bytes", kPieceBytes},
                            {"step", manifest.step},
                            {"updates", manifest.updates},
                            {"samples", manifest.samples},
                            {"tokens", manifest.tokens}});
  if (manifest.checked) json.set("checked", *manifest.checked);
  json.set("model", to_json(manifest.model))
      .set("config", to_json(manifest.config))
      .set("data", manifest.data)
      .set("state", to_json(manifest.state))
      .set("layout", manifest.layout)
      .set("lockstep", manifest.lockstep)
      .set("torch", manifest.torch)
      .set("files", Json::list(manifest.files, file_json))
      .set("tensors", Json::list(manifest.tensors, tensor_json));
  const std::string body = json.dump();
  std::string text(kBeforeDigest);
  text += digest_text(body);
  text += kAfterDigest;
  text += body;
  return text += kEnd;
}

Result<Manifest> parse_manifest(std::string_view text, const std::string& path) {
  const auto refused = [&](const std::string& why) {
    return Error{Code::kBadManifest, "`" + path + "`: " + why,
                 "use another checkpoint, or a copy of this one"};
  };
  constexpr std::size_t kBefore = kBeforeDigest.size() + kDigestDigits + kAfterDigest.size();
  if (text.size() < kBefore + kEnd.size() || !text.starts_with(kBeforeDigest) ||
      text.substr(kBefore - kAfterDigest.size(), kAfterDigest.size()) != kAfterDigest ||
      !text.ends_with(kEnd))
    return refused("this is not a whole manifest of a checkpoint");
  const std::string_view told = text.substr(kBeforeDigest.size(), kDigestDigits);
  const std::string_view body = text.substr(kBefore, text.size() - kBefore - kEnd.size());
  if (const std::string found = digest_text(body); found != told)
    return refused(join_parts("its SHA-256 is ", found, ", but ", told, " is written in it"));
  const Result<Json> json = Json::parse(body);
  if (!json.ok()) return refused(json.error().message);
  ManifestReader reader;
  Manifest made = reader.read(*json);
  if (reader.trouble) return refused(*reader.trouble);
  return made;
}

Result<Manifest> join(std::vector<Manifest> parts) {
  LS_CHECK(!parts.empty());
  Manifest made = std::move(parts[0]);
  std::map<std::pair<std::string, Role>, std::size_t> known;
  for (std::size_t i = 0; i < made.tensors.size(); ++i)
    known.emplace(std::pair(made.tensors[i].name, made.tensors[i].role), i);
  for (std::size_t part = 1; part < parts.size(); ++part) {
    const int shift = static_cast<int>(made.files.size());
    std::ranges::move(parts[part].files, std::back_inserter(made.files));
    for (TensorRecord& tensor : parts[part].tensors) {
      for (StoredSlice& slice : tensor.slices) slice.file += shift;
      const auto [at, is_new] =
          known.emplace(std::pair(tensor.name, tensor.role), made.tensors.size());
      if (is_new) {
        made.tensors.push_back(std::move(tensor));
        continue;
      }
      TensorRecord& same = made.tensors[at->second];
      if (same.shape != tensor.shape || same.type != tensor.type)
        return Error{Code::kBadManifest,
                     "writers disagree about the shape or type of tensor `" + tensor.name + "`"};
      std::ranges::move(tensor.slices, std::back_inserter(same.slices));
    }
  }
  return made;
}

Result<void> check_coverage(const Manifest& manifest, const std::string& path) {
  if (manifest.tensors.empty())
    return Error{Code::kBadManifest, "`" + path + "`: `tensors` is empty",
                 "use another checkpoint"};
  for (const TensorRecord& tensor : manifest.tensors)
    if (const auto trouble = trouble_in(tensor))
      return Error{Code::kBadManifest,
                   join_parts("`", path, "`: ", to_text(tensor.role), " of tensor `", tensor.name,
                              "`: ", *trouble),
                   "the checkpoint is not whole; use another"};
  return {};
}

}  // namespace lockstep::checkpoint
