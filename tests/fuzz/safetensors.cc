// A safetensors file of any bytes is read or refused; what is read can be written again and is the
// same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "lockstep/files/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  const auto read = files::Safetensors::parse(std::as_bytes(std::span(data, size)), "input");
  if (!read.ok()) return 0;
  std::vector<files::TensorInfo> infos;
  std::size_t bytes = 0, at = static_cast<std::size_t>(read->data_begin());
  for (const files::TensorEntry& entry : read->entries()) {
    if (static_cast<std::size_t>(entry.begin) != at || read->find(entry.info.name) != &entry)
      std::abort();
    at += entry.bytes.size();
    bytes += entry.bytes.size();
    infos.push_back(entry.info);
  }
  if (at != size) std::abort();
  const std::string header = files::safetensors_header(infos, read->metadata(), files::kLeastAlign);
  std::string again = header + std::string(bytes, '\0');
  const auto reread = files::Safetensors::parse(as_byte_span(again), "again");
  if (!reread.ok() || reread->metadata() != read->metadata() ||
      reread->entries().size() != read->entries().size())
    std::abort();
  for (std::size_t i = 0; i < infos.size(); ++i)
    if (!(reread->entries()[i].info == infos[i])) std::abort();
  return 0;
}
