// A world whose tensor, context and expert groups do one collective wrong, as code that forgets or
// misuses it would.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/comm/communicator.h"

namespace lockstep::train {

enum class GroupFault : std::uint8_t {
  kDrop,    // nothing is sent: a rank sees its own piece everywhere, or its own summand
  kRotate,  // pieces change places with those of the next rank; of an exchange, its two halves
  kDouble,  // a sum is added up twice
  kMean,    // a sum is divided by the ranks
};
constexpr const char* name_of(GroupFault fault) {
  constexpr const char* kNames[] = {"drop", "rotate", "double", "mean"};
  return kNames[static_cast<int>(fault)];
}

// A gathering, an exchange, or a sum of which every rank gets a piece; an all_reduce is the last,
// then the first.
struct GroupCall {
  bool is_sum = false;
  std::int64_t bytes = 0;
};

// Calls on elements of `dtype` in groups of `axes` are numbered, from 0 again after every
// `per_step`; number `at` goes wrong. Every rank has its own.
struct GroupPlan {
  int per_step = 0;  // 0: none goes wrong, and `calls` are written down
  int at = -1;
  GroupFault fault = GroupFault::kDrop;
  std::vector<GroupCall>* calls = nullptr;
  std::vector<std::string> axes = {"tp", "cp", "ep", "etp"};
  DType dtype = DType::kF64;
};

class FaultyGroup final : public comm::Communicator {
 public:
  FaultyGroup(std::unique_ptr<comm::Communicator> inner, comm::Ledger& ledger,
              comm::Siblings& siblings, GroupPlan plan)
      : Communicator(inner->membership(), ledger, siblings),
        inner_(std::move(inner)),
        plan_(plan) {}

 protected:
  comm::Work start(const comm::Operation& op) override {
    switch (op.kind) {
      case comm::OpKind::kAllGather:
        return gather(op.in, op.out, op.deadline);
      case comm::OpKind::kReduceScatter:
        return reduce(op.in, op.out, op.deadline);
      case comm::OpKind::kAllToAll:
        return exchange(op);
      case comm::OpKind::kSend:
        return inner_->send(op.in, op.peer, op.tag, op.deadline);
      case comm::OpKind::kRecv:
        return inner_->recv(op.out, op.peer, op.tag, op.deadline);
      case comm::OpKind::kBroadcast:
        return inner_->broadcast(op.peer == index() ? writable(op.in) : op.out, op.peer,
                                 op.deadline);
      default:
        return inner_->barrier(op.deadline);
    }
  }
  void start_abort(const comm::CommError& reason) override { inner_->abort(reason.what()); }
  std::string backend_name() const override { return "faulty"; }

 private:
  comm::Work gather(ConstBuffer in, Buffer out, Deadline deadline) {
    if (!is_wrong(in, false)) return inner_->all_gather(in, out, deadline);
    const std::vector<double> own(numbers(in), numbers(in) + in.count);
    if (plan_.fault == GroupFault::kRotate) {
      inner_->all_gather(in, out, deadline).wait();
      std::rotate(numbers(out), numbers(out) + in.count, numbers(out) + out.count);
    } else {
      for (int i = 0; i < size(); ++i) std::ranges::copy(own, numbers(out) + i * in.count);
    }
    return {};
  }

  comm::Work exchange(const comm::Operation& op) {
    const auto honest = [&] {
      return inner_->all_to_all(op.in, op.send_counts, op.out, op.recv_counts, op.deadline);
    };
    if (!is_wrong(op.in, false)) return honest();
    honest().wait();
    if (plan_.fault == GroupFault::kRotate) {
      std::rotate(numbers(op.out), numbers(op.out) + op.out.count / 2,
                  numbers(op.out) + op.out.count);
      return {};
    }
    // What others sent is what this rank sent, as far as that goes.
    const auto own = static_cast<std::size_t>(index());
    const std::int64_t before =
        std::accumulate(op.recv_counts.begin(), op.recv_counts.begin() + index(), std::int64_t{0});
    const std::int64_t behind = before + op.recv_counts[own];
    for (std::int64_t i = 0; i < op.out.count; ++i)
      if (i < before || i >= behind) numbers(op.out)[i] = i < op.in.count ? numbers(op.in)[i] : 0.0;
    return {};
  }

  comm::Work reduce(ConstBuffer in, Buffer out, Deadline deadline) {
    if (!is_wrong(in, true)) return inner_->reduce_scatter(in, out, deadline);
    std::vector<double> all(numbers(in), numbers(in) + in.count);
    if (plan_.fault == GroupFault::kDrop) {
      std::copy_n(all.begin() + index() * out.count, out.count, numbers(out));
      return {};
    }
    if (plan_.fault == GroupFault::kRotate)
      std::rotate(all.begin(), all.begin() + out.count, all.end());
    std::vector<double> sum(static_cast<std::size_t>(out.count));
    inner_
        ->reduce_scatter({all.data(), in.count, DType::kF64, {}},
                         {sum.data(), out.count, DType::kF64, {}}, deadline)
        .wait();
    const double factor = plan_.fault == GroupFault::kDouble ? 2.0
                          : plan_.fault == GroupFault::kMean ? 1.0 / size()
                                                             : 1.0;
    std::ranges::transform(sum, numbers(out), [&](double x) { return x * factor; });
    return {};
  }

  static const double* numbers(ConstBuffer b) { return static_cast<const double*>(b.data); }
  static Buffer writable(ConstBuffer b) {
    return {const_cast<void*>(b.data), b.count, b.dtype, b.device};
  }
  static double* numbers(Buffer b) { return static_cast<double*>(b.data); }

  bool is_wrong(ConstBuffer in, bool is_sum) {
    if (in.dtype != plan_.dtype) return false;
    if (plan_.calls != nullptr) plan_.calls->push_back({is_sum, in.bytes()});
    if (plan_.per_step == 0) return false;
    return next_++ % plan_.per_step == plan_.at;
  }

  const std::unique_ptr<comm::Communicator> inner_;
  const GroupPlan plan_;
  int next_ = 0;
};

// What it counts in its own ledger are the calls of those groups.
class FaultyWorld final : public comm::World {
 public:
  FaultyWorld(comm::World& inner, GroupPlan plan) : inner_(inner), plan_(plan) {}
  Rank rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::unique_ptr<comm::Communicator> connect(std::string name, std::string axis,
                                              std::vector<Rank> members,
                                              Deadline deadline) override {
    const bool is_inside = std::ranges::count(plan_.axes, axis) > 0;
    auto made = inner_.connect(std::move(name), std::move(axis), std::move(members), deadline);
    if (!is_inside) return made;
    return std::make_unique<FaultyGroup>(std::move(made), ledger(), siblings(), plan_);
  }

 private:
  comm::World& inner_;
  const GroupPlan plan_;
};

}  // namespace lockstep::train
