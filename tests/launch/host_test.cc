#include "lockstep/launch/host.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace lockstep::launch {
namespace {

using Variables = std::map<std::string, std::string>;

const std::string kGood(32, 's');

Result<Host> find(const Variables& variables, const HostOptions& options = {},
                  const std::string& name = "box") {
  return find_host(
      options,
      [&](const char* key) {
        const auto found = variables.find(key);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      },
      name);
}

Variables with_secret(Variables variables) {
  variables["LOCKSTEP_LAUNCH_SECRET"] = kGood;
  return variables;
}

const Variables kTorchrun = with_secret(
    {{"NNODES", "4"}, {"NODE_RANK", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1234"}});
const Variables kSlurm = with_secret({{"SLURM_JOB_ID", "417"},
                                      {"SLURM_NNODES", "8"},
                                      {"SLURM_STEP_ID", "3"},
                                      {"SLURM_STEP_NUM_NODES", "4"},
                                      {"SLURM_STEP_NUM_TASKS", "4"},
                                      {"SLURM_NODEID", "1"},
                                      {"SLURM_STEP_NODELIST", "n[03-05,9],m1"}});
const Variables kKubernetes = with_secret({{"JOB_COMPLETION_INDEX", "2"}});
const HostOptions kService = {.hosts = 4, .service = "train"};

void expect(const Result<Host>& found, int number, int hosts, const std::string& coordinator,
            int port) {
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->number, number);
  EXPECT_EQ(found->hosts, hosts);
  EXPECT_EQ(found->coordinator, coordinator);
  EXPECT_EQ(found->port, port);
}

void expect_refused(const Result<Host>& found, const std::string& with) {
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find(with), std::string::npos) << found.error().message;
  EXPECT_FALSE(found.error().help.empty());
}

TEST(FindHost, EachSource) {
  expect(find({}), 0, 1, "127.0.0.1", 0);
  expect(find(kTorchrun), 2, 4, "a", 1234);
  expect(find(kSlurm), 1, 4, "n03", 15000 + 417 * 7 + 3);
  expect(find(kKubernetes, kService, "big-run-2"), 2, 4, "big-run-0.train", 29500);
  expect(find(with_secret({}), {.hosts = 2, .number = 1, .port = 7, .coordinator = "b"}), 1, 2, "b",
         7);
}

TEST(FindHost, SourcesThatAgreeComplementEachOther) {
  Variables both = kSlurm;
  both["MASTER_ADDR"] = "fast-n03";
  both["NODE_RANK"] = "1";
  expect(find(both, {.hosts = 4, .port = 99}), 1, 4, "fast-n03", 99);
  EXPECT_NE(find(kSlurm)->job, find(kTorchrun)->job);
}

TEST(FindHost, SourcesThatContradictEachOtherAreRefused) {
  expect_refused(find(kTorchrun, {.hosts = 3}), "is 3 by --nnodes and 4 by NNODES");
  expect_refused(find(kTorchrun, {.number = 1}), "is 1 by --node-rank and 2 by NODE_RANK");
  expect_refused(find(kTorchrun, {.coordinator = "b"}),
                 "is b by --master-addr and a by MASTER_ADDR");
  Variables both = kSlurm;
  both["NODE_RANK"] = "0";
  expect_refused(find(both), "is 0 by NODE_RANK and 1 by SLURM_NODEID");
  Variables pod = kKubernetes;
  pod["NNODES"] = "5";
  expect_refused(find(pod, kService, "big-run-2"), "is 4 by --nnodes and 5 by NNODES");
}

TEST(FindHost, WhatIsMissingOrNotANumberIsNamed) {
  expect_refused(find({{"NNODES", "2"}}), "which host this is");
  expect_refused(find({{"NODE_RANK", "1"}}), "of how many hosts");
  expect_refused(find(with_secret({{"NNODES", "2"}, {"NODE_RANK", "1"}})), "where host 0 is");
  expect_refused(find({{"NNODES", "two"}}), "NNODES is `two`");
  expect_refused(find({{"NNODES", "2"}, {"NODE_RANK", "2"}}), "NODE_RANK is 2 of 2 hosts");
  expect_refused(find({{"NNODES", "1"}, {"NODE_RANK", "1"}}), "NODE_RANK is 1 of 1 host");
  expect_refused(find({{"RANK", "0"}}), "RANK is set");
  expect_refused(find({}, {.coordinator = "a"}), "--master-addr");
  expect_refused(find({}, {.service = "train"}), "JOB_COMPLETION_INDEX is not set");
  expect_refused(find(kKubernetes, kService, "box"), "does not end with -2");
  expect_refused(find(kKubernetes, {.hosts = 4}, "big-run-2"), "where host 0 is");
}

TEST(FindHost, ABatchScriptAndSeveralTasksOfANodeAreRefused) {
  expect_refused(find({{"SLURM_JOB_ID", "1"}, {"SLURM_NNODES", "4"}}), "SLURM_NNODES is 4");
  expect(find({{"SLURM_JOB_ID", "1"}, {"SLURM_NNODES", "1"}}), 0, 1, "127.0.0.1", 0);
  Variables many = kSlurm;
  many["SLURM_STEP_NUM_TASKS"] = "32";
  expect_refused(find(many), "32 tasks on 4 nodes");
}

TEST(FindHost, OthersNeedASecret) {
  Variables open = kTorchrun;
  open.erase("LOCKSTEP_LAUNCH_SECRET");
  expect_refused(find(open), "LOCKSTEP_LAUNCH_SECRET is not set");
  open["LOCKSTEP_LAUNCH_SECRET"] = "password";
  expect_refused(find(open), "has 8 characters, and takes at least 16");
  open.erase("LOCKSTEP_LAUNCH_SECRET");
  open["MASTER_ADDR"] = "127.0.0.1";
  expect(find(open), 2, 4, "127.0.0.1", 1234);
}

TEST(FirstOfNodelist, AsSlurmWritesThem) {
  for (const auto& [list, first] : Variables{{"n0", "n0"},
                                             {"n[0-3]", "n0"},
                                             {"n[3,7-9]", "n3"},
                                             {"n[007-9],m", "n007"},
                                             {"a,b", "a"},
                                             {"r[1-2]n[04-08]-ib", "r1n04-ib"},
                                             {"", ""},
                                             {"n[", "n"}})
    EXPECT_EQ(first_of_nodelist(list), first) << list;
}

}  // namespace
}  // namespace lockstep::launch
