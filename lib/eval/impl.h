// The interpreter's own parts, shared by its .cpp files only.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "eval/coroutine.h"
#include "eval/interpreter.h"

namespace shardwright::eval {

using program::Expr;
using program::ExprKind;
using program::Stmt;
using program::StmtKind;
using In = Interpreter;

/// How a statement ended.
enum class Flow : std::uint8_t { Next, Break, Continue, Return };

/// Which top-level statements bind or fill which names, and which of them ran.
struct ModuleObj::Demand {
  struct Unit {
    const program::Stmt* stmt = nullptr;
    enum State : std::uint8_t { Waiting, Running, Done, Failed } state = Waiting;
    bool type_checking = false;  ///< import under `if TYPE_CHECKING:`: only when nothing else defines the name
  };
  std::vector<Unit> units;
  std::unordered_map<std::string, std::vector<std::size_t>> by_name;
  std::vector<const program::Stmt*> stars;
  std::vector<std::size_t> effects;  ///< statements that may change things elsewhere (registering decorators, bare calls)
  std::unordered_set<std::string> star_busy, attr_busy;
  std::ptrdiff_t running = -1;
};

/// A generator: its body runs on its own stack between yields.
struct GeneratorObj : IteratorObj {
  std::unique_ptr<Coroutine> co;
  ActiveFrame frame;
  Value out, sent;                ///< exchanged at yield
  std::optional<PyError> thrown;  ///< gen.throw(): raised at the yield
  Value result;                   ///< return value: StopIteration.value
  std::optional<Abort> aborted;
  bool running = false;
  Value next(Interpreter&) override;
};

struct Interpreter::Impl {
  explicit Impl(Interpreter& i);
  Interpreter& in;

  std::deque<Env> envs;
  NameMap builtins;
  std::unordered_map<std::string, ClassObj*> types;
  ClassObj *object_ = nullptr, *type_ = nullptr, *int_ = nullptr, *float_ = nullptr, *bool_ = nullptr, *complex_ = nullptr, *str_ = nullptr,
           *bytes_ = nullptr, *tuple_ = nullptr, *list_ = nullptr, *dict_ = nullptr, *set_ = nullptr, *frozenset_ = nullptr,
           *slice_ = nullptr, *range_ = nullptr, *function_ = nullptr, *method_ = nullptr, *native_ = nullptr, *module_ = nullptr,
           *property_ = nullptr, *staticmethod_ = nullptr, *classmethod_ = nullptr, *super_ = nullptr, *iterator_ = nullptr,
           *none_ = nullptr, *notimpl_ = nullptr, *ellipsis_ = nullptr, *unknown_ = nullptr;
  std::map<std::string, ModuleObj*, std::less<>> loaded;
  std::set<std::string> missing_modules;
  std::int64_t steps = 0;
  Value ret;  ///< value of the return statement under way
  const char* stack_limit = nullptr;
  bool making_error = false;
  bool import_guard = false;              ///< inside `try:` whose handlers catch ImportError
  std::vector<GeneratorObj*> generators;  ///< running ones, innermost last
  struct Changed {
    model::Clock at = 0;
    Range where;
    std::size_t contents = 0;
    model::Clock seen = 0;
    Range seen_where;
    std::size_t state = static_cast<std::size_t>(-1), next = static_cast<std::size_t>(-1);
    Value held;
  };
  std::map<std::pair<const Obj*, std::string>, Changed> changed;  ///< attributes of objects made while the model was built, once it runs
  std::map<std::pair<const Obj*, std::string>, model::Clock> first_read;  ///< when it first asked for them
  std::set<std::pair<std::uint64_t, std::string>> noted;
  std::deque<ActiveFrame> module_frames;
  std::unordered_map<const Stmt*, std::vector<std::string>> may_change;  ///< variables whose contents a statement may change
  std::unordered_map<const Obj*, std::size_t> contents;                  ///< what containers were last seen to hold
  std::unordered_map<const Env*, ClassObj*> class_of_scope;              ///< class body scopes: what super() without arguments starts from
  DictObj* sys_modules = nullptr;
  std::set<std::pair<std::string, std::size_t>> effects_tried;  ///< key, number of modules loaded then
  std::unordered_map<ModuleObj*, int> fails;                    ///< import_fails: 1 yes, 0 no (or being asked)

  // exec.cpp
  Flow exec_block(const std::vector<Stmt*>& body, Env* env);
  Flow exec(const Stmt* s, Env* env);
  Flow exec_plain(const Stmt* s, Env* env);
  Flow exec_if(const Stmt* s, Env* env);
  Flow exec_for(const Stmt* s, Env* env);
  Flow exec_while(const Stmt* s, Env* env);
  Flow exec_try(const Stmt* s, Env* env);
  Flow exec_with(const Stmt* s, std::size_t item, Env* env);
  Flow exec_match(const Stmt* s, Env* env);
  bool match_pattern(const Expr* p, const Value& v, Env* env);
  void exec_delete(const Expr* target, Env* env);
  void exec_raise(const Stmt* s, Env* env);
  void may_leave(Flow, support::Range, model::Clock since);
  struct Exits;
  Flow branch_unknown(const Stmt* s, const Value& cond, Env* env);
  void poison(const std::vector<Stmt*>& body, Env* env, const Value& why);
  void assign(const Expr* target, const Value& v, Env* env);
  void store(const std::string& name, const Value& v, Env* env);
  void exec_import(const Stmt* s, Env* env);
  bool matches_exception(const PyError& e, const Value& type);

  // expr.cpp
  Value eval(const Expr* e, Env* env);
  Value eval_call(const Expr* e, Env* env);
  Value eval_compare(const Expr* e, Env* env);
  Value eval_boolop(const Expr* e, Env* env);
  Value eval_fstring(const Expr* e, Env* env);
  Value eval_comprehension(const Expr* e, Env* env);
  Value eval_conditional(const Expr* e, Env* env);
  Value eval_slice(const Expr* e, Env* env);
  void comprehend(const Expr* e, std::size_t clause, Env* scope, const std::function<void(Env*)>& body);
  Value lookup(const Expr* e, Env* env);
  Value lookup_name(const std::string& name, Env* env, const Expr* where);
  void collect_args(const Expr* call, Env* env, CallInfo& info);
  Value make_function(const program::Function* f, Env* env);
  Value decorate(const std::vector<Expr*>& decorators, Value v, Env* env);

  // call.cpp
  Value call_function(FunctionObj* f, CallInfo& info);
  void next_call(const Obj* owner, const std::string& name, Changed& c);
  void change(Obj* owner, std::string_view name);
  /// A number that came from these in a way that cannot be computed again.
  const model::Sym* made_of(const std::vector<Value>& from, double value);
  static Value with_sym(const Value& number, const model::Sym* s);
  void note_object(InstanceObj& o, const CallInfo& info);
  Value from_sizes(Value result, const CallInfo& info);
  void bind_function(FunctionObj* f, const CallInfo& info, NameMap& vars, std::vector<const Expr*>* exprs);
  Value construct(ClassObj* c, CallInfo& info);
  Value yield_value(const Value& v);

  // class.cpp
  Value define_class(const Stmt* s, Env* env);
  ClassObj* create_class(const std::string& name, std::vector<Value> bases, NameMap dict, ClassObj* meta, std::vector<Keyword> keywords,
                         const program::ClassDef* def, ModuleObj* globals);
  bool linearize(ClassObj* c);
  void make_types();

  // attr.cpp
  Value bind(const Value& attr, const Value& self, ClassObj* cls, const Expr* site = nullptr);
  Value find_attr(const Value& v, std::string_view name, const Expr* site, bool hooks);  ///< Unset when absent
  Value special_attr(const Value& v, std::string_view name);

  // modules.cpp
  ModuleObj* load_module(const std::string& dotted);
  void index_module(ModuleObj* m);
  void run_patches(ModuleObj* m);
  void index_statement(ModuleObj* m, const Stmt* s, bool type_checking);
  void run_unit(ModuleObj* m, std::size_t unit);
  Value global(ModuleObj* m, std::string_view name, std::ptrdiff_t before = -1);  ///< own names and stars, no __getattr__
  bool run_effects(const std::string& key);
  bool import_fails(ModuleObj* m);
  std::string resolve_relative(ModuleObj* m, int level, const std::string& module);
  std::vector<std::string> public_names(ModuleObj* m);

  // where
  ActiveFrame* frame() const { return in.frame(); }
  void tick_step(const Expr* where);
  bool recording() const {
    auto* f = in.frame();
    return f && f->id >= 0 && !f->builtin;
  }
  void check_stack(const Expr* where);
  void var_write(const std::string& name, const Value& v);
  void contents_written(const Stmt* s, Env* env);
  Env* new_env(Env* parent, ModuleObj* globals) {
    envs.emplace_back();
    envs.back().parent = parent;
    envs.back().globals = globals;
    return &envs.back();
  }

  Value number_binary(std::string_view op, const Value& a, const Value& b);
  Value dunder_binary(std::string_view op, const Value& a, const Value& b, bool inplace);
  Value seq_binary(std::string_view op, const Value& a, const Value& b, bool inplace);
  Value percent_format(const std::string& f, const Value& args);
  std::string format_spec(const Value& v, std::string_view spec);
  Value contains(const Value& container, const Value& item);
};

/// Puts f on the stack of frames while alive.
struct FrameScope {
  std::vector<ActiveFrame*>& stack;
  FrameScope(std::vector<ActiveFrame*>& s, ActiveFrame* f) : stack(s) { stack.push_back(f); }
  ~FrameScope() { stack.pop_back(); }
  FrameScope(const FrameScope&) = delete;
};

struct StackAccess {
  static std::vector<ActiveFrame*>& of(Interpreter& in);
};

template <class T>
struct Restore {
  T& ref;
  T old;
  explicit Restore(T& r) : ref(r), old(r) {}
  Restore(T& r, T now) : ref(r), old(r) { r = now; }
  ~Restore() { ref = old; }
  Restore(const Restore&) = delete;
};

/// Iterates a Value of a container kind quickly where possible; falls back on the iterator protocol.
void for_each(Interpreter& in, const Value& iterable, const Expr* site, const std::function<bool(const Value&)>& body);
std::string float_repr(double d);
std::string quote_repr(const std::string& s);
std::string_view method_for(std::string_view op, bool reflected);

// Registration of built-ins and the standard library (one function a file).
void register_builtins(Interpreter&);
void register_str(Interpreter&);
void register_containers(Interpreter&);
void register_numbers(Interpreter&);
void register_exceptions(Interpreter&);
void register_math(Interpreter&);
void register_functional(Interpreter&);  // functools, itertools, operator, copy, collections
void register_system(Interpreter&);      // os, sys, warnings, logging, typing, …
void register_regex(Interpreter&);
void register_numpy(Interpreter&);
void register_python_sources(Interpreter&);  // stdlib/*.py

}  // namespace shardwright::eval
