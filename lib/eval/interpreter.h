// The abstract interpreter: runs a program::Module on ordinary Python values and abstract tensors, and records what it does
// in a model::Trace.
//
// How natives fit in. `modules` maps dotted names to functions that fill a ModuleObj with NativeObj/ClassObj values, and to
// Python source text of ours ("hybrid": the native function fills the globals first, then the source's names are defined on
// demand, all its frames marked builtin). A name registered in neither way is looked for on the search path.
//   in.modules.native("torch.nn.functional", [](Interpreter& in, ModuleObj& m) { in.def(m, "relu", relu); });
//   in.modules.source("torch.nn", text, "rules/layers/nn.py");
// Classes made in C++ are ClassObj with NativeObj in their dict: "__new__", "__init__", "__setattr__", "__getattr__",
// "__call__", "__deepcopy__" (self, memo)… are honoured exactly as if written in Python. Python classes (ours or the user's)
// may derive from them. In `__new__`/`__init__`, CallInfo::call and frame() are those of the constructor call `Cls(…)`.
//
// Errors: natives raise Python exceptions with in.raise("TypeError", "…"), which throws PyError (C++), caught by run.h's
// entry points only. Things that are not understood: return in.unknown("why", call) rather than raising.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "eval/value.h"
#include "model/trace.h"
#include "program/program.h"
#include "support/source.h"

namespace shardwright::eval {

/// Where source text of modules comes from (lib/python implements it over the file system or in memory).
struct ModuleSource {
  virtual ~ModuleSource() = default;
  /// The parsed module, or nullptr when there is no such file on the search path. A namespace package gives an empty module.
  virtual const program::Module* load(const std::string& dotted) = 0;
  /// Parses text of ours under a display path.
  virtual const program::Module* parse(const std::string& dotted, const std::string& path, std::string_view text) = 0;
  /// Whether a module (or, for a package, any module inside) could define a name: a cheap look at the text before parsing.
  virtual bool mentions(const std::string& /*dotted*/, std::string_view /*word*/) { return true; }
};

/// What operators, attributes and built-ins do to tensors; implemented by lib/eval/torch. `expr` arguments are the operand
/// expressions in the code of the innermost frame (nullptr: not written there); `site` is the whole expression.
struct TensorHooks {
  virtual ~TensorHooks() = default;
  /// "+" "-" "*" "/" "//" "%" "**" "@" "&" "|" "^" "<<" ">>"; at least one of a, b is a tensor. `inplace`: an augmented assignment.
  virtual Value binary(Interpreter&, std::string_view op, const Value& a, const Value& b, const program::Expr* site,
                       const program::Expr* a_expr, const program::Expr* b_expr, bool inplace) = 0;
  virtual Value unary(Interpreter&, std::string_view op, const Value& a, const program::Expr* site, const program::Expr* a_expr) = 0;
  /// "<" "<=" ">" ">=" "==" "!="
  virtual Value compare(Interpreter&, std::string_view op, const Value& a, const Value& b, const program::Expr* site,
                        const program::Expr* a_expr, const program::Expr* b_expr) = 0;
  virtual Value getitem(Interpreter&, const Value& t, const Value& key, const program::Expr* site, const program::Expr* t_expr,
                        const program::Expr* key_expr) = 0;
  virtual void setitem(Interpreter&, const Value& t, const Value& key, const Value& v, const program::Expr* site) = 0;
  /// Attributes and methods (methods: return a BoundMethodObj over a NativeObj). Unset: no such attribute (then attrs and cls are tried).
  virtual Value getattr(Interpreter&, const Value& t, std::string_view name, const program::Expr* site) = 0;
  virtual bool setattr(Interpreter&, const Value& t, std::string_view name, const Value& v) = 0;  ///< false: store in attrs
  virtual Value length(Interpreter&, const Value& t) = 0;
  virtual std::vector<Value> iterate(Interpreter&, const Value& t, const program::Expr* site) = 0;  ///< along dimension 0
  virtual Value truth(Interpreter&, const Value& t) = 0;                                            ///< Bool or Unknown
  virtual Value to_number(Interpreter&, const Value& t, std::string_view type) = 0;                 ///< int(t), float(t), bool(t)
  virtual void escape(const CallInfo&) = 0;  ///< tensors among the arguments go into something that is not followed
};

/// How a function's parameters are declared, for natives: "input, weight, bias=None, *, stride=1, *sizes, **rest".
/// Defaults are literals: None True False numbers 'strings' () .
class Signature {
 public:
  Signature(std::string name, std::string_view parameters);
  struct Bound {
    std::vector<Value> values;                ///< beside the parameters; defaults filled in; Unset never
    std::vector<const program::Expr*> exprs;  ///< argument expressions, nullptr when defaulted or not written
    std::vector<bool> given;                  ///< passed by the caller
    std::vector<Value> rest;                  ///< *args
    std::vector<const program::Expr*> rest_exprs;
    std::vector<Keyword> keywords;  ///< **kwargs
    const Value& operator[](std::size_t i) const { return values[i]; }
    const program::Expr* expr(std::size_t i) const { return exprs[i]; }
  };
  /// Raises Python's TypeError for missing, repeated or unexpected arguments.
  Bound bind(Interpreter&, const CallInfo&) const;
  const std::string& name() const { return name_; }
  int index(std::string_view parameter) const;  ///< -1: none
  std::size_t size() const { return params_.size(); }
  const std::string& parameter(std::size_t i) const { return params_[i].name; }

 private:
  struct Param {
    std::string name;
    std::string literal;
    bool has_default = false, keyword_only = false;
  };
  std::string name_;
  std::vector<Param> params_;
  bool rest_ = false, keywords_ = false;
};

/// A running call. Builtin frames (our layer descriptions) are in the trace too, marked.
struct ActiveFrame {
  model::FrameId id = -1;
  const program::Function* function = nullptr;
  Env* env = nullptr;
  model::StepId step = -1;  ///< statement being executed
  const program::Stmt* stmt = nullptr;
  model::IterPath iters;                ///< loops of this function around what is being executed
  const program::Expr* call = nullptr;  ///< call expression in the parent's code
  model::ModuleId self = -1;
  bool builtin = false;
  Value handling;                                           ///< exception being handled (bare raise)
  std::vector<std::pair<model::FrameId, Value>> came_back;  ///< results of the user's functions that a plain function called
  std::string name;                                         ///< for tracebacks
};

/// Where something happens, in user code.
struct Site {
  model::FrameId frame = -1;  ///< innermost frame of user code
  model::StepId step = -1;
  const program::Expr* expr = nullptr;  ///< the expression in that frame
  model::IterPath iters;
  bool direct = false;  ///< the innermost frame is user code: argument expressions of the CallInfo are the user's
};

class Interpreter {
 public:
  Interpreter(support::SourceManager&, ModuleSource&, model::Trace&);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  support::SourceManager& sources;
  ModuleSource& loader;
  model::Trace& trace;
  TensorHooks* tensors = nullptr;       ///< nullptr: no tensors
  std::int64_t max_steps = 20'000'000;  ///< statements + loop iterations + calls
  bool at_top_level = false;            ///< a module's own statements are running (they may run late)
  bool init_phase = true;               ///< Frame::init of new frames
  bool tensors_only = false;            ///< the trace's summaries of values: no variables but tensors, containers opened once (lint)

  // ---- making values -------------------------------------------------------------------------------------------------
  template <class T, class... A>
  T* make(A&&... a) {
    auto p = std::make_unique<T>(std::forward<A>(a)...);
    T* r = p.get();
    r->late = !init_phase && !at_top_level;
    heap_.push_back(std::move(p));
    return r;
  }
  Value str(std::string s) { return make<StrObj>(std::move(s)); }
  Value tuple(std::vector<Value> v) { return make<SeqObj>(Kind::Tuple, std::move(v)); }
  Value list(std::vector<Value> v) { return make<SeqObj>(Kind::List, std::move(v)); }
  Value dict() { return make<DictObj>(); }
  Value native(std::string name, NativeFn fn) { return make<NativeObj>(std::move(name), std::move(fn)); }
  /// An unknown value; remembered once per place as model::Incomplete when an operation needs it (see note_incomplete).
  Value unknown(std::string why, const program::Expr* where = nullptr);
  Value unknown(std::string why, Range where);
  void note_incomplete(Range where, std::string why);
  /// An attribute (a module's variable, a class's) was set; it is recorded while the model runs, for owners made before.
  void state_written(Obj* owner, std::string_view name);
  /// It was read, and found to hold `value`. Lists, dicts and sets count as changed when what they hold differs from the read before.
  void state_read(Obj* owner, std::string_view name, const Value& value);
  /// The run of the model has ended: what it leaves in lists and dicts is seen by its next call.
  void forward_over();
  /// The same for an attribute that was found in a class or its bases.
  void class_read(ClassObj* c, std::string_view name);
  /// An attribute of a module is looked up; recorded while the model runs, where it is not the module's own code that asks.
  void asked(const Value& module);
  /// A tensor was written in place: variables that hold it hold something else now.
  void rebound(const Value& tensor);
  /// m.name = native function called "module.name".
  void def(ModuleObj& m, std::string name, NativeFn fn);
  /// A class in C++; put natives into ->dict with method(). `bases` empty: object.
  ClassObj* make_class(std::string module, std::string name, std::vector<ClassObj*> bases = {});
  void method(ClassObj* c, std::string name, NativeFn fn);
  void property(ClassObj* c, std::string name, NativeFn get, NativeFn set = nullptr);
  ClassObj* builtin_class(std::string_view name);  ///< "int", "ValueError", "object", "tuple"…

  // ---- Python's protocols ---------------------------------------------------------------------------------------------
  Value call(const Value& f, CallInfo& info);
  Value call(const Value& f, std::vector<Value> args, const program::Expr* site = nullptr);
  Value getattr(const Value& v, std::string_view name, const program::Expr* site = nullptr);     ///< raises AttributeError
  Value getattr_or(const Value& v, std::string_view name, const program::Expr* site = nullptr);  ///< Unset when absent
  /// Notes that the program's own source changes an attribute of PyTorch's `owner`.
  bool patched(const std::string& owner, std::string_view name);
  void setattr(const Value& v, std::string_view name, const Value& x, const program::Expr* site = nullptr);
  void delattr(const Value& v, std::string_view name);
  /// object.__getattribute__/__setattr__: no __getattr__/__setattr__ of the class.
  Value plain_getattr(const Value& v, std::string_view name, const program::Expr* site = nullptr);  ///< Unset when absent
  void plain_setattr(const Value& v, std::string_view name, const Value& x);
  Value getitem(const Value& v, const Value& key, const program::Expr* site = nullptr, const program::Expr* v_expr = nullptr,
                const program::Expr* key_expr = nullptr);
  void setitem(const Value& v, const Value& key, const Value& x, const program::Expr* site = nullptr);
  void delitem(const Value& v, const Value& key);
  Value binary(std::string_view op, const Value& a, const Value& b, const program::Expr* site = nullptr,
               const program::Expr* a_expr = nullptr, const program::Expr* b_expr = nullptr, bool inplace = false);
  Value unary(std::string_view op, const Value& a, const program::Expr* site = nullptr, const program::Expr* a_expr = nullptr);
  Value compare(std::string_view op, const Value& a, const Value& b, const program::Expr* site = nullptr,
                const program::Expr* a_expr = nullptr, const program::Expr* b_expr = nullptr);
  bool equal(const Value& a, const Value& b);                        ///< ==; unknown counts as false
  bool identical(const Value& a, const Value& b);                    ///< is
  std::optional<bool> truth(const Value& v);                         ///< nullopt: unknown
  bool truthy(const Value& v, const program::Expr* site = nullptr);  ///< unknown: false, noted as incomplete
  std::size_t hash(const Value& v);
  Value iter(const Value& v, const program::Expr* site = nullptr);                           ///< an Iterator (or an object with __next__)
  Value next(const Value& iterator);                                                         ///< Unset at the end
  std::vector<Value> to_vector(const Value& iterable, const program::Expr* site = nullptr);  ///< bounded; unknown: empty and noted
  Value length(const Value& v);
  std::string to_str(const Value& v);  ///< str()
  std::string to_repr(const Value& v);
  std::string format(const Value& v, std::string_view spec);
  ClassObj* type_of(const Value& v);
  Value class_value(const Value& v) { return type_of(v); }
  bool isinstance(const Value& v, const ClassObj* c);
  bool callable(const Value& v);
  Value deepcopy(const Value& v, DictObj* memo = nullptr);                  ///< honours __deepcopy__; memo keys: id(obj) as int
  std::int64_t to_int(const Value& v, std::string_view what = "argument");  ///< raises TypeError when not an integer

  // ---- exceptions -----------------------------------------------------------------------------------------------------
  [[noreturn]] void raise(std::string_view type, std::string message, const program::Expr* where = nullptr);
  [[noreturn]] void raise_value(Value exception, Range where = {});
  std::string describe(const PyError& e);  ///< "TypeError: …"

  // ---- modules --------------------------------------------------------------------------------------------------------
  struct Modules {
    void native(std::string dotted, std::function<void(Interpreter&, ModuleObj&)> fill) {
      natives[std::move(dotted)].push_back(std::move(fill));
    }
    void source(std::string dotted, std::string text, std::string path) { sources[std::move(dotted)] = {std::move(text), std::move(path)}; }
    std::map<std::string, std::vector<std::function<void(Interpreter&, ModuleObj&)>>, std::less<>> natives;
    std::map<std::string, std::pair<std::string, std::string>, std::less<>> sources;
  } modules;
  ModuleObj* import(const std::string& dotted);            ///< nullptr when it cannot be found
  Value module_attr(ModuleObj* m, std::string_view name);  ///< runs the statements that define it; Unset when absent
  Value import_name(const std::string& dotted_attr);       ///< "package.module.Name"; Unset when absent

  // ---- where we are, and recording ------------------------------------------------------------------------------------
  model::Clock tick() { return ++clock_; }
  model::Clock clock() const { return clock_; }
  ActiveFrame* frame() const { return stack_.empty() ? nullptr : stack_.back(); }  ///< innermost, user or builtin
  const std::vector<ActiveFrame*>& stack() const { return stack_; }
  /// Innermost user frame and the expression in it that leads to `expr` (an expression of the innermost frame).
  Site site(const program::Expr* expr) const;
  model::Binding bind_summary(const Value& v, int depth = 3);
  /// Result of an arithmetic on numbers with Syms: allocates a node when a or b has one (else nullptr).
  const model::Sym* sym(model::Sym::Kind k, const Value& a, const Value& b, double value);
  const model::Sym* dim_sym(model::TensorId t, int dim, std::int64_t size, Range read);
  void guard(std::string_view op, const Value& a, const Value& b, bool taken, Range where);
  Range range_of(const program::Expr* e) const { return e ? e->range : here(); }
  Range here() const;  ///< the statement being executed
  /// Current exec of `self.name = expr`: the right-hand side, for AttrWrite::value_expr; nullptr outside of one.
  const program::Expr* assigning() const { return assigning_; }

  /// The arguments of a call bound to a Python function's parameters, in their order (defaults included).
  struct BoundParam {
    std::string name;
    Value value;
    const program::Expr* expr = nullptr;
  };
  std::vector<BoundParam> bind_arguments(const FunctionObj& f, const CallInfo& info);

  // ---- running (used by run.h and the tests) -----------------------------------------------------------------------
  Value eval(const program::Expr* e, Env* env);
  void exec_module_text(ModuleObj* m, const program::Module* code);  ///< runs all statements in m's globals, in order
  ModuleObj* new_module(std::string name);

  struct Impl;  ///< the interpreter's own parts (see impl.h)
  Impl* impl() const { return impl_.get(); }

 private:
  friend struct Impl;
  std::vector<std::unique_ptr<Obj>> heap_;
  std::vector<ActiveFrame*> stack_;
  model::Clock clock_ = 0;
  const program::Expr* assigning_ = nullptr;
  std::unique_ptr<Impl> impl_;
};

/// Registers the standard library and built-ins (constructor does it); lib/eval/torch adds its own:
void register_stdlib(Interpreter&);

}  // namespace shardwright::eval
