// Saves a running job, and loads it into any layout: weights, moments, counts of steps, samples and
// tokens, and the averages of the noise scale. Initial weights, learning rate and samples are
// functions of the run file and of those counts, so that nothing else is state. The format:
// docs/formats/checkpoint.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/result.h"
#include "lockstep/base/units.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/files/durable.h"
#include "lockstep/train/session.h"

namespace lockstep::train {

// How far a run has come.
struct Progress {
  std::int64_t step = 0;     // steps done, and so the number of the next one
  std::int64_t samples = 0;  // that they took
  std::int64_t tokens = 0;   // valid ones among them
  bool operator==(const Progress&) const = default;
};

struct SaveSettings {
  std::string folder = {};    // gets one folder step-N per checkpoint; made when it does not exist
  std::int64_t keep = 2;      // newest checkpoints; the others are removed; 0: all stay
  std::string data = {};      // what is trained on; another text means other samples
  std::string lockstep = {};  // version of the program that saves
  files::Disk* disk = nullptr;  // absent: the machine's own
  bool discards = false;  // later checkpoints than a run begins with are removed, whole or not
};

// How a save ended: the checkpoint's path, or what the disk said (LS0820 and kin).
struct SaveEnding {
  std::int64_t step = 0;
  Result<std::string> path;
};

// One rank's part in saving. Belongs to the rank's thread. Job, session and world must outlive it.
// A disk that fails, fills up or turns read-only fails a save, never the run: the next one tries
// anew.
class Saver {
 public:
  // Takes memory for a copy of this rank's state and connects all ranks, each of which calls it.
  // Rank 0 makes the folder, locks it for as long as the saver lives, and removes what interrupted
  // saves have left. `label` must differ among savers of one world; `deadline` is how long ranks
  // wait for one another's files. Throws WorldError: LS0106 on every rank when another run holds
  // the folder.
  Saver(const Job& job, Session& session, comm::World& world, const std::string& label,
        SaveSettings settings, Seconds deadline);
  // Gives up a save that is not finished; then nothing of it can be loaded.
  ~Saver();

  // To be called by all ranks before the first save of a run that goes on from `first_step`.
  // Checkpoints of later steps would be taken for the newest: those in `damaged` (of Loaded) are
  // set aside (checkpoint/folder.h) and their new paths returned; any other is refused. Throws
  // WorldError (LS0106).
  std::vector<std::string> begin_at(std::int64_t first_step,
                                    const std::vector<std::string>& damaged);

  // Copies this rank's state and returns; another thread hashes and writes it, and rank 0 publishes
  // the checkpoint when all have. Waits for an earlier save first. Called by all ranks after the
  // same step. `checked`: the state was found to be sound.
  void save(const Progress& progress, bool checked = false);
  // Until the last save can be loaded after a loss of power, or has failed; then its ending, the
  // same on every rank. Nothing when none was begun. Throws CommError.
  std::optional<SaveEnding> finish();
  // The ending of a save that was not told yet, the oldest first, without waiting for one.
  std::optional<SaveEnding> ended();

  Seconds paused() const;  // of the last save: from the call to its return

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

struct Loaded {
  Progress progress;
  std::string path;                  // the checkpoint
  std::string layout;                // that it was saved under
  std::vector<Error> skipped;        // why newer ones could not be used, newest first
  std::vector<std::string> damaged;  // their paths
};

// Goes on from a checkpoint. `path` is one, or a folder of them: then the newest that is whole, all
// ranks the same; of `nearer`, another such folder, where its own is as new. Refuses one of another
// model, of other settings than its layout, or of other data (LS0824), one without optimizer state,
// and one that is damaged (LS0822, LS0823). Settings in `changed`, by spec::IdentityKey::fact, may
// be others: from here on the job's are in force. After an error the session's state is undefined.
// Called by all ranks; throws WorldError. With Trust::kChecked those whose state was not checked
// count as damaged.
enum class Trust : std::uint8_t { kAny, kChecked };
Result<Loaded> load(const Job& job, Session& session, comm::World& world, const std::string& label,
                    const std::string& path, const std::string& data, Seconds deadline,
                    const std::vector<std::string>& changed = {}, const std::string& nearer = "",
                    Trust trust = Trust::kAny);

// Takes the weights alone, of any settings and data, as the start of another training: progress and
// moments stay at nothing.
Result<Loaded> load_weights(const Job& job, Session& session, comm::World& world,
                            const std::string& label, const std::string& path, Seconds deadline);

}  // namespace lockstep::train
