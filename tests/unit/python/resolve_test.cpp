#include "python/resolve.h"

#include <catch2/catch.hpp>

#include "python/index.h"
#include "python/parse.h"

using namespace shardwright;
using namespace shardwright::python;

TEST_CASE("modules are found as Python finds them") {
  MemoryFileSystem fs({{"src/pkg/__init__.py", ""},
                       {"src/pkg/sub/__init__.py", ""},
                       {"src/pkg/sub/m.py", ""},
                       {"src/top.py", ""},
                       {"site/pkg/other.py", ""},
                       {"src/ns/a.py", ""},
                       {"site/ns/b.py", ""},
                       {"site/ext.cpython-311-x86_64-linux-gnu.so", ""},
                       {"site/both.py", ""},
                       {"site/both/__init__.py", ""}});
  Resolver r(fs, {"src", "site"});
  CHECK(r.find("pkg").path == "src/pkg/__init__.py");
  CHECK(r.find("pkg").is_package());
  CHECK(r.find("pkg.sub.m").path == "src/pkg/sub/m.py");
  CHECK_FALSE(r.find("pkg.sub.m").is_package());
  CHECK(r.find("pkg.other").kind == ModuleLocation::NotFound);  // the first pkg hides the second
  CHECK(r.find("top").path == "src/top.py");
  CHECK_FALSE(r.find("top.x"));
  CHECK(r.find("ns").kind == ModuleLocation::Namespace);
  CHECK(r.find("ns.a").path == "src/ns/a.py");
  CHECK(r.find("ns.b").path == "site/ns/b.py");
  CHECK(r.find("ext").kind == ModuleLocation::Compiled);
  CHECK(r.find("both").is_package());
  CHECK_FALSE(r.find("none.at.all"));
  CHECK(r.submodules(r.find("pkg")) == std::vector<std::string>{"sub"});
  MemoryFileSystem later(std::map<std::string, std::string>{{"late/x.py", ""}});
  Resolver q(later, {});
  CHECK_FALSE(q.find("x"));
  q.add_search_path("late");
  CHECK(q.find("x"));
}

TEST_CASE("relative names") {
  CHECK(absolute_name("a.b.c", false, 0, "x") == "x");
  CHECK(absolute_name("a.b.c", false, 1, "x") == "a.b.x");
  CHECK(absolute_name("a.b.c", false, 2, "") == "a");
  CHECK(absolute_name("a.b", true, 1, "x") == "a.b.x");
  CHECK(absolute_name("a.b", true, 2, "x.y") == "a.x.y");
  CHECK_FALSE(absolute_name("a", false, 1, "x"));
  CHECK_FALSE(absolute_name("a", true, 2, "x"));
}

TEST_CASE("loading") {
  support::SourceManager sm;
  program::Arena arena;
  support::Diagnostics diagnostics;
  MemoryFileSystem fs({{"proj/models/__init__.py", "from .net import Net\n"},
                       {"proj/models/net.py", "class Net: pass\n"},
                       {"proj/run.py", "import models\n"},
                       {"v/lib/python3.9/site-packages/old.py", ""},
                       {"v/lib/python3.11/site-packages/dep/__init__.py", "x = 1\n"},
                       {"v/lib/python3.11/site-packages/e.pth", "# c\nimport x\n../../../../editable\n"},
                       {"editable/ed.py", ""},
                       {"v/bin/python", ""}});
  Syntax syntax(sm);
  Loader loader(syntax, fs, diagnostics, site_packages_of(fs, "v", ""));
  auto net = loader.load_file("proj/models/net.py");
  REQUIRE(net);
  CHECK((*net)->name == "models.net");
  CHECK(loader.load("models.net") == *net);
  CHECK(*loader.load_file("proj/./models/net.py") == *net);
  REQUIRE(loader.load("models"));
  CHECK(loader.load("models")->is_package);
  CHECK(loader.load("dep")->body.size() == 1);
  CHECK(loader.load("ed"));
  CHECK(loader.load("nothing") == nullptr);
  auto run = loader.load_file("proj/run.py");
  REQUIRE(run);
  CHECK((*run)->name == "run");
  auto package = loader.load_file("proj/models/__init__.py");
  REQUIRE(package);
  CHECK(*package == loader.load("models"));
  CHECK_FALSE(loader.load_file("proj/none.py"));
  CHECK(site_packages_of(fs, "", "v/bin/python").at(0) == "v/lib/python3.11/site-packages");
  CHECK_FALSE(diagnostics.has_errors());
}

namespace {
std::string orders(const ModuleIndex& index, const std::string& name) {
  std::string out;
  for (const Definition& d : index.definitions(name)) out += std::to_string(d.order) + (d.binds ? "b" : "") + (d.fills ? "f" : "") + " ";
  return out;
}
}  // namespace

TEST_CASE("the index of a module") {
  support::SourceManager sm;
  program::Arena arena;
  support::Diagnostics diagnostics;
  const auto* m = parse(sm,
                        sm.add("m.py",
                               "'''doc'''\n"                                                          // 0
                               "import os.path, torch as t\n"                                         // 1
                               "try:\n    from fast import op\nexcept ImportError:\n    op = None\n"  // 2
                               "REG = {}\n"                                                           // 3
                               "def register(f):\n    REG[f.__name__] = f\n    return f\n"            // 4
                               "@register\ndef a(): x = 1\n"                                          // 5
                               "REG['k'] = a\n"                                                       // 6
                               "REG.update(z=1)\n"                                                    // 7
                               "for n in range(3):\n    REG[n] = n\n"                                 // 8
                               "A = B = 1\n"                                                          // 9
                               "A += 1\n"                                                             // 10
                               "a.attr = 2\n"                                                         // 11
                               "from .other import *\n"                                               // 12
                               "if t.cuda:\n    class K: pass\nelse:\n    from q import *\n"          // 13
                               "__all__ = ['A'] + ['B']\n"                                            // 14
                               "__all__ += ('K',)\n"                                                  // 15
                               "print('hi')\n"                                                        // 16
                               "c = REG.setdefault('c', 1)\n"                                         // 17
                               "wrap(K)\n"                                                            // 18
                               "def __getattr__(name): pass\n",                                       // 19
                               "m"),
                        arena, diagnostics);
  const ModuleIndex index(*m);
  CHECK(orders(index, "os") == "1b ");
  CHECK(orders(index, "t") == "1b ");
  CHECK(orders(index, "op") == "2b ");
  CHECK(orders(index, "REG") == "3b 6f 7f 8f 17f ");
  CHECK(orders(index, "register") == "4b 5f ");
  CHECK(orders(index, "a") == "5b 11f ");
  CHECK(orders(index, "A") == "9b 10bf ");
  CHECK(orders(index, "n") == "8b ");
  CHECK(orders(index, "K") == "13b 18f ");
  CHECK(orders(index, "x") == "");
  CHECK(orders(index, "f") == "");
  REQUIRE(index.star_imports().size() == 2);
  CHECK(index.star_imports()[0].stmt->module == "other");
  CHECK(index.star_imports()[1].order == 13);
  REQUIRE(index.all());
  CHECK(*index.all() == std::vector<std::string>{"A", "B", "K"});
  CHECK(index.module_getattr() != nullptr);
  CHECK(index.effects().size() == 1);
  CHECK(index.names().front() == "os");
}
