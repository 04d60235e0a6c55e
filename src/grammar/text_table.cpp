#include "grammar/text_table.h"

#include <algorithm>
#include <map>

#include "base/json.h"
#include "grammar/machine.h"
#include "grammar/regex.h"

namespace millrace::grammar {

namespace {

constexpr int kWindow = 300;  // characters: more than a token has

// Strings of any content, told apart by how many characters they still take.
class FreeStrings : public Source {
 public:
  FreeStrings()
      : character_(any_character(exprs_)),
        machine_(exprs_, *this, {{Frame::text, text_of_length(exprs_, 0, kWindow)}}) {}
  void expand(const Frame&, Sequences&) override {}
  Frame receive(const Frame& frame, const std::string*) override { return frame; }

  // Characters that a text inside a string needs, one that is only begun included; -1: it cannot stand there.
  int needed(std::string_view text) {
    StateId state = machine_.start();
    int whole = 0;
    bool begun = false;
    for (char c : text) {
      state = machine_.step(state, static_cast<uint8_t>(c));
      if (state == Machine::kDead || machine_.accepts(state)) return -1;
      const Frame frame = machine_.tops(state)[0].frame;
      int least = 0, most = 0;
      begun = frame.b != 0 || !exprs_.is_window(frame.a, character_, least, most);
      if (!begun) whole = kWindow - most;
    }
    return whole + (begun ? 1 : 0);
  }

 private:
  Exprs exprs_;
  ExprId character_;
  Machine machine_;
};

// Where a string ends that the text is in, or npos.
size_t end_of(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      return i;
    }
  }
  return std::string_view::npos;
}

size_t characters_of(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

}  // namespace

void LeavingTokens::add(const std::string& rest, const std::vector<Entry>& tokens) {
  texts_.push_back({rest, static_cast<int32_t>(texts_.size())});
  entries.insert(entries.end(), tokens.begin(), tokens.end());
  first.push_back(static_cast<uint32_t>(entries.size()));
}

void LeavingTokens::finish() { rests = TokenTrie(std::move(texts_)); }

int64_t LeavingTokens::bytes() const {
  return static_cast<int64_t>(rests.nodes().size() * sizeof(TokenTrie::Node) + first.size() * 4 +
                              entries.size() * sizeof(Entry));
}

void TextTable::add_staying(Token token, int characters) {
  all_.add(token);
  longest_ = std::max(longest_, characters);
  for (int most = characters; most <= kCounted; ++most) upto_[static_cast<size_t>(most)].add(token);
  if (characters > kCounted) more_.push_back({characters, token});
}

TextTable::TextTable(const std::vector<std::string>& bytes, const std::vector<int>& plain)
    : all_(static_cast<int32_t>(bytes.size())), upto_(kCounted + 1, all_) {
  FreeStrings strings;
  std::map<std::string, std::vector<LeavingTokens::Entry>> leaving;
  std::map<std::string, int32_t> before;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const std::string& text = bytes[i];
    const Token token = static_cast<Token>(i);
    if (text.empty() || text.size() > 255) continue;  // no trie has longer ones
    if (plain[i] >= 0) {
      add_staying(token, plain[i]);
      continue;
    }
    const size_t end = end_of(text);
    if (end == std::string::npos) {
      if (const int characters = strings.needed(text); characters >= 0) add_staying(token, characters);
      continue;
    }
    const auto content = parse_json("\"" + text.substr(0, end + 1));
    if (!content.ok() || !content->is_string()) continue;
    const std::string said(content->get_string());
    const int32_t number = before.try_emplace(said, static_cast<int32_t>(before.size())).first->second;
    const int characters = static_cast<int>(characters_of(said));
    longest_ = std::max(longest_, characters);
    leaving[text.substr(end + 1)].push_back({token, number, characters});
  }
  std::sort(more_.begin(), more_.end());
  for (const auto& [rest, tokens] : leaving) leaving_.add(rest, tokens);
  leaving_.finish();
  befores_ = before.size();
  before_ = TokenTrie({before.begin(), before.end()});
}

TokenMask TextTable::staying(int most) const {
  if (most < 0 || most >= longest_) return all_;
  if (most <= kCounted) return upto_[static_cast<size_t>(most)];
  TokenMask mask = upto_[kCounted];
  for (const auto& [characters, token] : more_) {
    if (characters > most) break;
    mask.add(token);
  }
  return mask;
}

}  // namespace millrace::grammar
