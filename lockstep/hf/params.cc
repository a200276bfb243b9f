#include "lockstep/hf/params.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/mapped_file.h"
#include "lockstep/base/units.h"
#include "lockstep/files/safetensors.h"

namespace lockstep::hf {
namespace {

bool is_weight_type(DType type) {
  return type == DType::kF32 || type == DType::kBF16 || type == DType::kF16;
}

// Constants that older versions of transformers saved beside the parameters.
bool is_constant_table(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

// Gathers what does not fit, by kind, so that each kind is one message with all its tensors.
class Misfits {
 public:
  explicit Misfits(const Weights& weights) : weights_(weights) {}

  void missing(const model::HfTensor& tensor) {
    missing_.push_back(tensor.name + " " + files::shape_text(tensor.shape));
  }
  void shape(const model::HfTensor& tensor, const Weights::Stored& stored) {
    shapes_.push_back(join_parts(stored.file, ": ", stored.entry->info.name, " is ",
                                 files::shape_text(stored.entry->info.shape), ", not ",
                                 files::shape_text(tensor.shape)));
  }
  void type(const Weights::Stored& stored) {
    types_.push_back(join_parts(stored.file, ": ", stored.entry->info.name, " is ",
                                files::to_text(stored.entry->info.type)));
  }
  void left_over(const Weights::Stored& stored) {
    extra_.push_back(join_parts(stored.file, ": ", stored.entry->info.name, " ",
                                files::shape_text(stored.entry->info.shape)));
  }
  void untied(const Weights::Stored& stored) {
    untied_.push_back(join_parts(stored.file, ": ", stored.entry->info.name));
  }

  void tell(config::Report& report) {
    const std::string in = " of `" + weights_.folder() + "` ";
    tell(report, missing_, in, "missing", "config.json asks for more than the files have");
    tell(report, shapes_, in, "of another shape than config.json implies", "");
    tell(report, types_, in, "of a type that is not read", "F32, BF16 and F16 are");
    tell(report, extra_, in, "no parameter of the model",
         "config.json describes another model than the files hold");
    tell(report, untied_, in, "not the embedding's weight, though tie_word_embeddings is true",
         "one of both is wrong");
  }

 private:
  static void tell(config::Report& report, std::vector<std::string>& list, const std::string& in,
                   const std::string& what, const std::string& help) {
    if (list.empty()) return;
    config::Diagnostic made;
    made.code = Code::kBadHfWeights;
    made.message = join_parts(with_commas(static_cast<std::int64_t>(list.size())),
                              list.size() == 1 ? " tensor" : " tensors", in,
                              list.size() == 1 ? "is " : "are ", what);
    made.notes = std::move(list);
    made.help = help;
    report.add(std::move(made));
  }

  const Weights& weights_;
  std::vector<std::string> missing_, shapes_, types_, extra_, untied_;
};

// What comes before the names of all but the head's tensors: "model.", "transformer.".
std::string base_prefix(const model::Model& model) {
  const std::string& embedding = model.unit(0).params.front().hf.pattern;
  return embedding.substr(0, embedding.find('.') + 1);
}

// Touches a few megabytes of both at a time.
bool same_bytes(const files::TensorEntry& a, const files::TensorEntry& b) {
  constexpr std::size_t kStride = std::size_t{4} << 20;
  if (a.info.type != b.info.type || a.info.shape != b.info.shape) return false;
  for (std::size_t at = 0; at < a.bytes.size(); at += kStride) {
    const std::size_t count = std::min(kStride, a.bytes.size() - at);
    const ByteSpan one = a.bytes.subspan(at, count);
    const ByteSpan other = b.bytes.subspan(at, count);
    const bool same = std::memcmp(one.data(), other.data(), count) == 0;
    forget_pages(one);
    forget_pages(other);
    if (!same) return false;
  }
  return true;
}

}  // namespace

std::optional<HfParams> HfParams::find(const model::Model& model, const Weights& weights,
                                       config::Report& report) {
  const int before = report.num_errors();
  const std::string prefix = base_prefix(model);
  const std::string embedding = model.unit(0).params.front().hf.pattern;
  const bool bare = weights.find(embedding) == nullptr &&
                    weights.find(embedding.substr(prefix.size())) != nullptr;
  HfParams made;
  Misfits misfits(weights);
  std::set<std::string, std::less<>> used;
  model::for_each_hf_tensor(model, [&](const model::HfTensor& tensor) {
    const bool strip = bare && tensor.name.starts_with(prefix);
    const Weights::Stored* stored =
        weights.find(strip ? tensor.name.substr(prefix.size()) : tensor.name);
    if (stored == nullptr) return misfits.missing(tensor);
    const files::TensorInfo& info = stored->entry->info;
    used.insert(info.name);
    if (info.shape != tensor.shape) return misfits.shape(tensor, *stored);
    const std::optional<DType> type = files::dtype_of(info.type);
    if (!type || !is_weight_type(*type)) return misfits.type(*stored);
    for (std::size_t i = 0; i < tensor.pieces.size(); ++i) {
      const model::Param& param = *tensor.pieces[i].param;
      made.places_.push_back({model::name_at(param.name, tensor.layer), param.shape, stored, *type,
                              piece_of(tensor, i)});
    }
  });
  const Weights::Stored* const tied_to =
      weights.find(bare ? embedding.substr(prefix.size()) : embedding);
  for (const auto& [name, stored] : weights.all()) {
    if (used.contains(name)) continue;
    if (name == "lm_head.weight" && model.config.tied && tied_to != nullptr) {
      if (!same_bytes(*stored.entry, *tied_to->entry)) misfits.untied(stored);
    } else if (!is_constant_table(name)) {
      misfits.left_over(stored);
      continue;
    }
    made.passed_over_.push_back(name);
  }
  misfits.tell(report);
  if (report.num_errors() > before) return std::nullopt;
  return made;
}

void HfParams::read(const Place& place, std::int64_t first, std::span<std::byte> out) {
  take_rows(place.piece, place.stored->entry->bytes, size_of(place.type), first, out);
}

}  // namespace lockstep::hf
