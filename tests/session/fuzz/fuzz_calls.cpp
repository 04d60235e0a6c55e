// An answer as bytes from anywhere, read by a format of calls: what comes does not depend on how it was cut, and
// nothing that is no mark is lost.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "session/call_reader.h"

using namespace millrace;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  CallFormat format;
  format.think_begin = "<think>";
  format.think_end = "</think>";
  format.trigger = "<c>";
  switch (data[0] / 4 % 5) {
    case 0:
      format.style = CallFormat::Style::json;
      format.begin = "<c>{\"n\": \"";
      format.middle = std::string("\", \"i\": \"") + kCallId + "\", \"a\": ";
      format.between = "}, {\"n\": \"";
      format.end = "}</c>";
      break;
    case 1:
      format.style = CallFormat::Style::tags;
      format.begin = "<c><f=";
      format.open = "><k=";
      format.next = "</v><k=";
      format.equals.fill("><v>");
      format.between = "</v></c><c><f=";
      format.end = "</v></c>";
      format.bare_between = "></c><c><f=";
      format.bare_end = "></c>";
      break;
    case 2:  // texts in quotes, a letter or a mark
      format.style = CallFormat::Style::tags;
      format.quote = format.quote_open = data[0] / 16 % 2 == 0 ? "'" : "<|q|>";
      format.begin = "<c>[";
      format.open = "(";
      format.next = ", ";
      format.equals.fill("=");
      format.equals[CallFormat::kText] = "=" + format.quote_open;
      format.between = "), ";
      format.end = ")]</c>";
      format.bare_between = "(), ";
      format.bare_end = "()]</c>";
      break;
    case 3:  // messages that begin where the prompt ends, and name a call twice
      format.style = CallFormat::Style::tags;
      format.lead = "<m>";
      format.begin = format.trigger = "<m>to=";
      format.content_begin = "<m>to=user:";
      format.think_begin = "<m>to=self:";
      format.think_end = "</m>";
      format.twice = data[0] / 32 % 2 == 0 ? "" : ":<f=";
      format.open = "><k=";
      format.next = "</v><k=";
      format.equals.fill("><v>");
      format.between = "</v></m><m>to=";
      format.end = "</v></m>";
      format.bare_between = "></m><m>to=";
      format.bare_end = "></m>";
      break;
    default:
      format.style = CallFormat::Style::channels;
      format.start = "<|start|>assistant";
      format.channel = "<|channel|>";
      format.message = "<|message|>";
      format.begin = "<|channel|>commentary to=functions.";
      format.middle = " json<|message|>";
      format.think_channel = "analysis";
      format.stops = {"<|end|>", "<|call|>"};
  }
  const std::vector<Tool> tools = {{.name = "f"}, {.name = "g-1"}};
  // Text is text, and control tokens are whole: that is what a tokenizer gives.
  std::string all;
  for (size_t i = 1; i < size; ++i)
    all += data[i] == 0xFE ? control_bytes(5) : std::string(1, static_cast<char>(data[i]));
  const std::string_view text = all;
  const auto read = [&](size_t cut) {
    CallReader reader(format, tools, data[0] % 2 == 1);
    std::vector<AnswerPart> events;
    for (size_t at = 0; at < text.size(); at += cut) reader.push(text.substr(at, cut), events);
    reader.finish(events);
    return events;
  };
  const auto whole = read(text.size() + 1);
  if (read(1) != whole || read(3) != whole) std::abort();
  return 0;
}
