// Python's names.
#pragma once
#include <string>
#include <string_view>

namespace shardwright::python {

/// May a variable be called so? (ASCII; keywords are no identifiers.)
bool is_identifier(std::string_view);
/// The nearest identifier to any text: "my-model" → "my_model", "2d" → "_2d", "class" → "class_".
std::string identifier(std::string_view);

}  // namespace shardwright::python
