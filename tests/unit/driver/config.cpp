#include "driver/config.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

using namespace shardwright;

namespace {

struct Folder {
  std::filesystem::path path;
  Folder() {
    char name[] = "/tmp/shardwright_config_XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
  }
};

}  // namespace

TEST_CASE("the nearest configuration above is taken, YAML and TOML alike") {
  const Folder f;
  f.write("shardwright.yaml", "rules: [mine]\nlint:\n  select: [SW1, SW2]\n  tp: 4\n  error_on: error\n");
  f.write("pkg/pyproject.toml",
          "[tool.shardwright]\npython_path = ['src']\n[tool.shardwright.lint]\nignore = ['SW404']\nbaseline = 'b.json'\n");
  f.write("pkg/sub/pyproject.toml", "[project]\nname = 'not ours'\n");
  support::SourceManager sm;
  const auto yaml = driver::find_config(f.path.string(), sm);
  REQUIRE(yaml);
  CHECK(yaml->lint.select == std::vector<std::string>{"SW1", "SW2"});
  CHECK(yaml->lint.tp == 4);
  CHECK(yaml->lint.error_on == "error");
  CHECK(yaml->rules == std::vector<std::string>{(f.path / "mine").string()});
  const auto toml = driver::find_config((f.path / "pkg/sub").string(), sm);
  REQUIRE(toml);
  CHECK(toml->lint.ignore == std::vector<std::string>{"SW404"});
  CHECK(toml->lint.baseline == (f.path / "pkg/b.json").string());
  CHECK(toml->python_path == std::vector<std::string>{(f.path / "pkg/src").string()});
}

TEST_CASE("a configuration is checked strictly, with the place") {
  const Folder f;
  support::SourceManager sm;
  f.write("shardwright.yaml", "lint:\n  selct: [SW1]\n");
  auto wrong = driver::find_config(f.path.string(), sm);
  REQUIRE(!wrong);
  CHECK(wrong.error().message.find("did you mean 'lint.select'?") != std::string::npos);
  CHECK(sm.position(wrong.error().range.file, wrong.error().range.begin).line == 2);
  f.write("shardwright.yaml", "lint:\n  tp: two\n");
  CHECK(!driver::find_config(f.path.string(), sm));
  std::filesystem::remove(f.path / "shardwright.yaml");
  f.write("pyproject.toml", "[tool.shardwright.lint]\n\nselct = ['SW1']\n");
  wrong = driver::find_config(f.path.string(), sm);
  REQUIRE(!wrong);
  CHECK(sm.position(wrong.error().range.file, wrong.error().range.begin).line == 3);
  f.write("pyproject.toml", "[tool.shardwright\n");
  CHECK(!driver::find_config(f.path.string(), sm));
}
