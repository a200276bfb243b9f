#include "tests/parts/interpreter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "lockstep/base/check.h"

namespace lockstep::parts {
namespace {

using Size = std::int64_t;

// [n, in] times [in, out].
Numbers times(const Numbers& x, const Numbers& w, Size in, Size out) {
  const Size n = static_cast<Size>(x.size()) / in;
  LS_CHECK(n * in == std::ssize(x) && in * out == std::ssize(w), "sizes that do not fit");
  Numbers y(static_cast<std::size_t>(n * out));
  for (Size r = 0; r < n; ++r)
    for (Size i = 0; i < in; ++i)
      for (Size o = 0; o < out; ++o) y[r * out + o] += x[r * in + i] * w[i * out + o];
  return y;
}

Numbers transposed(const Numbers& x, Size columns) {
  const Size rows = static_cast<Size>(x.size()) / columns;
  Numbers y(x.size());
  for (Size r = 0; r < rows; ++r)
    for (Size c = 0; c < columns; ++c) y[c * rows + r] = x[r * columns + c];
  return y;
}

void add(Numbers& sum, const Numbers& more) {
  sum.resize(more.size());
  for (std::size_t i = 0; i < more.size(); ++i) sum[i] += more[i];
}

Numbers shifted(Numbers x, double by) {
  for (double& one : x) one += by;
  return x;
}

Numbers column_sums(const Numbers& x, Size columns) {
  Numbers sums(static_cast<std::size_t>(columns));
  for (std::size_t i = 0; i < x.size(); ++i) sums[i % sums.size()] += x[i];
  return sums;
}

struct Stats {
  Numbers rstd, mean;
};

Stats stats_of(const Numbers& x, Size columns, double eps, bool layer) {
  Stats s;
  for (std::size_t at = 0; at < x.size(); at += columns) {
    const auto n = static_cast<double>(columns);
    double mean = 0, square = 0;
    for (Size c = 0; c < columns; ++c) mean += layer ? x[at + c] / n : 0;
    for (Size c = 0; c < columns; ++c) square += std::pow(x[at + c] - mean, 2) / n;
    s.mean.push_back(mean);
    s.rstd.push_back(1 / std::sqrt(square + eps));
  }
  return s;
}

Numbers normed(const Numbers& x, const Stats& s, const Numbers& gain, const Numbers& bias) {
  LS_CHECK(s.rstd.size() * gain.size() == x.size(), "sizes that do not fit");
  Numbers y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t row = i / gain.size(), c = i % gain.size();
    const double unit = (x[i] - (s.mean.empty() ? 0 : s.mean[row])) * s.rstd[row];
    y[i] = unit * gain[c] + (bias.empty() ? 0 : bias[c]);
  }
  return y;
}

std::vector<Numbers> norm_grad(const Numbers& d, const Numbers& x, const Stats& s,
                               const Numbers& gain) {
  const std::size_t n = gain.size();
  const bool layer = !s.mean.empty();
  LS_CHECK(s.rstd.size() * n == x.size() && d.size() == x.size(), "sizes that do not fit");
  Numbers dx(x.size()), d_gain(n), d_bias(n);
  for (std::size_t row = 0; row < s.rstd.size(); ++row) {
    double along = 0, mean = 0;
    const auto unit = [&](std::size_t c) {
      return (x[row * n + c] - (layer ? s.mean[row] : 0)) * s.rstd[row];
    };
    for (std::size_t c = 0; c < n; ++c) {
      const double g = d[row * n + c] * gain[c];
      along += g * unit(c) / static_cast<double>(n);
      mean += layer ? g / static_cast<double>(n) : 0;
      d_gain[c] += d[row * n + c] * unit(c);
      d_bias[c] += d[row * n + c];
    }
    for (std::size_t c = 0; c < n; ++c)
      dx[row * n + c] = (d[row * n + c] * gain[c] - mean - unit(c) * along) * s.rstd[row];
  }
  return layer ? std::vector{dx, d_gain, d_bias} : std::vector{dx, d_gain};
}

// Of the products of two, over each of `rows` rows.
Numbers row_sums(const Numbers& a, const Numbers& b, Size rows) {
  Numbers sums(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < a.size(); ++i) sums[i * sums.size() / a.size()] += a[i] * b[i];
  return sums;
}

// Halves of each head, by an angle that grows with the place in its sequence.
Numbers turned(Numbers x, Size heads, Size dim, Size seq, double sign) {
  for (std::size_t at = 0; at < x.size(); at += dim) {
    const auto place = static_cast<double>(static_cast<Size>(at) / (heads * dim) % seq);
    for (Size i = 0; i < dim / 2; ++i) {
      const double angle = sign * place / static_cast<double>(i + 1);
      const double a = x[at + i], b = x[at + i + dim / 2];
      x[at + i] = a * std::cos(angle) - b * std::sin(angle);
      x[at + i + dim / 2] = a * std::sin(angle) + b * std::cos(angle);
    }
  }
  return x;
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double t = std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

double silu(double x) { return x / (1 + std::exp(-x)); }
double silu_slope(double x) {
  const double sigmoid = 1 / (1 + std::exp(-x));
  return sigmoid + x * sigmoid * (1 - sigmoid);
}

// Of gate and up, or the gradient of both.
Numbers gated(const Numbers& x, const Numbers* d, Size f, double (*bend)(double),
              double (*slope)(double)) {
  Numbers y(d != nullptr ? x.size() : x.size() / 2);
  for (Size i = 0; i < static_cast<Size>(x.size()) / 2; ++i) {
    const Size at = i / f * 2 * f + i % f;
    if (d == nullptr) {
      y[i] = bend(x[at]) * x[at + f];
      continue;
    }
    y[at] = (*d)[i] * x[at + f] * slope(x[at]);
    y[at + f] = (*d)[i] * bend(x[at]);
  }
  return y;
}

constexpr std::array kWideNorm = {Kind::kSquares, Kind::kRstd, Kind::kWideNorm, Kind::kRowDots,
                                  Kind::kWideNormGrad};

constexpr std::array kMixture = {
    Kind::kRoute,         Kind::kRouteGrad,        Kind::kSortRows,
    Kind::kTakeRows,      Kind::kReturnRows,       Kind::kTakeWeights,
    Kind::kReturnWeights, Kind::kExpertLinear,     Kind::kExpertLinearGrad,
    Kind::kExpertSwiGlu,  Kind::kExpertSwiGluGrad, Kind::kCountChoices,
    Kind::kSigmoid,       Kind::kSigmoidGrad};

struct Heads {
  Size tokens, seq, heads, kv_heads, dim, window;
  double scale, cap;
  Size q(Size t, Size a) const { return (t * heads + a) * dim; }
  Size k(Size t, Size a) const { return (t * kv_heads + a / (heads / kv_heads)) * dim; }
  // fn(query, head, key) of the keys that a query meets.
  void each(auto fn) const {
    for (Size t = 0; t < tokens; ++t)
      for (Size a = 0; a < heads; ++a)
        for (Size s = std::max(t / seq * seq, window > 0 ? t - window + 1 : 0); s <= t; ++s)
          fn(t, a, s);
  }
  double score(const Numbers& q_, const Numbers& k_, Size t, Size a, Size s) const {
    double sum = 0;
    for (Size i = 0; i < dim; ++i) sum += q_[q(t, a) + i] * k_[k(s, a) + i];
    return cap > 0 ? cap * std::tanh(sum * scale / cap) : sum * scale;
  }
  double slope(double capped) const { return cap > 0 ? 1 - capped * capped / cap / cap : 1; }
};

std::vector<Numbers> attention(const Heads& h, const std::vector<Numbers>& in) {
  Numbers out(in[0].size()), lse(static_cast<std::size_t>(h.tokens * h.heads));
  h.each([&](Size t, Size a, Size s) {
    lse[t * h.heads + a] += std::exp(h.score(in[0], in[1], t, a, s));
  });
  for (double& x : lse) x = std::log(x);
  h.each([&](Size t, Size a, Size s) {
    const double p = std::exp(h.score(in[0], in[1], t, a, s) - lse[t * h.heads + a]);
    for (Size i = 0; i < h.dim; ++i) out[h.q(t, a) + i] += p * in[2][h.k(s, a) + i];
  });
  return {out, lse};
}

// in: d, q, k, v, out, lse
std::vector<Numbers> attention_grad(const Heads& h, const std::vector<Numbers>& in) {
  Numbers dq(in[1].size()), dk(in[2].size()), dv(in[3].size());
  h.each([&](Size t, Size a, Size s) {
    const double score = h.score(in[1], in[2], t, a, s);
    const double p = std::exp(score - in[5][t * h.heads + a]);
    double dp = 0;
    for (Size i = 0; i < h.dim; ++i)
      dp += in[0][h.q(t, a) + i] * (in[3][h.k(s, a) + i] - in[4][h.q(t, a) + i]);
    const double d_product = p * dp * h.slope(score) * h.scale;
    for (Size i = 0; i < h.dim; ++i) {
      dq[h.q(t, a) + i] += d_product * in[2][h.k(s, a) + i];
      dk[h.k(s, a) + i] += d_product * in[1][h.q(t, a) + i];
      dv[h.k(s, a) + i] += p * in[0][h.q(t, a) + i];
    }
  });
  return {dq, dk, dv};
}

// By definition: the experts of a token are those with the greatest scores and biases, of groups
// that are likewise the best.
std::vector<Numbers> route(const Numbers& logits, const model::Moe& moe) {
  const auto e = static_cast<std::size_t>(moe.experts), each = e / moe.groups;
  Numbers w, scores, choices;
  for (std::size_t at = 0; at < logits.size(); at += e) {
    double of_chosen = 0;
    for (std::size_t i = 0; i < e; ++i) scores.push_back(score_of(&logits[at], i, moe));
    const auto by = [&](std::size_t i) {
      return moe.router_bias ? scores[at + i] + test_bias(i) : logits[at + i];
    };
    const auto of_group = [&](std::size_t group) {
      Numbers own;
      for (std::size_t i = 0; i < each; ++i) own.push_back(by(group * each + i));
      std::ranges::sort(own, std::greater());
      return moe.router_bias && each > 1 ? own[0] + own[1] : own[0];
    };
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < e; ++i) {
      Size above = 0;
      for (Size g = 0; g < moe.groups; ++g) above += of_group(g) > of_group(i / each) ? 1 : 0;
      if (above < moe.top_groups) order.push_back(i);
    }
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return by(a) > by(b); });
    order.resize(static_cast<std::size_t>(moe.top_k));
    for (const std::size_t i : order) of_chosen += scores[at + i];
    for (const std::size_t i : order) {
      choices.push_back(static_cast<double>(i));
      w.push_back(moe.routed_scale * scores[at + i] / (moe.norm_topk_prob ? of_chosen : 1));
    }
  }
  return {w, scores, choices};
}

// in: d weights, scores, experts, maybe d shares of scores. The chain rule, through every weight,
// score and share.
Numbers route_grad(const std::vector<Numbers>& in, const model::Moe& moe) {
  const Size e = moe.experts, top = moe.top_k;
  const bool soft = moe.score == model::RouterScore::kSoftmax;
  Numbers d_scores(in[1].size()), d(in[1].size());
  for (std::size_t i = 0; i < in[2].size(); ++i) {
    const Size t = static_cast<Size>(i) / top, chosen = static_cast<Size>(in[2][i]);
    const double* p = &in[1][t * e];
    double s = 0;
    for (Size j = 0; j < top; ++j) s += p[static_cast<Size>(in[2][t * top + j])];
    for (Size j = 0; j < top; ++j) {
      const Size other = static_cast<Size>(in[2][t * top + j]);
      const double same = other == chosen ? 1 : 0;
      d_scores[t * e + other] +=
          moe.routed_scale * in[0][i] * (moe.norm_topk_prob ? same / s - p[chosen] / s / s : same);
    }
  }
  for (std::size_t i = 0; in.size() > 3 && i < d.size(); ++i) {
    const std::size_t row = i / e * e;
    double all = 0;
    for (Size l = 0; l < e; ++l) all += in[1][row + l];
    for (Size l = 0; l < e; ++l)
      d_scores[row + l] += in[3][i] * ((row + l == i ? 1 : 0) / all - in[1][i] / all / all);
  }
  for (std::size_t i = 0; i < d.size(); ++i) {
    const std::size_t row = i / e * e;
    for (Size l = 0; l < e; ++l) {
      const double same = row + l == i ? 1 : 0;
      d[row + l] +=
          d_scores[i] * in[1][i] * (soft ? same - in[1][row + l] : same * (1 - in[1][row + l]));
    }
  }
  return d;
}

// Each row is found by counting rows of lower experts and earlier tokens.
std::vector<Numbers> sort_rows(const Numbers& experts, Size e) {
  Numbers places, ends(e);
  for (std::size_t i = 0; i < experts.size(); ++i) {
    double before = 0;
    for (std::size_t j = 0; j < experts.size(); ++j)
      before += experts[j] < experts[i] || (experts[j] == experts[i] && j < i) ? 1 : 0;
    places.push_back(before);
    for (Size l = static_cast<Size>(experts[i]); l < e; ++l) ++ends[l];
  }
  return {places, ends};
}

// Of `columns` elements each, added up where several go to one place.
Numbers moved(const Numbers& x, const Numbers& places, Size top, Size columns, bool takes) {
  Numbers y(takes ? places.size() * columns : places.size() / top * columns);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Size token = static_cast<Size>(i) / top, row = static_cast<Size>(places[i]);
    for (Size c = 0; c < columns; ++c)
      y[(takes ? row : token) * columns + c] += x[(takes ? token : row) * columns + c];
  }
  return y;
}

// in: gate, up, weights of rows.
Numbers expert_swiglu(const std::vector<Numbers>& in, Size columns) {
  Numbers y;
  for (std::size_t i = 0; i < in[0].size(); ++i)
    y.push_back(silu(in[0][i]) * in[1][i] * in[2][i / columns]);
  return y;
}
std::vector<Numbers> expert_swiglu_grad(const std::vector<Numbers>& in, Size columns) {
  Numbers gate, up, w(in[3].size());
  for (std::size_t i = 0; i < in[0].size(); ++i) {
    const double d = in[0][i] * in[3][i / columns];
    gate.push_back(d * in[2][i] * silu_slope(in[1][i]));
    up.push_back(d * silu(in[1][i]));
    w[i / columns] += in[0][i] * silu(in[1][i]) * in[2][i];
  }
  return {gate, up, w};
}

}  // namespace

// A slice of heads is some columns of [T, w].
void Interpreter::write(RankState& rank, const Pass& pass, ValueId id, const Numbers& x) const {
  const Place place = pass.places[static_cast<std::size_t>(id)];
  const Values& values = passes_.values();
  LS_CHECK(static_cast<Size>(x.size()) == passes_.sizes().elements(values[id]), values[id].name);
  Numbers& memory = rank.memory[place.storage];
  if (place.slice < 0) return void(memory = x);
  const Size w = size(Dim::kW), begin = place.column;
  const Size n = passes_.sizes().elements(passes_.values()[id]) / size(Dim::kT);
  memory.resize(static_cast<std::size_t>(size(Dim::kT) * w));
  for (std::size_t i = 0; i < x.size(); ++i)
    memory[static_cast<Size>(i) / n * w + begin + static_cast<Size>(i) % n] = x[i];
}

Numbers Interpreter::read(const RankState& rank, const Pass& pass, ValueId id) const {
  const Place place = pass.places[static_cast<std::size_t>(id)];
  const Numbers& memory = rank.memory.at(place.storage);
  if (place.slice < 0) return memory;
  const Size w = size(Dim::kW), begin = place.column;
  const Size n = passes_.sizes().elements(passes_.values()[id]) / size(Dim::kT);
  Numbers x;
  for (Size row = 0; row < size(Dim::kT); ++row)
    for (Size c = 0; c < n; ++c) x.push_back(memory[row * w + begin + c]);
  return x;
}

void Interpreter::run(std::vector<RankState>& ranks, const Pass& pass) const {
  std::map<ValueId, Collective> under_way;  // by output
  for (std::size_t i = 0; i < pass.parts.size(); ++i) {
    const Part& part = pass.parts[i];
    if (row_of(part.kind).collective)
      under_way[part.out[0]] = issue(ranks, pass, part);
    else if (part.kind == Kind::kWait)
      finish(ranks, pass, under_way.at(part.in[0]));
    else if (!row_of(part.kind).view)
      for (RankState& rank : ranks) {
        std::vector<Numbers> in;
        for (const ValueId id : part.in) in.push_back(read(rank, pass, id));
        const std::vector<Numbers> out = compute(rank, part, in);
        for (std::size_t o = 0; o < out.size(); ++o) write(rank, pass, part.out[o], out[o]);
      }
    for (RankState& rank : ranks)
      for (const ValueId storage : pass.ends[i])
        std::ranges::fill(rank.memory.at(storage), std::numeric_limits<double>::quiet_NaN());
  }
}

Interpreter::Collective Interpreter::issue(std::vector<RankState>& ranks, const Pass& pass,
                                           const Part& part) const {
  Collective made{&part, {}};
  for (RankState& rank : ranks) {
    made.in.push_back(read(rank, pass, part.in[0]));
    const std::int64_t out = passes_.sizes().elements(passes_.values()[part.out[0]]);
    write(rank, pass, part.out[0], Numbers(out, std::numeric_limits<double>::quiet_NaN()));
  }
  return made;
}

// Operands with memory of their own are read as late as can be.
void Interpreter::finish(std::vector<RankState>& ranks, const Pass& pass,
                         const Collective& of) const {
  const Part& part = *of.part;
  LS_CHECK(group_size(part, passes_.sizes()) == std::ssize(ranks), "a collective of some ranks");
  const bool is_late = pass.storage(part.in[0]) != pass.storage(part.out[0]);
  Numbers all;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const Numbers x = is_late ? read(ranks[r], pass, part.in[0]) : of.in[r];
    if (part.kind == Kind::kAllGather)
      all.insert(all.end(), x.begin(), x.end());
    else
      add(all, x);
  }
  const auto each = static_cast<std::ptrdiff_t>(all.size() / ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(r) * each;
    write(ranks[r], pass, part.out[0],
          part.kind == Kind::kReduceScatter ? Numbers(begin, begin + each) : all);
  }
}

Numbers Interpreter::weight_gradient(const Part& part, const std::vector<Numbers>& in) const {
  if (part.kind == Kind::kExpertLinearWeight) return compute_expert_linear({}, part, in)[0];
  return times(transposed(in[0], columns(part.in[0])), in[1],
               static_cast<Size>(in[0].size()) / columns(part.in[0]), columns(part.in[1]));
}

std::vector<Numbers> Interpreter::compute(RankState& rank, const Part& part,
                                          const std::vector<Numbers>& in) const {
  const std::string name(part.param);
  const auto param = [&](const char* ending = "") {
    const bool is_less = passes_.sizes().plus_one && name.ends_with("norm");
    return shifted(rank.params[name + ending], is_less ? 1 : 0);
  };
  const auto linear = [&] {
    return times(in[0], param(), columns(part.in[0]), columns(part.out[0]));
  };
  const auto plus = [](Numbers x, const Numbers& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i % y.size()];
    return x;
  };
  switch (part.kind) {
    case Kind::kRmsNorm: {
      const Stats s = stats_of(in[0], columns(part.in[0]), eps_, false);
      return {normed(in[0], {s.rstd, {}}, param(), {}), s.rstd};
    }
    case Kind::kLayerNorm: {
      const Stats s = stats_of(in[0], columns(part.in[0]), eps_, true);
      return {normed(in[0], s, param(), param("_bias")), s.rstd, s.mean};
    }
    case Kind::kRmsNormAgain:
      return {normed(in[0], {in[1], {}}, param(), {})};
    case Kind::kLayerNormAgain:
      return {normed(in[0], {in[1], in[2]}, param(), param("_bias"))};
    case Kind::kRmsNormGrad:
      return norm_grad(in[0], in[1], {in[2], {}}, param());
    case Kind::kLayerNormGrad:
      return norm_grad(in[0], in[1], {in[2], in[3]}, param());
    case Kind::kLinear:
      return {linear()};
    case Kind::kLinearBias:
      return {plus(linear(), param("_bias"))};
    case Kind::kLinearAdd:
      return {plus(linear(), in[1])};
    case Kind::kBias:
      return {plus(in[0], param("_bias"))};
    case Kind::kAdd:
      return {plus(in[0], in[1])};
    case Kind::kLinearGrad:
      return {times(in[0], transposed(param(), columns(part.in[0])), columns(part.in[0]),
                    columns(part.out[0]))};
    case Kind::kLinearWeight:
    case Kind::kExpertLinearWeight:
      add(rank.grads[name], weight_gradient(part, in));
      return {};
    case Kind::kBiasSum:
      return {column_sums(in[0], columns(part.in[0]))};
    case Kind::kAccumulate:
    case Kind::kAccumulateBias:
      for (std::size_t i = 0; i < in.size(); ++i)
        add(rank.grads[passes_.values()[part.in[i]].name.substr(2)], in[i]);
      return {};
    default:
      if (part.kind == Kind::kAuxLossGrad || part.kind == Kind::kZLossGrad)
        return {router_loss_grad(rank, part, in)};
      return compute_others(param(), part, in);
  }
}

std::vector<Numbers> Interpreter::compute_others(const Numbers& param, const Part& part,
                                                 const std::vector<Numbers>& in) const {
  const auto is_one_of = [&](const auto& kinds) {
    return std::ranges::count(kinds, part.kind) > 0;
  };
  if (is_one_of(kMixture)) return compute_mixture(param, part, in);
  return is_one_of(kWideNorm) ? compute_wide_norm(param, part, in) : compute_plain(part, in);
}

std::vector<Numbers> Interpreter::compute_wide_norm(const Numbers& gain, const Part& part,
                                                    const std::vector<Numbers>& in) const {
  const auto all = static_cast<double>(gain.size()) * static_cast<double>(size(Dim::kRanks));
  switch (part.kind) {
    case Kind::kSquares:
      return {row_sums(in[0], in[0], tokens(part.out[0]))};
    case Kind::kRstd: {
      Numbers rstd;
      for (const double sum : in[0]) rstd.push_back(1 / std::sqrt(sum / all + eps_));
      return {rstd};
    }
    case Kind::kWideNorm:
      return {normed(in[0], {in[1], {}}, gain, {})};
    case Kind::kRowDots: {
      const Numbers scaled = normed(in[0], {Numbers(in[2].size(), 1.0), {}}, gain, {});
      return {row_sums(scaled, in[1], tokens(part.out[0])),
              norm_grad(in[0], in[1], {in[2], {}}, gain)[1]};
    }
    default: {  // kWideNormGrad
      Numbers dx = normed(in[0], {in[2], {}}, gain, {});
      for (std::size_t i = 0; i < dx.size(); ++i) {
        const std::size_t row = i / gain.size();
        dx[i] -= in[1][i] * std::pow(in[2][row], 3) * in[3][row] / all;
      }
      return {dx};
    }
  }
}

std::vector<Numbers> Interpreter::compute_plain(const Part& part,
                                                const std::vector<Numbers>& in) const {
  const double dim =
      config_.query_scale_dim > 0 ? config_.query_scale_dim : static_cast<double>(size(Dim::kD));
  const Heads heads{
      size(Dim::kT), passes_.sizes().seq,    size(Dim::kA),      size(Dim::kKv),
      size(Dim::kD), passes_.sizes().window, 1 / std::sqrt(dim), config_.attention_softcap};
  const auto turn = [&](double sign) {
    std::vector<Numbers> out;
    for (const Numbers& x : in)
      out.push_back(turned(x, static_cast<Size>(x.size()) / heads.tokens / heads.dim, heads.dim,
                           heads.seq, sign));
    return out;
  };
  switch (part.kind) {
    case Kind::kRope:
      return turn(1);
    case Kind::kRopeBack:
      return turn(-1);
    case Kind::kAttention:
    case Kind::kScoredAttention:
      return attention(heads, in);
    case Kind::kAttentionGrad:
    case Kind::kScoredAttentionGrad:
      return attention_grad(heads, in);
    case Kind::kSwiGlu:
      return {gated(in[0], nullptr, columns(part.in[0]) / 2, silu, silu_slope)};
    case Kind::kSwiGluGrad:
      return {gated(in[1], &in[0], columns(part.in[1]) / 2, silu, silu_slope)};
    case Kind::kGeGlu:
      return {gated(in[0], nullptr, columns(part.in[0]) / 2, gelu, gelu_slope)};
    case Kind::kGeGluGrad:
      return {gated(in[1], &in[0], columns(part.in[1]) / 2, gelu, gelu_slope)};
    case Kind::kGelu:
    case Kind::kGeluGrad: {
      Numbers y = in.back();
      for (std::size_t i = 0; i < y.size(); ++i)
        y[i] = part.kind == Kind::kGelu ? gelu(y[i]) : in[0][i] * gelu_slope(y[i]);
      return {y};
    }
    case Kind::kConcat: {
      Numbers y;
      for (Size t = 0; t < heads.tokens; ++t)
        for (const Numbers& x : in) {
          const auto n = static_cast<std::ptrdiff_t>(x.size()) / heads.tokens;
          y.insert(y.end(), x.begin() + t * n, x.begin() + (t + 1) * n);
        }
      return {y};
    }
    default:
      LS_CHECK(false, "no kernel for ", to_text(part.kind));
      return {};
  }
}

std::vector<Numbers> Interpreter::compute_mixture(const Numbers& weights, const Part& part,
                                                  const std::vector<Numbers>& in) const {
  const Size e = size(Dim::kExperts), top = size(Dim::kTop);
  switch (part.kind) {
    case Kind::kRoute:
      return route(in[0], config_.moe);
    case Kind::kRouteGrad:
      return {route_grad(in, config_.moe)};
    case Kind::kSortRows:
      return sort_rows(in[0], e);
    case Kind::kCountChoices: {
      Numbers counts(static_cast<std::size_t>(size(Dim::kSequences) * e));
      for (Size i = 0; i < std::ssize(in[0]); ++i)
        ++counts[i / top / passes_.sizes().seq * e + static_cast<Size>(in[0][i])];
      return {counts};
    }
    case Kind::kTakeRows:
    case Kind::kReturnRows:
      return {moved(in[0], in[1], top, columns(part.in[0]), part.kind == Kind::kTakeRows)};
    case Kind::kTakeWeights:  // every choice has a row and a weight of its own
    case Kind::kReturnWeights: {
      Numbers y(in[0].size());
      for (std::size_t i = 0; i < y.size(); ++i) {
        const auto row = static_cast<std::size_t>(in[1][i]);
        part.kind == Kind::kTakeWeights ? y[row] = in[0][i] : y[i] = in[0][row];
      }
      return {y};
    }
    case Kind::kExpertSwiGlu:
      return {expert_swiglu(in, columns(part.in[0]))};
    case Kind::kExpertSwiGluGrad:
      return expert_swiglu_grad(in, columns(part.in[0]));
    case Kind::kSigmoid: {
      Numbers y;
      for (const double x : in[0]) y.push_back(1 / (1 + std::exp(-x)));
      return {y};
    }
    case Kind::kSigmoidGrad: {
      Numbers d;
      for (std::size_t i = 0; i < in[0].size(); ++i)
        d.push_back(in[0][i] * in[1][i] * (1 - in[1][i]));
      return {d};
    }
    default:
      return compute_expert_linear(weights, part, in);
  }
}

Numbers Interpreter::router_loss_grad(const RankState& rank, const Part& part,
                                      const std::vector<Numbers>& in) const {
  const Size e = size(Dim::kExperts), seq = passes_.sizes().seq;
  const auto all = static_cast<double>(size(Dim::kT));
  Numbers d = in[0];
  for (Size i = 0; i < std::ssize(d); ++i) {
    if (part.kind == Kind::kAuxLossGrad) {
      const double times = in[1][(rank.first_row + i / e) / seq * e + i % e];
      d[i] = kAuxLoss * static_cast<double>(e) * times /
             (static_cast<double>(size(Dim::kTop) * seq) * all);
      continue;
    }
    double sum = 0;
    for (Size l = i / e * e; l < (i / e + 1) * e; ++l) sum += std::exp(in[1][l]);
    d[i] += kZLoss / all * 2 * std::log(sum) * std::exp(in[1][i]) / sum;
  }
  return d;
}

// Row by row, with the weights of the expert whose rows end behind it.
std::vector<Numbers> Interpreter::compute_expert_linear(const Numbers& weights, const Part& part,
                                                        const std::vector<Numbers>& in) const {
  const bool adds = part.kind == Kind::kExpertLinearWeight;
  const Size n_in = columns(part.in[0]), n_out = columns(adds ? part.in[1] : part.out[0]);
  const Numbers& ends = in.back();
  Numbers made(
      static_cast<std::size_t>(adds ? n_in * n_out * std::ssize(ends) : size(Dim::kR) * n_out));
  for (Size row = 0, e = 0; row < size(Dim::kR); ++row) {
    while (static_cast<double>(row) >= ends[e]) ++e;
    for (Size i = 0; i < n_in; ++i)
      for (Size o = 0; o < n_out; ++o) {
        const Size forward = (e * n_in + i) * n_out + o, back = (e * n_out + o) * n_in + i;
        if (adds)
          made[forward] += in[0][row * n_in + i] * in[1][row * n_out + o];
        else
          made[row * n_out + o] +=
              in[0][row * n_in + i] * weights[part.kind == Kind::kExpertLinear ? forward : back];
      }
  }
  return {made};
}

double score_of(const double* logits, std::size_t expert, const model::Moe& moe) {
  if (moe.score == model::RouterScore::kSigmoid) return 1 / (1 + std::exp(-logits[expert]));
  double sum = 0;
  for (Size i = 0; i < moe.experts; ++i) sum += std::exp(logits[i]);
  return std::exp(logits[expert]) / sum;
}

double test_bias(std::size_t expert) { return expert % 2 == 0 ? 0.3 : -0.2; }

Named Interpreter::random_params(unsigned seed) const {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> any(-0.5, 0.5);
  Named params;
  const auto fill = [&](const std::string& name, Size n, double around) {
    Numbers& x = params[name];
    if (!x.empty()) return;
    for (Size i = 0; i < n; ++i) x.push_back(around + any(random));
  };
  for (const Part& part : passes_.at(UnitPass::kForward).parts) {
    const std::string name(part.param);
    if (name.empty() || part.kind == Kind::kRstd) continue;
    const bool wide = part.kind == Kind::kWideNorm;
    const bool norm = wide || part.kind == Kind::kRmsNorm || part.kind == Kind::kLayerNorm;
    const Size out = wide ? passes_.sizes().elements(passes_.values()[part.out[0]]) / size(Dim::kT)
                          : columns(part.out[0]);
    const Size experts = part.kind == Kind::kExpertLinear ? size(Dim::kExperts) : 1;
    if (part.kind != Kind::kBias)
      fill(name, norm ? out : experts * out * columns(part.in[0]), norm ? 1 : 0);
    if (part.kind == Kind::kLayerNorm || part.kind == Kind::kLinearBias || part.kind == Kind::kBias)
      fill(name + "_bias", out, 0);
  }
  return params;
}

}  // namespace lockstep::parts
