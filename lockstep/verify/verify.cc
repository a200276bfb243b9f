#include "lockstep/verify/verify.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/data/mock_tokens.h"
#include "lockstep/verify/check_predictions.h"

namespace lockstep::verify {
namespace {

constexpr std::string_view kFailureKindNames[kNumFailureKinds] = {
    "nothing", "invariant", "communication", "replicas", "numbers", "bits", "prediction"};

// The same model and batch on one rank, nothing sharded, nothing recomputed.
spec::Spec on_one_rank(spec::Spec spec) {
  spec.cluster.reset();
  spec.layout = {};
  spec.layout.zero = 0;
  return spec;
}

std::unique_ptr<data::TokenSource> tokens_for(const spec::Spec& spec, data::LabelMask labels) {
  return std::make_unique<data::MaskedTokens>(
      std::make_unique<data::MockTokens>(static_cast<std::uint64_t>(spec.train.seed),
                                         spec.model.vocab,
                                         /*ignore_some=*/labels == data::LabelMask::kSome),
      labels, spec.batch.global_batch);
}

// The first failure counts; no text, no failure.
void fail(Verdict& verdict, FailureKind failure_kind, std::string what) {
  if (!verdict.failure.empty() || what.empty()) return;
  verdict.failure = std::move(what);
  verdict.failure_kind = failure_kind;
}

// One measure of a layout: what was found, the worst so far and what it is held to.
struct Measure {
  double bound = 0;
  double& worst;
  bool is_named = true;  // whether its worst tensor is worth a name
};

// The larger error in proportion to its bound is the one worth a name.
void note(const Difference& found, Measure measure, std::size_t step, const char* what,
          Verdict& verdict) {
  if (found.error > measure.worst) {
    const double known =
        std::max(verdict.step_error / verdict.bounds.step, verdict.run_error / verdict.bounds.run);
    if (measure.is_named && found.error / measure.bound >= known) verdict.where = found.tensor;
    measure.worst = found.error;
  }
  if (found.error <= measure.bound) return;
  fail(verdict, FailureKind::kNumbers,
       join_parts(what, found.tensor, " differs by ", strf("%.2g", found.error), " in step ",
                  step + 1, " (bound ", strf("%.2g", measure.bound), ")"));
}

void note(const PredictionCheck& found, Verdict& verdict) {
  fail(verdict, FailureKind::kPrediction, found.mismatch);
  verdict.as_predicted = verdict.as_predicted && found.mismatch.empty();
  if (found.peak_bytes <= verdict.peak_bytes) return;
  verdict.peak_bytes = found.peak_bytes;
  verdict.predicted_peak = found.predicted_peak;
}

// How sequences are shared, "" where they are not.
std::string context_of(const spec::Layout& layout) {
  if (layout.degrees.cp == 1) return "";
  return join_parts("cp", layout.degrees.cp, " ", to_text(layout.context), " ");
}
// The same of experts; only a mixture has an etp.
std::string experts_of(const train::Job& job) {
  const mesh::Degrees& d = job.spec.layout.degrees;
  const std::string groups = d.ep == 1 ? "" : join_parts("ep", d.ep, " ");
  const bool all_share = job.model.config.moe.experts == 0 || d.etp == d.tp;
  return all_share ? groups : groups + join_parts("etp", d.etp, " ");
}

// Flat and hybrid sharding add up gradients alike only where the tree of sums is a full one, over
// context ranks too, and of experts over tensor ranks that have others.
std::string bits_class_of(const train::Job& job) {
  const mesh::Degrees& degrees = job.spec.layout.degrees;
  std::string text = join_parts("dp", degrees.dp);
  const bool has_experts = job.model.config.moe.experts > 0;
  const std::int64_t summed =
      degrees.dp * degrees.cp * (has_experts ? degrees.tp / degrees.etp : 1);
  if (const std::int64_t shards = degrees.dp_shard.value_or(degrees.dp);
      shards != degrees.dp && !std::has_single_bit(static_cast<std::uint64_t>(summed)))
    text = join_parts("dp", degrees.dp / shards, "x", shards);
  if (degrees.tp > 1)
    text = join_parts("tp", degrees.tp, job.spec.layout.sp ? " " : " nosp ", text);
  return context_of(job.spec.layout) + experts_of(job) + text +
         join_parts(" microbatch ", job.spec.batch.microbatch, " ",
                    spec::name_of(job.spec.layout.reduce));
}

// Layouts whose microbatches have gradients of the same bits, and differ in how they are added.
std::string passes_of(const train::Job& job) {
  const spec::Layout& layout = job.spec.layout;
  return join_parts(context_of(layout), "tp", layout.degrees.tp,
                    layout.degrees.tp > 1 && layout.sp ? " sp" : "", " etp", layout.degrees.etp,
                    " microbatch ", job.spec.batch.microbatch);
}

// Of N numbers in f32, added in two orders: docs/numerics.md.
double bound_of_sums(const train::Job& job) {
  constexpr double kUnit = 0x1p-24, kCancelled = 100;
  const std::int64_t sums = job.spec.batch.global_batch / job.spec.batch.microbatch + 1;
  return 2 * kUnit * kCancelled * static_cast<double>(sums);
}

// What a rank's process tells the others about its predictions.
struct RankFinding {
  std::int64_t peak_bytes = 0, predicted_peak = 0;
  double worst_peak_error = 0;
  std::array<char, 256> failure = {};
};

void share_findings(comm::World& world, const std::string& label, Seconds op_deadline,
                    Verdict& verdict) {
  RankFinding own{verdict.peak_bytes, verdict.predicted_peak, verdict.worst_peak_error, {}};
  if (!verdict.as_predicted) verdict.failure.copy(own.failure.data(), own.failure.size() - 1);
  std::vector<RankFinding> all(world.size());
  const Deadline deadline = Deadline::after(op_deadline);
  const auto bytes = static_cast<std::int64_t>(sizeof own);
  world.connect_all(label + "findings", "findings", deadline)
      ->all_gather({&own, bytes, DType::kU8, {}},
                   {all.data(), bytes * world.size(), DType::kU8, {}}, deadline)
      .wait();
  for (const RankFinding& found : all) {
    verdict.worst_peak_error = std::max(verdict.worst_peak_error, found.worst_peak_error);
    note(PredictionCheck{found.failure.data(), found.peak_bytes, found.predicted_peak}, verdict);
  }
}

}  // namespace

std::string_view to_text(FailureKind failure_kind) {
  return kFailureKindNames[static_cast<std::size_t>(failure_kind)];
}

Result<Verifier> Verifier::create(const spec::Spec& asked, int steps, VerifierOptions options) {
  spec::Spec spec = asked;
  spec.batch.ramp = {};        // its first steps would be all there are to see
  spec.train.noise_scale = 0;  // layouts of one microbatch are tried too
  train::Job job = LS_TRY(train::make_job(on_one_rank(spec)));
  return Verifier(std::move(spec), std::move(job), steps, std::move(options));
}

Verifier::Verifier(spec::Spec spec, train::Job reference_job, int steps, VerifierOptions options)
    : spec_(std::move(spec)),
      reference_job_(std::move(reference_job)),
      steps_(steps),
      options_(std::move(options)),
      tokens_(tokens_for(spec_, options_.labels)) {
  steer(reference_job_);
  reference_ = try_on_devices(reference_job_, free_run()).images;
  if (spec_.train.dtype != DType::kF64) find_truth();
  Verdict& alone = bits_[bits_class_of(reference_job_)];
  alone.name = "one rank";
  alone.digest = reference_.back().digest();
}

Result<train::Job> Verifier::job(const spec::Layout& layout) const {
  spec::Spec spec = spec_;
  spec.cluster.reset();
  spec.layout = layout;
  spec.batch = cut(spec.batch, layout);
  Result<train::Job> job = train::make_job(spec);
  if (!job.ok()) return job;
  job->workspace.drawing.known = draws_.get();
  steer(*job);
  return job;
}

void Verifier::steer(train::Job& job) const {
  if (options_.routing != model::Routing::kScores)
    job.workspace.router_bias = model::steering_biases(job.model, options_.routing);
}

std::vector<StepOrder> Verifier::free_run() const {
  std::vector<StepOrder> orders;
  for (int step = 0; step < steps_; ++step) orders.push_back({step, nullptr});
  return orders;
}

// A free run, then every later step once more, started from the reference's state.
std::vector<StepOrder> Verifier::orders() const {
  std::vector<StepOrder> orders = free_run();
  for (int step = 1; step < steps_; ++step)
    orders.push_back({step, &reference_[static_cast<std::size_t>(step) - 1]});
  return orders;
}

TrialResult Verifier::try_on_devices(const train::Job& job,
                                     const std::vector<StepOrder>& orders) const {
  TrialOptions options;
  if (options_.devices && job.spec.device != DeviceKind::kCpu)
    options.wrap_world = options_.devices();
  return run_trial(job, *tokens_, orders, options_.op_deadline, options);
}

std::vector<StepImage> Verifier::steps_of(const spec::Spec& spec) const {
  train::Job job = train::make_job(spec).value();
  steer(job);
  return try_on_devices(job, orders()).images;
}

// The steps of a trial in f64.
void Verifier::find_truth() {
  spec::Spec spec = on_one_rank(spec_);
  if (options_.devices) spec.device = DeviceKind::kCpu;
  spec.train.dtype = DType::kF64;
  truth_ = steps_of(spec);
}

// How far one rank is from the truth. The size of a microbatch is kept, because it decides how many
// numbers a matrix product adds up, and by that its rounding. In bf16 its steps, or those of as
// many tensor ranks, are what other layouts are compared with.
void Verifier::measure_bounds(const train::Job& job) {
  const std::int64_t microbatch = job.spec.batch.microbatch;
  if (truth_.empty()) return;
  spec::Spec spec = on_one_rank(spec_);
  spec.batch.microbatch = microbatch;
  if (!bounds_.contains(microbatch)) {
    spec::Spec on_cpu = spec;
    if (options_.devices) on_cpu.device = DeviceKind::kCpu;
    const std::vector<StepImage> images = steps_of(on_cpu);
    double worst = 0;
    for (std::size_t step = 0; step < reference_.size(); ++step)
      differences(images, truth_, step, [&](const Difference& found, const char*) {
        worst = std::max(worst, found.error);
      });
    bounds_[microbatch] = 2 * worst;
    if (is_narrow() && !options_.devices) near_[passes_of(train::make_job(spec).value())] = images;
  }
  if (!is_narrow() || near_.contains(passes_of(job))) return;
  spec.layout.degrees.tp = job.spec.layout.degrees.tp;
  spec.layout.degrees.etp = job.spec.layout.degrees.etp;
  spec.layout.degrees.cp = job.spec.layout.degrees.cp;
  spec.layout.context = job.spec.layout.context;
  spec.layout.sp = job.spec.layout.sp;
  near_[passes_of(job)] = steps_of(spec);
}

Bounds Verifier::bounds_of(const train::Job& job) const {
  if (truth_.empty())
    return job.place({0}).tensor.tp > 1 ? Bounds{1e-10, 1e-8} : Bounds{1e-12, 1e-10};
  const auto found = bounds_.find(job.spec.batch.microbatch);
  LS_CHECK(found != bounds_.end() && (!is_narrow() || near_.contains(passes_of(job))),
           passes_of(job), " was not tried");
  if (!is_narrow()) return {found->second, 1, found->second};
  // A product that tensor ranks cut is rounded by each of them and once more as their sum.
  return {bound_of_sums(job), 1, (job.spec.layout.degrees.tp > 1 ? 2 : 1) * found->second};
}

// A run that breaks off is a failed verdict.
template <class Body>
Verdict Verifier::guarded(const train::Job& job, const Body& body) const {
  const RealClock clock;
  Verdict verdict = blank_verdict(job);
  const auto break_off = [&](FailureKind failure_kind, const std::exception& error) {
    verdict.failure = error.what();
    verdict.failure_kind = failure_kind;
    verdict.as_predicted = false;
    verdict.bits_class.clear();  // it has shown none
  };
  try {
    body(verdict);
  } catch (const WorldError& error) {
    break_off(FailureKind::kCommunication, error);
  } catch (const std::exception& error) {
    break_off(FailureKind::kInvariant, error);
  }
  verdict.time = clock.now().since_start;
  return verdict;
}

Verdict Verifier::try_out(const train::Job& job, const Fault& fault, Seconds op_deadline) const {
  const data::TokenSource& source = fault.source ? *fault.source : *tokens_;
  TrialOptions options = {{}, fault.wrap, fault.wrap_world};
  if (!options.wrap_world && options_.devices) options.wrap_world = options_.devices();
  return guarded(job, [&](Verdict& verdict) {
    judge(job, run_trial(job, source, orders(), op_deadline, options), verdict);
  });
}

Result<Verdict> Verifier::check(const spec::Layout& layout) {
  const train::Job job = LS_TRY(this->job(layout));
  measure_bounds(job);
  const auto known = bits_.find(bits_class_of(job));
  if (options_.equal_bits && known != bits_.end() && known->second.run != Hash128{})
    return check_by_class(job, known->second);
  Verdict verdict = try_out(job, {}, options_.op_deadline);
  remember_bits(verdict);
  return verdict;
}

// Where every bit of every step of the free run is that of a layout that was verified, all that was
// measured of that one holds of this one, and steps from the reference's state would say nothing
// new. Else the whole trial says what is wrong, and must see the same bits again.
Verdict Verifier::check_by_class(const train::Job& job, const Verdict& first) const {
  Hash128 seen;
  Verdict verdict = guarded(job, [&](Verdict& made) {
    const TrialResult trial = try_on_devices(job, free_run());
    seen = digest_of(trial.images);
    made.step_error = first.step_error;
    made.run_error = first.run_error;
    made.where = first.where;
    made.digest = first.digest;
    made.run = first.run;
    fail(made, FailureKind::kReplicas, trial.disagreement);
    check_predictions(job, trial, made);
  });
  if (!verdict.ok() || seen == first.run) return verdict;
  verdict = try_out(job, {}, options_.op_deadline);
  if (verdict.run != seen)
    fail(verdict, FailureKind::kBits, "two runs of the same steps differ in their bits");
  return verdict;
}

Result<Verdict> Verifier::check_in(comm::World& world, const spec::Layout& layout) {
  const train::Job job = LS_TRY(this->job(layout));
  measure_bounds(job);
  const RealClock clock;
  const std::string label = to_text(layout) + "/";
  Verdict verdict = blank_verdict(job);
  judge(job, run_trial_in(world, label, job, *tokens_, orders(), options_.op_deadline), verdict);
  share_findings(world, label, options_.op_deadline, verdict);
  remember_bits(verdict);
  verdict.time = clock.now().since_start;
  return verdict;
}

Verdict Verifier::check_fault(const spec::Layout& layout, const Fault& fault,
                              Seconds op_deadline) const {
  train::Job job = this->job(layout).value();
  if (fault.program) job.program = *fault.program;
  if (fault.change) fault.change(job);
  return try_out(job, fault, op_deadline);
}

Verdict Verifier::blank_verdict(const train::Job& job) const {
  Verdict verdict;
  verdict.layout = job.spec.layout;
  verdict.name = to_text(job.spec.layout);
  verdict.ranks = job.mesh.world();
  verdict.bits_class = bits_class_of(job);
  verdict.bounds = bounds_of(job);
  return verdict;
}

void Verifier::judge(const train::Job& job, const TrialResult& trial, Verdict& verdict) const {
  if (!trial.images.empty()) {
    fail(verdict, FailureKind::kReplicas, trial.disagreement);
    compare_images(job, trial.images, verdict);
    compare_bits(trial, verdict);
  }
  check_predictions(job, trial, verdict);
}

void Verifier::compare_images(const train::Job& job, const std::vector<StepImage>& images,
                              Verdict& verdict) const {
  const std::vector<StepImage>& wanted = is_narrow()      ? near_.at(passes_of(job))
                                         : truth_.empty() ? reference_
                                                          : truth_;
  double far = 0;
  for (std::size_t step = 0; step < reference_.size(); ++step) {
    differences(images, wanted, step, [&](const Difference& found, const char* what) {
      note(found, {verdict.bounds.step, verdict.step_error}, step, what, verdict);
    });
    // A token that another rounding sends to another expert is far off, though nothing is wrong.
    if (!is_narrow() || model().config.moe.experts > 0) continue;
    differences(images, truth_, step, [&](const Difference& found, const char* what) {
      note(found, {verdict.bounds.far, far, /*is_named=*/false}, step, what, verdict);
    });
  }
  for (std::size_t step = 0; step < reference_.size(); ++step) compare_run(images, step, verdict);
}

// Of a step that started from the reference's state. Step 0 of the free run does by itself.
template <class Note>
void Verifier::differences(const std::vector<StepImage>& images,
                           const std::vector<StepImage>& wanted_images, std::size_t step,
                           const Note& note_one) const {
  const std::size_t steps = reference_.size(), place = step == 0 ? 0 : steps + step - 1;
  const StepImage& got = images[place];
  const StepImage& wanted = wanted_images[truth_.empty() ? step : place];
  // Where tokens go elsewhere, all else differs too.
  if (truth_.empty()) note_one(compare_experts(model(), got, wanted), "");
  note_one(compare(model(), got, wanted, Role::kGradient, 0), "gradient of ");
  note_one(compare_scalars(got, wanted), "");
  note_one(compare(model(), got, wanted, Role::kFirstMoment, 0), "first moment of ");
  note_one(compare(model(), got, wanted, Role::kSecondMoment, 0), "second moment of ");
  if (truth_.empty()) return;
  const auto number = static_cast<std::int64_t>(step);
  note_one(compare_updated(model(), got, wanted, reference_job_.adamw(number).others, number + 1),
           "updated parameter ");
}

void Verifier::compare_run(const std::vector<StepImage>& images, std::size_t step,
                           Verdict& verdict) const {
  const auto count = static_cast<std::int64_t>(step) + 1;
  const Measure measure = {verdict.bounds.run, verdict.run_error, truth_.empty()};
  note(truth_.empty()
           ? compare(model(), images[step], reference_[step], Role::kParameter, spec_.train.lr.peak)
           : compare_reached(model(), images[step], truth_[step], farthest(count), count),
       measure, step, "parameter ", verdict);
}

// How far apart AdamW can take two runs from the same state, whatever their gradients are.
double Verifier::farthest(std::int64_t updates) const {
  double sum = 0;
  for (std::int64_t step = 0; step < updates; ++step) {
    const optim::AdamW settings = reference_job_.adamw(step).others;
    sum += 2 * settings.lr * optim::largest_move(settings, step + 1);
  }
  return sum;
}

void Verifier::compare_bits(const TrialResult& trial, Verdict& verdict) const {
  const std::span free_run(trial.images.data(), steps_);
  verdict.digest = free_run.back().digest();
  verdict.run = digest_of(free_run);
  const auto first = bits_.find(verdict.bits_class);
  if (!options_.equal_bits || first == bits_.end() || first->second.digest == verdict.digest)
    return;
  fail(verdict, FailureKind::kBits,
       join_parts("bits of the state after ", steps_, " steps are not those of ",
                  first->second.name, ", of the same class"));
}

// Of a layout that was verified, where it was: ranks of processes other than the first know no
// state.
void Verifier::remember_bits(const Verdict& verdict) {
  if (!verdict.ok() || verdict.digest == Hash128{}) return;
  Verdict& first = bits_[verdict.bits_class];
  if (first.run != Hash128{}) return;
  const std::string name = first.name.empty() ? verdict.name : first.name;
  first = verdict;
  first.name = name;
}

void Verifier::check_predictions(const train::Job& job, const TrialResult& trial,
                                 Verdict& verdict) const {
  for (const RankRecord& rank : trial.ranks) {
    const PredictionCheck found = verify::check_predictions(job, rank);
    verdict.worst_peak_error = std::max(verdict.worst_peak_error, found.peak_error());
    note(found, verdict);
  }
}

}  // namespace lockstep::verify
