#include "grammar/expr.h"

#include <algorithm>
#include <string>

namespace millrace::grammar {

namespace {

constexpr size_t kMostNodes = 2'000'000;

uint64_t mix(uint64_t seed, uint64_t value) {
  seed ^= value + 0x9E3779B97F4A7C15ull + (seed << 6) + (seed >> 2);
  return seed * 0xBF58476D1CE4E5B9ull;
}

}  // namespace

Exprs::Exprs() {
  nodes_.push_back({});
  Node empty;
  empty.kind = Kind::empty;
  empty.nullable = true;
  nodes_.push_back(empty);
  live_ = {0, 1};
}

bool Exprs::spend(uint64_t units) {
  work_ += units;
  if (work_ > limit_ || nodes_.size() > kMostNodes) over_ = true;
  return !over_;
}

uint64_t Exprs::hash_of(const Node& node) const {
  uint64_t h = mix(static_cast<uint64_t>(node.kind), static_cast<uint64_t>(static_cast<uint32_t>(node.a)));
  h = mix(h, static_cast<uint64_t>(static_cast<uint32_t>(node.b)));
  h = mix(h, static_cast<uint64_t>(static_cast<uint32_t>(node.c)));
  h = mix(mix(h, node.x), node.y);
  for (ExprId id : node.list) h = mix(h, static_cast<uint64_t>(id));
  return h;
}

bool Exprs::same(const Node& a, const Node& b) const {
  return a.kind == b.kind && a.a == b.a && a.b == b.b && a.c == b.c && a.x == b.x && a.y == b.y && a.list == b.list;
}

ExprId Exprs::intern(Node node) {
  if (!spend(1 + node.list.size() / 8)) return kNothing;
  const uint64_t hash = hash_of(node);
  auto [begin, end] = interned_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (same(nodes_[static_cast<size_t>(it->second)], node)) return it->second;
  }
  const ExprId id = static_cast<ExprId>(nodes_.size());
  list_bytes_ += node.list.capacity() * sizeof(ExprId);
  nodes_.push_back(std::move(node));
  live_.push_back(-1);
  interned_.emplace(hash, id);
  return id;
}

ExprId Exprs::bytes(const ByteSet& wanted) {
  ByteSet set = wanted;
  set.keep(writable_);
  if (set.empty()) return kNothing;
  uint64_t h = 0;
  for (uint64_t word : set.words) h = mix(h, word);
  Node node;
  node.kind = Kind::set;
  node.x = h;
  // The hash stands for the set in the node; a clash is told apart by trying the next number.
  for (;; ++node.y) {
    auto [begin, end] = interned_.equal_range(hash_of(node));
    bool clash = false;
    for (auto it = begin; it != end; ++it) {
      const Node& other = nodes_[static_cast<size_t>(it->second)];
      if (other.kind != Kind::set || other.x != node.x || other.y != node.y) continue;
      if (sets_[static_cast<size_t>(other.c)] == set) return it->second;
      clash = true;
    }
    if (!clash) break;
  }
  const uint64_t hash = hash_of(node);
  if (!spend()) return kNothing;
  node.c = static_cast<int32_t>(sets_.size());
  sets_.push_back(set);
  const ExprId id = static_cast<ExprId>(nodes_.size());
  nodes_.push_back(std::move(node));
  live_.push_back(-1);
  interned_.emplace(hash, id);
  return id;
}

ExprId Exprs::literal(std::string_view text) {
  ExprId tail = kEmpty;
  for (size_t i = text.size(); i-- > 0;) {
    ByteSet set;
    set.add(static_cast<uint8_t>(text[i]));
    tail = cat(bytes(set), tail);
  }
  return tail;
}

ExprId Exprs::trie(std::span<const std::string> sorted, size_t depth) {
  // Walks down while there is one child, so that depth of the calls is that of the branchings.
  if (sorted.empty() || !spend()) return kNothing;
  std::vector<ExprId> parts;
  size_t i = 0;
  while (i < sorted.size() && sorted[i].size() == depth) {
    parts.push_back(kEmpty);
    ++i;
  }
  while (i < sorted.size()) {
    size_t j = i;
    const char c = sorted[i][depth];
    while (j < sorted.size() && sorted[j][depth] == c) ++j;
    size_t common = depth + 1;
    const std::string& first = sorted[i];
    const std::string& last = sorted[j - 1];
    while (common < first.size() && common < last.size() && first[common] == last[common]) ++common;
    ExprId rest = trie(sorted.subspan(i, j - i), common);
    for (size_t k = common; k-- > depth;) {
      ByteSet set;
      set.add(static_cast<uint8_t>(first[k]));
      rest = cat(bytes(set), rest);
    }
    parts.push_back(rest);
    i = j;
  }
  return alt(std::move(parts));
}

ExprId Exprs::literals(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return trie(texts, 0);
}

ExprId Exprs::cat(ExprId first, ExprId then) {
  if (first == kNothing || then == kNothing) return kNothing;
  if (first == kEmpty) return then;
  if (then == kEmpty) return first;
  std::vector<ExprId> heads;
  while (nodes_[static_cast<size_t>(first)].kind == Kind::cat) {
    heads.push_back(nodes_[static_cast<size_t>(first)].a);
    first = nodes_[static_cast<size_t>(first)].b;
  }
  if (then == all_texts_ && nodes_[static_cast<size_t>(first)].kind == Kind::repeat) {
    const Node& of = nodes_[static_cast<size_t>(first)];  // what comes more often is a text too
    if (of.b != of.c) first = repeat(of.a, of.b, of.b);
    if (first == kEmpty && heads.empty()) return then;
  }
  if (first != kEmpty) heads.push_back(first);
  for (size_t i = heads.size(); i-- > 0;) {
    Node node;
    node.kind = Kind::cat;
    node.a = heads[i];
    node.b = then;
    const Node& a = nodes_[static_cast<size_t>(heads[i])];
    const Node& b = nodes_[static_cast<size_t>(then)];
    node.nullable = a.nullable && b.nullable;
    node.plain = a.plain && b.plain;
    node.finite = a.finite && b.finite;
    then = intern(std::move(node));
    if (then == kNothing) return kNothing;
  }
  return then;
}

ExprId Exprs::cat(std::initializer_list<ExprId> parts) {
  ExprId tail = kEmpty;
  for (auto it = std::rbegin(parts); it != std::rend(parts); ++it) tail = cat(*it, tail);
  return tail;
}

void Exprs::flatten(Kind kind, ExprId part, std::vector<ExprId>& out) const {
  const Node& node = nodes_[static_cast<size_t>(part)];
  if (node.kind == kind) {
    out.insert(out.end(), node.list.begin(), node.list.end());
  } else {
    out.push_back(part);
  }
}

// Alternatives that differ in their first byte only become one: it keeps sets of states small.
void Exprs::merge_heads(std::vector<ExprId>& parts) {
  std::vector<std::pair<ExprId, ByteSet>> heads;  // tail, first bytes
  std::vector<ExprId> others;
  std::unordered_map<ExprId, size_t> by_tail;
  for (ExprId part : parts) {
    const Node& node = nodes_[static_cast<size_t>(part)];
    ExprId head = part, tail = kEmpty;
    if (node.kind == Kind::cat) head = node.a, tail = node.b;
    const Node& first = nodes_[static_cast<size_t>(head)];
    if (first.kind != Kind::set) {
      others.push_back(part);
      continue;
    }
    auto [found, fresh] = by_tail.try_emplace(tail, heads.size());
    if (fresh) heads.push_back({tail, {}});
    for (size_t w = 0; w < 4; ++w) {
      heads[found->second].second.words[w] |= sets_[static_cast<size_t>(first.c)].words[w];
    }
  }
  if (heads.size() + others.size() == parts.size()) return;
  for (const auto& [tail, set] : heads) others.push_back(cat(bytes(set), tail));
  parts = std::move(others);
}

// Of what repeats before any text, the fewest times hold the others.
void Exprs::drop_contained(std::vector<ExprId>& parts) const {
  if (std::find(parts.begin(), parts.end(), all_texts_) != parts.end()) return parts.assign(1, all_texts_);
  const auto repeated = [&](ExprId part, ExprId& what) {
    const Node& node = nodes_[static_cast<size_t>(part)];
    if (node.kind != Kind::cat || node.b != all_texts_) return 0;
    const Node& head = nodes_[static_cast<size_t>(node.a)];
    what = head.kind == Kind::repeat ? head.a : node.a;
    return head.kind == Kind::repeat ? head.b : 1;
  };
  std::unordered_map<ExprId, int> fewest;
  for (ExprId part : parts) {
    ExprId what = kNothing;
    const int times = repeated(part, what);
    if (times == 0) continue;
    auto [found, fresh] = fewest.try_emplace(what, times);
    if (!fresh) found->second = std::min(found->second, times);
  }
  std::erase_if(parts, [&](ExprId part) {
    ExprId what = kNothing;
    const int times = repeated(part, what);
    return times > 0 && times > fewest.at(what);
  });
}

ExprId Exprs::alt(std::vector<ExprId> parts) {
  std::vector<ExprId> flat;
  for (ExprId part : parts) flatten(Kind::alt, part, flat);
  std::erase(flat, kNothing);
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.size() > 1 && all_texts_ != kNothing) drop_contained(flat);
  if (flat.size() > 1) {
    merge_heads(flat);
    std::sort(flat.begin(), flat.end());
  }
  if (flat.empty() || over_) return kNothing;
  if (flat.size() == 1) return flat[0];
  Node node;
  node.kind = Kind::alt;
  for (ExprId id : flat) {
    const Node& part = nodes_[static_cast<size_t>(id)];
    if (part.kind == Kind::negate && part.a == kNothing) return id;
    node.nullable |= part.nullable;
    node.plain &= part.plain;
    node.finite &= part.finite;
  }
  node.list = std::move(flat);
  // The empty text beside something that has it anyway.
  if (node.list[0] == kEmpty) {
    bool other = false;
    for (size_t i = 1; i < node.list.size(); ++i) other |= nullable(node.list[i]);
    if (other) return alt({node.list.begin() + 1, node.list.end()});
  }
  return intern(std::move(node));
}

ExprId Exprs::both(std::vector<ExprId> parts) {
  std::vector<ExprId> flat;
  for (ExprId part : parts) flatten(Kind::both, part, flat);
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  Node node;
  node.kind = Kind::both;
  node.nullable = true;
  node.plain = false;
  node.finite = false;
  for (ExprId id : flat) {
    const Node& part = nodes_[static_cast<size_t>(id)];
    if (id == kNothing) return kNothing;
    if (part.kind == Kind::negate && part.a == kNothing) continue;
    node.nullable &= part.nullable;
    node.finite |= part.finite;
    node.list.push_back(id);
  }
  if (node.list.empty()) return negate(kNothing);
  if (node.list.size() == 1) return node.list[0];
  for (ExprId id : node.list) {
    if (id == kEmpty) return node.nullable ? kEmpty : kNothing;
    const Node& part = nodes_[static_cast<size_t>(id)];
    if (part.kind == Kind::negate && std::binary_search(node.list.begin(), node.list.end(), part.a)) return kNothing;
  }
  return intern(std::move(node));
}

ExprId Exprs::negate(ExprId inner) {
  const Node& of = nodes_[static_cast<size_t>(inner)];
  if (of.kind == Kind::negate) return of.a;
  Node node;
  node.kind = Kind::negate;
  node.a = inner;
  node.nullable = !of.nullable;
  node.plain = false;
  node.finite = false;
  return intern(std::move(node));
}

ExprId Exprs::repeat(ExprId inner, int least, int most) {
  if (most == 0 || inner == kEmpty) return kEmpty;
  if (inner == kNothing) return least == 0 ? kEmpty : kNothing;
  if (least == 1 && most == 1) return inner;
  const Node& of = nodes_[static_cast<size_t>(inner)];
  if (of.kind == Kind::repeat && of.b <= 1 && most != kMany && of.c != kMany &&
      static_cast<int64_t>(of.c) * most < (1 << 30)) {
    return repeat(of.a, least * of.b, of.c * most);  // counts without gaps between
  }
  if (of.kind == Kind::repeat && of.b <= 1 && (most == kMany || of.c == kMany)) {
    return repeat(of.a, least * of.b, kMany);
  }
  Node node;
  node.kind = Kind::repeat;
  node.a = inner;
  node.b = of.nullable ? 0 : least;
  node.c = most;
  node.nullable = node.b == 0;
  node.plain = of.plain;
  node.finite = of.finite && most != kMany;
  return intern(std::move(node));
}

ExprId Exprs::multiple(uint64_t step, int places) {
  Node node;
  node.kind = Kind::multiple;
  node.x = step;
  node.a = places;
  node.nullable = true;  // nothing yet is zero
  node.finite = false;
  return intern(std::move(node));
}

// a: places still to come after the point, b: 1 after the point, x: step, y: remainder.
ExprId Exprs::derive_multiple(const Node& node, uint8_t byte) {
  Node next = node;
  if (byte == '-' && node.b == 0 && node.y == 0) return intern(std::move(next));
  if (byte == '.' && node.b == 0) {
    next.b = 1;
  } else if (byte >= '0' && byte <= '9') {
    const unsigned digit = byte - '0';
    if (node.b == 1 && node.a == 0) {
      if (digit != 0) return kNothing;
    } else {
      next.y = (node.y * 10 + digit) % node.x;
      if (node.b == 1) --next.a;
    }
  } else {
    return kNothing;
  }
  uint64_t rest = next.y;  // a step has at most 18 digits, so ten times it fits
  for (int i = 0; i < next.a; ++i) rest = rest * 10 % next.x;
  next.nullable = rest == 0;
  if (next.b == 1 && next.a == 0 && !next.nullable) return kNothing;
  return intern(std::move(next));
}

ExprId Exprs::derive_list(ExprId expr, uint8_t byte) {
  const std::vector<ExprId> list = nodes_[static_cast<size_t>(expr)].list;
  const bool is_alt = nodes_[static_cast<size_t>(expr)].kind == Kind::alt;
  std::vector<ExprId> parts;
  parts.reserve(list.size());
  for (ExprId part : list) {
    const ExprId next = derive(part, byte);
    if (!is_alt && next == kNothing) return kNothing;
    if (next != kNothing) parts.push_back(next);
  }
  return is_alt ? alt(std::move(parts)) : both(std::move(parts));
}

ExprId Exprs::derive_now(ExprId expr, uint8_t byte) {
  const Node& node = nodes_[static_cast<size_t>(expr)];
  switch (node.kind) {
    case Kind::nothing:
    case Kind::empty:
      return kNothing;
    case Kind::set:
      return sets_[static_cast<size_t>(node.c)].has(byte) ? kEmpty : kNothing;
    case Kind::alt:
    case Kind::both:
      return derive_list(expr, byte);
    case Kind::negate:
      return negate(derive(node.a, byte));
    case Kind::multiple:
      return derive_multiple(Node(node), byte);
    case Kind::repeat: {
      const ExprId inner = node.a;
      const int least = node.b, most = node.c;
      const ExprId head = derive(inner, byte);
      if (head == kNothing) return kNothing;
      return cat(head, repeat(inner, std::max(0, least - 1), most == kMany ? kMany : most - 1));
    }
    case Kind::cat:
      break;
  }
  const ExprId first = node.a, then = node.b;
  const ExprId head = cat(derive(first, byte), then);
  if (!nullable(first)) return head;
  return alt({head, derive(then, byte)});
}

ExprId Exprs::derive(ExprId expr, uint8_t byte) {
  if (expr <= kEmpty) return kNothing;
  const Node& node = nodes_[static_cast<size_t>(expr)];
  if (node.kind == Kind::set) return sets_[static_cast<size_t>(node.c)].has(byte) ? kEmpty : kNothing;
  const uint64_t key = static_cast<uint64_t>(expr) << 8 | byte;
  if (const int32_t found = derived_.find(key); found >= 0) return found;
  if (!spend(2)) return kNothing;
  const ExprId next = derive_now(expr, byte);
  if (over_) return kNothing;
  derived_.put(key, next);
  return next;
}

void Exprs::first_sets(ExprId expr, std::vector<int32_t>& out) {
  mark_.resize(nodes_.size(), 0);
  ++walk_;
  std::vector<ExprId> todo{expr};
  while (!todo.empty()) {
    const ExprId id = todo.back();
    todo.pop_back();
    if (mark_[static_cast<size_t>(id)] == walk_) continue;
    mark_[static_cast<size_t>(id)] = walk_;
    ++work_;
    const Node& node = nodes_[static_cast<size_t>(id)];
    if (node.kind == Kind::set) out.push_back(node.c);
    if (node.kind == Kind::negate || node.kind == Kind::repeat || node.kind == Kind::cat) todo.push_back(node.a);
    if (node.kind == Kind::cat && nullable(node.a)) todo.push_back(node.b);
    for (ExprId part : node.list) todo.push_back(part);
    if (node.kind == Kind::multiple) out.push_back(-1);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
}

// As deep as derive() goes, no deeper.
ByteSet Exprs::first_bytes(ExprId expr) {
  const Node& node = nodes_[static_cast<size_t>(expr)];
  if (node.kind == Kind::set) return sets_[static_cast<size_t>(node.c)];
  if (node.kind == Kind::negate) return ByteSet::all();
  if (node.kind == Kind::repeat) return first_bytes(node.a);
  if (node.kind == Kind::nothing || node.kind == Kind::empty) return {};
  const uint64_t key = static_cast<uint64_t>(expr);
  if (const int32_t known = first_index_.find(key); known >= 0) return first_bytes_[static_cast<size_t>(known)];
  work_ += 1 + node.list.size() / 8;
  ByteSet found;
  if (node.kind == Kind::multiple) {
    found.add('0', '9');
    found.add('-');
    found.add('.');
  } else if (node.kind == Kind::cat) {
    found = first_bytes(node.a);
    if (nullable(node.a)) found.add(first_bytes(node.b));
  } else {
    const bool is_alt = node.kind == Kind::alt;
    if (!is_alt) found = ByteSet::all();
    for (ExprId part : node.list) is_alt ? found.add(first_bytes(part)) : found.keep(first_bytes(part));
  }
  first_index_.put(key, static_cast<int32_t>(first_bytes_.size()));
  first_bytes_.push_back(found);
  return found;
}

std::vector<uint8_t> Exprs::split(const std::vector<int32_t>& sets) const {
  std::array<uint16_t, 256> of{};
  uint16_t count = 1;
  const auto refine = [&](const ByteSet& set) {
    std::array<uint16_t, 1024> renamed{};
    for (unsigned b = 0; b < 256; ++b) {
      if (!set.has(static_cast<uint8_t>(b))) continue;
      uint16_t& to = renamed[of[b]];
      if (to == 0) to = count++;
      of[b] = to;
    }
    // Names are kept small: at most one for each byte.
    std::array<uint16_t, 1024> tidy{};
    count = 1;
    for (unsigned b = 0; b < 256; ++b) {
      if (tidy[of[b]] == 0) tidy[of[b]] = count++;
      of[b] = static_cast<uint16_t>(tidy[of[b]] - 1);
    }
  };
  for (int32_t index : sets) {
    if (index >= 0) {
      refine(sets_[static_cast<size_t>(index)]);
      continue;
    }
    for (const char* c = "0123456789.-"; *c; ++c) {
      ByteSet one;
      one.add(static_cast<uint8_t>(*c));
      refine(one);
    }
  }
  std::vector<uint8_t> found;
  std::vector<bool> taken(1024, false);
  for (unsigned i = 0; i < 256; ++i) {
    const unsigned b = (i + 255) & 255;
    if (taken[of[b]]) continue;
    taken[of[b]] = true;
    found.push_back(static_cast<uint8_t>(b));
  }
  return found;
}

const std::vector<uint8_t>& Exprs::classes(ExprId expr) {
  std::vector<int32_t> sets;
  first_sets(expr, sets);
  auto found = classes_.find(sets);
  if (found == classes_.end()) found = classes_.emplace(sets, split(sets)).first;
  return found->second;
}

int64_t Exprs::bytes_used() const {
  const size_t total = nodes_.size() * (sizeof(Node) + 64) + list_bytes_ + derived_.bytes() + first_index_.bytes() +
                       going_on_.bytes() + ends_at_.bytes() + (sets_.size() + first_bytes_.size()) * sizeof(ByteSet);
  return static_cast<int64_t>(total);
}

}  // namespace millrace::grammar
