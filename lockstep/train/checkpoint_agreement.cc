#include "lockstep/train/checkpoint_agreement.h"

#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"
#include "lockstep/train/session.h"

namespace lockstep::train {

std::unique_ptr<comm::Communicator> connect_all(comm::World& world, const std::string& name,
                                                Deadline deadline) {
  std::vector<Rank> everyone;
  for (int rank = 0; rank < world.size(); ++rank) everyone.push_back({rank});
  return world.connect(name, kCheckpointAxis, std::move(everyone), deadline);
}

std::string encoded(const Result<std::string>& result) {
  if (result.ok()) return Json(*result).dump();
  const Error& error = result.error();
  return Json::array({static_cast<int>(error.code), error.message, error.help}).dump();
}

Result<std::string> decoded(const std::string& text) {
  const Result<Json> json = Json::parse(text);
  LS_CHECK(json.ok(), text);
  if (json->is_text()) return json->as_text();
  const Json::Array& parts = json->items();
  return Error{static_cast<Code>(parts[0].as_int()), parts[1].as_text(), parts[2].as_text()};
}

}  // namespace lockstep::train
