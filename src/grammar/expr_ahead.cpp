// What can still follow: searches over the places one can come to from an expression.
#include <algorithm>
#include <string>

#include "grammar/expr.h"

namespace millrace::grammar {

bool Exprs::live(ExprId expr) {
  {
    const int8_t known = live_[static_cast<size_t>(expr)];
    if (known >= 0) return known == 1;
    const Node& node = nodes_[static_cast<size_t>(expr)];
    if (node.plain || node.nullable) return live_[static_cast<size_t>(expr)] = 1, true;
  }
  // Breadth first for a text that is accepted; the way to it is alive, and if there is none all that was seen is dead.
  std::vector<std::pair<ExprId, size_t>> seen{{expr, 0}};  // and where it was come from
  std::unordered_map<ExprId, bool> visited{{expr, true}};
  for (size_t at = 0; at < seen.size(); ++at) {
    for (uint8_t byte : classes(seen[at].first)) {
      const ExprId next = derive(seen[at].first, byte);
      if (over_) return false;
      if (next == kNothing) continue;
      const Node& node = nodes_[static_cast<size_t>(next)];
      const int8_t known = live_[static_cast<size_t>(next)];
      if (known == 1 || node.plain || node.nullable) {
        live_[static_cast<size_t>(next)] = 1;
        for (size_t back = at;; back = seen[back].second) {
          live_[static_cast<size_t>(seen[back].first)] = 1;
          if (back == 0) return true;
        }
      }
      if (known == 0 || !visited.try_emplace(next, true).second) continue;
      seen.push_back({next, at});
    }
  }
  for (const auto& [id, from] : seen) live_[static_cast<size_t>(id)] = 0;
  return false;
}

int Exprs::stops_at(ExprId expr, ExprId texts, size_t most) {
  if (!live(expr)) return 0;
  std::vector<std::pair<ExprId, ExprId>> seen{{expr, texts}};
  FlatMap visited;
  int bytes = 1;
  for (size_t at = 0, level = 1; at < seen.size(); ++at) {
    if (at == level) ++bytes, level = seen.size();
    const auto [here, left] = seen[at];
    std::vector<int32_t> sets;
    first_sets(here, sets);
    first_sets(left, sets);
    auto classes = classes_.find(sets);
    if (classes == classes_.end()) classes = classes_.emplace(sets, split(sets)).first;
    for (uint8_t byte : classes->second) {
      const ExprId rest = derive(left, byte);
      if (rest == kNothing) continue;
      const ExprId next = derive(here, byte);
      if (over_) return kUnknown;
      if (next == kNothing || !live(next)) return bytes;
      const uint64_t key = static_cast<uint64_t>(next) << 31 | static_cast<uint64_t>(rest);
      if (visited.find(key) >= 0) continue;
      visited.put(key, 1);
      if (seen.size() == most) return kUnknown;
      seen.push_back({next, rest});
    }
  }
  return kNever;
}

bool Exprs::accepts(ExprId expr, std::string_view text) {
  for (char c : text) expr = derive(expr, static_cast<uint8_t>(c));
  return nullable(expr);
}

bool Exprs::has_at_least(ExprId expr, size_t count) {
  // Breadth first over texts, each a state; as many live states as wanted on one level are as many texts.
  std::vector<ExprId> level{expr};
  size_t found = 0;
  while (!level.empty() && found < count && !over_) {
    std::vector<ExprId> next;
    for (ExprId id : level) found += nullable(id) ? 1 : 0;
    for (ExprId id : level) {
      for (unsigned b = 0; b < 256 && next.size() + found < count; ++b) {
        const ExprId to = derive(id, static_cast<uint8_t>(b));
        if (to != kNothing && live(to)) next.push_back(to);
      }
    }
    if (found + next.size() >= count) return true;
    level = std::move(next);
  }
  return found >= count;
}

bool Exprs::is_window(ExprId expr, ExprId character, int& least, int& most) const {
  const Node& node = nodes_[static_cast<size_t>(expr)];
  if (node.kind != Kind::cat) return false;
  const Node& head = nodes_[static_cast<size_t>(node.a)];
  const Node& tail = nodes_[static_cast<size_t>(node.b)];
  if (tail.kind != Kind::set || !(sets_[static_cast<size_t>(tail.c)].has(0xFF))) return false;
  if (node.a == character) return least = most = 1, true;
  if (head.kind != Kind::repeat || head.a != character) return false;
  least = head.b;
  most = head.c;
  return true;
}

bool Exprs::is_nearly_all(ExprId expr, ExprId character) const {
  int least = 0, most = 0;
  const Node& node = nodes_[static_cast<size_t>(expr)];
  if (node.kind != Kind::both) return is_window(expr, character, least, most) && most == kMany;
  return std::all_of(node.list.begin(), node.list.end(), [&](ExprId id) {
    const Node& part = nodes_[static_cast<size_t>(id)];
    if (part.kind == Kind::negate) return nodes_[static_cast<size_t>(part.a)].finite;
    return is_window(id, character, least, most) && most == kMany;
  });
}

bool Exprs::is_bounded(ExprId expr, ExprId character, ExprId& unbounded, int& least, int& most) {
  const std::vector<ExprId> list = nodes_[static_cast<size_t>(expr)].list;
  if (nodes_[static_cast<size_t>(expr)].kind != Kind::both) return false;
  std::vector<ExprId> others;
  bool found = false;
  for (ExprId part : list) {
    int from = 0, to = 0;
    if (!is_window(part, character, from, to) || to == kMany) {
      others.push_back(part);
      continue;
    }
    if (found) return false;
    found = true, least = from, most = to;
    if (from > 0) others.push_back(cat(repeat(character, from, kMany), nodes_[static_cast<size_t>(part)].b));
  }
  if (found) unbounded = both(std::move(others));
  return found && unbounded != kNothing;
}

bool Exprs::always_goes_on(ExprId expr, ExprId texts) {
  constexpr size_t kMostPlaces = 256;
  if (const int32_t known = going_on_.find(static_cast<uint64_t>(expr)); known >= 0) return known == 1;
  const bool found = goes_on_after_all(expr, texts, kMostPlaces);
  if (!over_) going_on_.put(static_cast<uint64_t>(expr), found ? 1 : 0);
  return found;
}

int Exprs::farthest_end(ExprId expr) {
  constexpr size_t kMostPlaces = 512;
  constexpr int32_t kTooMany = 1 << 20;
  if (const int32_t known = ends_at_.find(static_cast<uint64_t>(expr)); known >= 0)
    return known == kTooMany ? -1 : known;
  std::vector<ExprId> places{expr};
  std::vector<std::vector<size_t>> from(1);  // by place: those it can be reached from in one byte
  std::unordered_map<ExprId, size_t> numbers{{expr, 0}};
  bool whole = true;
  for (size_t at = 0; at < places.size() && whole; ++at) {
    for (uint8_t byte : std::vector<uint8_t>(classes(places[at]))) {
      const ExprId next = derive(places[at], byte);
      if (over_) return -1;
      if (next == kNothing) continue;
      auto [found, fresh] = numbers.try_emplace(next, places.size());
      if (fresh) places.push_back(next), from.emplace_back();
      from[found->second].push_back(at);
      whole = places.size() <= kMostPlaces;
    }
  }
  std::vector<int32_t> steps(places.size(), -1);
  std::vector<size_t> todo;
  for (size_t i = 0; whole && i < places.size(); ++i)
    if (nullable(places[i])) steps[i] = 0, todo.push_back(i);
  int32_t farthest = whole ? 0 : kTooMany;
  for (size_t at = 0; at < todo.size(); ++at) {
    for (size_t before : from[todo[at]]) {
      if (steps[before] >= 0) continue;
      farthest = std::max(farthest, steps[before] = steps[todo[at]] + 1);
      todo.push_back(before);
    }
  }
  // What can be reached from here has its ends no farther.
  for (size_t i = 0; i < (whole ? places.size() : 1); ++i) ends_at_.put(static_cast<uint64_t>(places[i]), farthest);
  return whole ? farthest : -1;
}

}  // namespace millrace::grammar
