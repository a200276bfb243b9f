// Proves on a model that a layout trains what one device would: the same steps run on one rank and
// under the layout, and loss, gradient norm, every gradient, moment and parameter are compared.
//
// Error of a tensor is max|difference| over max|reference| of its unit and role; for parameters
// over the larger of that and the learning rate. A layout is verified when
//   close    (a) loss, gradient norm, gradients and moments of every step, started from the
//            reference's state, and (b) parameters after a free run are within bounds; (b) is
//            wider, because Adam amplifies rounding. In f64 the bounds are 1e-12 and 1e-10, and
//            where tensor ranks cut the sums of matrix products 1e-10 and 1e-8. In f32 and bf16 (a)
//            includes the updated master weights, by the perturbation of gradients that explains
//            them (compare_updated). In f32 errors are distances to the same steps in f64, at most
//            twice what one rank's is with microbatches of the same size. In bf16 that holds too
//            (four times of tensor ranks; of a mixture of experts nothing is asked, because a
//            rounding may send a token to another expert), and (a) is the distance to one rank, or
//            as many tensor ranks, with such microbatches, whose roundings to bf16 are the same: at
//            most what another order of sums in f32 makes. (b) is then a share of how far apart
//            AdamW can take two runs and judges nothing but numbers that are none: two runs on one
//            rank differ by any factor.
//            On devices the truth in f64 and the distance of one rank to it are the CPU's;
//   bits     the state after the free run has the bits of every other layout of its class: that of
//            equal tensor degree with or without sequence parallelism, context degree and method,
//            data degree, microbatch size and reduction period. The reference is one of them. On
//            threads, (a) is measured of the first of a class; a later one whose free run shows the
//            same bits in every step and role has that one's errors;
//   replicas ranks that hold the same piece of state hold the same bits;
//   predicted bytes sent per axis and operation, and tensor bytes after every op, are what the job
//            predicted, exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/data/masked_tokens.h"
#include "lockstep/data/token_source.h"
#include "lockstep/model/steering.h"
#include "lockstep/optim/init.h"
#include "lockstep/program/program.h"
#include "lockstep/spec/spec.h"
#include "lockstep/train/session.h"
#include "lockstep/verify/image.h"
#include "lockstep/verify/trial.h"

namespace lockstep::verify {

struct Bounds {
  double step = 0;  // of (a)
  double run = 0;   // of (b)
  double far = 0;   // of the distance to the same step in f64; 0: that is the type
};

// By what a failure showed, the first of these that did.
enum class FailureKind : std::uint8_t {
  kNothing,
  kInvariant,      // a broken invariant or another exception of the run itself
  kCommunication,  // calls that do not match, a peer that never came
  kReplicas,       // ranks that hold the same state hold different bits
  kNumbers,        // state, gradients, loss or norm beyond the bounds
  kBits,           // within the bounds, but not the bits of the class
  kPrediction,     // only bytes sent or live are not as predicted
};
inline constexpr int kNumFailureKinds = 7;
std::string_view to_text(FailureKind failure_kind);  // "replicas"

// What is done to a job on purpose, to see that it is noticed.
struct Fault {
  std::optional<program::Program> program = {};  // in place of the job's; no validator is asked
  train::WorkspaceWrap wrap = {};                // around every rank's workspace
  comm::WorldWrap wrap_world = {};               // around every rank's world
  const data::TokenSource* source = nullptr;     // in place of the job's
  std::function<void(train::Job&)> change = {};  // of the job itself; the reference is as before
};

// What was found about one layout.
struct Verdict {
  spec::Layout layout = {};
  std::string name = {};  // to_text(layout)
  int ranks = 1;
  double step_error = 0;     // (a)
  double run_error = 0;      // (b)
  Bounds bounds = {};        // what they were held to
  std::string where = {};    // the tensor of the larger error in proportion to its bound
  std::string failure = {};  // empty: verified. Names the first differing tensor and its step.
  FailureKind failure_kind = FailureKind::kNothing;  // how the failure was
  std::string bits_class = {};                       // layouts that must agree bit for bit share it
  Hash128 digest = {};                               // of the state after the free run
  Hash128 run = {};                                  // of all that the free run showed
  std::int64_t peak_bytes = 0;                       // measured, of the rank that needed most
  std::int64_t predicted_peak = 0;                   // of the same rank
  double worst_peak_error = 0;  // |predicted - measured| / measured over all ranks
  bool as_predicted = true;     // bytes sent and live tensor bytes were
  Seconds time = {};
  bool ok() const { return failure.empty(); }
};

struct VerifierOptions {
  bool equal_bits = true;  // compared among layouts; not where kernels are not strict
  // What ranks compute on, if not CPUs: called for every trial, and wraps the worlds of its ranks.
  std::function<comm::WorldWrap()> devices = {};
  data::LabelMask labels = data::LabelMask::kSome;
  model::Routing routing = model::Routing::kScores;  // else the model has selection biases
  Seconds op_deadline = {60};                        // of an operation of a layout's trial
};

class Verifier {
 public:
  // Runs the reference. `spec` gives model, batch, optimizer, seed and type; its layout and the
  // ramp of its batch are not used. REQUIRES: a spec whose model runs here.
  static Result<Verifier> create(const spec::Spec& spec, int steps, VerifierOptions options = {});

  // On threads of this process. Refuses an illegal layout; a run that breaks off is a failed
  // verdict.
  Result<Verdict> check(const spec::Layout& layout);
  // As one rank of `world`; the verdict is rank 0's, other ranks get one that says nothing of
  // state. Throws CommError when the world fails.
  Result<Verdict> check_in(comm::World& world, const spec::Layout& layout);

  // On threads, a legal layout's job with a fault in it. Its bits are compared with those of the
  // layouts checked before and are not remembered. Several threads may call it at once. REQUIRES
  // for f32 and bf16: a layout with microbatches of that size was checked before.
  Verdict check_fault(const spec::Layout& layout, const Fault& fault, Seconds op_deadline) const;

  const model::Model& model() const { return reference_job_.model; }
  const std::vector<StepImage>& reference() const { return reference_; }
  Result<train::Job> job(const spec::Layout& layout) const;  // must not outlive it

 private:
  Verifier(spec::Spec spec, train::Job reference_job, int steps, VerifierOptions options);
  std::vector<StepOrder> free_run() const;
  std::vector<StepOrder> orders() const;
  TrialResult try_on_devices(const train::Job& job, const std::vector<StepOrder>& orders) const;
  std::vector<StepImage> steps_of(const spec::Spec& spec) const;
  void steer(train::Job& job) const;
  void find_truth();
  void measure_bounds(const train::Job& job);
  Bounds bounds_of(const train::Job& job) const;
  bool is_narrow() const { return wide_type(spec_.train.dtype) != spec_.train.dtype; }
  Verdict try_out(const train::Job& job, const Fault& fault, Seconds op_deadline) const;
  template <class Body>
  Verdict guarded(const train::Job& job, const Body& body) const;
  Verdict check_by_class(const train::Job& job, const Verdict& first) const;
  Verdict blank_verdict(const train::Job& job) const;
  void judge(const train::Job& job, const TrialResult& trial, Verdict& verdict) const;
  void compare_images(const train::Job& job, const std::vector<StepImage>& images,
                      Verdict& verdict) const;
  template <class Note>
  void differences(const std::vector<StepImage>& images,
                   const std::vector<StepImage>& wanted_images, std::size_t step,
                   const Note& note_one) const;
  void compare_run(const std::vector<StepImage>& images, std::size_t step, Verdict& verdict) const;
  double farthest(std::int64_t updates) const;
  void compare_bits(const TrialResult& trial, Verdict& verdict) const;
  void remember_bits(const Verdict& verdict);
  void check_predictions(const train::Job& job, const TrialResult& trial, Verdict& verdict) const;

  spec::Spec spec_;
  train::Job reference_job_;
  int steps_;
  VerifierOptions options_;
  std::unique_ptr<const data::TokenSource> tokens_;
  std::unique_ptr<optim::Draws> draws_ = std::make_unique<optim::Draws>();
  std::vector<StepImage> reference_;
  std::vector<StepImage> truth_;           // of f32, bf16: what orders() give in f64 on one rank
  std::map<std::int64_t, double> bounds_;  // of f32, bf16: of distances to it, by microbatch
  std::map<std::string, std::vector<StepImage>> near_;  // of bf16: by passes, what orders() give
  std::map<std::string, Verdict> bits_;                 // by class: of its first layout
};

}  // namespace lockstep::verify
