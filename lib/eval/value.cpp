#include "eval/value.h"

#include <algorithm>

#include "eval/interpreter.h"

namespace shardwright::eval {

Value::Value(Obj* o) : kind_(o->kind) { o_ = o; }

const std::string& Value::str() const { return static_cast<StrObj*>(o_)->text; }

Value* NameMap::find(std::string_view name) {
  if (items_.size() > 12) {
    auto it = index_.find(std::string(name));
    return it == index_.end() ? nullptr : &items_[it->second].value;
  }
  for (auto& i : items_)
    if (i.name == name) return &i.value;
  return nullptr;
}

void NameMap::set(std::string_view name, Value v) {
  if (Value* old = find(name)) {
    *old = v;
    return;
  }
  items_.push_back({std::string(name), v});
  if (items_.size() == 13) reindex();
  else if (items_.size() > 13) index_.emplace(items_.back().name, items_.size() - 1);
}

bool NameMap::erase(std::string_view name) {
  auto it = std::find_if(items_.begin(), items_.end(), [&](const Item& i) { return i.name == name; });
  if (it == items_.end()) return false;
  items_.erase(it);
  reindex();
  return true;
}

void NameMap::reindex() {
  index_.clear();
  if (items_.size() > 12)
    for (std::size_t i = 0; i < items_.size(); ++i) index_.emplace(items_[i].name, i);
}

Keyword* CallInfo::keyword(std::string_view name) {
  for (auto& k : kwargs)
    if (k.name == name) return &k;
  return nullptr;
}

Value* DictObj::find(Interpreter& in, const Value& key) {
  if (key.is_number() && key.sym()) in.guard("[]", key, Value::none(), true, in.here());  // which entry it is depends on the size
  auto [b, e] = index.equal_range(in.hash(key));
  for (auto it = b; it != e; ++it) {
    Entry& x = entries[it->second];
    if (x.alive && (in.identical(x.key, key) || in.equal(x.key, key))) return &x.value;
  }
  return nullptr;
}

Value* DictObj::find(std::string_view key) {
  auto [b, e] = index.equal_range(std::hash<std::string_view>()(key));
  for (auto it = b; it != e; ++it) {
    Entry& x = entries[it->second];
    if (x.alive && x.key.is(Kind::Str) && x.key.str() == key) return &x.value;
  }
  return nullptr;
}

void DictObj::set(Interpreter& in, const Value& key, Value v) {
  if (mirror && mirror->attrs && key.is(Kind::Str)) mirror->attrs->set(key.str(), v);
  if (Value* old = find(in, key)) {
    *old = v;
    return;
  }
  index.emplace(in.hash(key), entries.size());
  entries.push_back({key, v});
  ++live;
}

bool DictObj::erase(Interpreter& in, const Value& key) {
  if (mirror && mirror->attrs && key.is(Kind::Str)) mirror->attrs->erase(key.str());
  auto [b, e] = index.equal_range(in.hash(key));
  for (auto it = b; it != e; ++it) {
    Entry& x = entries[it->second];
    if (x.alive && (in.identical(x.key, key) || in.equal(x.key, key))) {
      x.alive = false;
      --live;
      index.erase(it);
      return true;
    }
  }
  return false;
}

void DictObj::clear() {
  entries.clear();
  index.clear();
  live = 0;
}

bool ClassObj::derives_from(const ClassObj* other) const { return std::find(mro.begin(), mro.end(), other) != mro.end(); }

Value ClassObj::lookup(std::string_view attr) const {
  for (const ClassObj* c : mro)
    if (const Value* v = c->dict.find(attr)) return *v;
  return {};
}

std::string HostObj::repr(Interpreter&) const { return "<" + (cls ? cls->qualified() : std::string("object")) + ">"; }

}  // namespace shardwright::eval
