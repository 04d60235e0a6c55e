// Step: which tokens of which sequences one pass computes. A ragged batch: rows of one sequence are contiguous and
// ascend in position; prefill chunks, single decodes and drafted windows are all just rows. The arrays live where the
// backend reads them, at addresses that do not change between steps; the counts are upper bounds the host knows.
#pragma once

#include <cstdint>
#include <span>

namespace millrace {

// Where the pages of each sequence are, for one group of cache layers that share page ids.
struct PageTables {
  const int32_t* pages = nullptr;  // pages[sequence * stride + position / page_tokens]
  int32_t stride = 0;
};

struct Step {
  int32_t rows = 0;       // tokens computed in this step
  int32_t sequences = 0;  // they belong to
  int32_t wanted = 0;     // rows whose logits are asked for

  const int32_t* tokens = nullptr;       // [rows]
  const int32_t* positions = nullptr;    // [rows] position within the sequence
  const int32_t* visible = nullptr;      // [rows] the row sees cached positions [0, visible): position + 1 if causal
  const int32_t* types = nullptr;        // [rows] which of several texts the token is of (BERT); null: not said
  const int32_t* sequence = nullptr;     // [rows] index of the row's sequence
  const int32_t* first_row = nullptr;    // [sequences + 1]
  const int32_t* wanted_rows = nullptr;  // [wanted], ascending
  std::span<const PageTables> groups;    // one per cache group

  // Rows that an adapter changes (backend/delta.h): its place in the table, -1 for none, and what its changes are
  // multiplied with. The wanted rows have them a second time, since the last layer goes on with those alone.
  const int32_t* adapters = nullptr;         // [rows]; null: no row has an adapter
  const float* strengths = nullptr;          // [rows]
  const int32_t* wanted_adapters = nullptr;  // [wanted]
  const float* wanted_strengths = nullptr;   // [wanted]
  int64_t adapter_set = 0;                   // which adapters are loaded: another number once that has changed
};

}  // namespace millrace
