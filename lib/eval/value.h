// Python values of the abstract interpreter. A Value is small and copied freely; everything larger is an Obj that lives in
// the Interpreter's heap until the interpreter goes (nothing is freed earlier, so raw pointers are safe).
//
// Three things are unlike Python:
//  - Int, Float and Bool may carry a model::Sym: which tensor's size they were computed from;
//  - Unknown is a value about which nothing is known but *why*; every operation on it gives an Unknown again;
//  - Unset marks "no value" (unbound variable, missing default); it never reaches Python code.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/trace.h"
#include "program/program.h"

namespace shardwright::eval {

using support::Range;
class Interpreter;
struct Obj;
struct ClassObj;
struct CallInfo;

enum class Kind : std::uint8_t {
  Unset,
  None,
  Bool,
  Int,
  Float,
  Complex,
  NotImplemented,
  Ellipsis,
  // Kinds below are objects: Value::obj() is never null.
  Str,
  Bytes,
  Tuple,
  List,
  Dict,
  Set,
  FrozenSet,
  Slice,
  Range,
  Function,  // written in Python
  BoundMethod,
  Native,  // written in C++
  Class,
  Instance,
  Module,
  Property,
  StaticMethod,
  ClassMethod,
  Super,
  Iterator,  // iterators and generators
  Tensor,    // subclass TensorObj
  Host,      // any other object implemented in C++ (HostObj): dtype, device, ndarray, partial, …
  Unknown,
};

class Value {
 public:
  Value() = default;
  static Value none() { return Value(Kind::None); }
  static Value unset() { return {}; }
  static Value not_implemented() { return Value(Kind::NotImplemented); }
  static Value ellipsis() { return Value(Kind::Ellipsis); }
  static Value boolean(bool b, const model::Sym* s = nullptr) {
    Value v(Kind::Bool);
    v.i_ = b;
    v.sym_ = s;
    return v;
  }
  static Value integer(std::int64_t i, const model::Sym* s = nullptr) {
    Value v(Kind::Int);
    v.i_ = i;
    v.sym_ = s;
    return v;
  }
  static Value real(double d, const model::Sym* s = nullptr) {
    Value v(Kind::Float);
    v.d_ = d;
    v.sym_ = s;
    return v;
  }
  static Value imaginary(double d) {
    Value v(Kind::Complex);
    v.d_ = d;
    return v;
  }               ///< real parts are not kept
  Value(Obj* o);  // NOLINT: implicit on purpose

  Kind kind() const { return kind_; }
  bool is(Kind k) const { return kind_ == k; }
  bool set() const { return kind_ != Kind::Unset; }
  bool is_none() const { return kind_ == Kind::None; }
  bool is_unknown() const { return kind_ == Kind::Unknown; }
  bool is_number() const { return kind_ == Kind::Bool || kind_ == Kind::Int || kind_ == Kind::Float; }
  bool is_integral() const { return kind_ == Kind::Bool || kind_ == Kind::Int; }
  bool is_object() const { return kind_ >= Kind::Str; }

  bool as_bool() const { return i_ != 0; }                                                                            ///< Bool
  std::int64_t as_int() const { return i_; }                                                                          ///< Bool, Int
  double as_double() const { return kind_ == Kind::Float || kind_ == Kind::Complex ? d_ : static_cast<double>(i_); }  ///< number
  Obj* obj() const { return o_; }                                                                                     ///< objects
  template <class T>
  T* as() const {
    return static_cast<T*>(o_);
  }                                ///< unchecked: look at kind() first
  const std::string& str() const;  ///< Str, Bytes
  const model::Sym* sym() const { return is_object() ? nullptr : sym_; }

 private:
  explicit Value(Kind k) : kind_(k) {}
  Kind kind_ = Kind::Unset;
  union {
    std::int64_t i_ = 0;
    double d_;
    Obj* o_;
  };
  const model::Sym* sym_ = nullptr;
};

/// Names to values in insertion order: scopes, attributes, keyword arguments. Erasing keeps the order of the rest.
class NameMap {
 public:
  struct Item {
    std::string name;
    Value value;
  };
  Value* find(std::string_view name);
  const Value* find(std::string_view name) const { return const_cast<NameMap*>(this)->find(name); }
  Value get(std::string_view name) const {
    auto* v = find(name);
    return v ? *v : Value::unset();
  }  ///< Unset when absent
  void set(std::string_view name, Value v);
  bool erase(std::string_view name);
  bool empty() const { return items_.empty(); }
  std::size_t size() const { return items_.size(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<Item> items_;
  std::unordered_map<std::string, std::size_t> index_;  ///< only above a dozen names
  void reindex();
};

/// Base of everything on the heap. `cls` and `attrs` are set for instances of Python classes, also when these derive from
/// a built-in type (class Config(dict), namedtuple, torch.Size): kind says how the value is stored, cls what it is.
struct Obj {
  Kind kind;
  ClassObj* cls = nullptr;   ///< nullptr: the built-in type of `kind`
  NameMap* attrs = nullptr;  ///< nullptr: no attribute dictionary (yet)
  bool late = false;         ///< made while the model runs, not while it is built
  explicit Obj(Kind k, ClassObj* c = nullptr) : kind(k), cls(c) {}
  virtual ~Obj() = default;
  Obj(const Obj&) = delete;
  Obj& operator=(const Obj&) = delete;
};

struct StrObj : Obj {
  std::string text;
  explicit StrObj(std::string t, Kind k = Kind::Str) : Obj(k), text(std::move(t)) {}
};
/// Tuple, List (and their subclasses).
struct SeqObj : Obj {
  std::vector<Value> items;
  SeqObj(Kind k, std::vector<Value> v, ClassObj* c = nullptr) : Obj(k, c), items(std::move(v)) {}
};

/// Dict, Set, FrozenSet: insertion-ordered, keys by Python's equality. Sets leave `value` Unset.
struct DictObj : Obj {
  struct Entry {
    Value key, value;
    bool alive = true;
  };
  explicit DictObj(Kind k = Kind::Dict) : Obj(k) {}
  std::vector<Entry> entries;  ///< dead ones are skipped
  std::size_t live = 0;
  std::unordered_multimap<std::size_t, std::size_t> index;
  Value default_factory;                        ///< defaultdict
  Obj* mirror = nullptr;                        ///< the object whose attributes these are (__dict__): what is set here is set there
  bool global = false;                          ///< bound at a module's top level: may be a registry
  Value* find(Interpreter&, const Value& key);  ///< raises TypeError when the key cannot be hashed
  Value* find(std::string_view key);            ///< key is a str
  void set(Interpreter&, const Value& key, Value v);
  bool erase(Interpreter&, const Value& key);
  void clear();
};

struct SliceObj : Obj {
  Value start, stop, step;
  SliceObj(Value a, Value b, Value c) : Obj(Kind::Slice), start(a), stop(b), step(c) {}
  const program::Expr* expr = nullptr;  ///< the Slice as written, when it was
};
struct RangeObj : Obj {
  std::int64_t start, stop, step;
  const model::Sym* stop_sym = nullptr;
  RangeObj(std::int64_t a, std::int64_t b, std::int64_t c) : Obj(Kind::Range), start(a), stop(b), step(c) {}
  std::int64_t size() const {
    return step > 0 ? (stop > start ? (stop - start + step - 1) / step : 0) : (start > stop ? (start - stop - step - 1) / -step : 0);
  }
};

struct ModuleObj;

/// A scope of names; functions see their own, then their parents' (class scopes excluded), then the module's globals.
struct Env {
  NameMap vars;
  Env* parent = nullptr;
  ModuleObj* globals = nullptr;
  bool is_class = false;
  std::vector<std::string> nonlocals, global_names;  ///< declared in this scope
  const std::vector<std::string>* locals = nullptr;  ///< names bound here (function scopes)
};

struct FunctionObj : Obj {
  const program::Function* def = nullptr;
  Env* closure = nullptr;
  ModuleObj* module = nullptr;
  std::vector<Value> defaults;  ///< beside def->parameters; Unset where there is none
  ClassObj* owner = nullptr;    ///< class whose body defined it: what zero-argument super() starts from
  std::string qualname;
  FunctionObj() : Obj(Kind::Function) {}
};

struct BoundMethodObj : Obj {
  Value self, function;
  BoundMethodObj(Value s, Value f) : Obj(Kind::BoundMethod), self(s), function(f) {}
};

/// A keyword argument of a call; `expr` as in CallInfo::exprs.
struct Keyword {
  std::string name;
  Value value;
  const program::Expr* expr = nullptr;
};

/// One call, as natives see it. Methods get their receiver as args[0] (expr: the receiver's expression).
struct CallInfo {
  const program::Expr* call =
      nullptr;  ///< the Call (or Binary, Subscript, Attribute, decorator) expression in the code of the innermost frame
  std::vector<Value> args;
  std::vector<const program::Expr*>
      exprs;  ///< beside args; nullptr (or shorter) where the argument is not written at `call` (* and ** arguments)
  std::vector<Keyword> kwargs;
  bool via_partial = false;  ///< the callee's value is a functools.partial of what is called
  bool partial = false;      ///< an unknown * or ** argument was left out (and noted)
  const program::Expr* expr(std::size_t i) const { return i < exprs.size() ? exprs[i] : nullptr; }
  void add(Value v, const program::Expr* e = nullptr) {
    exprs.resize(args.size());
    args.push_back(v);
    exprs.push_back(e);
  }
  Keyword* keyword(std::string_view name);
};

using NativeFn = std::function<Value(Interpreter&, CallInfo&)>;
struct NativeObj : Obj {
  std::string name;  ///< qualified: "torch.nn.functional.linear"
  NativeFn fn;
  bool binds = true;  ///< as a class attribute it becomes a method (like a Python function)
  NativeObj(std::string n, NativeFn f) : Obj(Kind::Native), name(std::move(n)), fn(std::move(f)) {}
};

/// Classes. Looking up an attribute walks `mro` (itself first).
struct ClassObj : Obj {
  std::string name;    ///< "Mlp"
  std::string module;  ///< "package.layers.mlp"
  const program::ClassDef* def = nullptr;
  ModuleObj* globals = nullptr;
  std::vector<ClassObj*> bases, mro;
  NameMap dict;
  ClassObj* metaclass = nullptr;  ///< nullptr: type
  bool builtin = false;           ///< described by us (rules/layers, standard library, C++)
  bool patched = false;           ///< of those: the user's source assigned to one of its attributes
  Value unknown_base;             ///< Unknown when a base could not be followed: a missing attribute is then unknown, not an error
  /// Makes the bare object for this class and its subclasses (object.__new__ otherwise): built-in containers, tensors.
  std::function<Obj*(Interpreter&, ClassObj*, CallInfo&)> allocate;
  std::string qualified() const { return module.empty() || module == "builtins" ? name : module + "." + name; }
  bool derives_from(const ClassObj* other) const;
  Value lookup(std::string_view attr) const;  ///< through the MRO, raw (no binding); Unset when absent
  explicit ClassObj(std::string n) : Obj(Kind::Class), name(std::move(n)) {}
};

struct InstanceObj : Obj {
  model::ModuleId module_id = -1;  ///< an nn.Module: its id in the trace
  int object_id = -1;              ///< of another class of the user's: its place in Trace::objects
  Value base;                      ///< value of a subclass of int/float (IntEnum)
  std::shared_ptr<void> native;    ///< whatever a native class wants to keep
  explicit InstanceObj(ClassObj* c) : Obj(Kind::Instance, c) {}
};

/// A Python module; its globals are Obj::attrs. Names not there yet are produced on demand by Interpreter::module_attr.
struct ModuleObj : Obj {
  std::string name;
  const program::Module* source = nullptr;  ///< nullptr: native only
  bool builtin = false;                     ///< source of ours: frames are marked builtin
  bool is_package = false;
  struct Demand;  ///< which top-level statements ran (interpreter's own)
  std::shared_ptr<Demand> demand;
  Env env;
  explicit ModuleObj(std::string n) : Obj(Kind::Module), name(std::move(n)) {
    attrs = &env.vars;
    env.globals = this;
  }
};

struct PropertyObj : Obj {
  Value get, set, del;
  bool cached = false;
  PropertyObj() : Obj(Kind::Property) {}
};
struct WrapperObj : Obj {
  Value function;
  WrapperObj(Kind k, Value f) : Obj(k), function(f) {}
};  ///< StaticMethod, ClassMethod
struct SuperObj : Obj {
  ClassObj* start;
  Value self;
  SuperObj(ClassObj* s, Value v) : Obj(Kind::Super), start(s), self(v) {}
};

/// Anything with __next__. `next` gives Unset at the end.
struct IteratorObj : Obj {
  IteratorObj() : Obj(Kind::Iterator) {}
  virtual Value next(Interpreter&) = 0;
};

/// A tensor. Helper layers subclass it; what operators and methods do is Interpreter::tensor_hooks' business.
struct TensorObj : Obj {
  model::TensorId id = -1;
  explicit TensorObj(ClassObj* c) : Obj(Kind::Tensor, c) {}
};

/// Other objects in C++. Attributes: `getattr` first, then the class (cls) with native methods bound as usual.
struct HostObj : Obj {
  explicit HostObj(ClassObj* c) : Obj(Kind::Host, c) {}
  virtual std::string repr(Interpreter&) const;
  virtual bool equals(Interpreter&, const Value& other) const { return other.is_object() && other.obj() == this; }
  virtual std::size_t hash() const { return std::hash<const void*>()(this); }
  virtual Value getattr(Interpreter&, std::string_view) { return {}; }                  ///< Unset: not here
  virtual bool setattr(Interpreter&, std::string_view, const Value&) { return false; }  ///< false: into attrs
  virtual Value truth(Interpreter&) { return Value::boolean(true); }
  /// Binary operator with this object on either side; Unset: not supported.
  virtual Value binary(Interpreter&, std::string_view /*op*/, const Value& /*a*/, const Value& /*b*/) { return {}; }
  virtual Value compare(Interpreter&, std::string_view /*op*/, const Value& /*a*/, const Value& /*b*/) { return {}; }
};

struct UnknownObj : Obj {
  std::string why;
  Range where;
  UnknownObj(std::string w, Range r) : Obj(Kind::Unknown), why(std::move(w)), where(r) {}
};

/// A Python exception on its way up. Only inside lib/eval; drivers turn it into a Diagnostic.
struct PyError {
  Value exception;                                   ///< InstanceObj of a class deriving from BaseException
  std::vector<std::pair<Range, std::string>> trace;  ///< call stack when raised, innermost first: place, function
};
/// The run cannot go on (step budget, cancelled): not catchable by Python code.
struct Abort {
  std::string message;
  Range where;
};

}  // namespace shardwright::eval
