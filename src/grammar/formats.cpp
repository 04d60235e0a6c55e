#include "grammar/formats.h"

#include <map>
#include <string>

namespace millrace::grammar {

namespace {

// Days by month and year: 29 February in leap years only.
std::string date() {
  const std::string leap = R"((?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00))";
  const std::string days31 = R"((?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01]))";
  const std::string days30 = R"((?:0[469]|11)-(?:0[1-9]|[12]\d|30))";
  const std::string days28 = R"(02-(?:0[1-9]|1\d|2[0-8]))";
  return R"((?:\d{4}-(?:)" + days31 + "|" + days30 + "|" + days28 + ")|" + leap + "-02-29)";
}

// A leap second is 23:59:60 in UTC; with an offset it is not written here.
std::string time() {
  return R"((?:(?:(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d))|)"
         R"((?:23:59:60(?:\.\d+)?(?:[Zz]|[+-]00:00))))";
}

// No "--" in third and fourth place: what such labels stand for is bound by rules of Unicode, so none is written here.
std::string label() {
  const std::string a = "[A-Za-z0-9]", any = "[A-Za-z0-9-]";
  return a + "(?:" + a + "|" + any + a + "|" + any + any + a + "|" + any + "(?:" + a + any + "|-" + a + ")" + any +
         "{0,58}" + a + ")?";
}
std::string hostname() { return label() + "(?:\\." + label() + ")*"; }

std::string email() {
  const std::string atom = R"([A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)";
  return "(?:" + atom + "(?:\\." + atom + ")*|\"(?:[ !#-\\[\\]-~]|\\\\[ -~])*\")@(?:" + hostname() + "|\\[" +
         R"((?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}|IPv6:[0-9A-Fa-f:.]+))" +
         "\\])";
}

std::string ipv4() { return R"((?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3})"; }

std::string ipv6() {
  const std::string h = "[0-9A-Fa-f]{1,4}";
  const std::string tail = "(?:" + h + ":" + h + "|" + ipv4() + ")";
  std::string all = "(?:" + h + ":){6}" + tail;
  for (int after = 5; after >= 0; --after) {
    // :: stands for at least one group; before it come up to 5 - after more than none
    const std::string before = "(?:(?:" + h + ":){0," + std::to_string(4 - after < 0 ? 0 : 4 - after) + "}" + h + ")?";
    all += "|" + (after == 5 ? std::string() : before) + "::(?:" + h + ":){" + std::to_string(after) + "}" + tail;
  }
  all += "|(?:(?:" + h + ":){0,5}" + h + ")?::" + h + "|(?:(?:" + h + ":){0,6}" + h + ")?::";
  return "(?:" + all + ")";
}

std::string uri(bool international, bool reference) {
  const std::string more = international ? "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{EFFFD}" : "";
  const std::string escaped = "%[0-9A-Fa-f]{2}";
  const std::string plain = "A-Za-z0-9\\-._~!$&'()*+,;=" + more;
  const std::string pchar = "(?:[" + plain + ":@]|" + escaped + ")";
  const std::string user = "(?:(?:[" + plain + ":]|" + escaped + ")*@)?";
  const std::string host = "(?:\\[(?:" + ipv6() + "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9\\-._~!$&'()*+,;=:]+)\\]|(?:[" +
                           plain + "]|" + escaped + ")*)";
  const std::string authority = "//" + user + host + "(?::\\d*)?";
  const std::string path = "(?:/" + pchar + "*)*";
  const std::string own = international ? "|[\\uE000-\\uF8FF\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}]" : "";
  const std::string rest = "(?:\\?(?:" + pchar + "|[/?]" + own + ")*)?(?:#(?:" + pchar + "|[/?])*)?";
  const std::string rooted = "(?:" + authority + path + "|/(?:" + pchar + "+" + path + ")?|";
  const std::string absolute = "[A-Za-z][A-Za-z0-9+.-]*:" + rooted + pchar + "+" + path + "|)" + rest;
  if (!reference) return absolute;
  const std::string first = "(?:[" + plain + "@]|" + escaped + ")+";
  return "(?:" + absolute + "|" + rooted + first + path + "|)" + rest + ")";
}

std::string duration() {
  const std::string clock = "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)";
  const std::string days = "(?:\\d+D|\\d+M(?:\\d+D)?|\\d+Y(?:\\d+M(?:\\d+D)?)?)";
  return "P(?:" + days + "(?:" + clock + ")?|" + clock + "|\\d+W)";
}

std::map<std::string, std::string, std::less<>> make_formats() {
  const auto whole = [](const std::string& text) { return "^(?:" + text + ")$"; };
  const std::string pointer = R"((?:/(?:[^/~]|~[01])*)*)";
  const std::string domain = "(?=.{1,253}$)" + hostname();
  return {
      {"date-time", whole(date() + "[Tt]" + time())},
      {"date", whole(date())},
      {"time", whole(time())},
      {"duration", whole(duration())},
      {"email", whole(email())},
      {"hostname", "^" + domain + "$"},
      {"ipv4", whole(ipv4())},
      {"ipv6", whole(ipv6())},
      {"uuid", "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$"},
      {"uri", whole(uri(false, false))},
      {"uri-reference", whole(uri(false, true))},
      {"iri", whole(uri(true, false))},
      {"iri-reference", whole(uri(true, true))},
      {"json-pointer", whole(pointer)},
      {"relative-json-pointer", whole("(?:0|[1-9]\\d*)(?:#|" + pointer + ")")},
      {"idn-hostname", ""},
      {"idn-email", ""},
      {"uri-template", ""},
      {"regex", ""},
  };
}

}  // namespace

std::optional<std::string_view> format_pattern(std::string_view name) {
  static const std::map<std::string, std::string, std::less<>> kFormats = make_formats();
  const auto found = kFormats.find(name);
  if (found == kFormats.end()) return std::nullopt;
  return found->second;
}

}  // namespace millrace::grammar
