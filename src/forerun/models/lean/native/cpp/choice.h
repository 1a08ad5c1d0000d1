// What a sampler needs of a row of logits: its best token, and the few tokens that filters leave.
#pragma once

#include "views.h"

namespace forerun {

// The first place of the largest logit; NaN, at the first place that holds one, where there is any.
void best(const float* row, int count, float* value, int32_t* token);

// The tokens that the filters leave, in the order of their ids, and their shares, which add up to 1. At most `room` of them.
// 0 where they are too many, where nothing filters, and for a row that is no law: that row is another's work.
int filtered(const float* row, int count, const Filters& filters, int room, int32_t* tokens, double* shares);

}  // namespace forerun
