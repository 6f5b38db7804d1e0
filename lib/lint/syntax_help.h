// Small questions to syntax trees that several checks ask.
#pragma once
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"
#include "support/source.h"
#include "support/word_search.h"

namespace shardwright::lint::syntax {

bool contains(std::string_view text, std::initializer_list<std::string_view> parts);
/// Did `shardwright convert` write the file? What it decided has its reasons in its plan.
bool generated(support::FileId file, const support::SourceManager& sources);
/// Does the text hold `word` as a whole word?
bool has_word(std::string_view text, std::string_view word);
/// The last name of a call's callee: "send" of torch.distributed.send(…).
std::string_view callee(const program::Expr* call);
/// An argument by keyword, or by position (99: by keyword only); nullptr: not given.
const program::Expr* argument(const program::Expr* call, std::string_view keyword, std::size_t position = 99);
/// Calls in the expressions that a statement holds itself.
void calls_of(const program::Stmt* s, const std::function<void(const program::Expr*)>& visit);
/// Every function of a module, methods included.
std::vector<const program::Function*> functions(const program::Module& m);
/// Those whose text is worth reading; the bodies of others are not (Function::later).
std::vector<const program::Function*> functions(const program::Module& m, const support::SourceManager& sources,
                                                const std::function<bool(std::string_view)>& worth);
inline std::vector<const program::Function*> functions(const program::Module& m, const support::SourceManager& sources,
                                                       const support::WordSearch& words) {
  return functions(m, sources, [&](std::string_view text) { return words.in(text); });
}
/// A class of a module's top level.
const program::ClassDef* class_in(const program::Module& m, const std::string& name);
/// `class Name`, without the bases.
support::Range name_range(const program::ClassDef& c);
/// The serial class that a distributed one takes the place of, by its name: DistributedMlp and ParallelMlp are Mlp; "": none.
std::string original_name(const std::string& name);
/// "Net_stage3" -> 3: a pipeline stage by its name.
std::optional<std::size_t> stage_number(const std::string& name);
/// The name that a misspelt one is a slip away from. `alone`: no other is as near.
std::optional<std::string> nearest_slip(const std::string& word, const std::set<std::string>& names, bool* alone = nullptr);
/// Values of the return statements of a function itself.
std::vector<const program::Expr*> returns(const program::Function& f);
/// `self.NAME`: the name; "" otherwise.
std::string_view self_attribute(const program::Expr* e);

}  // namespace shardwright::lint::syntax
