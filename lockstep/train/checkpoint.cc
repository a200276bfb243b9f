#include "lockstep/train/checkpoint.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lockstep/base/check.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/folder.h"
#include "lockstep/checkpoint/identity.h"
#include "lockstep/checkpoint/slice.h"
#include "lockstep/comm/texts.h"
#include "lockstep/model/user_model.h"
#include "lockstep/spec/identity.h"
#include "lockstep/tensor/as_buffer.h"
#include "lockstep/train/checkpoint_state.h"

namespace lockstep::train {
namespace {

using checkpoint::Checkpoint;
using comm::decoded;
using comm::encoded;

std::span<std::byte> bytes_in(const at::Tensor& tensor, std::int64_t at, std::int64_t count) {
  LS_CHECK(tensor.is_contiguous() && tensor.is_cpu() && at >= 0 && at + count <= tensor.numel());
  return {static_cast<std::byte*>(tensor.data_ptr()) + at * tensor.element_size(),
          static_cast<std::size_t>(count * tensor.element_size())};
}

// What is loaded, and how a checkpoint has to fit.
struct Wanted {
  std::span<const SavedRole> roles;
  std::optional<std::string> data;        // absent: any settings and data do
  std::vector<std::string> changed = {};  // settings that may be others
  Trust trust = Trust::kAny;
};

class Loader {
 public:
  Loader(const Job& job, Session& session, comm::World& world, const std::string& label,
         Wanted wanted, Seconds deadline)
      : job_(job),
        session_(session),
        is_first_(world.rank().value == 0),
        wanted_(std::move(wanted)),
        all_(world.connect_all(label + "load", kCheckpointAxis, Deadline::after(deadline))),
        deadline_(deadline) {}

  Result<Loaded> load(const std::string& path, const std::string& nearer) {
    const bool is_one = checkpoint::is_checkpoint(path);
    Skipped skipped;
    if (!nearer.empty()) sources_.push_back({nearer});
    sources_.push_back({path});
    for (;;) {
      const std::string chosen = LS_TRY(agree(is_one ? check_one(path) : choose(skipped)));
      Result<Checkpoint> opened = Checkpoint::open(chosen);
      const Result<void> done = opened.ok() ? restore(*opened) : opened.error();
      const Result<std::string> all_done = agree_all(done);
      if (all_done.ok()) return loaded(*opened, std::move(skipped));
      if (is_one || all_done.error().code == Code::kOtherCheckpoint) return all_done.error();
      skipped.errors.push_back(all_done.error());
      skipped.paths.push_back(chosen);
      for (Source& source : sources_)
        if (source.folder == chosen.substr(0, chosen.rfind('/')))
          source.older_than = checkpoint::step_of(chosen.substr(chosen.rfind('/') + 1));
    }
  }

 private:
  struct Skipped {  // checkpoints that cannot be used; complete on rank 0
    std::vector<Error> errors;
    std::vector<std::string> paths;
    void add(const Error& error, const std::string& path) {
      if (std::ranges::find(paths, path) != paths.end()) return;
      errors.push_back(error);
      paths.push_back(path);
    }
  };
  struct Source {  // a folder of checkpoints
    std::string folder;
    std::optional<std::int64_t> older_than = {};
  };

  // Sets `none` where there is none.
  std::optional<Checkpoint> newest_of(Source& source, Skipped& skipped, Error& none) const {
    for (;;) {
      auto choice = checkpoint::newest(files::real_disk(), source.folder, source.older_than);
      if (!choice.ok()) {
        none = choice.error();
        if (none.code == Code::kCorruptCheckpoint) skipped.add(none, source.folder);
        return {};
      }
      for (std::size_t i = 0; i < choice->skipped.size(); ++i)
        skipped.add(choice->skipped[i], choice->damaged[i]);
      const Checkpoint& found = choice->checkpoint;
      if (wanted_.trust == Trust::kAny || found.manifest().checked)
        return std::move(choice->checkpoint);
      skipped.add({Code::kCorruptCheckpoint,
                   join_parts("the state in `", found.path(), "` was not checked")},
                  found.path());
      source.older_than = found.manifest().step;
    }
  }

  // On rank 0 the path of the next one to try, the newest of all folders and of two as new the one
  // of the first; elsewhere nothing that matters.
  Result<std::string> choose(Skipped& skipped) {
    if (!is_first_) return std::string();
    std::optional<Checkpoint> best;
    Error none;
    for (Source& source : sources_) {
      auto found = newest_of(source, skipped, none);
      if (found && (!best || found->manifest().step > best->manifest().step))
        best = std::move(found);
    }
    // Copies in memory that are damaged do not keep a run without a checkpoint from beginning anew.
    const bool had_some = none.code == Code::kCorruptCheckpoint || sources_.back().older_than;
    if (!best && had_some && !skipped.errors.empty())
      return Error{Code::kCorruptCheckpoint,
                   join_parts("no checkpoint in `", sources_.back().folder,
                              "` is whole; of the newest: ", skipped.errors[0].message),
                   skipped.errors[0].help};
    if (!best) return none;
    LS_TRY(check(*best));
    return best->path();
  }

  // The same for a path that is a checkpoint.
  Result<std::string> check_one(const std::string& path) const {
    if (!is_first_) return std::string();
    Checkpoint opened = LS_TRY(Checkpoint::open(path));
    LS_TRY(check(opened));
    LS_TRY(opened.check_files());
    return path;
  }

  checkpoint::Facts unchanged(checkpoint::Facts facts) const {
    std::erase_if(facts, [&](const auto& fact) {
      return std::ranges::find(wanted_.changed, fact.first) != wanted_.changed.end();
    });
    return facts;
  }

  Result<void> check(const Checkpoint& from) const {
    const checkpoint::Manifest& manifest = from.manifest();
    LS_TRY(checkpoint::check_same("model", from.path(), manifest.model,
                                  model::model_facts(job_.model.config)));
    if (!wanted_.data) return {};
    if (manifest.config.empty())
      return Error{Code::kOtherCheckpoint,
                   "`" + from.path() + "` holds weights alone, without a training to go on with",
                   "start a training from its weights"};
    if (const auto same =
            checkpoint::check_same("training", from.path(), unchanged(manifest.config),
                                   unchanged(spec::identity(job_.spec, &spec::IdentityKey::fact)));
        !same.ok()) {
      Error error = same.error();
      error.help +=
          "; learning rate, steps, weight decay and clip may change where `train --change` says so";
      return error;
    }
    if (manifest.data == *wanted_.data) return {};
    return Error{
        Code::kOtherCheckpoint,
        join_parts("`", from.path(), "` was trained on other samples: their digest is ",
                   manifest.data, " there and ", *wanted_.data, " here"),
        "files, split, weights, seeds and batch.seq decide which samples there are, and so does "
        "train.steps where it changes the number of passes over the text; use those that the "
        "checkpoint was saved with, or begin a training from its weights"};
  }

  Result<void> restore(Checkpoint& from) {
    for (const int segment : session_.own_segments())
      for (const SavedRole& role : wanted_.roles) LS_TRY(restore(from, segment, role));
    LS_TRY(restore_biases(from));
    if (!wanted_.data) return {};
    session_.workspace().set_updates(from.manifest().updates);
    const auto going_on = set_running_state(session_, from.manifest().state);
    if (going_on.ok()) return {};
    const Error& why = going_on.error();
    return Error{why.code, "`" + from.path() + "`: " + why.message, why.help};
  }

  Result<void> restore_biases(Checkpoint& from) {
    std::vector<float> bias = session_.workspace().router_bias();
    std::span<float> rest(bias);
    for (const checkpoint::Slice& slice : checkpoint::untrained_slices(job_.model)) {
      const auto size = static_cast<std::size_t>(slice.size());
      LS_TRY(from.read(slice, DType::kF32, std::as_writable_bytes(rest.first(size))));
      rest = rest.subspan(size);
    }
    if (!bias.empty()) session_.workspace().set_router_bias(std::move(bias));
    return {};
  }

  Result<void> restore(Checkpoint& from, int segment, const SavedRole& role) {
    Result<void> done;
    runtime::TensorWorkspace& workspace = session_.workspace();
    workspace.fill_state(
        segment, role.state, [&](const model::FlatRange& range, const at::Tensor& into) {
          for (const checkpoint::UnitSlice& part :
               checkpoint::unit_slices(job_.model, segment, workspace.layout(segment),
                                       session_.place().tensor, range, role.saved_as))
            if (done.ok())
              done = from.read(part.slice, tensor::dtype_of(into.scalar_type()),
                               bytes_in(into, part.at - range.begin, part.slice.size()));
        });
    return done;
  }

  Result<std::string> agree(const Result<std::string>& own) {
    return decoded(comm::share_text(*all_, encoded(own), Deadline::after(deadline_)));
  }

  // Whether all ranks are done; else the first failure by rank.
  Result<std::string> agree_all(const Result<void>& own) {
    std::string verdict = encoded(own.ok() ? Result<std::string>("") : own.error());
    for (const std::string& text : comm::gather_texts(*all_, verdict, Deadline::after(deadline_)))
      if (!decoded(text).ok()) {
        verdict = text;
        break;
      }
    return decoded(comm::share_text(*all_, verdict, Deadline::after(deadline_)));
  }

  static Loaded loaded(const Checkpoint& from, Skipped skipped) {
    const checkpoint::Manifest& manifest = from.manifest();
    return {{manifest.step, manifest.samples, manifest.tokens},
            from.path(),
            manifest.layout,
            std::move(skipped.errors),
            std::move(skipped.paths)};
  }

  const Job& job_;
  Session& session_;
  const bool is_first_;
  const Wanted wanted_;
  const std::unique_ptr<comm::Communicator> all_;
  const Seconds deadline_;
  std::vector<Source> sources_;  // unless a path is a checkpoint itself
};

}  // namespace

Result<Loaded> load(const Job& job, Session& session, comm::World& world, const std::string& label,
                    const std::string& path, const std::string& data, Seconds deadline,
                    const std::vector<std::string>& changed, const std::string& nearer,
                    Trust trust) {
  return Loader(job, session, world, label, {kSavedRoles, data, changed, trust}, deadline)
      .load(path, nearer);
}

Result<Loaded> load_weights(const Job& job, Session& session, comm::World& world,
                            const std::string& label, const std::string& path, Seconds deadline) {
  const Wanted weights = {std::span(kSavedRoles).first(1), std::nullopt, {}};
  Result<Loaded> loaded = Loader(job, session, world, label, weights, deadline).load(path, "");
  if (loaded.ok()) loaded->progress = {};
  return loaded;
}

}  // namespace lockstep::train
