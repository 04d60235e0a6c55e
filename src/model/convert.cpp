#include "model/convert.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>

#include "base/team.h"
#include "model/ffns/ffns.h"
#include "model/file_names.h"
#include "model/gguf_states.h"
#include "model/mixers/mixers.h"
#include "model/pool.h"
#include "model/rope.h"
#include "tensor/importance.h"

namespace millrace {
namespace {

struct NamedType {
  std::string_view name;
  FileType type;
};

constexpr auto kTypes = std::to_array<NamedType>({
    {"F32", {DType::f32, false, 0}},        {"F16", {DType::f16, false, 1}},
    {"BF16", {DType::bf16, false, 32}},     {"Q8_0", {DType::q8_0, false, 7}},
    {"Q4_0", {DType::q4_0, false, 2}},      {"Q4_1", {DType::q4_1, false, 3}},
    {"Q5_0", {DType::q5_0, false, 8}},      {"Q5_1", {DType::q5_1, false, 9}},
    {"Q2_K", {DType::q2_k, false, 10}},     {"Q3_K", {DType::q3_k, false, 11}},
    {"Q4_K", {DType::q4_k, false, 14}},     {"Q4_K_S", {DType::q4_k, false, 14}},
    {"Q4_K_M", {DType::q4_k, true, 15}},    {"Q5_K", {DType::q5_k, false, 16}},
    {"Q5_K_S", {DType::q5_k, false, 16}},   {"Q5_K_M", {DType::q5_k, true, 17}},
    {"Q6_K", {DType::q6_k, false, 18}},     {"IQ4_NL", {DType::iq4_nl, false, 25}},
    {"IQ4_XS", {DType::iq4_xs, false, 30}}, {"MXFP4", {DType::mxfp4, false, 38}},
});

// One tensor of the result: slots one after the other, or numbers of its own.
struct Piece {
  std::string name;
  DType type = DType::f32;
  std::vector<int64_t> shape;
  std::vector<Slot> slots;  // their rows follow each other
  bool bias = false;        // takes the slots' biases
  int64_t woven = 0;        // parts of each slot's rows, which lie in turn: a part of the first, one of the second ...
  bool latent = false;      // keys and values of each head out of a latent: the first slot's transposed, the second's
  std::vector<float> numbers;  // instead of slots
};

bool is_plain(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::bf16; }

// A nearby format whose groups fit rows of that length.
DType fitting(DType type, int64_t cols) {
  if (cols % format(type).group == 0) return type;
  DType other = DType::f16;
  if (type == DType::q2_k || type == DType::q3_k) other = DType::q4_0;
  if (type == DType::q4_k) other = DType::q5_0;
  if (type == DType::iq4_xs) other = DType::iq4_nl;
  if (type == DType::q5_k) other = DType::q5_1;
  if (type == DType::q6_k) other = DType::q8_0;
  return cols % format(other).group == 0 ? other : DType::f16;
}

// Outer layers, and every third between, keep more.
bool keeps_more(const ModelSpec& spec, const Slot& slot) {
  const auto layers = static_cast<int32_t>(spec.layers.size());
  const int32_t edge = layers / 8;
  return slot.layer < edge || slot.layer >= 7 * layers / 8 || (slot.layer - edge) % 3 == 2;
}

// Experts in every layer, in all but the first ones, or in every n-th.
bool mixed_by_rule(const ModelSpec& spec) {
  std::vector<bool> mixed;
  for (const LayerSpec& layer : spec.layers) mixed.push_back(chosen_experts(layer.ffn) > 0);
  const auto first = static_cast<size_t>(std::find(mixed.begin(), mixed.end(), true) - mixed.begin());
  bool after = true, every = true;
  for (size_t i = 0; i < mixed.size(); ++i) {
    after = after && mixed[i] == (i >= first);
    every = every && mixed[i] == ((i + 1) % (first + 1) == 0);
  }
  return after || every;
}

bool is_encoder(std::string_view gguf) { return gguf == "bert" || gguf == "nomic-bert" || gguf == "modern-bert"; }

// What of a model that gives vectors or scores has no place in a file; empty: nothing. Encoders have their classifier
// there, other models nothing but the way rows become one.
std::string_view unsayable_pool(const ModelSpec& spec, std::string_view gguf) {
  if (!spec.pool) return spec.head ? "" : "no head";
  if (!is_encoder(gguf) && !spec.head) return "no head";
  if (!spec.pool->projections.empty() && !(is_encoder(gguf) && spec.pool->scores)) return "layers after its pooling";
  return spec.pool->scores || pooling_number(spec.pool->pooling) > 0 ? "" : "a way of pooling of its own";
}

// What an architecture can be and llama.cpp's format has no word for.
Result<void> check_sayable(const ModelSource& source) {
  const ModelSpec& spec = source.spec();
  const std::string_view gguf = source.architecture().gguf.name;
  if (gguf.empty()) {
    return error(Code::unsupported, "GGUF has no name for the architecture {}, so it cannot be converted",
                 spec.architecture);
  }
  if (const std::string_view what = unsayable_pool(spec, gguf); !what.empty()) {
    return error(Code::unsupported,
                 "a GGUF file of the architecture {} cannot say that this model has {}; run it as it is", gguf, what);
  }
  std::string_view what;
  for (const LayerSpec& layer : spec.layers) {
    if (layer.stream_norms && !is_encoder(gguf) && gguf != "minimax-01") what = "norms on the residual stream";
    const double depth = layer.residual_scale * std::sqrt(static_cast<double>(spec.layers.size()));
    if (gguf == "minicpm3" && (spec.embed_scale != 12 || std::abs(depth - 1.4) > 1e-5 ||
                               std::abs(spec.logit_scale * static_cast<float>(spec.width) - 256) > 1e-3f))
      what = "scales of its own";
    if (gguf == "falcon" && !layer.parallel) what = "halves in sequence";
    if (const std::string_view of_mixer = unsayable(layer.mixer, gguf); !of_mixer.empty()) what = of_mixer;
  }
  if (const std::string_view of_states = has_states(gguf) ? unsayable_states(spec, gguf) : ""; !of_states.empty())
    what = of_states;
  if (!mixed_by_rule(spec) && gguf != "nemotron_h_moe") what = "experts in layers that no rule lists";
  if (what.empty()) return {};
  return error(Code::unsupported,
               "a GGUF file of the architecture {} cannot say that this model has {}, so it is not converted", gguf,
               what);
}

// What a slot is called in a file of the architecture; `bare`: its weight has that very name.
struct Named {
  std::string name;
  bool bare = false;
};

Named file_name(const GgufLayout& layout, const Slot& slot, bool two_norms) {
  const std::string stem = slot.layer < 0 ? slot.name : slot.name.substr(slot.name.find('.', 4) + 1);
  const std::string pattern = slot.layer < 0 ? slot.name : "blk.{}." + stem;
  for (const TensorName& name : layout.names) {
    if (name.slot != pattern) continue;
    // Falcon: only with two norms is the second one the attention's.
    if (name.file.ends_with("_norm_2") && !two_norms) continue;
    return {numbered(name.file, slot.layer), name.bare};
  }
  return {slot.name};
}

class Converter {
 public:
  Converter(const ModelSource& source, const ConvertOptions& options)
      : source_(source),
        options_(options),
        layout_(source.architecture().gguf),
        team_(options.threads > 0 ? options.threads : Team::usual()) {}

  Result<ConvertReport> run(const std::filesystem::path& target) {
    TRY_VOID(list_pieces());
    TRY_VOID(put_metadata(writer_, source_, options_));
    ConvertReport report;
    for (const Piece& piece : pieces_) {
      TRY_VOID(writer_.add(piece.name, piece.type, piece.shape));
      report.fallbacks += is_fallback(piece);
    }
    report.bytes = writer_.file_bytes();
    report.parameters = parameters(source_.spec());
    report.tensors = static_cast<int>(pieces_.size());
    TRY_VOID(writer_.begin(target));
    for (const Piece& piece : pieces_) {
      auto written = write(piece);
      if (!written.ok()) return within(piece.name, std::move(written).error());
      done_ += static_cast<uint64_t>(bytes_of(piece.type, values_of(piece)));
      if (options_.progress && !options_.progress(done_, report.bytes))
        return error(Code::cancelled, "converting was stopped");
    }
    TRY_VOID(source_.checkpoint().unchanged());
    TRY_VOID(writer_.finish());
    if (options_.progress) options_.progress(report.bytes, report.bytes);
    return report;
  }

 private:
  static int64_t values_of(const Piece& piece) {
    int64_t values = 1;
    for (int64_t each : piece.shape) values *= each;
    return values;
  }

  DType type_of(const Slot& slot) const {
    const std::optional<DType> own = options_.type_of && !slot.float32 ? options_.type_of(slot) : std::nullopt;
    return own.value_or(stored_type(source_.spec(), slot, options_.type));
  }

  bool is_fallback(const Piece& piece) const {
    if (options_.type_of && !piece.slots.empty() && options_.type_of(piece.slots.front())) return false;
    if (piece.slots.empty() || piece.bias || piece.slots.front().kind != SlotKind::matrix) return false;
    Slot wide = piece.slots.front();
    wide.cols = 256;  // fits every format
    return piece.type != stored_type(source_.spec(), wide, options_.type);
  }

  // ---- which tensors there are -------------------------------------------------------------------------------------
  Result<void> list_pieces() {
    const ModelSpec& spec = source_.spec();
    const std::vector<Slot> all = slots(spec);
    const bool two_norms =
        std::any_of(all.begin(), all.end(), [](const Slot& each) { return each.name.ends_with(".ffn_norm"); });
    for (size_t i = 0; i < all.size(); ++i) {
      const Slot& slot = all[i];
      std::vector<Slot> parts = {slot};
      const Named named = file_name(layout_, slot, two_norms);
      std::string name = named.name;
      if (layout_.fused_qkv && slot.name.ends_with(".attn_q")) {
        name = fmt::format("blk.{}.attn_qkv", slot.layer);
        parts = {slot, all[i + 1], all[i + 2]};
        i += 2;
      } else if (layout_.fused_ffn && slot.name.ends_with(".ffn_gate")) {
        name = fmt::format("blk.{}.ffn_up", slot.layer);
        parts = {slot, all[i + 1]};
        i += 1;
      } else if (const Woven woven = woven_slots(spec, slot, layout_.name); woven.slots > 0) {
        const auto first = all.begin() + static_cast<ptrdiff_t>(i);
        add_pieces(fmt::format("blk.{}.{}", slot.layer, woven.name),
                   {first, first + static_cast<ptrdiff_t>(woven.slots)}, false);
        pieces_.back().woven = woven.parts;
        i += woven.slots - 1;
        continue;
      } else if (layout_.name == "minicpm3" && slot.name.ends_with(".attn_k_b")) {
        add_latent(slot, all[i + 1]);
        i += 1;
        continue;
      }
      add_pieces(name, std::move(parts), named.bare);
    }
    add_duplicate_head(all.front());
    return add_rope_tensors();
  }

  void add_pieces(const std::string& name, std::vector<Slot> parts, bool bare) {
    const Slot& first = parts.front();
    int64_t rows = 0, size = 0;
    for (const Slot& part : parts) rows += part.rows, size += part.bias_size();
    if (first.weight && first.kind == SlotKind::matrix) {
      std::vector<int64_t> shape = {rows, first.cols};
      if (first.experts > 0) shape.insert(shape.begin(), first.experts);
      if (first.name.ends_with("_inp_shexp")) shape = {first.cols};
      pieces_.push_back({.name = name + ".weight", .type = type_of(first), .shape = std::move(shape), .slots = parts});
    } else if (first.weight) {
      // Norms with a weight for every head are two-dimensional in GGUF.
      std::vector<int64_t> shape = {first.cols};
      if (first.heads > 0) shape = {first.heads, first.cols / first.heads};
      const std::string stem = first.name.substr(first.name.rfind('.') + 1);
      if (auto own = state_shape(source_.spec(), first.layer, stem, first.cols, first.turned); !own.empty())
        shape = std::move(own);
      const std::string_view ending = bare ? "" : first.name.ends_with(".exp_probs_b") ? ".bias" : ".weight";
      pieces_.push_back({.name = name + std::string(ending), .shape = std::move(shape), .slots = parts});
    }
    if (!first.bias) return;
    std::vector<int64_t> shape = {size};
    if (first.experts > 0) shape = {first.experts, size / first.experts};
    pieces_.push_back({.name = name + ".bias", .shape = std::move(shape), .slots = std::move(parts), .bias = true});
  }

  void add_latent(const Slot& keys, const Slot& values) {
    pieces_.push_back({.name = fmt::format("blk.{}.attn_kv_b.weight", keys.layer),
                       .type = type_of(values),
                       .shape = {keys.experts * (keys.cols + values.rows), values.cols},
                       .slots = {keys, values},
                       .latent = true});
  }

  // Some of llama.cpp's loaders insist on a head even where it is the table.
  void add_duplicate_head(const Slot& table) {
    static constexpr std::string_view kNeedHead[] = {"gptneox", "phi2", "olmo2", "stablelm", "nemotron"};
    const bool scaled = layout_.name == "falcon-h1" && source_.spec().embed_scale != source_.spec().logit_scale;
    if (!source_.spec().tied) return;
    if (!scaled && std::find(std::begin(kNeedHead), std::end(kNeedHead), layout_.name) == std::end(kNeedHead)) return;
    Piece head = {.name = "output.weight", .type = type_of(table), .shape = {table.rows, table.cols}, .slots = {table}};
    pieces_.push_back(std::move(head));
  }

  // Rotary factors lie beside the weights: of longrope both sets, of anything no key can say the quotient. A GGUF file
  // has them already.
  Result<void> add_rope_tensors() {
    auto add = [&](std::string name, std::vector<float> numbers) {
      const auto size = static_cast<int64_t>(numbers.size());
      pieces_.push_back({.name = std::move(name), .shape = {size}, .numbers = std::move(numbers)});
    };
    if (source_.checkpoint().kind() == Checkpoint::Kind::gguf) {
      for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight", "rope_freqs.weight"}) {
        const StoredTensor* tensor = source_.checkpoint().find(name);
        if (tensor == nullptr) continue;
        TRY(std::vector<float> numbers, read_floats(*tensor));
        add(name, std::move(numbers));
      }
      return {};
    }
    for (const RopeSpec& rope : source_.spec().ropes) {
      const RopeOrigin& origin = rope.origin;
      if (origin.type == "longrope") {
        add("rope_factors_long.weight", origin.long_factors);
        add("rope_factors_short.weight", origin.short_factors);
        return {};
      }
      if (origin.type == "llama3" || origin.type == "factors" || origin.type == "proportional" ||
          (origin.type == "yarn" && !origin.truncate)) {
        std::vector<float> factors = rotary_powers(origin.theta, rope.dims);
        for (size_t i = 0; i < factors.size(); ++i)
          factors[i] = rope.frequencies[i] != 0 ? factors[i] / rope.frequencies[i] : 1e30f;
        add("rope_freqs.weight", std::move(factors));
        return {};
      }
    }
    return {};
  }

  // ---- their bytes -------------------------------------------------------------------------------------------------
  Result<void> write(const Piece& piece) {
    if (!piece.numbers.empty()) return write_floats(piece.numbers);
    if (piece.latent) return write_latent(piece);
    if (piece.woven > 0) return write_woven(piece);
    for (const Slot& slot : piece.slots) {
      if (piece.bias) {
        TRY(std::vector<float> bias, source_.bias(slot));
        if (slot.kind == SlotKind::matrix && slot.heads > 0 && layout_.permuted) bias = permuted(bias, slot);
        const std::vector<float> factors = factors_of(slot, piece);
        for (size_t i = 0; i < factors.size() && i < bias.size(); ++i) bias[i] *= factors[i];
        TRY_VOID(write_floats(bias));
      } else if (slot.kind == SlotKind::norm) {
        TRY(const std::vector<float> weight, source_.norm_weight(slot));
        TRY_VOID(write_floats(weight));
      } else if (slot.kind == SlotKind::vector) {
        TRY(const std::vector<float> numbers, source_.vector(slot));
        TRY_VOID(write_floats(in_order(numbers, striped_order(source_.spec(), slot, layout_.name, false))));
      } else {
        const std::vector<float> factors = factors_of(slot, piece);
        for (int64_t expert = 0; expert < slot.matrices(); ++expert)
          TRY_VOID(write_matrix(slot, expert, piece.type, factors, 0, slot.rows));
      }
    }
    return {};
  }

  Result<void> write_woven(const Piece& piece) {
    for (int64_t part = 0; part < piece.woven; ++part) {
      for (const Slot& slot : piece.slots) {
        const int64_t each = slot.rows / piece.woven;
        TRY_VOID(write_matrix(slot, 0, piece.type, {}, part * each, each));
      }
    }
    return {};
  }

  std::vector<float> factors_of(const Slot& slot, const Piece& piece) const {
    const std::string_view tensor = piece.name;
    return folded_factors(source_.spec(), slot, layout_.name, tensor.substr(0, tensor.rfind('.')));
  }

  Result<void> write_latent(const Piece& piece) {
    const Slot &keys = piece.slots[0], &values = piece.slots[1];
    const int64_t cols = values.cols;
    std::vector<float> turned(static_cast<size_t>(keys.rows * keys.cols));
    std::vector<float> rows(static_cast<size_t>((keys.cols + values.rows) * cols));
    std::vector<std::byte> out(static_cast<size_t>(bytes_of(piece.type, static_cast<int64_t>(rows.size()))));
    for (int64_t head = 0; head < keys.experts; ++head) {
      TRY(const HostMatrix key, source_.matrix(keys, head, room_));
      format(key.type).to_float(key.bytes.data(), turned.data(), keys.rows * keys.cols);
      for (int64_t r = 0; r < keys.cols; ++r) {
        for (int64_t c = 0; c < cols; ++c)
          rows[static_cast<size_t>(r * cols + c)] = turned[static_cast<size_t>(c * keys.cols + r)];
      }
      TRY(const HostMatrix value, source_.matrix(values, head, room_));
      format(value.type).to_float(value.bytes.data(), &rows[static_cast<size_t>(keys.cols * cols)], values.rows * cols);
      format(piece.type).from_float(rows.data(), out.data(), static_cast<int64_t>(rows.size()));
      TRY_VOID(writer_.write(out));
    }
    return {};
  }

  Result<void> write_floats(const std::vector<float>& numbers) {
    return writer_.write(std::as_bytes(std::span(numbers)));
  }

  // The row of the model that is row r of the file: pairs that turn together become neighbours.
  int64_t model_row(const Slot& slot, int64_t r) const {
    if (!layout_.permuted || slot.heads == 0) return r;
    const int64_t dim = slot.rows / slot.heads, within = r % dim;
    return r - within + (within % 2) * (dim / 2) + within / 2;
  }

  std::vector<float> permuted(const std::vector<float>& values, const Slot& slot) const {
    std::vector<float> out(values.size());
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = values[static_cast<size_t>(model_row(slot, static_cast<int64_t>(i)))];
    return out;
  }

  static std::vector<float> in_order(std::span<const float> numbers, const std::vector<int64_t>& order) {
    std::vector<float> out(numbers.begin(), numbers.end());
    for (size_t i = 0; i < order.size(); ++i) out[i] = numbers[static_cast<size_t>(order[i])];
    return out;
  }

  // Columns in another order: whole groups are moved as they are where the order keeps them together.
  static HostMatrix reordered(const HostMatrix& part, const std::vector<int64_t>& order, std::vector<std::byte>& room) {
    const Format& stored = format(part.type);
    const auto group = static_cast<size_t>(stored.group), bytes = static_cast<size_t>(stored.group_bytes);
    bool whole = true;
    for (size_t i = 0; i < order.size(); ++i) {
      const auto start = static_cast<size_t>(order[i - i % group]);
      whole = whole && start % group == 0 && static_cast<size_t>(order[i]) == start + i % group;
    }
    if (!whole) {
      std::vector<std::byte> wide(static_cast<size_t>(bytes_of(DType::f32, part.rows * part.cols)));
      stored.to_float(part.bytes.data(), reinterpret_cast<float*>(wide.data()), part.rows * part.cols);
      return reordered({DType::f32, part.rows, part.cols, wide}, order, room);
    }
    room.resize(part.bytes.size());
    const size_t groups = order.size() / group;
    for (size_t r = 0; r < static_cast<size_t>(part.rows); ++r) {
      for (size_t g = 0; g < groups; ++g) {
        const size_t from = static_cast<size_t>(order[g * group]) / group;
        std::memcpy(&room[(r * groups + g) * bytes], &part.bytes[(r * groups + from) * bytes], bytes);
      }
    }
    return {part.type, part.rows, part.cols, room};
  }

  // Rows times their factors.
  static std::vector<float> scaled(const HostMatrix& part, std::span<const float> factors) {
    std::vector<float> all(static_cast<size_t>(part.rows * part.cols));
    format(part.type).to_float(part.bytes.data(), all.data(), part.rows * part.cols);
    for (int64_t i = 0; i < part.rows * part.cols; ++i)
      all[static_cast<size_t>(i)] *= factors[static_cast<size_t>(i / part.cols)];
    return all;
  }

  // Rows [begin, begin + rows) of the file's.
  Result<void> write_matrix(const Slot& slot, int64_t expert, DType type, const std::vector<float>& factors,
                            int64_t begin, int64_t rows) {
    TRY(HostMatrix matrix, source_.matrix(slot, expert, room_));
    const auto row_in = static_cast<size_t>(bytes_of(matrix.type, slot.cols)),
               row_out = static_cast<size_t>(bytes_of(type, slot.cols));
    const std::vector<int64_t> order = striped_order(source_.spec(), slot, layout_.name, false),
                               columns = striped_order(source_.spec(), slot, layout_.name, true);
    std::span<const float> importance =
        options_.importance ? options_.importance(slot, expert) : std::span<const float>();
    std::vector<float> important;
    if (!importance.empty() && !columns.empty()) importance = important = in_order(importance, columns);
    // As many rows at a time as give every worker some and stay within a few megabytes.
    const int64_t chunk = std::clamp<int64_t>((int64_t{4} << 20) / slot.cols, 1, slot.rows);
    std::vector<std::byte> out(static_cast<size_t>(chunk) * row_out), in(static_cast<size_t>(chunk) * row_in);
    auto row_of = [&](int64_t r) { return order.empty() ? model_row(slot, r) : order[static_cast<size_t>(r)]; };
    for (int64_t first = begin; first < begin + rows; first += chunk) {
      const int64_t count = std::min(chunk, begin + rows - first);
      for (int64_t r = 0; r < count; ++r) {
        std::memcpy(&in[static_cast<size_t>(r) * row_in],
                    &matrix.bytes[static_cast<size_t>(row_of(first + r)) * row_in], row_in);
      }
      const auto whole = std::span(out).first(static_cast<size_t>(count) * row_out);
      HostMatrix part = {matrix.type, count, slot.cols, std::span(in).first(static_cast<size_t>(count) * row_in)};
      std::vector<std::byte> turned;
      if (!columns.empty()) part = reordered(part, columns, turned);
      std::vector<float> numbers;
      if (!factors.empty()) {  // rows of such architectures are in the model's order
        numbers = scaled(part, std::span(factors).subspan(static_cast<size_t>(first), static_cast<size_t>(count)));
        part = {DType::f32, count, slot.cols, std::as_bytes(std::span(numbers))};
      }
      quantise_rows(team_, part, type, importance, whole);
      TRY_VOID(writer_.write(whole));
    }
    return {};
  }

  const ModelSource& source_;
  const ConvertOptions& options_;
  const GgufLayout& layout_;
  Team team_;
  GgufWriter writer_;
  std::vector<Piece> pieces_;
  std::vector<std::byte> room_;
  uint64_t done_ = 0;
};

}  // namespace

Result<FileType> FileType::parse(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::vector<std::string_view> known;
  for (const NamedType& each : kTypes) {
    if (each.name == upper) return each.type;
    known.push_back(each.name);
  }
  return error(Code::invalid, "'{}' is not a type a file can be converted to; expected one of {}", name,
               fmt::join(known, ", "));
}

std::string file_tensor(const ModelSource& source, const Slot& slot) {
  const GgufLayout& layout = source.architecture().gguf;
  std::string name = file_name(layout, slot, true).name;
  const auto is = [&](std::string_view stem) { return slot.name.ends_with(stem); };
  if (layout.fused_qkv && (is(".attn_q") || is(".attn_k") || is(".attn_v")))
    name = fmt::format("blk.{}.attn_qkv", slot.layer);
  if (layout.fused_ffn && is(".ffn_gate")) name = fmt::format("blk.{}.ffn_up", slot.layer);
  // Beside the queries: attention's gate, or keys and values.
  for (const std::string_view beside : {".attn_q", ".attn_gate", ".attn_k", ".attn_v"}) {
    if (!is(beside) || slot.layer < 0) continue;
    Slot q = slot;
    q.name = fmt::format("blk.{}.attn_q", slot.layer);
    const Woven woven = woven_slots(source.spec(), q, layout.name);
    if (woven.slots == (is(".attn_gate") ? size_t{2} : size_t{3}))
      name = fmt::format("blk.{}.{}", slot.layer, woven.name);
  }
  return name + ".weight";
}

void quantise_rows(Team& team, const HostMatrix& matrix, DType type, std::span<const float> importance,
                   std::span<std::byte> out) {
  const Format &from = format(matrix.type), &to = format(type);
  const auto row_in = static_cast<size_t>(bytes_of(matrix.type, matrix.cols)),
             row_out = static_cast<size_t>(bytes_of(type, matrix.cols));
  FromImportant* weighed = importance.empty() ? nullptr : from_important(type);
  std::vector<std::vector<float>> numbers(static_cast<size_t>(team.workers()),
                                          std::vector<float>(static_cast<size_t>(matrix.cols)));
  team.each(matrix.rows, [&](int64_t task, int worker) {
    const std::byte* in = &matrix.bytes[static_cast<size_t>(task) * row_in];
    std::byte* place = &out[static_cast<size_t>(task) * row_out];
    if (matrix.type == type) {
      std::memcpy(place, in, row_out);
      return;
    }
    std::vector<float>& row = numbers[static_cast<size_t>(worker)];
    from.to_float(in, row.data(), matrix.cols);
    if (weighed != nullptr) {
      weighed(row.data(), importance.data(), place, matrix.cols);
    } else {
      to.from_float(row.data(), place, matrix.cols);
    }
  });
}

DType stored_type(const ModelSpec& spec, const Slot& slot, const FileType& type) {
  if (slot.kind != SlotKind::matrix || slot.float32 || slot.name == "position_embd" || slot.name == "token_types")
    return DType::f32;
  DType chosen = type.type;
  const bool is_head = slot.name == "output" || (slot.name == "token_embd" && spec.tied);
  if (!is_plain(chosen) && chosen != DType::q8_0) {
    if (is_head) chosen = DType::q6_k;
    const bool sensitive =
        slot.name.ends_with(".attn_v") || slot.name.ends_with(".ffn_down") || slot.name.ends_with(".ffn_down_exps");
    if (type.mixed && sensitive && keeps_more(spec, slot)) chosen = DType::q6_k;
  }
  return fitting(chosen, slot.cols);
}

Result<ConvertReport> convert(const ModelSource& source, const std::filesystem::path& target,
                              const ConvertOptions& options) {
  TRY_VOID(check_sayable(source));
  return Converter(source, options).run(target);
}

}  // namespace millrace
