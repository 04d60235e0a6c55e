#include <algorithm>
#include <numeric>

#include "apps/cli/model_path.h"
#include "apps/cli/terminal.h"
#include "apps/cli/verbs.h"
#include "apps/embed/flags.h"
#include "apps/run/flags.h"
#include "base/json.h"

namespace millrace::apps {
namespace {

Result<int> run_rerank(const Arguments& arguments) {
  const Terminal& terminal = arguments.terminal();
  TRY(LoadedEmbedder loaded, load_embedder(arguments, "", true));
  Embedder& embedder = *loaded.embedder;
  TRY(const std::vector<std::string> documents, texts_of(arguments, "document"));
  if (documents.empty()) return error(Code::invalid, "there is no document to rank");
  const std::string query = arguments.text("query"), instruction = arguments.text("instruct");
  std::vector<std::vector<EncodeInput>> pairs;
  for (size_t i = 0; i < documents.size(); ++i) {
    auto pair = embedder.pair(query, documents[i], arguments.toggle("truncate"), instruction);
    if (!pair.ok()) return within(fmt::format("document {}", i + 1), std::move(pair).error());
    pairs.push_back(std::move(*pair));
  }
  TRY(const std::vector<float> scores, embedder.scores(pairs));
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  if (const auto most = static_cast<size_t>(arguments.integer("top-n")); most > 0 && order.size() > most)
    order.resize(most);
  if (!arguments.toggle("json")) {
    for (size_t i : order) terminal.print("{:.6f}  {:>4}  {}\n", scores[i], i, printable(documents[i]));
    terminal.note("{}, scored by {}", counted(static_cast<int64_t>(documents.size()), "document"),
                  scoring_name(embedder.scoring()));
    return kExitOk;
  }
  JsonArray results;
  for (size_t i : order) results.push_back(JsonObject{{"index", i}, {"relevance_score", scores[i]}});
  terminal.print("{}\n", to_text(JsonObject{{"model", valid_utf8(loaded.model->checkpoint().path().string())},
                                            {"scoring", scoring_name(embedder.scoring())},
                                            {"results", std::move(results)}}));
  return kExitOk;
}

}  // namespace

Verb rerank_verb() {
  return {.name = "rerank",
          .summary = "order documents by how well they answer a query",
          .group = "Use a model",
          .flags = joined({{model_flag(),
                            {.name = "query",
                             .alias = "-q",
                             .kind = Kind::text,
                             .value = "TEXT",
                             .required = true,
                             .help = "what is asked"},
                            {.name = "document",
                             .alias = "-p -d",
                             .kind = Kind::text,
                             .value = "TEXT",
                             .many = Many::repeated,
                             .help = "a document; may be given several times"},
                            {.name = "file",
                             .alias = "-f",
                             .kind = Kind::path,
                             .value = "FILE",
                             .help = "a document a line, or with the ending .jsonl a JSON string a line"},
                            {.name = "top-n",
                             .kind = Kind::integer,
                             .value = "N",
                             .otherwise = "0",
                             .least = 0,
                             .most = 1 << 30,
                             .help = "only the best N; 0: all"},
                            {.name = "instruct",
                             .kind = Kind::text,
                             .value = "TEXT",
                             .otherwise = Embedder::kInstruction,
                             .help = "for models that answer yes or no: what they are told to judge by"}},
                           encoder_flags()}),
          .examples = {{"rerank -m ./bge-reranker -q 'capital of France' -d 'Paris.' -d 'Berlin.'", "the best first"},
                       {"rerank -m ./Qwen3-Reranker-0.6B -q 'opening hours' -f pages.txt --top-n 3 --json",
                        "for a script"}},
          .notes =
              "A classifier with one label gives the sigmoid of its logit; a model that writes is asked as "
              "Qwen3-Reranker is and gives the share of yes against no; any other the cosine of both vectors.",
          .run = run_rerank};
}

}  // namespace millrace::apps
