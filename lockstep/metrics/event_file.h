// Event files as TensorBoard reads them: records framed as TFRecord (length, its masked CRC-32C,
// bytes, their masked CRC-32C; tensorflow/core/lib/io/record_writer.h), each an Event message
// (tensorflow/core/ util/event.proto) with scalars. The messages are written here, field by field:
// there are five fields, and a protobuf library beside the one inside LibTorch would have to be
// kept from clashing with it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/hash.h"
#include "lockstep/base/result.h"
#include "lockstep/metrics/metrics_file.h"

namespace lockstep::metrics {

struct Scalar {
  std::string_view tag;  // "train/loss"
  double value = 0;      // kept as a float, as TensorBoard does
};

// One thread at a time.
class EventFile {
 public:
  // A new file in `directory`, which TensorBoard reads after those that are there. Of them it
  // forgets what lies at `first_step` and beyond, because this file begins there. `wall_time`: in
  // seconds since 1970.
  static Result<EventFile> create(const std::string& directory, std::int64_t first_step,
                                  double wall_time);

  const std::string& path() const { return file_.path(); }
  // Written at once.
  Result<void> add(std::int64_t step, double wall_time, std::span<const Scalar> scalars);

 private:
  explicit EventFile(AppendFile file) : file_(std::move(file)) {}
  Result<void> write_record(const std::string& message);

  AppendFile file_;
};

// Of polynomial 0x1EDC6F41, reflected (Castagnoli; RFC 3720, B.4).
std::uint32_t crc32c(ByteSpan bytes);

}  // namespace lockstep::metrics
