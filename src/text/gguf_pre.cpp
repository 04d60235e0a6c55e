#include "text/gguf_pre.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "text/unicode.h"

namespace millrace {
namespace {

// What a step does: split at a pattern, or one of the kinds that have no pattern.
enum class Kind : uint8_t { known, regex, words, digits, digit_runs, punctuation_runs, byte_level };

struct Step {
  Kind kind;
  std::string_view pattern = {};  // known: the name of a pattern in scanner.h
};

// kReadOnly: a name for one model, not written where another one means the same.
enum Flags : unsigned { kPlain = 0, kIgnoreMerges = 1, kAddBegin = 2, kNoBegin = 4, kCharacters = 8, kReadOnly = 16 };

struct Recipe {
  std::vector<std::string_view> names;  // the first is the one we write
  std::vector<Step> steps;
  unsigned flags = kPlain;
};

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
constexpr std::string_view kJais2 =
    CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
                 R"(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S))"
                 R"(|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr std::string_view kDeepseekLetters =
    "\\s?[A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF"
    "\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5"
    "\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-"
    "\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D"
    "\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-"
    "\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113"
    "\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149"
    "\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B"
    "\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-"
    "\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0"
    "-\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943]+";
constexpr std::string_view kDeepseekSigns = "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+";
constexpr std::string_view kDeepseekCjk = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";
constexpr std::string_view kYoutuScripts =
    "[\uAC00-\uD7A3\u3131-\u318E]+|[\uFF01\u2026\u201C\u201D\u2018\u2019\u2014\uFF1A\uFF1B\uFF0C\u3001-"
    "\u303F\uFE30-\uFE4F]+|[\u3105-\u312F]+|[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+";
constexpr std::string_view kYoutu =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" CONTRACTIONS
    R"(?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" CONTRACTIONS
    R"(?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBloom = " ?[^(\\s|[.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C])]+";
constexpr std::string_view kKimi =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)" CONTRACTIONS
    R"(?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)" CONTRACTIONS
    R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    CONTRACTIONS "|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kExaoneMoe = CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kAfmoeScripts =
    "[\u4E00-\u9FFF\u3400-\u4DBF\u8C48-\uFAFF\u3040-\u309F\u30A0-\u30FF\uFF65-\uFF9F\u2F00-\u2FDF\u0E40-"
    "\u0E7F\u0E80-\u0EFF\u1780-\u17FF\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF\uAC00-\uD7AF\u1100-\u11FF]+";

// Names and patterns are those of the models; which names exist and which share a pattern is llama.cpp's list.
const std::vector<Recipe>& recipes() {
  using enum Kind;
  static const std::vector<Recipe> all = {
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
       {{known, "cl100k"}},
       kIgnoreMerges | kAddBegin},
      {{"dbrx", "smaug-bpe"}, {{known, "cl100k"}}},
      {{"chatglm-bpe", "glm4"}, {{known, "cl100k"}}, kNoBegin},
      {{"jais-2"}, {{regex, kJais2}}},
      {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"},
       {{known, "qwen2"}}},
      {{"qwen35"}, {{known, "qwen3.5"}}},
      {{"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum",
        "modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe", "mpt", "olmo", "jais", "trillion",
        "granite-docling", "exaone4"},
       {{words}}},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
       {{digits}, {words}}},
      {{"falcon"}, {{punctuation_runs}, {words}, {byte_level}, {digit_runs}, {regex, "[0-9][0-9][0-9]"}}},
      {{"deepseek-llm"},
       {{regex, "[\r\n]"},
        {regex, kDeepseekLetters},
        {regex, kDeepseekSigns},
        {known, "trailing-space"},
        {regex, kDeepseekCjk},
        {digits}}},
      {{"deepseek-coder"},
       {{regex, "[\r\n]"}, {regex, R"(\s?\p{L}+)"}, {regex, R"(\s?\p{P}+)"}, {regex, kDeepseekCjk}, {digits}}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm"}, {{known, "number-1-3"}, {known, "cjk"}, {known, "deepseek-3"}}},
      {{"youtu"}, {{regex, kYoutuScripts}, {regex, kYoutu}}, kIgnoreMerges},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {{known, "o200k"}}},
      {{"granite-embed-multi-97m"}, {{known, "o200k"}}, kIgnoreMerges | kReadOnly},
      {{"tekken"}, {{known, "tekken"}}, kIgnoreMerges | kAddBegin},
      {{"tiny_aya", "cohere2moe"}, {{regex, R"(\d{1,3}(?=(?:\d{3})*\b))"}, {known, "o200k"}}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {{regex, kBloom}}},
      {{"viking"}, {{regex, kBloom}, {digits}}},
      {{"kimi-k2"}, {{regex, kKimi}}},
      {{"superbpe"}, {{known, "numbers"}, {regex, R"((?=(\d{3})+(?!\d)))"}}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"}, {{regex, kBailing}}},
      {{"seed-coder"}, {{regex, kSeedCoder}}},
      {{"exaone-moe"}, {{regex, kExaoneMoe}}},
      {{"afmoe"}, {{regex, R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))"}, {regex, kAfmoeScripts}, {known, "deepseek-3"}}},
      {{"laguna"}, {{regex, R"([^\n]+|[\n]+)"}, {known, "qwen2"}}},
      {{"minicpm5"}, {{known, "number-1-3"}, {known, "cl100k-number"}}, kIgnoreMerges},
      {{"chameleon"},
       {{regex, "<sentinel:[0-9]+>"},
        {regex, "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"},
        {regex, "([\\t\\n]|    |  )"},
        {digits},
        {regex, R"([\p{P}!-/:-@\[-`{-~])"},
        {words}},
       kAddBegin},
      {{"gemma4", "granite-embed-multi-311m", "sarvam-moe"}, {{regex, R"([^\n]+|[\n]+)"}}, kCharacters},
      {{"default"}, {{regex, R"([\p{P}\$\+<=>\^~\|]+)"}, {words}, {known, "numbers"}, {regex, "[0-9][0-9][0-9]"}}},
  };
  return all;
}

bool is_number(uint32_t code) { return CategoryTable::get().in(code, kNumber); }

Result<void> add_step(PreTokenizer& pre, const Step& step) {
  switch (step.kind) {
    case Kind::known:
    case Kind::regex: {
      TRY(Pattern pattern, Pattern::regex(step.kind == Kind::known ? known_pattern(step.pattern) : step.pattern));
      pre.add_split(std::move(pattern));
      return {};
    }
    case Kind::words: {
      TRY(Pattern pattern, Pattern::regex(known_pattern("gpt-2")));
      pre.add_split(std::move(pattern));
      return {};
    }
    case Kind::digits:
      pre.add_split(Pattern::characters("digits", is_number));
      return {};
    case Kind::digit_runs:
      pre.add_split(Pattern::characters("digits", is_number), Split::contiguous);
      return {};
    case Kind::punctuation_runs:
      pre.add_split(Pattern::characters("punctuation", is_split_punctuation), Split::contiguous);
      return {};
    case Kind::byte_level:
      pre.add_byte_level(false, false);
      return {};
  }
  return {};
}

}  // namespace

Result<GgufPre> gguf_pre(std::string_view name) {
  for (const Recipe& recipe : recipes()) {
    if (std::find(recipe.names.begin(), recipe.names.end(), name) == recipe.names.end()) continue;
    GgufPre found;
    for (const Step& step : recipe.steps) TRY_VOID(add_step(found.pre, step));
    found.ignore_merges = (recipe.flags & kIgnoreMerges) != 0;
    found.add_begin = (recipe.flags & kAddBegin) != 0;
    found.no_begin = (recipe.flags & kNoBegin) != 0;
    found.byte_level = (recipe.flags & kCharacters) == 0;
    if (found.byte_level && !found.pre.byte_level()) found.pre.add_byte_level(false, false);
    return found;
  }
  return error(Code::unsupported,
               "the file splits text as '{}' (tokenizer.ggml.pre), which this version does not know; use the original "
               "Hugging Face directory with its tokenizer.json, or a newer version",
               name);
}

std::optional<std::string> gguf_pre_name(const std::string& signature, bool ignore_merges) {
  auto matches = [&](const Recipe& recipe) {
    PreTokenizer pre;
    for (const Step& step : recipe.steps) {
      if (!add_step(pre, step)) return false;
    }
    if ((recipe.flags & kCharacters) == 0 && !pre.byte_level()) pre.add_byte_level(false, false);
    return pre.signature() == signature;
  };
  std::optional<std::string> name;
  for (const Recipe& recipe : recipes()) {
    const bool same_merges = ((recipe.flags & kIgnoreMerges) != 0) == ignore_merges;
    if ((recipe.flags & kReadOnly) != 0 || (name && !same_merges) || !matches(recipe)) continue;
    if (!name || same_merges) name = std::string(recipe.names[0]);
    if (same_merges) break;
  }
  return name;
}

}  // namespace millrace
