#include "text/template/template.h"

#include "text/template/interpreter.h"
#include "text/template/parser.h"

namespace millrace {

struct Template::Parsed {
  jinja::Program program;
};

Result<Template> Template::parse(std::string_view source) {
  TRY(jinja::Program program, jinja::parse(source, {}));
  auto parsed = std::make_shared<Parsed>();
  parsed->program = std::move(program);
  return Template(std::move(parsed));
}

Result<std::string> Template::render(const Json& variables, const RenderLimits& limits, LocalTime now) const {
  if (!variables.is_object()) return error(Code::invalid, "the variables of a template should be a JSON object");
  return jinja::Interpreter(parsed_->program, variables.get_object(), limits, now).render();
}

std::span<const std::string> Template::variables() const { return parsed_->program.globals; }

}  // namespace millrace
