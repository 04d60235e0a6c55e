#include "server/resume.h"

#include <chrono>
#include <random>

#include "cache/bulk_digest.h"

namespace millrace {
namespace {

ApiError refused(int status, std::string message, std::string_view code) {
  return {.status = status, .message = std::move(message), .code = std::string(code)};
}

Mark mark_of_body(const HttpRequest& request) {
  Digest digest;
  digest.add_sized(request.path);
  digest.add(bulk_digest(std::as_bytes(std::span(request.body))));
  return mark_of(digest.finish());
}

Mark mark_of_model(const ServedModel& model) {
  Digest digest;
  digest.add(model.identity);
  digest.add_sized(model.fingerprint);
  return mark_of(digest.finish());
}

EventPlace fresh_place(const RequestBody& asked) {
  static thread_local std::mt19937_64 generator{std::random_device{}()};
  EventPlace place;
  for (uint8_t& byte : place.name) byte = static_cast<uint8_t>(generator() >> 32);
  place.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  place.seed = asked.request.sampling.seed;
  return place;
}

}  // namespace

SealKey seal_key(std::optional<std::span<const uint8_t, 32>> secret, std::string_view tenant) {
  Digest digest(secret ? std::span<const uint8_t>(*secret) : std::span<const uint8_t>());
  digest.add_sized("event ids");
  digest.add_sized(tenant);
  return digest.finish().bytes;
}

std::optional<ApiError> read_resume(const HttpRequest& request, const Dialect& dialect, const ServedModel& model,
                                    const SealKey& key, RequestBody& asked, std::optional<StreamWriter::Ids>& out) {
  const std::string_view last = request.header("last-event-id"), wish = request.header("x-event-ids");
  if (last.empty() && (wish.empty() || wish == "0")) return {};
  if (!asked.stream || dialect.head().content_type != "text/event-stream") {
    if (last.empty()) return {};
    return refused(
        400,
        "Last-Event-ID goes on with a stream of server-sent events, and this request asks for none: send the "
        "body that began the stream, to the same path",
        "no_stream");
  }
  const Mark body = mark_of_body(request), served = mark_of_model(model);
  StreamWriter::Ids ids{.key = key};
  if (last.empty()) {
    ids.place = fresh_place(asked);
    ids.place.model = served;
    ids.place.body = body;
    out = std::move(ids);
    return {};
  }
  auto opened = open_place(last, key);
  if (!opened.ok()) return refused(400, opened.error().message, "invalid_event_id");
  ids.place = std::move(*opened);
  if (ids.place.body != body)
    return refused(400, "the body is not the one that began the stream of this Last-Event-ID: send it as it was",
                   "other_body");
  if (ids.place.model != served)
    return refused(409,
                   fmt::format("the stream began at a model or an arithmetic with another fingerprint than {}, which "
                               "would go on otherwise: ask anew without Last-Event-ID",
                               model.fingerprint),
                   "other_fingerprint");
  ids.resumed = true;
  asked.request.sampling.seed = ids.place.seed;
  out = std::move(ids);
  return {};
}

}  // namespace millrace
