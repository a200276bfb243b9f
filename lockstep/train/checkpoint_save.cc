#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/json.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/file_writer.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/identity.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/comm/texts.h"
#include "lockstep/files/durable.h"
#include "lockstep/model/user_model.h"
#include "lockstep/spec/identity.h"
#include "lockstep/tensor/torch_version.h"
#include "lockstep/train/checkpoint.h"
#include "lockstep/train/checkpoint_state.h"

namespace lockstep::train {
namespace {

using checkpoint::Manifest;
using comm::decoded;
using comm::encoded;

std::string make_nonce() {
  std::random_device device;
  return to_hex(static_cast<std::uint64_t>(device()) << 32 | device());
}

std::int64_t bytes_of(const std::vector<OwnSlice>& slices) {
  std::int64_t sum = 0;
  for (const OwnSlice& own : slices) sum += own.typed.bytes();
  return sum;
}

// Checkpoints of later steps would be taken for the newest ones. New paths of those in `damaged`.
std::vector<std::string> make_newest(files::Disk& disk, const SaveSettings& settings,
                                     std::int64_t first_step,
                                     const std::vector<std::string>& damaged) {
  const std::string& folder = settings.folder;
  std::vector<std::string> set_aside;
  for (const std::string& path : checkpoint::candidates(disk, folder)) {
    const std::int64_t step = *checkpoint::step_of(path.substr(path.rfind('/') + 1));
    if (step <= first_step) continue;
    if (settings.discards) {
      checkpoint::remove(disk, folder, path);
      continue;
    }
    if (std::ranges::find(damaged, path) == damaged.end())
      throw IoError({Code::kConflict,
                     join_parts("`", folder, "` holds a checkpoint of step ", step,
                                ", but this run begins at step ", first_step),
                     "go on from it, or save to another folder"});
    set_aside.push_back(checkpoint::set_aside(disk, path));
  }
  return set_aside;
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
        all_(world.connect_all(label + "save", kCheckpointAxis, Deadline::after(deadline))) {
    first_does([&]() -> Result<std::string> {
      checkpoint::make_folders(disk_, settings_.folder);
      lock_ = LS_TRY(files::FolderLock::take(settings_.folder));
      checkpoint::clean(disk_, settings_.folder);
      return std::string();
    });
  }
  Impl(Impl&&) = delete;

  ~Impl() {
    if (!thread_.joinable()) return;
    all_->abort("the run ended before its checkpoint was written");
    thread_.join();
  }

  std::vector<std::string> begin_at(std::int64_t first_step,
                                    const std::vector<std::string>& damaged) {
    const std::string told = first_does([&] {
      const auto paths = make_newest(disk_, settings_, first_step, damaged);
      return Result<std::string>(Json::list(paths).dump());
    });
    std::vector<std::string> set_aside;
    const Json paths = Json::parse(told).value();
    for (const Json& path : paths.items()) set_aside.push_back(path.as_text());
    return set_aside;
  }

  void save(const Progress& progress, bool checked) {
    const RealClock clock;
    join();
    copy_state();
    Manifest about;
    about.step = progress.step;
    about.samples = progress.samples;
    about.tokens = progress.tokens;
    if (checked) about.checked = progress.step;
    about.updates = session_.workspace().updates();
    about.state = running_state(session_);
    thread_ = std::thread([this, about = std::move(about)]() mutable {
      const std::int64_t step = about.step;
      try {
        const SaveEnding ending = {step, write(std::move(about))};
        const std::lock_guard lock(mutex_);
        ending_ = ending;
        untold_.push_back(ending);
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
    paused = clock.now().since_start;
  }

  std::optional<SaveEnding> finish() {
    join();
    const std::lock_guard lock(mutex_);
    return ending_;
  }

  std::optional<SaveEnding> ended() {
    const std::lock_guard lock(mutex_);
    if (untold_.empty()) return std::nullopt;
    SaveEnding first = std::move(untold_.front());
    untold_.pop_front();
    return first;
  }

  Seconds paused;

 private:
  bool is_first() const { return rank_.value == 0; }

  void join() {
    if (!thread_.joinable()) return;
    thread_.join();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  // The same, or throws what it could not do.
  template <class Body>
  std::string first_does(Body body) {
    const Result<std::string> done = from_first(body);
    if (!done.ok()) throw IoError(done.error());
    return *done;
  }

  // What the body says on rank 0, on all ranks.
  template <class Body>
  Result<std::string> from_first(Body body) {
    return decoded(comm::share_text(*all_, is_first() ? encoded(attempt(body)) : std::string(),
                                    Deadline::after(deadline_)));
  }

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
      const at::Tensor from = elements_of(own, session_);
      const auto bytes = static_cast<std::size_t>(own.typed.bytes());
      if (from.is_cpu())
        std::memcpy(to, from.const_data_ptr(), bytes);
      else
        at::from_blob(to, from.sizes(), from.options().device(at::kCPU)).copy_(from);
      to += bytes;
    }
  }

  // On the other thread, which alone uses all_ while it runs.
  Result<std::string> write(Manifest about) {
    const std::string begun = LS_TRY(from_first(
        [&] { return checkpoint::begin_save(disk_, settings_.folder, about.step, make_nonce()); }));
    const Result<std::string> own = attempt([&] { return to_text(write_file(begun)); });
    const std::vector<std::string> parts =
        comm::gather_texts(*all_, encoded(own), Deadline::after(deadline_));
    return from_first([&] { return conclude(begun, parts, std::move(about)); });
  }

  Manifest write_file(const std::string& folder) const {
    std::vector<checkpoint::TypedSlice> typed;
    for (const OwnSlice& own : slices_) typed.push_back(own.typed);
    checkpoint::FileWriter file(disk_, folder, checkpoint::file_name(rank_.value),
                                std::move(typed));
    const ByteSpan all(staging_.data(), bytes_of(slices_));
    for (std::size_t at = 0; at < all.size(); at += kWriteBytes) {
      if (all_->is_poisoned())
        throw IoError({Code::kDiskFailed, "given up, because a rank was lost"});
      file.write(all.subspan(at, std::min(kWriteBytes, all.size() - at)));
    }
    return file.finish();
  }

  Result<std::string> conclude(const std::string& temporary, const std::vector<std::string>& parts,
                               Manifest about) {
    const Result<std::string> done =
        attempt([&] { return publish(temporary, parts, std::move(about)); });
    if (done.ok()) return done;
    (void)attempt([&] { return checkpoint::abandon(disk_, temporary), std::string(); });
    return done;  // what remains is cleaned up when a run begins; the first error is what counts
  }

  Result<std::string> publish(const std::string& temporary, const std::vector<std::string>& parts,
                              Manifest about) {
    std::vector<Manifest> read;
    for (const std::string& part : parts) {
      const std::string text = LS_TRY(decoded(part));
      Manifest parsed = LS_TRY(checkpoint::parse_manifest(text, "a rank's part"));
      read.push_back(std::move(parsed));
    }
    Manifest joined = LS_TRY(checkpoint::join(std::move(read)));
    about.files = std::move(joined.files);
    about.tensors = std::move(joined.tensors);
    about.model = model::model_facts(job_.model.config);
    about.config = spec::identity(job_.spec, &spec::IdentityKey::fact);
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
  std::optional<files::FolderLock> lock_;  // on rank 0
  std::thread thread_;
  std::exception_ptr failure_;  // of the thread, to be read when it has ended
  std::mutex mutex_;            // guards the rest
  std::optional<SaveEnding> ending_;
  std::deque<SaveEnding> untold_;
};

Saver::Saver(const Job& job, Session& session, comm::World& world, const std::string& label,
             SaveSettings settings, Seconds deadline)
    : impl_(std::make_unique<Impl>(job, session, world, label, std::move(settings), deadline)) {}

Saver::~Saver() = default;

void Saver::save(const Progress& progress, bool checked) { impl_->save(progress, checked); }
std::optional<SaveEnding> Saver::finish() { return impl_->finish(); }
std::optional<SaveEnding> Saver::ended() { return impl_->ended(); }
std::vector<std::string> Saver::begin_at(std::int64_t first_step,
                                         const std::vector<std::string>& damaged) {
  return impl_->begin_at(first_step, damaged);
}
Seconds Saver::paused() const { return impl_->paused; }

}  // namespace lockstep::train
