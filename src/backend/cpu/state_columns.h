// What workers hand to the kernels of states (kernels.h): some neighbouring columns of one sequence's state, which a
// kernel takes through all rows of that sequence. A column needs nothing of the others, and inside one the order is
// fixed: token by token, and within a token by ascending number of the state.
#pragma once

#include "backend/ops.h"

namespace millrace::cpu {

constexpr int64_t kStateColumns = 64;  // of channels or of a convolution, the most a kernel is asked for at a time
constexpr int64_t kHeadColumns = 32;   // of a head's matrix
constexpr int64_t kMostKeys = 1024;    // rows of a head's matrix

// Some columns of one head's matrix.
struct HeadColumns {
  const HeadScan& scan;
  const HeadScanRows& in;
  const Step& step;
  Tensor out;
  int32_t sequence;
  int64_t head, first, count;  // the first column, and how many
  float* matrix;               // from that column on; rows lie value_dim apart

  int32_t begin() const { return step.first_row[sequence]; }
  int32_t end() const { return step.first_row[sequence + 1]; }
  int64_t key_first() const { return int64_t{scan.key_head(static_cast<int32_t>(head))} * scan.key_dim; }
};

// Some channels; their numbers lie `apart`.
struct ChannelColumns {
  const ChannelScan& scan;
  const ChannelScanRows& in;
  const Step& step;
  Tensor out;
  int32_t sequence;
  int64_t first, count, apart;
  float* kept;

  int32_t begin() const { return step.first_row[sequence]; }
  int32_t end() const { return step.first_row[sequence + 1]; }
  const float* constant(size_t which, int64_t n) const { return scan.constants[which] + n * in.a.cols + first; }
};

}  // namespace millrace::cpu
