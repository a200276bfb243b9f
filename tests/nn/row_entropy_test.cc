#include "lockstep/nn/row_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/log_softmax.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/nn/oracle.h"

namespace lockstep::nn {
namespace {

struct EntropyCase {
  at::Tensor logits, labels;
  EntropyCase(std::int64_t rows, std::int64_t words, at::ScalarType type)
      : logits(random("logits", {rows, words}, type, 9.0)), labels(at::empty({rows}, at::kLong)) {
    for (std::int64_t i = 0; i < rows; ++i)
      labels.mutable_data_ptr<std::int64_t>()[i] = i % 4 == 3 ? kIgnored : 7 * i % words;
  }
  std::int64_t rows() const { return logits.size(0); }
  std::int64_t label(std::int64_t i) const { return labels.const_data_ptr<std::int64_t>()[i]; }
};

struct EntropyGot {
  at::Tensor grad;
  ExactSum loss;
  EntropyGot(const EntropyCase& of, at::ScalarType type)
      : grad(at::empty(of.logits.sizes(), of.logits.options().dtype(type))) {
    add_row_losses(of.logits.clone(), of.labels, kLossSeed, grad, loss);
  }
};

// A probability is off by the roundings of an exponential (3), of the difference it is of (as much
// as the size of that), of a sum of V / 16 + 16 in a row, and of two products.
TEST(RowEntropy, IsTheLogarithmOfTheSoftmaxAndItsGradient) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const std::int64_t words : {1, 15, 16, 130, 1003}) {
      const EntropyCase of(9, words, type);
      const EntropyGot got(of, type);
      const at::Tensor exact = at::log_softmax(of.logits.to(at::kDouble), 1);
      const double u = type == at::kFloat ? std::ldexp(1.0, -24) : std::ldexp(1.0, -53);
      const double off = u * (3 + 18 + static_cast<double>(words) / 16 + 16 + 4);
      at::Tensor wanted = exact.exp();
      double loss = 0;
      for (std::int64_t i = 0; i < of.rows(); ++i) {
        if (of.label(i) == kIgnored) {
          wanted[i].zero_();
          continue;
        }
        loss -= exact[i][of.label(i)].item<double>();
        wanted[i][of.label(i)] -= 1.0;
      }
      wanted.mul_(kLossSeed);
      EXPECT_LE((got.grad.to(at::kDouble) - wanted).abs().max().item<double>(), off * kLossSeed);
      EXPECT_NEAR(got.loss.result(), loss, static_cast<double>(of.rows()) * off);
      ExactSum alone;
      add_row_losses(of.logits.clone(), of.labels, alone);
      EXPECT_EQ(alone.result(), got.loss.result());
    }
}

TEST(RowEntropy, RoundsANarrowGradientOnceAndOneOfItsOwnTypeInPlace) {
  const EntropyCase of(9, 1003, at::kFloat);
  const EntropyGot wide(of, at::kFloat), narrow(of, at::kBFloat16);
  EXPECT_TRUE(at::equal(narrow.grad, wide.grad.to(at::kBFloat16)));
  EXPECT_EQ(narrow.loss.result(), wide.loss.result());
  const at::Tensor logits = of.logits.clone();
  ExactSum loss;
  add_row_losses(logits, of.labels, kLossSeed, logits, loss);
  EXPECT_TRUE(at::equal(logits, wide.grad));
}

TEST(RowEntropy, ARowDoesNotKnowTheOthers) {
  const EntropyCase of(9, 130, at::kFloat);
  const EntropyGot whole(of, at::kFloat);
  for (std::int64_t i = 0; i < of.rows(); ++i) {
    EntropyCase one = of;
    one.logits = of.logits.narrow(0, i, 1).clone();
    one.labels = of.labels.narrow(0, i, 1);
    EXPECT_TRUE(at::equal(EntropyGot(one, at::kFloat).grad, whole.grad.narrow(0, i, 1)));
  }
}

TEST(RowEntropy, WhatIsNotANumberShows) {
  EntropyCase of(2, 130, at::kFloat);
  of.logits[1][128].fill_(kNan);
  EXPECT_TRUE(std::isnan(EntropyGot(of, at::kBFloat16).loss.result()));
}

}  // namespace
}  // namespace lockstep::nn
