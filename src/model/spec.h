// ModelSpec: an architecture as data. describe() of an architecture (model/archs) fills it from a model's
// configuration; slots(), loading, forward(), trace and planning read it. Code exists once per kind of mixer and ffn,
// never per model: if a new model needs a branch, it is a field here. Plain values, checked by check_spec() before
// anything is allocated.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "backend/ops.h"
#include "base/result.h"

namespace millrace {

struct NormSpec {
  NormKind kind = NormKind::rms;
  float epsilon = 1e-5f;
  bool weight = true;  // has a weight (OLMo 1 has none)
  bool bias = false;
};

// Where rotary frequencies came from, for those who write them down again (convert, inspect); forward() never asks.
struct RopeOrigin {
  double theta = 10000;
  std::string type = "default";  // linear, yarn, longrope, llama3, factors, proportional
  double factor = 1;
  int32_t original_context = 0;
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  double mscale_all = 0;  // of YaRN; scores of latent attention are scaled by what follows from it
  std::vector<float> long_factors, short_factors;

  friend bool operator==(const RopeOrigin&, const RopeOrigin&) = default;
};

// A set of rotary frequencies; layers name one by its index in ModelSpec::ropes.
struct RopeSpec {
  int32_t dims = 0;
  bool neighbours = false;
  float magnitude = 1;
  std::vector<float> frequencies;  // [dims / 2], every scaling applied
  RopeOrigin origin;

  friend bool operator==(const RopeSpec&, const RopeSpec&) = default;
};

// Attention over keys and values of heads. MHA: kv_heads == heads; MQA: kv_heads == 1.
struct GqaSpec {
  int32_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;
  int32_t window = 0;        // 0: sees everything
  int32_t kept = 0;          // with a window: first positions that are seen too (KvKeep)
  int32_t grid = 0;          // sees from the last multiple of it on; 0: everything
  PositionScale q_scale;     // of queries
  float softcap = 0;         // 0: off
  bool causal = true;        // false: sees tokens after it too (encoders, diffusion)
  int32_t ahead = 0;         // if not causal: so many of them; 0: all
  std::vector<float> alibi;  // the slope of each head, empty: none
  bool sinks = false;        // a learned score of each head that takes part in the softmax and has no value
  int32_t rope = -1;         // index in ModelSpec::ropes, -1: no rotation
  std::optional<NormSpec> qk_norm;
  bool qk_norm_per_head = true;
  bool qk_norm_whole_weight = false;  // a weight of its own for every head (StableLM)
  bool qk_norm_after_rope = false;
  std::optional<NormSpec> out_norm;  // before the output product (BitNet)
  std::optional<NormSpec> v_norm;    // of each head's values
  bool k_eq_v = false;               // values are the keys before their norm and rotation (Gemma 4)
  float clip = 0;
  bool qkv_bias = false, out_bias = false;
  bool gated = false;    // what comes out of attention is multiplied by a sigmoid of the input's own (Qwen3-Next)
  float out_scale = 1;   // of the result (Falcon H1)
  int32_t kv_from = -1;  // reads keys and values of that earlier layer, has none of its own
};

// Multi-head latent attention: keys and values are stored as one latent vector and a shared rotary part.
struct MlaSpec {
  int32_t heads = 0;
  int32_t q_rank = 0;  // 0: q straight from the input
  int32_t kv_rank = 0;
  int32_t nope_dim = 0, rope_dim = 0, v_dim = 0;
  float scale = 0;
  int32_t rope = -1;
  NormSpec norm;  // of both latents
};

// No mixer: the layer is a feed-forward part alone.
struct NoMixer {};

// Mamba: a short convolution, then a scan whose steps depend on the token. Mamba 1 (rank > 0) gives every channel steps
// of its own, Mamba 2 every head.
struct SsmSpec {
  int32_t inner = 0, state = 0, conv = 0;  // channels, numbers a channel keeps, taps
  int32_t heads = 0, groups = 1;           // Mamba 2: heads, and groups of them that share B and C
  int32_t rank = 0;                        // Mamba 1: of the product that gives the steps
  std::optional<NormSpec> part_norm;       // Mamba 1: of steps, B and C (Jamba, Falcon Mamba)
  std::optional<NormSpec> norm;            // Mamba 2: of what the scan gives
  int32_t norm_groups = 1;
  bool norm_before_gate = false;
  bool conv_bias = true, bias = false;                 // bias: of the products in and out
  float least_step = 0, most_step = 0;                 // most 0: no limit
  std::array<float, 5> part_scales = {1, 1, 1, 1, 1};  // of gate, x, B, C, steps (Falcon H1)
  float out_scale = 1;
};

// The gated delta rule (Qwen 3.5, Qwen3-Next): a state is corrected by what it would have answered.
struct DeltaSpec {
  int32_t k_heads = 0, v_heads = 0, k_dim = 0, v_dim = 0, conv = 0;
  NormSpec norm;         // of each head's result
  bool striped = false;  // value head h has the keys of head h % k_heads; otherwise neighbours share them
};

// Linear attention that forgets at a fixed rate (MiniMax).
struct DecaySpec {
  int32_t heads = 0, head_dim = 0;
  std::vector<float> rates;  // of each head, not positive
  Activation activation = Activation::silu;
  NormSpec norm;
};

// A gated short convolution and nothing else (LFM2).
struct ShortConvSpec {
  int32_t width = 0, conv = 0;
  bool bias = false;
};

// A gated linear recurrence of channels (RecurrentGemma).
struct LruSpec {
  int32_t inner = 0, heads = 0, conv = 0;
  Activation activation = Activation::gelu_tanh;
};

// RWKV 4: its halves both mix a token with the one before it, and both are mixers here.
struct TimeMixSpec {
  int32_t width = 0, inner = 0;
};
struct ChannelMixSpec {
  int32_t width = 0, inner = 0;
};

// Hyena in its modal form (StripedHyena): a short convolution, then a long one that is a sum of decaying modes, between
// two gates.
struct HyenaSpec {
  int32_t width = 0, modes = 0, conv = 0;
  int32_t heads = 1;      // gates and values lie head by head in the product's columns
  bool conv_bias = true;  // of the short convolution
};

using MixerSpec = std::variant<GqaSpec, MlaSpec, SsmSpec, DeltaSpec, DecaySpec, ShortConvSpec, LruSpec, TimeMixSpec,
                               ChannelMixSpec, HyenaSpec, NoMixer>;

struct DenseSpec {
  int32_t width = 0;
  Activation activation = Activation::silu;
  bool gated = true;
  bool up_bias = false, down_bias = false;  // up_bias covers the gate too
  std::optional<NormSpec> inner_norm;       // before the down product (BitNet)
  float gate_scale = 1, out_scale = 1;      // before the activation, and of the result (Falcon H1)
  float sparsity = 0;  // only what exceeds the gate's mean by so many standard deviations goes on; 0: all (Gemma 3n)
};

// How a mixture chooses experts and weighs them: backend/routing.h says what each of these means.
struct RouterSpec {
  RouterScore score = RouterScore::softmax;
  bool bias = false;         // of the router's product
  bool choice_bias = false;  // added to scores where experts are chosen
  int32_t groups = 1, chosen_groups = 1;
  GroupScore group_score = GroupScore::most;
  bool normalise = false;
  float epsilon = 0;
  float scale = 1;
  bool expert_scale = false;
  float jitter = 0;
  bool on_input = false;  // weights multiply what an expert reads instead of what it gives (Llama 4)
  float logit_scale = 1;  // of the router's product
};

struct MoeSpec {
  int32_t experts = 0, chosen = 0;
  int32_t width = 0;         // of one expert
  int32_t shared_width = 0;  // of the experts every token passes, 0: none
  Activation activation = Activation::silu;
  bool gated = true;  // false: an expert is one product, the activation and another product (Nemotron-H)
  RouterSpec router;
  bool bias = false;         // every product of the experts has one
  bool shared_gate = false;  // what the shared experts give is multiplied by a sigmoid of the input's own
  GluLimit limit;
};

// A dense network and a mixture side by side (Gemma 4). Both and the router read the stream itself, each through a norm
// of its own, and what each of the two gives is normed before they are added.
struct TwofoldSpec {
  DenseSpec dense;
  MoeSpec moe;
  NormSpec norm;
};

// No feed-forward part: the layer is a mixer alone.
struct NoFfn {};

using FfnSpec = std::variant<DenseSpec, MoeSpec, TwofoldSpec, NoFfn>;

// Attention and a feed-forward part that several layers share (Zamba 2). They read the stream beside the embedded
// tokens; what they give goes through a product of the layer's own and is added to what the layer's norm reads.
struct SharedSpec {
  GqaSpec gqa;  // of rows twice as wide as the model
  DenseSpec ffn;
  NormSpec norm;
  int32_t from = -1;  // the layer that has the weights; -1: this one
  int32_t use = 0;    // which of the uses it is: each changes the feed-forward part by a product of low rank
  int32_t rank = 0;
};

struct LayerSpec {
  MixerSpec mixer;
  FfnSpec ffn;
  std::optional<MixerSpec> beside;  // a second mixer that reads what the first reads; their results are added
  std::optional<SharedSpec> shared;
  // Where a file's layer is two of ours: its number there, and whether this is the second. -1: our own number.
  int32_t number = -1;
  bool second = false;
  // Each norm may be absent: pre-norm, post-norm (OLMo 2), sandwich (Gemma 2) are choices of these four.
  std::optional<NormSpec> mixer_norm, mixer_post_norm, ffn_norm, ffn_post_norm;
  // The norms change the stream itself, instead of a copy of it: x = norm(x) before, x = norm(x + y) after (OPT 350M,
  // BLOOM).
  bool stream_norms = false;
  bool parallel = false;     // x + mixer(norm(x)) + ffn(norm(x)): both read the layer's input
  bool shared_norm = false;  // parallel, and the ffn reads the mixer's normed input (no ffn_norm of its own)
  float residual_scale = 1;
  float mixer_keep = 1, ffn_keep = 1;  // the stream is multiplied by these before a half's result is added (MiniMax)
  int32_t laurel = 0;   // rank of a second path beside the mixer: x + norm(right(left(x))); 0: none (Gemma 3n)
  bool scaled = false;  // the stream is multiplied by a learned number at the layer's end (Gemma 4)
};

// An input of each layer's own, looked up by token and added to at the layer's end (Gemma 3n, 4).
struct LayerInputSpec {
  int32_t width = 0;
  int32_t vocab = 0;  // rows of the table; tokens beyond it have the first row's
  Activation activation = Activation::gelu_tanh;
  NormSpec norm;
};

// Several residual streams: a layer predicts all of them, changes one, and corrects the others by what that showed
// (AltUp in Gemma 3n).
struct StreamsSpec {
  int32_t count = 0, active = 0;
  bool scaled = false;  // what is corrected has a learned factor for each column before the layer's own input is added
  NormSpec norm;
};

// What is multiplied with once the rows of a text are one: a layer of a classifier, or sentence-transformers' Dense.
struct ProjectionSpec {
  int32_t outputs = 0;
  bool bias = true;
  bool tanh = false;
  std::optional<Activation> activation;
  std::optional<NormSpec> norm;  // after the activation
  std::string file;              // what the tensor is called in files, where the model's file says so
};

// How a text becomes one vector, or a few scores.
struct PoolSpec {
  Pooling pooling = Pooling::mean;
  std::vector<ProjectionSpec> projections;
  bool scores = false;     // what comes out are a classifier's logits, one for each label
  bool normalised = true;  // vectors are brought to length 1; whoever hands them out does it
};

// How a model writes that fills masks instead of going on after the last token.
struct FillSpec {
  int32_t mask = -1;     // the token that stands for one that is not known; -1: the files name none
  bool shifted = false;  // logits of a position are of the token after it (Dream)
};

// A cache that forgets, asked for by whoever runs a model: no file says it (model/kv_keep.h).
struct KvKeep {
  int32_t sinks = 0;                 // first tokens that stay
  int32_t window = 0;                // last tokens that stay; 0: all do
  std::vector<int32_t> layers = {};  // those that forget, rising; none named: all

  explicit operator bool() const { return window > 0; }
  bool bounded() const { return window > 0 && layers.empty(); }  // a sequence has a fixed size, whatever its length
  std::string name() const;  // "sinks:4,window:4096,layers:1-3+7"; empty if nothing is forgotten
  friend bool operator==(const KvKeep&, const KvKeep&) = default;
};

struct ModelSpec {
  std::string architecture;  // our name of it
  int32_t vocab = 0, width = 0, context = 0;
  std::vector<LayerSpec> layers;
  std::vector<RopeSpec> ropes;

  float embed_scale = 1;
  std::optional<NormSpec> embed_norm;  // BLOOM
  int32_t embed_width = 0;             // of the table if it differs from width (OPT 350M projects in and out); 0: width
  int32_t positions = 0;               // rows of a learned position table, 0: none
  int32_t position_offset = 0;         // OPT counts from 2
  int32_t token_types = 0;             // rows of a table that tells texts of a pair apart (BERT), 0: none
  std::optional<LayerInputSpec> layer_input;
  std::optional<StreamsSpec> streams;
  std::optional<NormSpec> final_norm;
  std::optional<PoolSpec> pool;  // how texts become vectors, where the files say so
  bool head = true;              // false: it gives no logits of tokens (encoders)
  bool tied = false;             // the head is the embedding table
  bool head_bias = false;
  float logit_scale = 1;
  float logit_softcap = 0;
  FillSpec fill;  // of models whose tokens see those after them
  KvKeep keep;    // what became of the layers' windows

  int32_t head_width() const { return embed_width > 0 ? embed_width : width; }  // of the rows of table and head
};

// Tokens see those after them: a text is computed whole, and nothing of it can be kept for a longer one.
bool sees_ahead(const ModelSpec& spec);

// It writes by filling masks: it has a head, and tokens see those after them.
bool fills_masks(const ModelSpec& spec);

// Whether backends can compute it. What they cannot (latent attention, experts) can be traced and planned.
Result<void> check_runnable(const ModelSpec& spec);

// Every size positive and in range, heads divide, rotary dimensions even and within a head, parameters countable. The
// error names what is wrong and what was found; nothing after it checks again.
Result<void> check_spec(const ModelSpec& spec);

}  // namespace millrace
