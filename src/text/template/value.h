// Values of the template language: what Python's objects are to Jinja. Small ones (None, bool, int, float) lie in the
// Value itself, the others are counted objects on the Heap of one render. Nothing here is shared between renders, so
// the counts are plain integers; a Heap and its values belong to one thread. Lists, tuples, dicts and texts never
// change once made, so sharing them is safe; namespaces, activations, loops and iterators do, and only through them can
// values form a ring, which the Heap breaks when the render ends. Objects are freed without recursion, however deep
// they nest.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::jinja {

enum class Type : uint8_t {
  missing,  // no value at all: a variable not yet set, an argument not given
  none,
  boolean,
  integer,
  natural,  // an integer above int64's range; it can be printed and compared, not computed with
  real,
  // From here on: objects.
  text,
  list,
  tuple,
  dict,
  undefined,
  range,
  view,
  iterator,
  space,  // Jinja's namespace()
  macro,
  function,
  loop,
  cycler,
  joiner,
  activation,
};

class Heap;

struct Object {
  explicit Object(Type object_type) : type(object_type) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  // Drops every reference to other objects, for those kinds that can be part of a ring.
  virtual void let_go() {}

  Heap* heap = nullptr;
  Object* next_dead = nullptr;
  size_t bytes = 0;  // what the heap charged for it
  uint32_t references = 0;
  uint32_t ring_index =
      std::numeric_limits<uint32_t>::max();  // place in the heap's list of objects that can form rings
  Type type;
};

void release(Object* object);

// A counted reference to an object of known kind.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) {
    if (object_ != nullptr) ++object_->references;
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) release(object_);
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

class Value {
 public:
  Value() { data_.integer = 0; }
  template <class T>
  Value(const Ref<T>& object) : Value(static_cast<Object*>(object.get())) {}
  explicit Value(Object* object) : type_(object->type) {
    data_.object = object;
    ++object->references;
  }
  Value(const Value& other) : data_(other.data_), type_(other.type_) {
    if (is_object()) ++data_.object->references;
  }
  Value(Value&& other) noexcept : data_(other.data_), type_(std::exchange(other.type_, Type::missing)) {}
  Value& operator=(Value other) noexcept {
    std::swap(data_, other.data_);
    std::swap(type_, other.type_);
    return *this;
  }
  ~Value() {
    if (is_object()) release(data_.object);
  }

  static Value none() { return Value(Type::none, Data{.integer = 0}); }
  static Value boolean(bool value) { return Value(Type::boolean, Data{.integer = value ? 1 : 0}); }
  static Value integer(int64_t value) { return Value(Type::integer, Data{.integer = value}); }
  static Value natural(uint64_t value);  // an integer if it fits one
  static Value real(double value) { return Value(Type::real, Data{.real = value}); }

  Type type() const { return type_; }
  bool is(Type type) const { return type_ == type; }
  bool is_object() const { return type_ >= Type::text; }
  bool is_missing() const { return type_ == Type::missing; }
  bool is_undefined() const { return type_ == Type::undefined; }
  bool is_text() const { return type_ == Type::text; }
  // An int or a bool, which Python takes for an int.
  bool is_integral() const { return type_ == Type::integer || type_ == Type::boolean; }
  bool is_number() const { return type_ >= Type::boolean && type_ <= Type::real; }

  // Each holds only for the type it names; as_integer also for booleans.
  int64_t as_integer() const { return data_.integer; }
  uint64_t as_natural() const { return data_.natural; }
  double as_real() const { return data_.real; }
  Object* object() const { return data_.object; }
  template <class T>
  T& as() const {
    return *static_cast<T*>(data_.object);
  }

 private:
  union Data {
    int64_t integer;
    uint64_t natural;
    double real;
    Object* object;
  };
  Value(Type type, Data data) : data_(data), type_(type) {}

  Data data_;
  Type type_ = Type::missing;
};

using Values = std::vector<Value>;

struct Text : Object {
  Text(std::string text, bool is_markup) : Object(Type::text), bytes_utf8(std::move(text)), markup(is_markup) {}
  size_t length() const;  // in code points
  bool is_ascii() const { return length() == bytes_utf8.size(); }

  std::string bytes_utf8;
  bool markup;  // Jinja's Markup: `+` and `%` escape what they add to it

 private:
  mutable size_t length_ = std::numeric_limits<size_t>::max();
};

struct List : Object {
  explicit List(Values values) : Object(Type::list), items(std::move(values)) {}
  Values items;
};

struct Tuple : Object {
  explicit Tuple(Values values, bool group = false) : Object(Type::tuple), items(std::move(values)), is_group(group) {}
  Values items;
  bool is_group;  // made by the groupby filter: its two items are also called grouper and list
};

// Keys in order of insertion, and an order of the keys to find them by. Hashing would let a hostile caller choose keys
// that collide; a sorted index cannot be slowed down.
struct Dict : Object {
  using Entry = std::pair<Value, Value>;
  explicit Dict(std::vector<Entry> pairs);  // of two equal keys, the first place and the last value stay
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;

  std::vector<Entry> entries;

 private:
  std::vector<uint32_t> by_key_;
};

struct Range : Object {
  Range(int64_t from, int64_t to, int64_t by, int64_t items)
      : Object(Type::range), start(from), stop(to), step(by), count(items) {}
  int64_t start, stop, step, count;
};

// What dict.keys(), .values() and .items() give.
struct View : Object {
  enum class Kind : uint8_t { keys, values, items };
  View(Ref<Dict> of, Kind what) : Object(Type::view), dict(std::move(of)), part(what) {}
  Ref<Dict> dict;
  Kind part;
};

// Something that is not there. It prints as nothing; using it says why it is not there.
struct Undefined : Object {
  Undefined() : Object(Type::undefined) {}
  std::string message() const;

  std::string hint;         // the whole message, if not empty
  std::string object_type;  // of what the name was looked up in; empty: a variable
  std::string name;         // Python's repr() of the key if key_is_text is false
  bool key_is_text = true;
};

struct Space : Object {
  Space() : Object(Type::space) {}
  void let_go() override { attributes.clear(); }
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);

  std::vector<std::pair<std::string, Value>> attributes;  // in the order in which they were first set

 private:
  std::map<std::string, size_t, std::less<>> index_;
};

struct Cycler : Object {
  explicit Cycler(Values values) : Object(Type::cycler), items(std::move(values)) {}
  Values items;
  size_t position = 0;
};

struct Joiner : Object {
  explicit Joiner(Value text) : Object(Type::joiner), separator(std::move(text)) {}
  Value separator;
  bool used = false;
};

// The variables of one running function: the template itself, a macro, a recursive loop.
struct Activation : Object {
  Activation(size_t slot_count, Ref<Activation> enclosing)
      : Object(Type::activation), slots(slot_count), parent(std::move(enclosing)) {}
  void let_go() override {
    slots.clear();
    parent = {};
  }
  Values slots;
  Ref<Activation> parent;
};

// Owns what one render allocates: counts its bytes, frees what nobody refers to any more, and at the end the rings.
class Heap {
 public:
  explicit Heap(size_t limit) : limit_(limit) {}
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Objects are made without asking; over_limit() says so afterwards. Whatever could make a large one asks room_for
  // first.
  bool over_limit() const { return live_ > limit_; }
  bool room_for(uint64_t bytes) const { return live_ <= limit_ && bytes <= limit_ - live_; }
  size_t live() const { return live_; }
  size_t limit() const { return limit_; }

  Value text(std::string text, bool markup = false);
  Value list(Values items);
  Value tuple(Values items, bool group = false);
  Value dict(std::vector<Dict::Entry> entries);
  template <class T, class... Args>
  Ref<T> make(size_t extra_bytes, Args&&... args) {
    T* object = new T(std::forward<Args>(args)...);
    adopt(object, sizeof(T) + extra_bytes);
    return Ref<T>(object);
  }
  // The same for kinds that can be part of a ring.
  template <class T, class... Args>
  Ref<T> make_ringed(size_t extra_bytes, Args&&... args) {
    Ref<T> object = make<T>(extra_bytes, std::forward<Args>(args)...);
    enlist(object.get());
    return object;
  }

 private:
  friend void release(Object* object);
  void adopt(Object* object, size_t bytes);
  void enlist(Object* object);
  void retire(Object* object);

  size_t limit_;
  size_t live_ = 0;
  std::vector<Object*> ringed_;
  Object* dead_ = nullptr;
  bool draining_ = false;
};

inline void release(Object* object) {
  if (--object->references == 0) object->heap->retire(object);
}

inline const std::string& text_of(const Value& value) { return value.as<Text>().bytes_utf8; }
inline const Values& items_of(const Value& list_or_tuple) {
  return list_or_tuple.is(Type::list) ? list_or_tuple.as<List>().items : list_or_tuple.as<Tuple>().items;
}

// An order over everything that can be a key of a dict: equal (0) exactly if Python calls them equal.
int compare_keys(const Value& a, const Value& b);
// A number against another, exactly; NaN is above everything and equal to itself.
int compare_numbers(const Value& a, const Value& b);
// Whether Python can hash its type: no list, dict or view. A tuple is hashable if what it holds is.
inline bool is_hashable(const Value& value) {
  return !value.is(Type::list) && !value.is(Type::dict) && !value.is(Type::view);
}

// Python's name of the type, as in its error messages.
std::string_view type_name(const Value& value);

}  // namespace millrace::jinja
