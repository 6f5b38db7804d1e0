// Is any of a set of words in a text? One pass, most bytes never looked at (Wu and Manber, 1994, with blocks of two bytes).
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardwright::support {

class WordSearch {
 public:
  /// Every word has two bytes or more, the longest 255.
  WordSearch(std::initializer_list<std::string_view> words) : WordSearch(std::vector<std::string>(words.begin(), words.end())) {}
  explicit WordSearch(std::vector<std::string> words) : words_(std::move(words)), length_(255) {
    for (const auto& w : words_) length_ = std::min(length_, w.size());
    shift_.fill(static_cast<std::uint8_t>(length_ - 1));
    for (const auto& w : words_)
      for (std::size_t i = 1; i < length_; ++i) {
        auto& s = shift_[pair(w.data() + i - 1)];
        s = std::min(s, static_cast<std::uint8_t>(length_ - 1 - i));
      }
  }
  bool in(std::string_view text) const {
    for (std::size_t at = length_ - 1; at < text.size();) {
      const std::size_t s = shift_[pair(text.data() + at - 1)];
      if (s == 0) {
        const std::string_view rest = text.substr(at + 1 - length_);
        for (const auto& w : words_)
          if (rest.size() >= w.size() && std::memcmp(rest.data(), w.data(), w.size()) == 0) return true;
      }
      at += std::max<std::size_t>(s, 1);
    }
    return false;
  }

 private:
  static std::uint16_t pair(const char* p) {
    std::uint16_t v;
    std::memcpy(&v, p, 2);
    return v;
  }
  std::vector<std::string> words_;
  std::size_t length_;
  std::array<std::uint8_t, 65536> shift_{};
};

}  // namespace shardwright::support
