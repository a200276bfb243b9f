#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <random>
#include <thread>
#include <utility>

#include "lockstep/arch/user_model.h"
#include "lockstep/base/check.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/json.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/coverage.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/identity.h"
#include "lockstep/checkpoint/staging.h"
#include "lockstep/comm/texts.h"
#include "lockstep/tensor/engine_check.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/checkpoint_agreement.h"
#include "lockstep/train/checkpoint_state.h"

namespace lockstep::train {
namespace {

using checkpoint::Manifest;

std::string make_nonce() {
  std::random_device device;
  return to_hex(static_cast<std::uint64_t>(device()) << 32 | device());
}

std::int64_t bytes_of(const std::vector<OwnSlice>& slices) {
  std::int64_t sum = 0;
  for (const OwnSlice& own : slices) sum += own.typed.bytes();
  return sum;
}

// Checkpoints of later steps would be taken for the newest ones. Those that can not be loaded go.
Result<std::string> prepare(files::Disk& disk, const std::string& folder, std::int64_t first_step) {
  checkpoint::make_folders(disk, folder);
  checkpoint::clean(disk, folder);
  for (const std::string& path : checkpoint::candidates(disk, folder)) {
    const std::int64_t step = *checkpoint::step_of(path.substr(path.rfind('/') + 1));
    if (step <= first_step) continue;
    auto opened = checkpoint::Checkpoint::open(path);
    if (opened.ok() && opened->check_files().ok())
      return Error{Code::kConflict,
                   join_parts("`", folder, "` holds a checkpoint of step ", step,
                              ", but this run begins at step ", first_step),
                   "go on from it, or save to another folder"};
    files::remove_all(disk, path);
  }
  return std::string();
}

}  // namespace

class Saver::Impl {
 public:
  Impl(const Job& job, Session& session, comm::World& world, const std::string& label,
       SaveSettings settings, Seconds deadline)
      : job_(job),
        session_(session),
        rank_(world.rank()),
        settings_(std::move(settings)),
        disk_(settings_.disk != nullptr ? *settings_.disk : files::real_disk()),
        deadline_(deadline),
        slices_(own_slices(job, session)),
        staging_(bytes_of(slices_)),
        all_(connect_all(world, label + "save", Deadline::after(deadline))) {
    const Result<std::string> ready =
        decoded(comm::share_text(*all_,
                                 is_first() ? encoded(attempt([&] {
                                   return prepare(disk_, settings_.folder, settings_.first_step);
                                 }))
                                            : std::string(),
                                 Deadline::after(deadline_)));
    if (!ready.ok()) throw IoError(ready.error());
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  ~Impl() {
    if (!thread_.joinable()) return;
    all_->abort("the run ended before its checkpoint was written");
    thread_.join();
  }

  void save(const Progress& progress) {
    const RealClock clock;
    finish();
    waited = clock.now().since_start;
    copy_state();
    Manifest about;
    about.step = progress.step;
    about.samples = progress.samples;
    about.tokens = progress.tokens;
    about.updates = session_.workspace().updates();
    about.state = running_state(session_);
    thread_ = std::thread([this, about = std::move(about)]() mutable {
      try {
        write(std::move(about));
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
    paused = clock.now().since_start;
  }

  void finish() {
    if (!thread_.joinable()) return;
    thread_.join();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  Seconds paused, waited;

 private:
  bool is_first() const { return rank_.value == 0; }

  // What the disk says becomes data, so that other ranks hear of it.
  template <class Body>
  static Result<std::string> attempt(Body body) {
    try {
      return body();
    } catch (const IoError& error) {
      return error.error();
    }
  }

  void copy_state() {
    std::byte* to = staging_.data();
    for (const OwnSlice& own : slices_) {
      const at::Tensor state = session_.workspace().state(own.unit, own.role);
      const at::Tensor from = state.narrow(0, own.at, own.typed.slice.size());
      const auto bytes = static_cast<std::size_t>(own.typed.bytes());
      if (from.is_cpu())
        std::memcpy(to, from.const_data_ptr(), bytes);
      else
        at::from_blob(to, from.sizes(), from.options().device(at::kCPU)).copy_(from);
      to += bytes;
    }
  }

  // On the other thread, which alone uses all_.
  void write(Manifest about) {
    const auto until = [&] { return Deadline::after(deadline_); };
    const Result<std::string> begun =
        decoded(comm::share_text(*all_,
                                 is_first() ? encoded(attempt([&] {
                                   return Result<std::string>(checkpoint::begin_save(
                                       disk_, settings_.folder, about.step, make_nonce()));
                                 }))
                                            : std::string(),
                                 until()));
    if (!begun.ok()) throw IoError(begun.error());
    const Result<std::string> own =
        attempt([&] { return Result<std::string>(to_text(write_file(*begun))); });
    const std::vector<std::string> parts = comm::gather_texts(*all_, encoded(own), until());
    const Result<std::string> verdict = decoded(comm::share_text(
        *all_, is_first() ? encoded(conclude(*begun, parts, std::move(about))) : std::string(),
        until()));
    if (!verdict.ok()) throw IoError(verdict.error());
  }

  Manifest write_file(const std::string& folder) const {
    std::vector<checkpoint::TypedSlice> typed;
    for (const OwnSlice& own : slices_) typed.push_back(own.typed);
    checkpoint::FileWriter file(disk_, folder, checkpoint::file_name(rank_.value),
                                std::move(typed));
    const ByteSpan all(staging_.data(), static_cast<std::size_t>(bytes_of(slices_)));
    for (std::size_t at = 0; at < all.size(); at += kWriteBytes)
      file.write(all.subspan(at, std::min(kWriteBytes, all.size() - at)));
    return file.finish();
  }

  Result<std::string> conclude(const std::string& temporary, const std::vector<std::string>& parts,
                               Manifest about) {
    const Result<std::string> done =
        attempt([&] { return publish(temporary, parts, std::move(about)); });
    if (done.ok()) return done;
    (void)attempt([&] { return files::remove_all(disk_, temporary), std::string(); });
    return done;  // what remains is cleaned up when a run begins; the first error is what counts
  }

  Result<std::string> publish(const std::string& temporary, const std::vector<std::string>& parts,
                              Manifest about) {
    std::vector<Manifest> read;
    for (const std::string& part : parts) {
      const Result<std::string> text = decoded(part);
      if (!text.ok()) return text.error();
      read.push_back(checkpoint::parse_manifest(*text, "a rank's part").value());
    }
    Result<Manifest> joined = checkpoint::join(std::move(read));
    if (!joined.ok()) return joined.error();
    about.files = std::move(joined->files);
    about.tensors = std::move(joined->tensors);
    about.model = arch::model_facts(job_.model.config);
    about.config = config_facts(job_);
    about.data = settings_.data;
    about.layout = to_text(job_.spec.layout);
    about.lockstep = settings_.lockstep;
    about.torch = tensor::torch_version();
    const auto covered = checkpoint::check_coverage(about, temporary);
    LS_CHECK(covered.ok(), covered.ok() ? "" : covered.error().message);
    std::string path = checkpoint::publish(disk_, settings_.folder, temporary, about);
    checkpoint::retain(disk_, settings_.folder, settings_.keep);
    return path;
  }

  static constexpr std::size_t kWriteBytes = std::size_t{32} << 20;

  const Job& job_;
  Session& session_;
  const Rank rank_;
  const SaveSettings settings_;
  files::Disk& disk_;
  const Seconds deadline_;
  const std::vector<OwnSlice> slices_;  // in the order of the file
  const checkpoint::Staging staging_;
  const std::unique_ptr<comm::Communicator> all_;
  std::thread thread_;
  std::exception_ptr failure_;  // of the thread, to be read when it has ended
};

Saver::Saver(const Job& job, Session& session, comm::World& world, const std::string& label,
             SaveSettings settings, Seconds deadline)
    : impl_(std::make_unique<Impl>(job, session, world, label, std::move(settings), deadline)) {}

Saver::~Saver() = default;

void Saver::save(const Progress& progress) { impl_->save(progress); }
void Saver::finish() { impl_->finish(); }
Seconds Saver::paused() const { return impl_->paused; }
Seconds Saver::waited() const { return impl_->waited; }

}  // namespace lockstep::train
