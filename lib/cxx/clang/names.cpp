// What a C++ type or declaration is, by its qualified name.
#include <clang/Basic/SourceManager.h>
#include <clang/Lex/Lexer.h>

#include "lower.h"

namespace shardwright::cxx {

using clang::CXXRecordDecl;
using clang::QualType;

const CXXRecordDecl* record_of(QualType t) {
  if (t.isNull()) return nullptr;
  t = t.getNonReferenceType();
  while (t->isPointerType()) t = t->getPointeeType();
  const CXXRecordDecl* r = t->getAsCXXRecordDecl();
  return r && r->getDefinition() ? r->getDefinition() : r;
}

std::string qualified(const clang::NamedDecl* d) {
  std::string name = d->getNameAsString();
  for (const clang::DeclContext* c = d->getDeclContext(); c && !c->isTranslationUnit(); c = c->getParent()) {
    if (auto* n = llvm::dyn_cast<clang::NamespaceDecl>(c)) {
      if (!n->isInline() && !n->isAnonymousNamespace()) name = n->getNameAsString() + "::" + name;
    } else if (auto* r = llvm::dyn_cast<clang::RecordDecl>(c)) {
      name = r->getNameAsString() + "::" + name;
    }
  }
  return name;
}

bool in_namespace(const clang::Decl* d, llvm::StringRef outermost) {
  llvm::StringRef last;
  for (const clang::DeclContext* c = d->getDeclContext(); c; c = c->getParent())
    if (auto* n = llvm::dyn_cast<clang::NamespaceDecl>(c)) last = n->getName();
  return last == outermost;
}

bool is_library(const clang::Decl* d) {
  const auto& sm = d->getASTContext().getSourceManager();
  const clang::SourceLocation at = sm.getExpansionLoc(d->getLocation());
  if (at.isInvalid() || sm.isInSystemHeader(at)) return true;
  return is_library_path(sm.getFilename(at));
}

bool is_library_path(llvm::StringRef file) {
  for (const char* part : {"/include/torch/", "/include/ATen/", "/include/c10/", "/include/caffe2/", "/api/include/", "/include/c++/"})
    if (file.contains(part)) return true;
  return false;
}

bool derives_from(const CXXRecordDecl* r, llvm::StringRef base) {
  if (!r || !r->hasDefinition()) return false;
  if (qualified(r) == base) return true;
  for (const auto& b : r->getDefinition()->bases())
    if (derives_from(record_of(b.getType()), base)) return true;
  return false;
}

bool is_module(const CXXRecordDecl* r) { return derives_from(r, "torch::nn::Module"); }

const CXXRecordDecl* held_by(const CXXRecordDecl* r) {
  if (!r || !r->hasDefinition()) return nullptr;
  r = r->getDefinition();
  if (auto* s = llvm::dyn_cast<clang::ClassTemplateSpecializationDecl>(r)) {
    const std::string q = qualified(r);
    if (q == "torch::nn::ModuleHolder" || q == "std::shared_ptr" || q == "std::unique_ptr" || q == "std::__shared_ptr") {
      if (s->getTemplateArgs().size() == 0 || s->getTemplateArgs()[0].getKind() != clang::TemplateArgument::Type) return nullptr;
      const CXXRecordDecl* in = record_of(s->getTemplateArgs()[0].getAsType());
      return q == "torch::nn::ModuleHolder" || is_module(in) ? in : nullptr;
    }
  }
  for (const auto& b : r->bases())
    if (const CXXRecordDecl* in = held_by(record_of(b.getType())); in && derives_from(r, "torch::nn::ModuleHolder")) return in;
  return nullptr;
}

bool is_tensor(QualType t) {
  const CXXRecordDecl* r = record_of(t);
  return r && (derives_from(r, "at::Tensor") || derives_from(r, "at::TensorBase"));
}

bool is_tensor_options(QualType t) {
  const CXXRecordDecl* r = record_of(t);
  return r && qualified(r) == "c10::TensorOptions";
}

bool is_options(QualType t) {
  const CXXRecordDecl* r = record_of(t);
  return r && llvm::StringRef(qualified(r)).starts_with("torch::nn::") && r->getName().ends_with("Options");
}

bool is_std(const CXXRecordDecl* r, llvm::StringRef name) { return r && qualified(r) == ("std::" + name).str(); }

bool is_sequence(const CXXRecordDecl* r) {
  if (!r) return false;
  const std::string q = qualified(r);
  for (const char* n :
       {"std::vector", "std::array", "std::initializer_list", "std::deque", "std::list", "c10::ArrayRef", "c10::IntArrayRef",
        "c10::OptionalArrayRef", "c10::List", "c10::SmallVector", "torch::ExpandingArray", "torch::ExpandingArrayWithOptionalElem",
        "at::OptionalIntArrayRef", "c10::HeaderOnlyArrayRef", "torch::headeronly::HeaderOnlyArrayRef", "c10::IListRef"})
    if (q == n) return true;
  for (const auto& b : r->hasDefinition() ? r->getDefinition()->bases() : CXXRecordDecl::base_class_const_range(nullptr, nullptr))
    if (is_sequence(record_of(b.getType()))) return true;
  return false;
}

bool is_tuple(const CXXRecordDecl* r) { return is_std(r, "tuple") || is_std(r, "pair"); }

bool is_map(const CXXRecordDecl* r) {
  if (!r) return false;
  const std::string q = qualified(r);
  return q == "std::map" || q == "std::unordered_map" || q == "torch::OrderedDict" || q == "c10::Dict";
}

std::string dtype_of(llvm::StringRef c) {
  static const std::map<std::string, std::string> all = {{"kFloat", "float32"},
                                                         {"kFloat32", "float32"},
                                                         {"kF32", "float32"},
                                                         {"Float", "float32"},
                                                         {"kDouble", "float64"},
                                                         {"kFloat64", "float64"},
                                                         {"kF64", "float64"},
                                                         {"Double", "float64"},
                                                         {"kHalf", "float16"},
                                                         {"kFloat16", "float16"},
                                                         {"kF16", "float16"},
                                                         {"Half", "float16"},
                                                         {"kBFloat16", "bfloat16"},
                                                         {"BFloat16", "bfloat16"},
                                                         {"kLong", "int64"},
                                                         {"kInt64", "int64"},
                                                         {"kI64", "int64"},
                                                         {"Long", "int64"},
                                                         {"kInt", "int32"},
                                                         {"kInt32", "int32"},
                                                         {"kI32", "int32"},
                                                         {"Int", "int32"},
                                                         {"kShort", "int16"},
                                                         {"kInt16", "int16"},
                                                         {"kI16", "int16"},
                                                         {"Short", "int16"},
                                                         {"kChar", "int8"},
                                                         {"kInt8", "int8"},
                                                         {"kI8", "int8"},
                                                         {"Char", "int8"},
                                                         {"kByte", "uint8"},
                                                         {"kUInt8", "uint8"},
                                                         {"kU8", "uint8"},
                                                         {"Byte", "uint8"},
                                                         {"kBool", "bool"},
                                                         {"Bool", "bool"},
                                                         {"kComplexFloat", "complex64"},
                                                         {"ComplexFloat", "complex64"},
                                                         {"kComplexDouble", "complex128"},
                                                         {"ComplexDouble", "complex128"}};
  auto it = all.find(c.str());
  return it == all.end() ? "" : it->second;
}

std::string enum_word(llvm::StringRef c) {
  static const std::map<std::string, std::string> odd = {
      {"kReLU", "relu"}, {"kGELU", "gelu"}, {"kSiLU", "silu"}, {"kBatchMean", "batchmean"}, {"kLeakyReLU", "leaky_relu"}};
  if (auto it = odd.find(c.str()); it != odd.end()) return it->second;
  std::string out;
  for (std::size_t i = 1; i < c.size(); ++i) {
    const char ch = c[i];
    const bool upper = ch >= 'A' && ch <= 'Z';
    if (upper && i > 1 && !(c[i - 1] >= 'A' && c[i - 1] <= 'Z')) out += '_';
    out += upper ? static_cast<char>(ch - 'A' + 'a') : ch;
  }
  return out;
}

// ---- places ------------------------------------------------------------------------------------------------------------------

int Files::index(clang::FileID id) {
  auto [it, fresh] = known_.try_emplace(id, static_cast<int>(all_.size()));
  if (fresh) all_.push_back(id);
  return it->second;
}

Range Files::range(clang::SourceRange r, const clang::LangOptions& lang) {
  if (r.isInvalid()) return {};
  // What is an argument of a macro is written where it is read; what a macro makes is not.
  const clang::CharSourceRange in_file = clang::Lexer::makeFileCharRange(clang::CharSourceRange::getTokenRange(r), sm_, lang);
  if (in_file.isInvalid()) return {};
  const auto [file, begin] = sm_.getDecomposedLoc(in_file.getBegin());
  const auto [file_end, end] = sm_.getDecomposedLoc(in_file.getEnd());
  if (file != file_end || end < begin || !sm_.getFileEntryRefForID(file)) return {};
  // A range that is a whole macro call covers more than the node: `TWICE(x)` for `x + x`.
  if (r.getBegin().isMacroID() && !sm_.isMacroArgExpansion(r.getBegin())) return {};
  if (r.getEnd().isMacroID() && !sm_.isMacroArgExpansion(r.getEnd())) return {};
  return {index(file), begin, end};
}

}  // namespace shardwright::cxx
