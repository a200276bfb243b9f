// Problems that a planner may be asked, drawn at random: any model with or without experts on 8 to
// 16,384 devices.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/planner/questions.h"

namespace lockstep::planner {

class RandomQuestions {
 public:
  explicit RandomQuestions(unsigned seed) : random_(seed) {
    for (const model::CatalogRow& row : model::catalog())
      if (!row.config.name.ends_with("-tiny")) models_.push_back(row.config.name);
  }

  // Refers to what the next call replaces.
  Question next() {
    const std::string machine =
        join_parts(pick<const char*>({"h100", "a100", "h800", "h200", "b200"}), ":",
                   8 << pick({0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11}));
    name_ = models_[random_() % models_.size()];
    cluster_ = *cluster::cluster_from_name(machine);
    model_ = model::find(name_)->config;
    shape_ = cost::shape_of(model_);
    Question q{.shape = &shape_,
               .cluster = &cluster_,
               .rates = &cluster::rates_of(cluster_.device),
               .devices = cluster_.count,
               .seq = pick({1024, 2048, 4096, 8192, 32768}),
               .global_batch = cluster_.count * pick({1, 2, 3, 4, 8}) / pick({1, 1, 2, 4, 8})};
    if (pick({0, 1, 2, 3}) == 0 && cluster_.device.peak_fp8.known())
      q.precision = cost::Precision::kFp8;
    name_ += join_parts(" on ", machine, " seq ", q.seq, " batch ", q.global_batch);
    return q;
  }
  const std::string& name() const { return name_; }
  const model::ModelConfig& model() const { return model_; }  // of the last question

  template <class Value>
  Value pick(std::initializer_list<Value> from) {
    return from.begin()[random_() % from.size()];
  }
  template <class List>
  auto any_of(const List& list) {
    return list[random_() % list.size()];
  }

 private:
  std::mt19937 random_;
  std::vector<std::string> models_;
  cluster::Cluster cluster_;
  cost::ModelShape shape_;
  model::ModelConfig model_;
  std::string name_;
};

}  // namespace lockstep::planner
