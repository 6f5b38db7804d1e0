// The functions that rules name with `compute:`; one file a family. Each takes a bound call and gives the result.
#pragma once
#include "eval/torch/domain.h"

namespace shardwright::eval::torch {

double count_of(const Shape& s);
std::string last_name(const std::string& qualified);
/// A list or tuple of tensors; raises TypeError otherwise. Elements that are no tensors stop it with nullopt.
std::optional<std::vector<Value>> tensor_list(Call& c, std::string_view param);
/// Expressions of a list's elements where it is written out at the call, else nullptrs.
std::vector<const program::Expr*> element_exprs(const program::Expr* list, std::size_t n);
/// (n,) * rank or the given tuple.
std::optional<Shape> spatial(Domain& d, const Value& v, std::size_t rank, std::int64_t fallback);
/// Result of `c` with the shape of its first operand where the dimensions in `whole` change size to `sizes`: blocked on both sides.
TensorId resized(Call& c, TensorId t, const std::vector<int>& whole, const Shape& shape, std::optional<DType> dtype = {});
/// One Labelled operation for a key of ints, slices, None and Ellipsis (already expanded); see indexing.cpp.
Value select_at(Call& c, TensorId t, int dim, std::int64_t index, const program::Expr* operand);
/// `bounds`: where start and length are written, for edits.
Value narrow_to(Call& c, TensorId t, int dim, std::int64_t start, std::int64_t length, const program::Expr* operand,
                std::vector<model::SizeArg> bounds = {});
/// Split of `t` and its results' ids.
std::vector<TensorId> split_into(const Call& c, const std::string& name, TensorId t, int dim, const Shape& sizes,
                                 std::vector<model::SizeArg> args, const program::Expr* operand);
TensorId concat_of(const Call& c, const std::string& name, const std::vector<Value>& tensors, int dim,
                   const std::vector<const program::Expr*>& exprs);
/// A created tensor.
Value created(Call& c, const Domain::Sizes& sizes, DType dtype, std::optional<double> fill, int first_dim = 0,
              const std::vector<model::ScalarArg>& scalars = {});

// Tables of the families.
using Table = std::vector<std::pair<std::string_view, Compute>>;
Table pointwise_functions();
Table shape_functions();
Table reduce_functions();
Table linalg_functions();
Table spatial_functions();
Table index_functions();
Table create_functions();

}  // namespace shardwright::eval::torch
