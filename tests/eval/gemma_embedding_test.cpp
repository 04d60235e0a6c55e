// EmbeddingGemma by its published layout, against its formulas written plainly in float64: Gemma 3 whose tokens see
// both sides, half a window each in most layers; the mean of the rows, two products, length one.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "engine/encoder.h"
#include "model/edit.h"

namespace millrace {
namespace {

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

constexpr int kWidth = 64, kHeads = 4, kKvHeads = 2, kDim = 32, kLayers = 7, kWindow = 16, kMiddle = 96;

class Formulas {
 public:
  explicit Formulas(const Checkpoint& file) : file_(file) {}

  // Rows after the last norm.
  Matrix rows(const std::vector<Token>& tokens) const {
    const Matrix table = matrix("model.embed_tokens.weight");
    Matrix x;
    for (const Token token : tokens) {
      x.push_back(table[static_cast<size_t>(token)]);
      for (double& each : x.back()) each *= std::sqrt(static_cast<double>(kWidth));
    }
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::string at = fmt::format("model.layers.{}.", layer);
      add(x, normed(attended(normed(x, at + "input_layernorm"), at, layer == 5), at + "post_attention_layernorm"));
      add(x, normed(fed(normed(x, at + "pre_feedforward_layernorm"), at), at + "post_feedforward_layernorm"));
    }
    return normed(x, "model.norm");
  }

  static Vector times(const Matrix& m, const Vector& x) {
    Vector out;
    for (const Vector& row : m) {
      double sum = 0;
      for (size_t i = 0; i < x.size(); ++i) sum += row[i] * x[i];
      out.push_back(sum);
    }
    return out;
  }

 private:
  Matrix matrix(const std::string& name) const {
    const StoredTensor* tensor = file_.find(name);
    EXPECT_NE(tensor, nullptr) << name;
    const std::vector<float> numbers = *read_floats(*tensor);
    const auto cols = static_cast<size_t>(tensor->shape.back());
    Matrix out;
    for (size_t i = 0; i < numbers.size(); i += cols)
      out.emplace_back(numbers.begin() + static_cast<ptrdiff_t>(i), numbers.begin() + static_cast<ptrdiff_t>(i + cols));
    return out;
  }
  static void add(Matrix& x, const Matrix& y) {
    for (size_t r = 0; r < x.size(); ++r)
      for (size_t i = 0; i < x[r].size(); ++i) x[r][i] += y[r][i];
  }
  static void norm(double* x, const Vector& weight) {
    double squares = 0;
    for (size_t i = 0; i < weight.size(); ++i) squares += x[i] * x[i];
    const double factor = 1 / std::sqrt(squares / static_cast<double>(weight.size()) + 1e-6);
    for (size_t i = 0; i < weight.size(); ++i) x[i] *= factor * (1 + weight[i]);
  }
  Matrix normed(Matrix x, const std::string& name) const {
    const Vector weight = matrix(name + ".weight").front();
    for (Vector& row : x) norm(row.data(), weight);
    return x;
  }
  // Heads of queries or keys, normed and turned.
  Matrix turned(const Matrix& x, const std::string& name, const std::string& norm_name, int heads, double theta) const {
    const Matrix weight = matrix(name);
    const Vector of_head = matrix(norm_name).front();
    Matrix out;
    for (size_t p = 0; p < x.size(); ++p) {
      Vector row = times(weight, x[p]);
      for (int head = 0; head < heads; ++head) {
        double* own = row.data() + head * kDim;
        norm(own, of_head);
        for (int i = 0; i < kDim / 2; ++i) {
          const double angle = static_cast<double>(p) * std::pow(theta, -2.0 * i / kDim);
          const double a = own[i], b = own[i + kDim / 2];
          own[i] = a * std::cos(angle) - b * std::sin(angle);
          own[i + kDim / 2] = b * std::cos(angle) + a * std::sin(angle);
        }
      }
      out.push_back(std::move(row));
    }
    return out;
  }
  Matrix attended(const Matrix& x, const std::string& at, bool everything) const {
    const double theta = everything ? 1e6 : 1e4;
    const std::string own = at + "self_attn.";
    const Matrix q = turned(x, own + "q_proj.weight", own + "q_norm.weight", kHeads, theta);
    const Matrix k = turned(x, own + "k_proj.weight", own + "k_norm.weight", kKvHeads, theta);
    const Matrix wv = matrix(own + "v_proj.weight"), wo = matrix(own + "o_proj.weight");
    Matrix v, out;
    for (const Vector& row : x) v.push_back(times(wv, row));
    for (size_t p = 0; p < x.size(); ++p) {
      Vector mixed(kHeads * kDim);
      for (int head = 0; head < kHeads; ++head) {
        const int kv = head / (kHeads / kKvHeads) * kDim;
        Vector share(x.size());
        double all = 0;
        for (size_t j = 0; j < x.size(); ++j) {
          const auto apart = std::abs(static_cast<int>(p) - static_cast<int>(j));
          if (!everything && apart > kWindow / 2) continue;
          double score = 0;
          for (int i = 0; i < kDim; ++i)
            score += q[p][static_cast<size_t>(head * kDim + i)] * k[j][static_cast<size_t>(kv + i)];
          share[j] = std::exp(score / std::sqrt(32.0));  // query_pre_attn_scalar
          all += share[j];
        }
        for (size_t j = 0; j < x.size(); ++j)
          for (int i = 0; i < kDim; ++i)
            mixed[static_cast<size_t>(head * kDim + i)] += share[j] / all * v[j][static_cast<size_t>(kv + i)];
      }
      out.push_back(times(wo, mixed));
    }
    return out;
  }
  Matrix fed(const Matrix& x, const std::string& at) const {
    const Matrix gate = matrix(at + "mlp.gate_proj.weight"), up = matrix(at + "mlp.up_proj.weight"),
                 down = matrix(at + "mlp.down_proj.weight");
    Matrix out;
    for (const Vector& row : x) {
      Vector g = times(gate, row);
      const Vector u = times(up, row);
      for (size_t i = 0; i < g.size(); ++i) {
        const double bend = std::tanh(std::sqrt(2 / M_PI) * (g[i] + 0.044715 * g[i] * g[i] * g[i]));
        g[i] = 0.5 * g[i] * (1 + bend) * u[i];
      }
      out.push_back(times(down, g));
    }
    return out;
  }

  const Checkpoint& file_;
};

// A product without a bias, as sentence-transformers stores it.
Matrix write_product(const std::filesystem::path& folder, int outs, int ins, int seed) {
  std::filesystem::create_directories(folder);
  Matrix out;
  std::string data;
  for (int r = 0; r < outs; ++r) {
    out.emplace_back();
    for (int c = 0; c < ins; ++c) {
      const auto x = static_cast<float>((r * 31 + c * 17 + seed) % 41 - 20) / 64;
      out.back().push_back(x);
      data.append(reinterpret_cast<const char*>(&x), 4);
    }
  }
  std::string header = fmt::format(R"({{"linear.weight":{{"dtype":"F32","shape":[{},{}],"data_offsets":[0,{}]}}}})",
                                   outs, ins, data.size());
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t size = header.size();
  std::ofstream(folder / "model.safetensors", std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&size), 8) << header << data;
  std::ofstream(folder / "config.json") << fmt::format(R"({{"in_features":{},"out_features":{},"bias":false,)", ins,
                                                       outs)
                                        << R"("activation_function":"torch.nn.modules.linear.Identity"})";
  return out;
}

TEST(EmbeddingGemma, GivesWhatItsFormulasSay) {
  test::Edited model("gemma3_text");
  model.config["use_bidirectional_attention"] = true;
  model.config["architectures"] = JsonArray{"Gemma3TextModel"};
  model.config["tie_word_embeddings"] = true;
  model.remove("lm_head.weight");
  ASSERT_TRUE(model.open().ok());
  const std::filesystem::path folder = model.folder();
  const Matrix first = write_product(folder / "2_Dense", kMiddle, kWidth, 3),
               second = write_product(folder / "3_Dense", kWidth, kMiddle, 11);
  std::filesystem::create_directories(folder / "1_Pooling");
  std::ofstream(folder / "1_Pooling/config.json")
      << R"({"word_embedding_dimension":64,"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":true})";
  std::string modules;
  for (const auto& [path, type] :
       {std::pair("", "Transformer"), std::pair("1_Pooling", "Pooling"), std::pair("2_Dense", "Dense"),
        std::pair("3_Dense", "Dense"), std::pair("4_Normalize", "Normalize")})
    modules += fmt::format(R"({}{{"idx":0,"name":"x","path":"{}","type":"sentence_transformers.models.{}"}})",
                           modules.empty() ? "" : ",", path, type);
  std::ofstream(folder / "modules.json") << "[" << modules << "]";

  const Checkpoint file = Checkpoint::open(folder).value();
  std::vector<std::vector<Token>> texts(3);
  for (Token i = 0; i < 40; ++i) texts[0].push_back((i * 37 + 11) % 320);
  for (Token i = 0; i < 7; ++i) texts[1].push_back((i * 53 + 5) % 320);
  texts[2] = {9};
  const Formulas formulas(file);
  for (const bool reference : {true, false}) {
    std::unique_ptr<Backend> backend =
        reference ? make_reference_backend()
                  : make_cpu_backend({.threads = 1, .activations = Activations::float32}).value();
    auto loaded = Model::load(file, *backend);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    auto encoder = Encoder::create(**loaded, *backend, {.context = 64, .kv = DType::f32});
    ASSERT_TRUE(encoder.ok()) << encoder.error().message;
    EXPECT_EQ((*encoder)->pooling(), Pooling::mean);
    for (const std::vector<Token>& text : texts) {
      const Matrix rows = formulas.rows(text);
      Vector mean(kWidth);
      for (const Vector& row : rows)
        for (size_t i = 0; i < row.size(); ++i) mean[i] += row[i] / static_cast<double>(rows.size());
      const Vector expected = Formulas::times(second, Formulas::times(first, mean));
      const std::vector<Passage> passages = {{.tokens = text}};
      const Tensor got = (*encoder)->run(passages).value();
      ASSERT_EQ(got.cols, kWidth);
      double ab = 0, aa = 0, bb = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        const double a = got.row(0)[i];
        ab += a * expected[i], aa += a * a, bb += expected[i] * expected[i];
      }
      EXPECT_GE(ab / std::sqrt(aa * bb), 0.99999) << (reference ? "reference" : "cpu") << ", " << text.size();
      EXPECT_NEAR(aa / bb, 1, 1e-3);
    }
  }
}

}  // namespace
}  // namespace millrace
