// Where checkpoints are: a folder with one folder per checkpoint, and how one comes to be there. A
// checkpoint is written under a temporary name and renamed when all of it is durable:
//
//   step-00000010.tmp-<nonce>/     files, each synced; the folder synced; MANIFEST.json written,
//                                  synced; the folder synced again
//   step-00000010/                 renamed; the parent synced. Only now may older ones be removed.
//   latest                         names the newest, for people; nobody reads it to find a
//                                  checkpoint
//
// A name is a checkpoint when it is step-N (or step-N.replaced-<nonce>, which a save that was cut
// off left) with a manifest that parses and files that have the
// sizes in it. What is removed, is removed only where its name and the names of all files in it are
// ones that this program gives; a link to a checkpoint, or one with a person's notes in it, stays.
// Whoever removes or renames holds the folder's lock (files::FolderLock). All functions throw
// IoError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/manifest.h"
#include "lockstep/files/durable.h"

namespace lockstep::checkpoint {

std::string folder_name(std::int64_t step);  // "step-00000010"
// Of a checkpoint's folder, also of one that another has just taken the place of; nothing for other
// names.
std::optional<std::int64_t> step_of(std::string_view name);
std::string file_name(int writer);  // "rank-00003.safetensors"

// Makes `folder` and its parents where they do not exist.
void make_folders(files::Disk& disk, const std::string& folder);

// The path of a new folder for the files of a checkpoint; `nonce` differs among all attempts.
std::string begin_save(files::Disk& disk, const std::string& folder, std::int64_t step,
                       std::string_view nonce);

// Publishes what was written to `temporary`, a path of begin_save; returns the checkpoint's path.
// An earlier checkpoint of the same step is replaced, and removed only when the new one is durable.
// REQUIRES: all files of the manifest are there and synced.
std::string publish(files::Disk& disk, const std::string& folder, const std::string& temporary,
                    const Manifest& manifest);

// Removes a checkpoint, a path of candidates().
void remove(files::Disk& disk, const std::string& folder, const std::string& path);

// Removes all but the newest `keep` of the folder's checkpoints, whether they are whole or not;
// with 0 it removes nothing.
void retain(files::Disk& disk, const std::string& folder, std::int64_t keep);

// Removes what interrupted saves and removals have left.
void clean(files::Disk& disk, const std::string& folder);

// Removes the folder of a save that failed: a path of begin_save.
void abandon(files::Disk& disk, const std::string& temporary);

// Renames a checkpoint that cannot be loaded to step-N.damaged, or where that exists to
// step-N.damaged-2 and so on; nobody takes it for a checkpoint any more, and nobody removes it.
// Returns the new path.
std::string set_aside(files::Disk& disk, const std::string& path);

// Paths of folders that are called like checkpoints, newest first.
std::vector<std::string> candidates(files::Disk& disk, const std::string& folder);

}  // namespace lockstep::checkpoint
