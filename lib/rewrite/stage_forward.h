// Text of the methods that a cut divides. Internal to the stage slicer.
#pragma once
#include <functional>
#include <string>

#include "rewrite/stage_slice.h"

namespace shardwright::rewrite::stage {

using RenderText = Render;

/// What the text of a method uses beyond the original's names.
struct Uses {
  bool islice = false;
  bool absent = false;
  bool drop_unused = false;
  bool attributes_only = false;
  std::vector<std::string> imports;  ///< whole statements
};

/// The method of a frame in a stage, from `def`. `lo_view`/`hi_view`: the stage's cuts (nullptr at the ends).
std::string method_text(const Context& c, const FrameSlice& f, const CutView* lo_view, const CutView* hi_view, const RenderText& render,
                        Uses& uses);

}  // namespace shardwright::rewrite::stage
