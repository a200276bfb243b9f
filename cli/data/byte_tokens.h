// Token files of plain text, byte by byte: `data from-text` and `train --text`.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/data/byte_text.h"
#include "lockstep/data/token_writer.h"

namespace lockstep::cli {

// Writes PREFIX.bin and PREFIX.idx of these files, `-` for standard input, over what is there.
// kFileUnreadable for what cannot be read, is no text or has none. May throw IoError.
Result<data::Written> write_byte_tokens(const std::vector<std::string>& names,
                                        const std::string& prefix, data::DocumentEnd end);

}  // namespace lockstep::cli
