#include "lockstep/comm/texts.h"

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::comm {
namespace {

Buffer bytes_of(std::string& text) { return {text.data(), std::ssize(text), DType::kU8, {}}; }

// A length that `member` told, before memory is taken for it.
std::size_t checked(Communicator& group, std::int64_t length, int member, OpKind op) {
  if (length >= 0 && length <= kMaxText) return static_cast<std::size_t>(length);
  const Rank rank = group.membership().members[member];
  const CommError refusal(
      {Code::kMismatchedCalls,
       join_parts(group.describe(), ": rank ", rank.value, " says that its text has ", length,
                  " bytes; a text has 0 to ", kMaxText),
       "restart the job; all ranks must be of one version"},
      op, rank);
  group.abort(refusal.what());
  throw refusal;
}

}  // namespace

std::string share_text(Communicator& group, std::string text, Deadline deadline) {
  auto size = std::ssize(text);
  group.broadcast({&size, 1, DType::kI64, {}}, 0, deadline).wait();
  text.resize(checked(group, size, 0, OpKind::kBroadcast));
  group.broadcast(bytes_of(text), 0, deadline).wait();
  return text;
}

std::vector<std::string> gather_texts(Communicator& group, std::string text, Deadline deadline) {
  auto size = std::ssize(text);
  std::vector<std::int64_t> sizes(group.size());
  group
      .all_gather({&size, 1, DType::kI64, {}}, {sizes.data(), group.size(), DType::kI64, {}},
                  deadline)
      .wait();
  if (group.index() != 0) {
    group.send(bytes_of(text), 0, 0, deadline).wait();
    return {};
  }
  std::vector<std::string> texts = {std::move(text)};
  for (int member = 1; member < group.size(); ++member) {
    texts.emplace_back(checked(group, sizes[member], member, OpKind::kAllGather), '\0');
    group.recv(bytes_of(texts.back()), member, 0, deadline).wait();
  }
  return texts;
}

std::string encoded(const Result<std::string>& result) {
  if (result.ok()) return Json(*result).dump();
  const Error& error = result.error();
  return Json::array({static_cast<int>(error.code), error.message, error.help}).dump();
}

Result<std::string> decoded(const std::string& text) {
  const Result<Json> json = Json::parse(text);
  if (json.ok() && json->is_text()) return json->as_text();
  const Json::Array parts = json.ok() && json->is_array() ? json->items() : Json::Array();
  if (parts.size() != 3 || !parts[0].is_int() || !parts[1].is_text() || !parts[2].is_text())
    throw WorldError({Code::kMismatchedCalls, "a peer sent what is no verdict",
                      "restart the job; all ranks must be of one version"});
  return Error{static_cast<Code>(parts[0].as_int()), parts[1].as_text(), parts[2].as_text()};
}

}  // namespace lockstep::comm
