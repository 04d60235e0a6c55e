// CallSource: what may come next in an answer that calls tools, or may: free text up to a mark, then calls in the
// model's own format, each with arguments that the tool's schema allows. The format comes as a description in JSON
// (GrammarKind::calls), written by session/calls.h:
//
//   {"style": "json" | "tags", "free": may calls be left out, "single": at most one,
//    "space", "trigger", "begin", "middle", "between", "end", "open", "next", "equals": [6], "bare_between",
//    "bare_end", "quote": what ends a text, "content_begin": what stands before the content, "tools": [{"name",
//    "parameters", "strict"}], "twice": what stands between a name and the same once more, "first", "first_said": what
//    a first call and what is said begin with, where the prompt has written the rest of it, "content": a schema of what
//    is said instead of calls, "think_begin", "think_end": marks of reasoning, which may come first; without a
//    beginning, it has begun}
//
// Texts are lists of pieces: a text, {"token": id} for a control token, {"hole": "id" | "number"}. Arguments in tags
// are any of the declared properties in any order, each once, all required ones; texts in them never contain what ends
// a value. A schema that is refused is an error if its tool is strict; else its arguments are any object. One thread at
// a time, as its Machine.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/json_source.h"
#include "grammar/machine.h"

namespace millrace::grammar {

class CallSource : public Source {
 public:
  static constexpr size_t kMostBytes = size_t{8} << 20;
  static constexpr size_t kMostTools = 1024;
  static Result<std::unique_ptr<CallSource>> read(const Json& description, Exprs& exprs);

  std::vector<Frame> start() const { return {{kStart, 0, 0, 0}}; }
  void expand(const Frame& frame, Sequences& out) override;
  Frame receive(const Frame& frame, const std::string* captured) override;
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  // kStart: all of it. kBody: what comes after reasoning. kCall: the name of a call comes. kAfter: its arguments are
  // there. kKeys: a = tool, b = which properties are there, c = 1 if there is one. kSealed: the same, all there.
  enum Kind : int32_t { kStart = Frame::control, kBody, kCall, kAfter, kKeys, kOwnKinds };
  static constexpr int32_t kJson = Frame::control + 64, kJsonKinds = 16;  // of value n: kJson + n * kJsonKinds

  struct Value {  // a schema with all it needs
    std::unique_ptr<Schemas> schemas;
    std::unique_ptr<Shapes> shapes;
    std::unique_ptr<JsonSource> source;
  };
  struct Way {  // one way to write a value of a property
    ExprId before = Exprs::kEmpty;
    ExprId text = Exprs::kNothing;  // a bare text, with kTextEnd; or
    int32_t value = -1;             // JSON
  };
  struct Property {
    std::string key;
    bool required = false;
    std::vector<Way> ways;
  };
  struct Tool {
    std::string name;
    ExprId call = Exprs::kEmpty;  // the name and what follows it: of tags, the name alone
    int32_t arguments = -1;       // json
    std::vector<Property> properties;
  };

  explicit CallSource(Exprs& exprs) : exprs_(exprs) {}
  Result<void> read_format(const Json& description);
  Result<void> read_thinking(const Json& description);
  Result<void> read_tools(const Json& description);
  Result<void> read_tool(const Json& tool, size_t index);
  Result<void> read_properties(const Json& parameters, Tool& tool);
  Result<void> read_ways(const Json& parameters, const std::string& key, Property& property);
  Result<ExprId> literal(const Json& description, std::string_view name);
  Result<ExprId> pieces(const Json& list, std::string_view name);
  Result<int32_t> add_value(const Json& schema, bool compact = false);
  void add_values(int32_t value, std::vector<Frame>& out) const;
  Frame lex(ExprId expr) const { return {Frame::lex, expr, 0, 0}; }
  int32_t seen_id(const std::vector<bool>& seen);
  void expand_body(Sequences& out, bool first);
  void expand_keys(const Frame& frame, Sequences& out);

  Exprs& exprs_;
  bool tags_ = false, free_ = false, single_ = false;
  ExprId space_ = Exprs::kEmpty, trigger_ = Exprs::kEmpty, begin_ = Exprs::kEmpty, middle_ = Exprs::kEmpty,
         between_ = Exprs::kEmpty, end_ = Exprs::kEmpty, open_ = Exprs::kEmpty, next_ = Exprs::kEmpty,
         bare_between_ = Exprs::kEmpty, bare_end_ = Exprs::kEmpty, quote_ = Exprs::kEmpty, said_ = Exprs::kEmpty;
  std::vector<ExprId> equals_;
  int32_t content_ = -1;  // the value that is said instead of calls; -1: anything is
  ExprId think_ = Exprs::kNothing, thought_ = Exprs::kNothing;  // reasoning from its beginning; up to its end
  bool thinking_ = false;                                       // it has begun
  // Of formats where the prompt has written the beginning: the rest of a first call's, and of what is said.
  bool led_ = false;
  ExprId first_ = Exprs::kEmpty, first_said_ = Exprs::kEmpty, twice_ = Exprs::kEmpty;
  ExprId untriggered_ = Exprs::kEmpty, triggered_ = Exprs::kEmpty;
  ExprId bare_text_ = Exprs::kEmpty;  // texts that contain nothing that ends a value, with kTextEnd
  std::vector<Tool> tools_;
  std::vector<Value> values_;
  std::map<std::vector<bool>, int32_t> seen_ids_;
  std::vector<std::vector<bool>> seen_;
  std::vector<std::string> notes_;
};

}  // namespace millrace::grammar
