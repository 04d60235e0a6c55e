#include "server/kv_events.h"

#include <span>
#include <string_view>
#include <vector>

#include "server/msgpack.h"

namespace millrace {
namespace {

using Kind = CacheChange::Kind;

// Whether the second can stand in one event with the first.
bool joins(const CacheChange& first, const CacheChange& last, const CacheChange& next) {
  if (next.kind != first.kind || next.away != first.away || next.kind == Kind::cleared) return false;
  return next.kind == Kind::removed || next.parent == last.node;
}

void put_hashes(MsgPack& out, std::span<const CacheChange> list) {
  out.array(list.size());
  for (const CacheChange& each : list) out.number(each.node);
}

void put_event(MsgPack& out, std::span<const CacheChange> list, int node_tokens) {
  const CacheChange& first = list.front();
  if (first.kind == Kind::cleared) {
    out.array(1);
    return out.text("AllBlocksCleared");
  }
  const std::string_view medium = first.away ? "CPU" : "GPU";
  if (first.kind == Kind::removed) {
    out.array(3);
    out.text("BlockRemoved");
    put_hashes(out, list);
    return out.text(medium);
  }
  out.array(9);
  out.text("BlockStored");
  put_hashes(out, list);
  first.parent == 0 ? out.nothing() : out.number(first.parent);
  size_t tokens = 0;
  for (const CacheChange& each : list) tokens += each.tokens.size();
  out.array(tokens);
  for (const CacheChange& each : list)
    for (Token token : each.tokens) out.number(static_cast<uint64_t>(token));
  out.number(static_cast<uint64_t>(node_tokens));
  out.nothing();
  out.text(medium);
  out.nothing();
  out.nothing();
}

}  // namespace

std::string kv_batch(double time, std::vector<CacheChange> changes, int node_tokens) {
  std::vector<std::span<const CacheChange>> events;
  for (size_t i = 0; i < changes.size();) {
    size_t end = i + 1;
    while (end < changes.size() && joins(changes[i], changes[end - 1], changes[end])) ++end;
    events.push_back(std::span(changes).subspan(i, end - i));
    i = end;
  }
  MsgPack out;
  out.array(3);
  out.real(time);
  out.array(events.size());
  for (const auto& each : events) put_event(out, each, node_tokens);
  out.nothing();
  return out.take();
}

}  // namespace millrace
