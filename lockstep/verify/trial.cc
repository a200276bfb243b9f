#include "lockstep/verify/trial.h"

#include <ATen/ops/from_blob.h>

#include <cstring>
#include <mutex>

#include "lockstep/tensor/as_buffer.h"

namespace lockstep::verify {
namespace {

using runtime::StateRole;
using Sink = std::function<void(Piece)>;

constexpr std::pair<Role, StateRole> kStateRoles[] = {
    {Role::kParameter, StateRole::kParameter},
    {Role::kFirstMoment, StateRole::kFirstMoment},
    {Role::kSecondMoment, StateRole::kSecondMoment}};

class RankTrial {
 public:
  RankTrial(const train::Job& job, comm::World& world, const std::string& label,
            const data::TokenSource& source, Seconds op_deadline, const train::WorkspaceWrap& wrap,
            const Sink& sink)
      : job_(job),
        world_(world),
        session_(job, world, label, source, op_deadline, wrap),
        sink_(sink) {}

  RankRecord run(std::span<const StepOrder> orders) {
    RankRecord record{world_.rank(), {}};
    for (std::size_t i = 0; i < orders.size(); ++i) {
      if (orders[i].from) restart(orders[i]);
      record.steps.push_back(run_step(orders[i], static_cast<int>(i)));
    }
    return record;
  }

 private:
  void restart(const StepOrder& order) {
    session_.workspace().set_updates(order.step);
    if (const std::vector<float>& bias = order.from->router_bias; !bias.empty())
      session_.workspace().set_router_bias(bias);
    for (const int segment : session_.own_segments())
      for (const auto& [role, state] : kStateRoles)
        session_.workspace().load_state(
            segment, state, order.from->at(job_.model, segment, role, session_.place().tensor));
  }

  RankStep run_step(const StepOrder& order, int index) {
    RankStep record;
    world_.ledger().clear();
    const auto& list = job_.program.list(session_.coord());
    record.report = session_.step(order.step, [&](int op) {
      record.live.push_back(session_.memory().live());
      if (list[op].kind == program::OpKind::kNorm)
        for (const int segment : session_.own_segments())
          put(index, segment, Role::kGradient, session_.workspace().reduced_grad(segment));
    });
    record.ledger = world_.ledger().entries();
    for (const int segment : session_.own_segments())
      for (const auto& [role, state] : kStateRoles)
        put(index, segment, role, session_.workspace().state(segment, state));
    return record;
  }

  void put(int index, int segment, Role role, const at::Tensor& data) {
    const tensor::ChargeTo charge(tensor::process_account());  // what is looked at is not the job's
    sink_({index, segment, role, session_.place().tensor, session_.workspace().own_range(segment),
           data.cpu()});
  }

  const train::Job& job_;
  comm::World& world_;
  train::Session session_;
  const Sink& sink_;
};

void set_reports(ImageBuilder& builder, const RankRecord& record) {
  for (std::size_t i = 0; i < record.steps.size(); ++i) {
    const train::StepReport& report = record.steps[i].report;
    builder.set_report(static_cast<int>(i), report);
  }
}

struct PieceHeader {
  std::int64_t step, segment, role;
  model::TensorPlace place;
  std::int64_t begin, end;
};

std::vector<std::byte> pack(const std::vector<Piece>& pieces) {
  std::vector<std::byte> bytes;
  for (const Piece& piece : pieces) {
    const PieceHeader header = {
        piece.step,  piece.segment,     static_cast<std::int64_t>(piece.role),
        piece.place, piece.range.begin, piece.range.end};
    const auto* head = reinterpret_cast<const std::byte*>(&header);
    const auto* data = static_cast<const std::byte*>(piece.data.const_data_ptr());
    bytes.insert(bytes.end(), head, head + sizeof header);
    bytes.insert(bytes.end(), data, data + piece.data.nbytes());
  }
  return bytes;
}

void unpack(std::vector<std::byte>& bytes, at::ScalarType type, ImageBuilder& builder) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    PieceHeader header;
    std::memcpy(&header, bytes.data() + at, sizeof header);
    at += sizeof header;
    const model::FlatRange range = {header.begin, header.end};
    const at::Tensor data = at::from_blob(bytes.data() + at, {range.size()}, type).clone();
    at += static_cast<std::size_t>(data.nbytes());
    builder.add({static_cast<std::int32_t>(header.step), static_cast<std::int32_t>(header.segment),
                 static_cast<Role>(header.role), header.place, range, data});
  }
}

Buffer bytes_of(std::vector<std::byte>& bytes) {
  return {bytes.data(), std::ssize(bytes), DType::kU8, {}};
}

}  // namespace

TrialResult run_trial(const train::Job& job, const data::TokenSource& source,
                      std::span<const StepOrder> orders, Seconds op_deadline,
                      const TrialOptions& options) {
  TrialResult result;
  ImageBuilder builder(job.model, static_cast<int>(orders.size()),
                       tensor::scalar_type_of(wide_type(job.workspace.unit.dtype)),
                       job.mesh.degree(mesh::Axis::kTensor), job.mesh.degree(mesh::Axis::kExpert),
                       job.mesh.degree(mesh::Axis::kExpertTensor));
  std::mutex mutex;
  const Sink sink = [&](Piece piece) { builder.add(piece); };
  comm::run_local(
      job.mesh.world(),
      [&](comm::World& world) {
        const auto wrapped = options.wrap_world ? options.wrap_world(world) : nullptr;
        comm::World& seen = wrapped ? *wrapped : world;
        RankRecord record =
            RankTrial(job, seen, "", source, op_deadline, options.wrap, sink).run(orders);
        const std::lock_guard lock(mutex);
        if (record.rank.value == 0) set_reports(builder, record);
        result.ranks.push_back(std::move(record));
      },
      options.world);
  result.images = builder.take();
  result.disagreement = builder.disagreement();
  return result;
}

TrialResult run_trial_in(comm::World& world, const std::string& label, const train::Job& job,
                         const data::TokenSource& source, std::span<const StepOrder> orders,
                         Seconds op_deadline, const train::WorkspaceWrap& wrap) {
  TrialResult result;
  std::vector<Piece> pieces;
  const Sink sink = [&](Piece piece) {
    piece.data = piece.data.clone();
    pieces.push_back(std::move(piece));
  };
  result.ranks.push_back(RankTrial(job, world, label, source, op_deadline, wrap, sink).run(orders));

  const Deadline deadline = Deadline::after(op_deadline);
  const auto all = world.connect_all(label + "pieces", "pieces", deadline);
  std::vector<std::byte> packed = pack(pieces);
  auto size = std::ssize(packed);
  std::vector<std::int64_t> sizes(world.size());
  all->all_gather({&size, 1, DType::kI64, {}}, {sizes.data(), world.size(), DType::kI64, {}},
                  deadline)
      .wait();
  if (world.rank().value != 0) {
    all->send(bytes_of(packed), 0, 0, deadline).wait();
    return result;
  }
  const auto type = tensor::scalar_type_of(wide_type(job.workspace.unit.dtype));
  ImageBuilder builder(job.model, static_cast<int>(orders.size()), type,
                       job.mesh.degree(mesh::Axis::kTensor), job.mesh.degree(mesh::Axis::kExpert),
                       job.mesh.degree(mesh::Axis::kExpertTensor));
  unpack(packed, type, builder);
  for (int rank = 1; rank < world.size(); ++rank) {
    packed.resize(sizes[rank]);
    all->recv(bytes_of(packed), rank, 0, deadline).wait();
    unpack(packed, type, builder);
  }
  set_reports(builder, result.ranks[0]);
  result.images = builder.take();
  result.disagreement = builder.disagreement();
  return result;
}

}  // namespace lockstep::verify
