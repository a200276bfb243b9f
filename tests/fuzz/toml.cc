// A run file of any bytes is read or refused; nothing else happens.
#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/config/document.h"
#include "lockstep/spec/spec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  std::string text(reinterpret_cast<const char*>(data), size);
  config::Report report;
  const auto document =
      config::parse_document(std::move(text), "run.toml", config::Format::kToml, report);
  if (document) spec::read_spec(*document, report);
  if (!report.diagnostics().empty()) (void)report.text("run.toml", false);
  return 0;
}
