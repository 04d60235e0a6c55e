#include "apps/embed/flags.h"

#include "apps/cli/flags.h"
#include "apps/cli/input.h"
#include "apps/cli/terminal.h"
#include "apps/run/flags.h"
#include "model/pool.h"

namespace millrace::apps {

std::vector<Flag> encoder_flags() {
  return joined({{{.name = "ctx-size",
                   .alias = "-c --ctx --max-model-len",
                   .kind = Kind::integer,
                   .value = "N",
                   .otherwise = "0",
                   .least = 0,
                   .most = 1 << 20,
                   .help = "tokens of the longest text; 0: as many as the model's files say, at most 8192"},
                  {.name = "truncate", .help = "cut texts that are too long, instead of refusing them"},
                  {.name = "json", .help = "print one JSON object when done"}},
                 machine_flags()});
}

Result<LoadedEmbedder> load_embedder(const Arguments& arguments, const std::string& pooling, bool scores) {
  LoadedEmbedder out;
  EncoderOptions options;
  options.context = static_cast<int32_t>(arguments.integer("ctx-size"));
  if (!pooling.empty()) {
    TRY(options.pooling, pooling_from_name(pooling));
  }
  TRY(out.model, load_model(arguments, options.context));
  options.kv = kv_type(arguments, *out.model);
  const ModelSpec& spec = out.model->model().spec();
  const int32_t longest = options.context > 0 ? options.context : std::min(spec.context, EncoderOptions::kMostContext);
  options.rows = std::max(longest, step_rows(arguments, "ubatch-size", EncoderOptions::kUsualRows));
  TRY(out.embedder, Embedder::create(*out.model, options, scores));
  return out;
}

Result<std::vector<std::string>> texts_of(const Arguments& arguments, std::string_view flag) {
  if (arguments.given(flag) && arguments.given("file"))
    return error(Code::invalid, "give --{} or --file, not both", flag);
  if (arguments.given(flag)) return arguments.texts(flag);
  const std::string file = arguments.text("file");
  std::string text;
  if (file.empty()) {
    TRY(text, read_standard_input(fmt::format("--{} TEXT", flag)));
  } else {
    TRY(text, read_input(file));
  }
  std::vector<std::string> texts;
  if (file.ends_with(".jsonl")) {
    TRY_VOID(for_each_line(text, file, [&](const Json& line) -> Result<void> {
      if (!line.is_string()) return error(Code::invalid, "should be a JSON string");
      texts.emplace_back(line.get_string());
      return {};
    }));
    return texts;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (end > at) texts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return texts;
}

}  // namespace millrace::apps
