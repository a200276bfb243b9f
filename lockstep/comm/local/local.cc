#include "lockstep/comm/local/local.h"

#include <exception>
#include <future>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/comm/local/hub.h"

namespace lockstep::comm {
namespace {

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalHub> hub, Membership membership, Ledger& ledger,
                    Siblings& siblings)
      : Communicator(membership, ledger, siblings),
        hub_(std::move(hub)),
        group_(hub_->group(membership)),
        place_(siblings, *this) {}

 protected:
  Work start(const Operation& operation) override {
    const auto op = std::make_shared<LocalOp>(operation, index());
    hub_->post(group_, op);
    return {*this, [this, op]() -> std::optional<Ran> {
              try {
                hub_->wait(*group_, *op);
              } catch (const CommError& error) {
                if (!is_poisoned()) poison(error);  // else it was aborted
                throw;
              }
              return op->ran;
            }};
  }
  void start_abort(const CommError& reason) override {
    hub_->fail(*group_, reason.error(), reason.culprit());
  }
  std::string backend_name() const override { return "local"; }

 private:
  std::shared_ptr<LocalHub> hub_;
  std::shared_ptr<LocalGroup> group_;
  const Siblings::Place place_;
};

class LocalRank final : public World {
 public:
  LocalRank(std::shared_ptr<LocalHub> hub, Rank rank) : hub_(std::move(hub)), rank_(rank) {
    hub_->show(rank, shared_position());
  }
  ~LocalRank() override { hub_->lose(rank_, "has left the world"); }

  Rank rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  std::vector<LastSeen> last_seen() override { return hub_->last_seen(); }
  std::unique_ptr<Communicator> connect(std::string name, std::string axis,
                                        std::vector<Rank> members,
                                        Deadline /*never blocks*/) override {
    return std::make_unique<LocalCommunicator>(
        hub_, membership(std::move(name), std::move(axis), std::move(members)), ledger(),
        siblings());
  }

 private:
  std::shared_ptr<LocalHub> hub_;
  Rank rank_;
};

}  // namespace

LocalWorld::LocalWorld(int size, LocalOptions options)
    : hub_(std::make_shared<LocalHub>(size, std::move(options))) {
  LS_CHECK(size >= 1);
}
LocalWorld::~LocalWorld() = default;

std::unique_ptr<World> LocalWorld::join(Rank rank) {
  LS_CHECK(rank.value >= 0 && rank.value < hub_->size());
  return std::make_unique<LocalRank>(hub_, rank);
}

void LocalWorld::mark_lost(Rank rank, const std::string& why) { hub_->lose(rank, why); }

void run_local(int size, const std::function<void(World&)>& body, LocalOptions options) {
  LocalWorld world(size, std::move(options));
  std::vector<std::future<void>> ranks;
  for (int r = 0; r < size; ++r)
    ranks.push_back(std::async(std::launch::async, [&, r] {
      const auto end = world.join(Rank{r});
      try {
        body(*end);
      } catch (...) {
        world.mark_lost(Rank{r}, "ended with an error");
        throw;
      }
    }));
  for (const auto& rank : ranks) rank.wait();
  std::exception_ptr consequence;
  for (auto& rank : ranks) {
    try {
      rank.get();
    } catch (const CommError&) {
      if (!consequence) consequence = std::current_exception();
    }  // anything else leaves from here: it is the cause
  }
  if (consequence) std::rethrow_exception(consequence);
}

}  // namespace lockstep::comm
