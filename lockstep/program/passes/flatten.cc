#include <algorithm>
#include <numeric>
#include <tuple>

#include "lockstep/program/passes/passes.h"

namespace lockstep::program {
namespace {

std::vector<Op> flatten(const DraftList& draft) {
  const auto attached = [&](std::int32_t handle) -> const Attached& {
    return draft.attached[handle];
  };
  std::vector<std::int32_t> handles(draft.attached.size());
  std::iota(handles.begin(), handles.end(), 0);
  std::ranges::stable_sort(handles, {}, [&](std::int32_t handle) {
    return std::tuple(attached(handle).at, attached(handle).slot);
  });

  std::vector<Op> list;
  std::vector<std::int32_t> position(handles.size());
  auto next = handles.begin();
  const auto take_while_before = [&](std::int32_t at, Slot slot) {
    for (; next != handles.end(); ++next) {
      if (std::tuple(attached(*next).at, attached(*next).slot) >= std::tuple(at, slot)) return;
      position[*next] = static_cast<std::int32_t>(list.size());
      list.push_back(attached(*next).op);
    }
  };
  for (std::int32_t at = 0; at < draft.end(); ++at) {
    take_while_before(at, Slot::kCompute);
    list.push_back(draft.compute[at]);
  }
  take_while_before(draft.end() + 1, Slot::kPostRecv);
  for (Op& op : list)
    if (op.kind == OpKind::kWait) op.target = position[op.target];
  return list;
}

}  // namespace

std::int32_t DraftList::attach(std::int32_t at, Slot slot, Op op) {
  attached.push_back({at, slot, op});
  return static_cast<std::int32_t>(attached.size()) - 1;
}

void DraftList::attach_wait(std::int32_t at, Slot slot, std::int32_t handle) {
  attach(at, slot, {.kind = OpKind::kWait, .target = handle});
}

Program flatten(Draft draft) {
  Program program = std::move(draft.program);
  for (const DraftList& list : draft.lists) program.lists.push_back(flatten(list));
  return program;
}

}  // namespace lockstep::program
