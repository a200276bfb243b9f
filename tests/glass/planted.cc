#include "tests/glass/planted.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/tensor/as_buffer.h"
#include "tests/glass/host_fault.h"
#include "tests/glass/race.h"

namespace lockstep::glass {
namespace {

using tensor::as_tensor;

c10::Stream stream_now(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}
// Nobody else's.
c10::Stream own_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}
void put_behind(c10::Stream later, c10::Stream earlier) {
  c10::Event reached(later.device_type());
  reached.record(earlier);
  reached.block(later);
}
bool has(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

}  // namespace

std::string_view to_text(Planted kind) {
  constexpr std::string_view kNames[] = {"host read",        "missing wait", "missing wait back",
                                         "early free",       "early reuse",  "order swapped",
                                         "direction swapped"};
  return kNames[static_cast<std::size_t>(kind)];
}

void add(const Tallies& from, Tallies& to) {
  for (const auto& [name, tally] : from) {
    Tally& sum = to[name];
    sum.planted += tally.planted;
    sum.reported += tally.reported;
    sum.equivalent += tally.equivalent;
    sum.unseen.insert(sum.unseen.end(), tally.unseen.begin(), tally.unseen.end());
  }
}

void expect_all_seen(const Tallies& tallies) {
  Tally all;
  for (const auto& [name, tally] : tallies) {
    std::cout << name << ": " << tally.planted << " planted, " << tally.reported << " reported, "
              << tally.equivalent << " make no difference\n";
    EXPECT_EQ(tally.unseen, std::vector<std::string>{}) << name;
    all.planted += tally.planted, all.reported += tally.reported;
  }
  EXPECT_GT(all.reported, 0);
  std::cout << "all: " << all.planted << " planted, " << all.reported << " reported\n";
}

OpPlanter::OpPlanter(Planted kind, c10::Device device, Tallies& tallies)
    : kind_(kind), device_(device), beside_(own_stream(device)), tallies_(tallies) {}

// An op of a stream of its own reads or writes it.
void OpPlanter::plant(const Used& used, bool is_behind, bool writes) {
  names_.push_back(used.name);
  if (kind_ == Planted::kHostRead) {
    LS_CHECK(host_reads(used.tensor.const_data_ptr()), used.name, " is the host's");
    return;
  }
  if (is_behind) put_behind(beside_, stream_now(device_));
  Race::say_what_runs("an op planted on " + used.name);
  {
    const c10::StreamGuard guard(beside_);
    const at::Tensor copy = used.tensor.clone();
    if (writes) used.tensor.copy_(copy);
  }
  Race::say_what_runs(what_);
}

void OpPlanter::before(const std::string& what, std::string_view kind,
                       const std::vector<Used>& used, const std::vector<Used>& returned) {
  what_ = what;
  tally_ = std::string(to_text(kind_)) + ", " + std::string(kind);
  Race::say_what_runs(what_);
  if (kind_ == Planted::kHostRead || kind_ == Planted::kMissingWait)
    for (const Used& one : used) plant(one, true, true);
  returned_.clear();
  if (kind_ != Planted::kEarlyFree) return;
  for (const Used& one : returned) {
    plant(one, true, false);
    const auto address = reinterpret_cast<std::uint64_t>(one.tensor.const_data_ptr());
    returned_.emplace_back(address, race().taking_of(address));
  }
}

void OpPlanter::behind(const std::vector<Used>& made, bool is_idle) {
  if (kind_ == Planted::kMissingWaitBack)
    for (const Used& one : made) plant(one, false, false);
  judge(is_idle);
  put_behind(stream_now(device_), beside_);
  race().take_reports();
  Race::say_what_runs("");
}

// What an op ends may live on, as another value: then nothing was returned.
bool OpPlanter::stays(std::size_t i) const {
  return i < returned_.size() && race().taking_of(returned_[i].first) == returned_[i].second;
}

void OpPlanter::judge(bool is_idle) {
  const std::vector<std::string> reports = race().take_reports();
  Tally& tally = tallies_[tally_];
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const std::string name = kind_ == Planted::kHostRead ? "the host, in " + what_ + ", touches"
                                                         : "an op planted on " + names_[i] + " on";
    // What makes a result may have been an op before this one.
    const std::string other = kind_ == Planted::kMissingWaitBack ? " what " : " in " + what_;
    ++tally.planted;
    const auto names_both = [&](const std::string& report) {
      return has(report, name) && has(report, other) && !has(report, "nothing has used");
    };
    if (std::ranges::any_of(reports, names_both))
      ++tally.reported;
    else if (is_idle || stays(i))
      ++tally.equivalent;
    else
      tally.unseen.push_back(what_ + ", " + names_[i] + (reports.empty() ? "" : ": " + reports[0]));
  }
  names_.clear();
}

// ---- calls

class PlantedCommunicator final : public comm::Communicator {
 public:
  PlantedCommunicator(std::unique_ptr<comm::Communicator> inner, comm::Ledger& ledger,
                      comm::Siblings& siblings, CallPlanter& planter)
      : Communicator(inner->membership(), ledger, siblings),
        inner_(std::move(inner)),
        planter_(planter) {}

 protected:
  comm::Work start(const comm::Operation& op) override {
    if (size() == 1) return pass_on(op);
    const int number_on = issued_++;
    if (planter_.held_ && planter_.holder_ != this) {
      comm::Work first = told(planter_.next_, number_on, pass_on(op));
      planter_.release();
      ++planter_.next_;
      return first;
    }
    planter_.release();
    const int number = planter_.next_++;
    const std::string call = std::string(comm::to_text(op.kind)) + " on " + describe();
    if (planter_.wanted.empty()) planter_.calls.push_back(call);
    planter_.issued_on_[number] = this;
    const int stream = tested_stream_number(planter_.device_);
    const std::uint64_t before = std::max(ordered_, planter_.waited_);
    ordered_ = race().tick_of(stream);
    if (planter_.active || !planter_.wanted.contains(number))
      return told(number, number_on, pass_on(op));
    planter_.active = {number, call, planter_.what_runs, {}, this, number_on};
    if (planter_.kind_ == Planted::kMissingWaitBack && last_touch(op, stream) <= before)
      planter_.active->proof = "untouched since the call before, or since the host waited";
    planter_.active->is_done =
        planter_.kind_ != Planted::kEarlyFree && planter_.kind_ != Planted::kEarlyReuse;
    comm::Work work = go_wrong(op);
    race().watch({access_of(op.in), access_of(op.out)});
    return work;
  }
  void start_abort(const comm::CommError& reason) override { inner_->abort(reason); }
  std::string backend_name() const override { return "planted"; }

 private:
  using Shared = std::shared_ptr<comm::Work>;

  static Access access_of(ConstBuffer buffer) {
    const auto begin = reinterpret_cast<std::uint64_t>(buffer.data);
    return {begin, begin + static_cast<std::uint64_t>(buffer.bytes()), true};
  }
  static std::uint64_t last_touch(const comm::Operation& op, int stream) {
    return std::max(race().last_touch(access_of(op.in), stream),
                    race().last_touch(access_of(op.out), stream));
  }
  // What runs in order is over with what came later.
  comm::Work told(int number, int number_on, comm::Work work) {
    return {*this, [this, number, number_on, work = share(std::move(work))] {
              const std::optional<comm::Ran> ran = work->wait();
              planter_.was_waited_for(this, number, number_on);
              return ran;
            }};
  }

  comm::Work pass_on(const comm::Operation& op) {
    switch (op.kind) {
      case comm::OpKind::kAllGather:
        return inner_->all_gather(op.in, op.out, op.deadline);
      case comm::OpKind::kReduceScatter:
        return inner_->reduce_scatter(op.in, op.out, op.deadline);
      case comm::OpKind::kAllReduce:
        return inner_->all_reduce(op.out, op.deadline);
      case comm::OpKind::kSend:
        return inner_->send(op.in, op.peer, op.tag, op.deadline);
      case comm::OpKind::kRecv:
        return inner_->recv(op.out, op.peer, op.tag, op.deadline);
      default:
        LS_CHECK(false, "no such call in a step");
    }
  }

  comm::Work go_wrong(const comm::Operation& op) {
    switch (planter_.kind_) {
      case Planted::kMissingWait:
        return waited_for_beside(share(pass_on(op)), [] {});
      case Planted::kMissingWaitBack: {
        const c10::StreamGuard guard(planter_.beside());
        return pass_on(op);
      }
      case Planted::kEarlyFree:
        return on_memory_of_its_own(op);
      case Planted::kEarlyReuse:
        return waited_for_beside(share(pass_on(op)), [this, op] {
          as_tensor(op.out).mul_(1);
          planter_.repair();
          planter_.active->is_done = true;
        });
      case Planted::kOrder:
        return behind_the_next(op);
      case Planted::kDirection:
        return backwards(op);
      case Planted::kHostRead:
        break;
    }
    LS_CHECK(false, "no fault of calls");
  }

  static Shared share(comm::Work work) { return std::make_shared<comm::Work>(std::move(work)); }
  // The thread's stream is not put behind it, another is.
  comm::Work waited_for_beside(Shared work, std::function<void()> then) {
    return {*this, [this, work = std::move(work), then = std::move(then)] {
              {
                const c10::StreamGuard guard(planter_.beside());
                work->wait();
              }
              then();
              return std::optional<comm::Ran>();
            }};
  }
  // Which is returned as soon as the host has learned that it is over.
  comm::Work on_memory_of_its_own(comm::Operation op) {
    const Buffer target = op.out;
    auto in = std::make_shared<at::Tensor>(), out = std::make_shared<at::Tensor>();
    const bool is_same = op.in.data == op.out.data && op.in.count == op.out.count;
    if (op.in.count > 0)
      *in = as_tensor({const_cast<void*>(op.in.data), op.in.count, op.in.dtype, op.in.device})
                .clone();
    if (op.out.count > 0) *out = is_same ? *in : at::empty_like(as_tensor(op.out));
    if (in->defined()) op.in = tensor::as_buffer(*in);
    if (out->defined()) op.out = tensor::as_buffer(*out);
    return waited_for_beside(share(pass_on(op)), [this, in, out, target] {
      if (out->defined()) {
        const c10::StreamGuard guard(planter_.beside());
        as_tensor(target).copy_(*out);
      }
      in->reset();
      out->reset();
      planter_.repair();
      planter_.active->is_done = true;
    });
  }
  comm::Work behind_the_next(const comm::Operation& op) {
    const auto work = std::make_shared<comm::Work>();
    planter_.holder_ = this;
    planter_.held_ = [this, op, work] { *work = pass_on(op); };
    return {*this, [this, work] {
              if (planter_.holder_ == this && planter_.held_) {
                planter_.release();
                planter_.active->proof = "no other call before its wait: it is in its place";
              }
              work->wait();
              return std::optional<comm::Ran>();
            }};
  }
  comm::Work backwards(const comm::Operation& op) {
    if (op.kind == comm::OpKind::kRecv) return inner_->send(op.out, op.peer, op.tag, op.deadline);
    LS_CHECK(op.kind == comm::OpKind::kSend, "neither a send nor a receive");
    const Buffer into = {const_cast<void*>(op.in.data), op.in.count, op.in.dtype, op.in.device};
    return inner_->recv(into, op.peer, op.tag, op.deadline);
  }

  const std::unique_ptr<comm::Communicator> inner_;
  CallPlanter& planter_;
  int issued_ = 0;
  std::uint64_t ordered_ = 0;  // ops of the thread's stream that the last call came behind
};

namespace {

class PlantedWorld final : public comm::World {
 public:
  using Make = std::function<std::unique_ptr<comm::Communicator>(
      std::unique_ptr<comm::Communicator>, comm::Ledger&, comm::Siblings&)>;
  PlantedWorld(comm::World& inner, Make make)
      : World(&inner), inner_(inner), make_(std::move(make)) {}
  Rank rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Device device() const override { return inner_.device(); }
  std::unique_ptr<comm::Communicator> connect(std::string name, std::string axis,
                                              std::vector<Rank> members,
                                              Deadline deadline) override {
    return inner_.connect(std::move(name), std::move(axis), std::move(members), deadline);
  }
  std::unique_ptr<comm::Communicator> connect_device(std::string name, std::string axis,
                                                     std::vector<Rank> members,
                                                     Deadline deadline) override {
    return make_(
        inner_.connect_device(std::move(name), std::move(axis), std::move(members), deadline),
        ledger(), siblings());
  }
  std::unique_ptr<comm::Communicator> connect_ring(std::string name, std::string axis,
                                                   std::vector<Rank> members,
                                                   Deadline deadline) override {
    return make_(
        inner_.connect_ring(std::move(name), std::move(axis), std::move(members), deadline),
        ledger(), siblings());
  }

 private:
  comm::World& inner_;
  const Make make_;
};

}  // namespace

std::unique_ptr<comm::World> CallPlanter::wrap(comm::World& inner) {
  return std::make_unique<PlantedWorld>(
      inner, [this](std::unique_ptr<comm::Communicator> group, comm::Ledger& ledger,
                    comm::Siblings& siblings) {
        return std::make_unique<PlantedCommunicator>(std::move(group), ledger, siblings, *this);
      });
}

c10::Stream CallPlanter::beside() {
  if (!beside_) beside_ = own_stream(device_);
  return *beside_;
}

void CallPlanter::release() {
  if (const auto held = std::exchange(held_, nullptr)) held();
}

void CallPlanter::was_waited_for(const comm::Communicator* on, int number, int number_on) {
  if (const auto next = issued_on_.find(number + 1); next != issued_on_.end() && next->second != on)
    overtakable.insert(number);
  if (active && active->on == on && number_on > active->number_on &&
      race().touches_of_watched() == 0)
    active->proof = "a later call on the communicator was waited for before anybody touched it";
}

void CallPlanter::host_has_waited() { waited_ = race().tick_of(tested_stream_number(device_)); }

void CallPlanter::repair() { put_behind(stream_now(device_), beside()); }

}  // namespace lockstep::glass
