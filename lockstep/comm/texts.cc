#include "lockstep/comm/texts.h"

namespace lockstep::comm {
namespace {

Buffer bytes_of(std::string& text) {
  return {text.data(), static_cast<std::int64_t>(text.size()), DType::kU8, {}};
}

}  // namespace

std::string share_text(Communicator& group, std::string text, Deadline deadline) {
  auto size = static_cast<std::int64_t>(text.size());
  group.broadcast({&size, 1, DType::kI64, {}}, 0, deadline).wait();
  text.resize(static_cast<std::size_t>(size));
  group.broadcast(bytes_of(text), 0, deadline).wait();
  return text;
}

std::vector<std::string> gather_texts(Communicator& group, std::string text, Deadline deadline) {
  auto size = static_cast<std::int64_t>(text.size());
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(group.size()));
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
    texts.emplace_back(static_cast<std::size_t>(sizes[static_cast<std::size_t>(member)]), '\0');
    group.recv(bytes_of(texts.back()), member, 0, deadline).wait();
  }
  return texts;
}

}  // namespace lockstep::comm
