// Line-based unified difference: Myers, "An O(ND) Difference Algorithm and Its Variations", 1986. Common heads and tails are cut off
// first. Beyond kMostEdits differences the rest is shown as replaced at once: nobody reads such a difference, and the trace of the
// search costs D² memory.
#include <algorithm>
#include <vector>

#include "support/edits.h"
#include "support/merge.h"

namespace shardwright::support {

namespace {

constexpr int kMostEdits = 2000;

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    const std::size_t n = newline == std::string_view::npos ? text.size() : newline + 1;
    out.push_back(text.substr(0, n));
    text.remove_prefix(n);
  }
  return out;
}

// keep[i]: line i of a stays; the j-th kept line of a equals the j-th kept line of b.
void myers(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b, std::vector<char>& keep_a,
           std::vector<char>& keep_b) {
  keep_a.assign(a.size(), 0);
  keep_b.assign(b.size(), 0);
  int head = 0, n = static_cast<int>(a.size()), m = static_cast<int>(b.size());
  while (head < n && head < m && a[static_cast<std::size_t>(head)] == b[static_cast<std::size_t>(head)]) {
    keep_a[static_cast<std::size_t>(head)] = keep_b[static_cast<std::size_t>(head)] = 1;
    ++head;
  }
  while (n > head && m > head && a[static_cast<std::size_t>(n - 1)] == b[static_cast<std::size_t>(m - 1)]) {
    --n, --m;
    keep_a[static_cast<std::size_t>(n)] = keep_b[static_cast<std::size_t>(m)] = 1;
  }
  const int rows = n - head, columns = m - head;
  const auto line_a = [&](int i) { return a[static_cast<std::size_t>(head + i)]; };
  const auto line_b = [&](int j) { return b[static_cast<std::size_t>(head + j)]; };
  const int most = std::min(rows + columns, kMostEdits);
  const int width = most + 1;
  std::vector<int> v(static_cast<std::size_t>(2 * width + 1), 0);
  std::vector<std::vector<int>> trace;
  const auto at = [&](std::vector<int>& w, int k, int center) -> int& { return w[static_cast<std::size_t>(k + center)]; };
  int found = -1;
  for (int d = 0; d <= most && found < 0; ++d) {
    trace.emplace_back(v.begin() + (width - d), v.begin() + (width + d + 1));
    for (int k = -d; k <= d; k += 2) {
      int x = k == -d || (k != d && at(v, k - 1, width) < at(v, k + 1, width)) ? at(v, k + 1, width) : at(v, k - 1, width) + 1;
      int y = x - k;
      while (x < rows && y < columns && line_a(x) == line_b(y)) ++x, ++y;
      at(v, k, width) = x;
      if (x >= rows && y >= columns) {
        found = d;
        break;
      }
    }
  }
  if (found < 0) return;
  int x = rows, y = columns;
  for (int d = found; d > 0; --d) {
    std::vector<int>& w = trace[static_cast<std::size_t>(d)];  // v before step d, centred at d
    const int k = x - y;
    const auto value = [&](int q) { return q < -(d - 1) || q > d - 1 ? -1 : at(w, q, d); };
    const int previous = k == -d || (k != d && value(k - 1) < value(k + 1)) ? k + 1 : k - 1;
    const int px = value(previous), py = px - previous;
    const int start = previous == k + 1 ? px : px + 1;  // where the run of equal lines behind this edit begins
    while (x > start) {
      --x, --y;
      keep_a[static_cast<std::size_t>(head + x)] = keep_b[static_cast<std::size_t>(head + y)] = 1;
    }
    x = px;
    y = py;
  }
  while (x > 0 && y > 0) {
    --x, --y;
    keep_a[static_cast<std::size_t>(head + x)] = keep_b[static_cast<std::size_t>(head + y)] = 1;
  }
}

}  // namespace

std::string unified_diff(std::string_view old_text, std::string_view new_text, const std::string& old_name, const std::string& new_name,
                         int context) {
  if (old_text == new_text) return "";
  const auto a = split_lines(old_text), b = split_lines(new_text);
  std::vector<char> keep_a, keep_b;
  myers(a, b, keep_a, keep_b);
  struct Line {
    char mark;
    std::string_view text;
    std::size_t old_number, new_number;  // 0-based places before this line
  };
  std::vector<Line> lines;
  std::size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && !keep_a[i]) {
      lines.push_back({'-', a[i], i, j});
      ++i;
    } else if (j < b.size() && !keep_b[j]) {
      lines.push_back({'+', b[j], i, j});
      ++j;
    } else {
      lines.push_back({' ', a[i], i, j});
      ++i, ++j;
    }
  }
  std::string out = "--- " + old_name + "\n+++ " + new_name + "\n";
  const auto c = static_cast<std::size_t>(std::max(context, 0));
  std::size_t at = 0;
  while (at < lines.size()) {
    while (at < lines.size() && lines[at].mark == ' ') ++at;
    if (at == lines.size()) break;
    const std::size_t begin = at > c ? at - c : 0;
    std::size_t end = at, last = at;  // a hunk goes on while the next change is at most two contexts away
    while (end < lines.size() && end <= last + 2 * c + 1) {
      if (lines[end].mark != ' ') last = end;
      ++end;
    }
    end = std::min(lines.size(), last + 1 + c);
    std::size_t old_count = 0, new_count = 0;
    for (std::size_t k = begin; k < end; ++k) {
      old_count += lines[k].mark != '+';
      new_count += lines[k].mark != '-';
    }
    const auto span = [](std::size_t start, std::size_t count) {
      return std::to_string(count == 0 ? start : start + 1) + (count == 1 ? "" : "," + std::to_string(count));
    };
    out += "@@ -" + span(lines[begin].old_number, old_count) + " +" + span(lines[begin].new_number, new_count) + " @@\n";
    for (std::size_t k = begin; k < end; ++k) {
      out += lines[k].mark;
      out += lines[k].text;
      if (lines[k].text.empty() || lines[k].text.back() != '\n') out += "\n\\ No newline at end of file\n";
    }
    at = end;
  }
  return out;
}

Merged merge_three(std::string_view base, std::string_view mine, std::string_view theirs, const std::string& mine_name,
                   const std::string& theirs_name) {
  const auto o = split_lines(base), a = split_lines(mine), b = split_lines(theirs);
  // For every line of the base, its place in a side, or -1.
  auto places = [&](const std::vector<std::string_view>& side) {
    std::vector<char> keep_base, keep_side;
    myers(o, side, keep_base, keep_side);
    std::vector<int> at(o.size(), -1);
    for (std::size_t i = 0, j = 0; i < o.size(); ++i) {
      if (!keep_base[i]) continue;
      while (!keep_side[j]) ++j;
      at[i] = static_cast<int>(j++);
    }
    return at;
  };
  const auto in_a = places(a), in_b = places(b);
  Merged out;
  auto append = [&](const std::vector<std::string_view>& lines, std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) out.text += lines[i];
    if (!out.text.empty() && out.text.back() != '\n') out.text += '\n';
  };
  auto equal = [](const std::vector<std::string_view>& x, std::size_t from, std::size_t to, const std::vector<std::string_view>& y,
                  std::size_t begin, std::size_t end) {
    return to - from == end - begin &&
        std::equal(x.begin() + static_cast<std::ptrdiff_t>(from), x.begin() + static_cast<std::ptrdiff_t>(to),
                   y.begin() + static_cast<std::ptrdiff_t>(begin));
  };
  std::size_t i = 0, j = 0, k = 0;
  for (;;) {
    std::size_t next = i;  // the next line of the base that both sides kept
    while (next < o.size() && (in_a[next] < 0 || in_b[next] < 0)) ++next;
    const std::size_t ja = next < o.size() ? static_cast<std::size_t>(in_a[next]) : a.size();
    const std::size_t kb = next < o.size() ? static_cast<std::size_t>(in_b[next]) : b.size();
    if (equal(o, i, next, a, j, ja)) append(b, k, kb);
    else if (equal(o, i, next, b, k, kb) || equal(a, j, ja, b, k, kb)) append(a, j, ja);
    else {
      ++out.conflicts;
      out.text += "<<<<<<< " + mine_name + "\n";
      append(a, j, ja);
      out.text += "=======\n";
      append(b, k, kb);
      out.text += ">>>>>>> " + theirs_name + "\n";
    }
    if (next == o.size()) break;
    append(o, next, next + 1);
    i = next + 1, j = ja + 1, k = kb + 1;
  }
  return out;
}

}  // namespace shardwright::support
