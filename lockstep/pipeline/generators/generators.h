// Named orders of compute, each a pure function of the shape and a row of catalog.h. kOutOfRange
// for a shape it does not take. Any thread may call them.
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/pipeline/schedule.h"

namespace lockstep::pipeline {

// One stage per pipeline rank.
Result<Schedule> gpipe(const Shape& shape);
Result<Schedule> one_f_one_b(const Shape& shape);
Result<Schedule> eager_1f1b(const Shape& shape);
Result<Schedule> zb_h1(const Shape& shape);

// Any number of chunks, placed in a loop. Microbatches go through the chunks in groups of `group`;
// without one, in groups of as many as there are pipeline ranks.
Result<Schedule> interleaved(const Shape& shape);
Result<Schedule> interleaved(const Shape& shape, int group);
Result<Schedule> interleaved_zb(const Shape& shape);
Result<Schedule> interleaved_zb(const Shape& shape, int group);
Result<Schedule> looped_bfs(const Shape& shape);

// Two chunks, placed as a V.
Result<Schedule> zbv(const Shape& shape);
Result<Schedule> v_half(const Shape& shape);
Result<Schedule> v_min(const Shape& shape);
Result<Schedule> dualpipe_v(const Shape& shape);

// 1F1B with a warm-up of one's own: pipeline rank r runs `warm_ups[r]` forward passes (at most all
// of them), then one forward and one backward in turn. REQUIRES: check_one_chunk accepts the shape,
// one warm-up per pipeline rank.
Result<Schedule> alternating(const Shape& shape, const std::vector<int>& warm_ups);

// For schedules that run one stage per pipeline rank: refuses unusable shapes and chunks
// other than 1.
Result<void> check_one_chunk(std::string_view name, const Shape& shape);
// For those of a V: refuses unusable shapes and chunks other than 2.
Result<void> check_two_chunks(std::string_view name, const Shape& shape);

}  // namespace lockstep::pipeline
