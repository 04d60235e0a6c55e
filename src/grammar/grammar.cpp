#include "grammar/grammar.h"

#include <algorithm>
#include <optional>

#include "grammar/call_source.h"
#include "grammar/json_source.h"
#include "grammar/machine.h"
#include "grammar/masks.h"
#include "grammar/regex.h"
#include "grammar/rule_source.h"
#include "grammar/shape.h"
#include "grammar/vocabulary.h"

namespace millrace {

using namespace grammar;

namespace {

// A unit is about a microsecond of a slow core.
constexpr uint64_t kCompileWork = uint64_t{1} << 20;
constexpr int64_t kMostBytes = int64_t{128} << 20;
constexpr size_t kMostChoices = 1'000'000;

// What the vocabulary has no byte for is left out of every language, so no answer comes to where it cannot go on.
ByteSet writable(const GrammarVocabulary& vocabulary) {
  ByteSet found;
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (vocabulary.has_byte(static_cast<uint8_t>(byte))) found.add(static_cast<uint8_t>(byte));
  }
  found.add(kTextEnd);
  return found;
}

// The same error, with what the vocabulary lacks, which may be why.
Error with_lack(Error why, const GrammarVocabulary& vocabulary) {
  std::string lacks;
  for (uint8_t byte = 0x20; byte < 0x7F; ++byte) {
    if (!vocabulary.has_byte(byte)) lacks += static_cast<char>(byte);
  }
  if (!lacks.empty()) why.message += fmt::format(" (no token of the model's vocabulary has any of: {})", lacks);
  return why;
}

// A grammar that is one regular language.
class LexSource : public Source {
 public:
  void expand(const Frame&, Sequences&) override {}
  Frame receive(const Frame& frame, const std::string*) override { return frame; }
};

}  // namespace

struct Grammar::Parts {
  Exprs exprs;
  std::unique_ptr<Schemas> schemas;
  std::unique_ptr<Shapes> shapes;
  std::unique_ptr<Source> source;
  std::unique_ptr<Machine> machine;
  std::unique_ptr<Masks> masks;

  Result<std::vector<Frame>> begin(const GrammarSource& from);
  Result<std::vector<Frame>> begin_json(const GrammarSource& from);
  Result<std::vector<Frame>> begin_choice(const GrammarSource& from);
  Result<std::vector<Frame>> begin_calls(const GrammarSource& from);

  // Steps have the same limit as a mask.
  StateId run(StateId state, std::string_view bytes) {
    masks->begin_work();
    return machine->run(state, bytes);
  }

  std::vector<std::string> notes;
};

Result<std::vector<Frame>> Grammar::Parts::begin_json(const GrammarSource& from) {
  for (char c : std::string_view("{}[]:,\"-+.0123456789eEnulltruefals")) {
    ByteSet one;
    one.add(static_cast<uint8_t>(c));
    if (exprs.bytes(one) == Exprs::kNothing) return error(Code::invalid, "the model cannot write JSON");
  }
  Json document;
  if (from.kind == GrammarKind::json_object) {
    document = JsonObject{{"type", "object"}};
  } else {
    if (from.text.size() > Schemas::kMostBytes) {
      return error(Code::invalid, "the schema has {} bytes, the limit is {}", from.text.size(), Schemas::kMostBytes);
    }
    auto parsed = parse_json(from.text, {Schemas::kMostBytes, Schemas::kMostDepth, true, false});
    if (!parsed.ok()) return within("the schema", parsed.error());
    document = std::move(*parsed);
  }
  TRY(schemas, Schemas::read(document, exprs, {from.assert_formats}));
  shapes = std::make_unique<Shapes>(*schemas, exprs);
  JsonStyle style;
  if (from.compact) style.space = JsonStyle::Space::none;
  style.in_order = from.in_order;
  auto json = std::make_unique<JsonSource>(*shapes, style);
  TRY_VOID(json->check());
  auto frames = json->start();
  source = std::move(json);
  return frames;
}

Result<std::vector<Frame>> Grammar::Parts::begin_choice(const GrammarSource& from) {
  TRY(const Json list, parse_json(from.text));
  const auto* array = list.if_array();
  if (array == nullptr || array->empty() || array->size() > kMostChoices) {
    return error(Code::invalid, "a choice is an array of 1 to {} texts", kMostChoices);
  }
  std::vector<std::string> texts;
  for (const Json& text : *array) {
    if (!text.is_string() || text.get_string().empty()) return error(Code::invalid, "a choice is an array of texts");
    texts.emplace_back(text.get_string());
  }
  source = std::make_unique<LexSource>();
  return std::vector<Frame>{{Frame::lex, exprs.literals(std::move(texts)), 0, 0}};
}

Result<std::vector<Frame>> Grammar::Parts::begin_calls(const GrammarSource& from) {
  constexpr unsigned kDepth = Schemas::kMostDepth + 8;
  TRY(const Json description, parse_json(from.text, {CallSource::kMostBytes, kDepth, false, false}));
  TRY(auto made, CallSource::read(description, exprs));
  notes = made->notes();
  auto frames = made->start();
  source = std::move(made);
  return frames;
}

Result<std::vector<Frame>> Grammar::Parts::begin(const GrammarSource& from) {
  switch (from.kind) {
    case GrammarKind::json_schema:
    case GrammarKind::json_object:
      return begin_json(from);
    case GrammarKind::choice:
      return begin_choice(from);
    case GrammarKind::calls:
      return begin_calls(from);
    case GrammarKind::regex: {
      source = std::make_unique<LexSource>();
      TRY(const ExprId expr, regex_expr(exprs, from.text, RegexUse::whole));
      if (!exprs.live(expr)) return error(Code::invalid, "no text matches the regular expression");
      return std::vector<Frame>{{Frame::lex, expr, 1, 0}};
    }
    default:
      break;
  }
  TRY(auto text, from.kind == GrammarKind::gbnf ? read_gbnf(from.text, exprs) : read_lark(from.text, exprs));
  TRY(auto rules, compile_rules(std::move(text), exprs));
  auto made = std::make_unique<RuleSource>(std::move(rules));
  auto frames = made->start();
  source = std::move(made);
  return frames;
}

Grammar::Grammar(std::unique_ptr<Parts> parts, std::shared_ptr<const GrammarVocabulary> vocabulary)
    : parts_(std::move(parts)), vocabulary_(std::move(vocabulary)) {}
Grammar::~Grammar() = default;

Result<std::shared_ptr<Grammar>> Grammar::compile(const GrammarSource& source,
                                                  std::shared_ptr<const GrammarVocabulary> vocabulary) {
  auto parts = std::make_unique<Parts>();
  parts->exprs.limit(kCompileWork);
  parts->exprs.can_write(writable(*vocabulary));
  const auto start = parts->begin(source);
  if (!start.ok()) return with_lack(start.error(), *vocabulary);
  parts->machine = std::make_unique<Machine>(parts->exprs, *parts->source, *start);
  if (parts->machine->over()) {
    return error(Code::invalid, "the grammar takes more than {} units of work to compile", kCompileWork);
  }
  if (parts->machine->start() == Machine::kDead) {
    return with_lack(error(Code::invalid, "no text satisfies the grammar"), *vocabulary);
  }
  parts->masks = std::make_unique<Masks>(*parts->machine, *vocabulary);
  std::shared_ptr<Grammar> grammar(new Grammar(std::move(parts), std::move(vocabulary)));
  grammar->notes_ = grammar->parts_->notes;
  if (grammar->parts_->schemas) grammar->notes_ = grammar->parts_->schemas->unknown_formats();
  TRY(const auto first, grammar->allowed(grammar->start()));
  if (first->count() == 0) {
    return with_lack(error(Code::invalid, "no token of the model's vocabulary can begin an answer of this grammar"),
                     grammar->vocabulary());
  }
  return grammar;
}

Grammar::State Grammar::start() const { return parts_->machine->start(); }

Grammar::State Grammar::next(State state, Token token) {
  std::lock_guard hold(lock_);
  if (vocabulary_->is_end(token)) return parts_->machine->accepts(state) ? state : kRefused;
  if (token < 0 || token >= vocabulary_->size() || vocabulary_->bytes(token).empty()) return kRefused;
  return parts_->run(state, vocabulary_->bytes(token));
}

Grammar::State Grammar::next_bytes(State state, std::string_view bytes) {
  std::lock_guard hold(lock_);
  return parts_->run(state, bytes);
}

bool Grammar::over() {
  std::lock_guard hold(lock_);
  return parts_->machine->over();
}

bool Grammar::accepts(State state) {
  std::lock_guard hold(lock_);
  return parts_->machine->accepts(state);
}

bool Grammar::finished(State state) {
  std::lock_guard hold(lock_);
  return parts_->machine->finished(state);
}

Result<std::shared_ptr<const TokenMask>> Grammar::allowed(State state) {
  std::lock_guard hold(lock_);
  if (state == kRefused) return error(Code::invalid, "the answer does not follow its grammar");
  auto mask = parts_->masks->of(state);
  if (!mask) {
    return error(Code::invalid, "the grammar takes more than {} units of work for one token; simplify it",
                 Masks::kMostWork);
  }
  if (parts_->machine->bytes() + parts_->masks->bytes() > kMostBytes) {
    return error(Code::invalid, "the grammar needs more than {} MiB; simplify it", kMostBytes >> 20);
  }
  return mask;
}

int64_t Grammar::bytes() {
  std::lock_guard hold(lock_);
  return parts_->machine->bytes() + parts_->masks->bytes();
}

}  // namespace millrace
