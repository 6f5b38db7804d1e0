// Where the bodies of a file's functions are, found by a look at lines, quotes and brackets: most functions of most files are never asked
// for, and reading their bodies is most of what parsing costs.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::python {

/// The body of a function of the top level or of a class there. Byte offsets.
struct LeftOut {
  std::uint32_t def = 0;    ///< `def`, or `async` before it
  std::uint32_t begin = 0;  ///< the lines of the body: from the start of one…
  std::uint32_t end = 0;    ///< …to the start of the one after the last
  std::uint32_t last = 0;   ///< end of the last statement
};

struct Outline {
  std::vector<LeftOut> bodies;                                    ///< in order
  std::vector<std::pair<std::uint32_t, std::uint32_t>> comments;  ///< those in the bodies
  const LeftOut* of(std::uint32_t def) const;
};

/// Bodies that are worth leaving out. None at all where the text is anything but plain (tabs, carriage returns, brackets or quotes that do
/// not close): then it is for the parser to say what it is.
Outline outline(std::string_view text);

}  // namespace shardwright::python
