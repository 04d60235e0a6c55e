#include "model/file_names.h"

#include "model/mixers/mixers.h"

namespace millrace {
namespace {

// "blk.3.attn_q" -> "blk.{}.attn_q"
std::string pattern_of(const Slot& slot) {
  if (slot.layer < 0) return slot.name;
  const size_t end = slot.name.find('.', 4);
  return "blk.{}" + slot.name.substr(end);
}

constexpr TensorName kFusedQkv[] = {
    {"blk.{}.attn_q", "blk.{}.attn_qkv", Take::q},
    {"blk.{}.attn_k", "blk.{}.attn_qkv", Take::k},
    {"blk.{}.attn_v", "blk.{}.attn_qkv", Take::v},
};
constexpr TensorName kFusedFfn[] = {
    {"blk.{}.ffn_gate", "blk.{}.ffn_up", Take::first_half},
    {"blk.{}.ffn_up", "blk.{}.ffn_up", Take::second_half},
};
constexpr TensorName kExperts[] = {
    {"blk.{}.ffn_gate_exps", "blk.{}.ffn_gate_up_exps", Take::first_half},
    {"blk.{}.ffn_up_exps", "blk.{}.ffn_gate_up_exps", Take::second_half},
    {"blk.{}.ffn_gate_exps", "blk.{}.ffn_gate.{}", Take::per_expert},
    {"blk.{}.ffn_up_exps", "blk.{}.ffn_up.{}", Take::per_expert},
    {"blk.{}.ffn_down_exps", "blk.{}.ffn_down.{}", Take::per_expert},
    {"blk.{}.exp_probs_b", "blk.{}.exp_probs_b.bias", Take::whole, true},
    {"blk.{}.attn_k_b", "blk.{}.attn_kv_b", Take::latent_k},
    {"blk.{}.attn_v_b", "blk.{}.attn_kv_b", Take::latent_v},
};

}  // namespace

std::string numbered(std::string_view pattern, int64_t number) {
  std::string out(pattern);
  if (const size_t at = out.find("{}"); at != std::string::npos) out.replace(at, 2, std::to_string(number));
  return out;
}

std::vector<FileName> file_names(const Architecture& architecture, const Slot& slot, bool gguf, bool fused_ffn) {
  const std::string pattern = pattern_of(slot);
  std::vector<FileName> out;
  auto add = [&](std::span<const TensorName> names) {
    for (const TensorName& name : names) {
      if (name.slot == pattern)
        out.push_back({slot.layer < 0 ? std::string(name.file) : numbered(name.file, slot.number), name.take, name.bare,
                       name.transposed, name.change});
    }
  };
  if (!gguf) {
    add(architecture.names);
    if (out.empty()) add(llama_names());
    return out;
  }
  if (fused_ffn) add(kFusedFfn);
  add(architecture.gguf.names);
  if (out.empty()) out.push_back({slot.name, Take::whole});
  add(kFusedQkv);
  add(kExperts);
  return out;
}

int64_t stored_rows(const ModelSpec& spec, const Slot& slot, Take take) {
  const int64_t rows = slot.kind == SlotKind::matrix ? slot.rows : slot.cols;
  switch (take) {
    case Take::whole:
    case Take::per_expert:
      return rows;
    case Take::first_half:
    case Take::second_half:
    case Take::even:
    case Take::odd:
      return rows * 2;
    case Take::per_head:
      return rows / slot.heads;
    default:
      return taken_rows(spec.layers[static_cast<size_t>(slot.layer)].mixer, take).stored;
  }
}

std::vector<int64_t> stored_order(const ModelSpec& spec, const Slot& slot, Take take, bool permuted) {
  std::vector<int64_t> rows;
  auto add = [&](int64_t first, int64_t step) {
    for (int64_t i = 0; i < slot.rows; ++i) rows.push_back(first + i * step);
  };
  switch (take) {
    case Take::whole:
    case Take::per_head:
    case Take::per_expert:
      break;
    case Take::first_half:
    case Take::second_half:
      add(take == Take::first_half ? 0 : slot.rows, 1);
      break;
    case Take::even:
    case Take::odd:
      add(take == Take::even ? 0 : 1, 2);
      break;
    default:
      rows = taken_rows(spec.layers[static_cast<size_t>(slot.layer)].mixer, take).rows;
  }
  if (permuted && slot.kind == SlotKind::matrix && slot.heads > 0) {
    if (rows.empty()) add(0, 1);
    const std::vector<int64_t> stored = rows;
    const int64_t dim = slot.rows / slot.heads;
    for (int64_t i = 0; i < slot.rows; ++i) {
      const int64_t within = i % dim, half = dim / 2;
      rows[static_cast<size_t>(i)] = stored[static_cast<size_t>(i - within + (within % half) * 2 + within / half)];
    }
  }
  return rows;
}

}  // namespace millrace
