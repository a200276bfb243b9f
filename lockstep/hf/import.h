// From a Hugging Face directory to a checkpoint of weights alone, from which a training can start.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/result.h"
#include "lockstep/base/units.h"
#include "lockstep/config/diagnostic.h"
#include "lockstep/files/durable.h"
#include "lockstep/hf/config_json.h"
#include "lockstep/hf/weights.h"
#include "lockstep/model/arch.h"
#include "lockstep/model/hf_names.h"

namespace lockstep::hf {

// Between tensors as Hugging Face stores them and parameters as Lockstep has them: transposed where
// stored [in, out], and cut or joined where several parameters share a tensor.

// One parameter inside a stored tensor.
struct Piece {
  std::int64_t begin = 0;    // its first row among the stored tensor's outputs
  std::int64_t rows = 0;     // outputs
  std::int64_t columns = 1;  // inputs; 1 of a vector
  std::int64_t outputs = 0;  // of the whole stored tensor
  bool transposed = false;
  std::int64_t numel() const { return rows * columns; }
  // Where the stored tensor has element i of the parameter.
  std::int64_t stored_element(std::int64_t i) const {
    const std::int64_t output = begin + i / columns;
    const std::int64_t input = i % columns;
    return transposed ? input * outputs + output : output * columns + input;
  }
};

// Of an expert's tensor, which is all of that expert.
Piece piece_of(const model::HfTensor& tensor, std::size_t index);

// Rows [first, first + out's) of the parameter from the whole stored tensor. Elements keep their
// type, of `width` bytes. REQUIRES: whole rows.
void take_rows(const Piece& piece, ByteSpan stored, std::size_t width, std::int64_t first,
               std::span<std::byte> out);

// Rows [first, ...) of a stored tensor [inputs, outputs] from all of its parameters, each whole.
// REQUIRES: transposed pieces in order that fill the tensor.
void put_transposed(std::span<const Piece> pieces, std::span<const ByteSpan> params,
                    std::size_t width, std::int64_t first, std::span<std::byte> out);

// LS0841: an element of a stored tensor is NaN or infinite, from which no training goes on.
Error not_finite(const std::string& tensor, std::int64_t element, DType type);

// A model's parameters, found in the tensors of a Hugging Face directory.

// Refers to the model and to the weights. Any thread may read.
class HfParams {
 public:
  // Of stacked experts each has its own, in order.
  struct Place {
    std::string name;  // "blocks.0.attn.q.weight"
    std::vector<std::int64_t> shape;
    const Weights::Stored* stored = nullptr;
    DType type = DType::kF32;  // of the stored elements
    Piece piece;
  };

  // Finds every parameter, the tied head excepted. All that does not fit goes to `report` (LS0841):
  // tensors that are missing, have another shape or a type that is not read, are left over, or
  // should be tied and differ. Tables that older files hold besides parameters (causal masks,
  // rotary frequencies) are passed over, and so is the name of the base model before every tensor,
  // which files of a model without its head leave out.
  static std::optional<HfParams> find(const model::Model& model, const Weights& weights,
                                      config::Report& report);

  std::span<const Place> places() const { return places_; }

  // Rows [first, ...) of a parameter into `out`, in the type they are stored in. REQUIRES: whole
  // rows.
  static void read(const Place& place, std::int64_t first, std::span<std::byte> out);

  const std::vector<std::string>& passed_over() const { return passed_over_; }  // names, as stored

 private:
  std::vector<Place> places_;
  std::vector<std::string> passed_over_;
};

// A directory whose config.json and weights fit each other. Movable.
struct Directory {
  HfConfig config;  // the model is called like the folder
  std::string model_type;
  model::Model model;
  Weights weights;
  HfParams params;
};

// Reads config.json and the headers of the weights; everything that is wrong goes to `report`.
std::optional<Directory> open_directory(const std::string& folder, config::Report& report);

struct Imported {
  std::string checkpoint;  // path
  std::string model_file;  // path
  std::int64_t tensors = 0;
  Bytes bytes;  // of them
};

// Makes the folder `out`, which must not exist, with the checkpoint of step 0 and `model.toml`, the
// model that a run file can name. Elements keep the type they are stored in; who loads them widens
// them. Holds at most one tensor of the directory and a few megabytes. Refuses weights that are not
// finite (LS0841) and throws IoError; then it leaves nothing.
Result<Imported> write_checkpoint(const Directory& directory, files::Disk& disk,
                                  const std::string& out, const std::string& lockstep_version);

}  // namespace lockstep::hf
