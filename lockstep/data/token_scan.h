// A look at every token of a file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "lockstep/data/token_file.h"

namespace lockstep::data {

struct ScanWish {
  std::int64_t vocab = 0;                // ids must lie below; 0: any that are not negative
  std::optional<std::int64_t> end = {};  // every document must end with it
};

struct ScanFault {
  std::int64_t document = 0;
  std::int64_t token = 0;  // number in the document
  std::int64_t id = 0;
};

struct Scan {
  std::int64_t largest = -1;              // id; -1: there is none
  std::int64_t documents_beyond = 0;      // that hold an id outside the vocabulary
  std::optional<ScanFault> first_beyond;  //
  std::int64_t documents_unended = 0;     // that do not end with ScanWish::end; empty ones too
  std::optional<std::int64_t> first_unended;

  bool is_good() const { return documents_beyond == 0 && documents_unended == 0; }
};

// Reads the whole file. `progress` is called now and then with the share that is done.
Scan scan(const TokenFile& file, const ScanWish& wish,
          const std::function<void(double share)>& progress);

}  // namespace lockstep::data
