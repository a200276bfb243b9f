// A manifest of any bytes is read or refused; what is read can be written again and is the same.
// The input is taken as it is and, because no random bytes have their own SHA-256 in them, as a
// body.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lockstep/base/hash.h"
#include "lockstep/checkpoint/manifest.h"

namespace {

void try_manifest(std::string_view text) {
  using namespace lockstep::checkpoint;
  const auto read = parse_manifest(text, "input");
  if (!read.ok()) return;
  (void)check_coverage(*read, "input");
  const auto again = parse_manifest(to_text(*read), "again");
  if (!again.ok() || !(*again == *read)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_manifest(text);
  std::string whole = "{\"sha256\":\"";
  whole += lockstep::to_hex(lockstep::ByteSpan(lockstep::sha256(text)));
  whole += "\",\n\"checkpoint\":";
  whole += text;
  whole += "\n}\n";
  try_manifest(whole);
  return 0;
}
