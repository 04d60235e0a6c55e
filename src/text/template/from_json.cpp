#include "text/template/from_json.h"

#include "text/template/code_points.h"

namespace millrace::jinja {
namespace {

Result<Value> text_from(Run& run, std::string_view text) {
  TRY_VOID(run.reserve(text.size()));
  if (!valid_utf8(text)) return fail("a string given to the template is not valid UTF-8");
  return run.heap.text(std::string(text));
}

}  // namespace

Result<Value> from_json(Run& run, const Json& json) {
  ENTER_LEVEL(run);
  TRY_VOID(run.step());
  switch (json.kind()) {
    case boost::json::kind::null:
      return Value::none();
    case boost::json::kind::bool_:
      return Value::boolean(json.get_bool());
    case boost::json::kind::int64:
      return Value::integer(json.get_int64());
    case boost::json::kind::uint64:
      return Value::natural(json.get_uint64());
    case boost::json::kind::double_:
      return Value::real(json.get_double());
    case boost::json::kind::string:
      return text_from(run, std::string_view(json.get_string().data(), json.get_string().size()));
    case boost::json::kind::array: {
      Values items;
      items.reserve(json.get_array().size());
      for (const Json& each : json.get_array()) {
        TRY(Value item, from_json(run, each));
        items.push_back(std::move(item));
      }
      return run.heap.list(std::move(items));
    }
    case boost::json::kind::object: {
      std::vector<Dict::Entry> entries;
      entries.reserve(json.get_object().size());
      for (const auto& member : json.get_object()) {
        TRY(Value key, text_from(run, std::string_view(member.key().data(), member.key().size())));
        TRY(Value value, from_json(run, member.value()));
        entries.emplace_back(std::move(key), std::move(value));
      }
      return make_dict(run, std::move(entries));
    }
  }
  return Value::none();
}

}  // namespace millrace::jinja
