#include "lockstep/spec/identity.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace lockstep::spec {
namespace {

using Names = std::set<std::string_view>;

// Whoever adds a key to [batch] or [train] has to say whether it decides what is trained.
TEST(Identity, KnowsEveryKeyOfBatchAndTrain) {
  Names known = {
      "batch.ramp_increment", "batch.ramp_samples",  // told with ramp_start
      "train.check_interval",                        // looks, and changes nothing
      "train.noise_scale",                           // part of the program where it is measured
      "train.op_deadline",                           // how long ranks wait
      "train.tp_overlap",                            // and what they do meanwhile
  };
  for (const IdentityKey& key : identity_keys())
    EXPECT_TRUE(known.insert(key.path).second) << key.path;
  for (const std::string_view path : known) EXPECT_NE(run_fields().find(path), nullptr) << path;
  for (const config::Field& field : run_fields().fields())
    if (field.path.starts_with("batch.") || field.path.starts_with("train.")) {
      EXPECT_TRUE(known.contains(field.path)) << field.path;
    }
}

// The bytes that checkpoints of earlier versions hold.
TEST(Identity, FactsOfACheckpointStayAsTheyAre) {
  Spec spec;
  spec.model.init_std = 0.02;
  spec.batch = {.seq = 8, .global_batch = 4, .microbatch = 2, .ramp = {}};
  spec.train = {.steps = 5, .lr = {.peak = 3e-4, .warmup = 2}, .weight_decay = 0.1, .clip = 1};
  const Facts constant = {{"seq", "8"},
                          {"global_batch", "4"},
                          {"dtype", "bf16"},
                          {"seed", "0"},
                          {"init_std", "0.02"},
                          {"lr", "3e-4"},
                          {"warmup", "2"},
                          {"decay", "constant"},
                          {"weight_decay", "0.1"},
                          {"decay_embeddings", "yes"},
                          {"clip", "1"}};
  EXPECT_EQ(identity(spec, &IdentityKey::fact), constant);
  spec.train.lr.decay = Decay::kCosine;
  spec.train.beta2 = 0.99;
  spec.batch.ramp = {2, 1, 8};
  Facts falling = constant;
  falling[7].second = "cosine";
  for (const Facts::value_type& more : Facts{{"min_lr", "0"},
                                             {"decay_steps", "0"},
                                             {"steps", "5"},
                                             {"beta2", "0.99"},
                                             {"ramp", "from 2 by 1 over 8 samples"}})
    falling.push_back(more);
  EXPECT_EQ(identity(spec, &IdentityKey::fact), falling);
}

}  // namespace
}  // namespace lockstep::spec
