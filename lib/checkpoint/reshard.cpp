#include "checkpoint/reshard.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/layout.h"
#include "checkpoint/safetensors.h"
#include "support/files.h"

namespace shardwright::checkpoint {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;
using support::Diagnostic;
using support::Expected;
using support::failure;

namespace {

const std::string kModel = "model";

std::string optimizer_beside(const std::string& model) {
  fs::path p(model);
  return (p.parent_path() / (p.stem().string() + ".optimizer.safetensors")).string();
}

/// A slice that lies somewhere: how it sits in the original, and its bytes (of ZeRO: several pieces, in order).
struct Part {
  Block block;
  std::vector<std::pair<const SafetensorsFile*, const TensorInfo*>> pieces;
  std::uint64_t bytes() const {
    std::uint64_t n = 0;
    for (const auto& p : pieces) n += p.second->bytes;
    return n;
  }
};

struct Found {
  std::string dtype;
  Shape shape;  ///< the original's
  std::vector<Part> parts;
};

/// What is read.
class Input {
 public:
  json index = json::object();  ///< of a grid; of a single-GPU file what the optimizer's file says
  std::set<std::string> kinds;  ///< of the optimizer's tensors
  std::set<std::string> names;  ///< of a single-GPU file: all tensors

  static Expected<Input> file(const std::string& path, const Layouts& layouts) {
    Input in;
    in.layouts_ = layouts;
    if (auto d = in.add("", path)) return *d;
    for (const auto& [name, t] : in.files_.at("").tensors()) in.names.insert(name);
    if (auto beside = optimizer_beside(path); support::is_file(beside)) {
      if (auto d = in.add("optimizer", beside)) return *d;
      const auto& f = in.files_.at("optimizer");
      for (const auto& [name, t] : f.tensors()) in.kinds.insert(name.substr(0, name.find('/')));
      if (auto it = f.metadata().find("shardwright"); it != f.metadata().end())
        if (auto j = json::parse(it->second, nullptr, false); j.is_object()) in.index = j;
    }
    return Expected<Input>(std::move(in));
  }

  static Expected<Input> folder(const std::string& path, const Layouts& layouts, bool check) {
    Input in;
    in.folder_ = path;
    auto text = support::read_file(path + "/index.json", 64u << 20);
    if (!text) return text.error();
    auto marker = support::read_file(path + "/complete");
    if (!marker) return failure(path + "/complete is missing: the checkpoint was not written to its end", {}, "input");
    if (auto crc = crc32_of_file(path + "/index.json"); !crc || *crc != *marker)
      return failure(path + "/index.json is not what was saved (its checksum differs)", {}, "input");
    in.index = json::parse(*text, nullptr, false);
    if (!in.index.is_object() || in.index.value("version", 0) != 1) return failure(path + "/index.json: expected version 1", {}, "input");
    for (const auto& [name, said] : in.index["files"].items()) {
      const std::string file = path + "/" + name;
      std::error_code ec;
      const auto size = fs::file_size(file, ec);
      if (ec) return failure(file + " is missing", {}, "input");
      if (size != said.value("bytes", std::uint64_t{0}))
        return failure(fmt::format("{} has {} bytes instead of {}: it is truncated or another file", file, size,
                                   said.value("bytes", std::uint64_t{0})),
                       {}, "input");
      if (check)
        if (auto crc = crc32_of_file(file); !crc || *crc != said.value("crc32", std::string()))
          return failure(file + " is not what was saved (its checksum differs)", {}, "input");
      if (name.rfind("model-", 0) == 0 || name.rfind("optimizer-", 0) == 0)
        if (auto d = in.add(name, file)) return *d;
    }
    const auto& g = in.index["grid"];
    in.tp_ = g.value("tp", 1), in.dp_ = g.value("dp", 1), in.stages_ = g.value("stages", 1), in.zero_ = g.value("zero", false);
    for (const auto& k : in.index["kinds"]) in.kinds.insert(k.get<std::string>());
    if (support::is_file(path + "/params.yaml")) {
      auto own = Layouts::load(path + "/params.yaml");
      if (!own) return own.error();
      in.layouts_ = *own;
    } else {
      in.layouts_ = layouts;
    }
    return Expected<Input>(std::move(in));
  }

  bool single() const { return folder_.empty(); }
  int tp() const { return tp_; }
  const Layouts& layouts() const { return layouts_; }

  /// Where the tensor lies; no parts: it was not saved.
  Expected<Found> find(const std::string& kind, const std::string& original) const {
    Found found;
    const std::string source = layouts_.canonical(original);
    if (single()) {
      const auto it = files_.find(kind == kModel ? "" : "optimizer");
      if (it == files_.end()) return found;
      for (const auto& [name, t] : it->second.tensors()) {
        const std::string plain = kind == kModel ? name : name.rfind(kind + "/", 0) == 0 ? name.substr(kind.size() + 1) : "";
        if (plain.empty() || (plain != original && layouts_.canonical(plain) != source)) continue;
        found = {t.dtype, t.shape, {Part{whole_block(t.shape), {{&it->second, &t}}}}};
        break;
      }
      return found;
    }
    if (const auto& shapes = index["shapes"]; shapes.contains(source)) found.shape = shapes[source].get<Shape>();
    std::set<std::optional<std::pair<std::int64_t, std::int64_t>>> have;
    for (const Entry& e : layouts_.entries) {
      if (layouts_.canonical(e.source) != source || have.count(e.rows)) continue;
      for (int stage = 0; stage < stages_ && !have.count(e.rows); ++stage) {
        if (!e.on(stage)) continue;
        for (int rank = 0; rank < (e.shard.empty() ? 1 : tp_); ++rank) {
          Part part;
          std::string dtype;
          Shape local;
          auto look = [&](const std::string& file, const std::string& name) {
            auto f = files_.find(file);
            if (f == files_.end()) return;
            auto t = f->second.tensors().find(name);
            if (t == f->second.tensors().end()) return;
            part.pieces.emplace_back(&f->second, &t->second);
            dtype = t->second.dtype, local = t->second.shape;
          };
          if (kind == kModel) look(fmt::format("model-tp{:02}-stage{:02}.safetensors", rank, stage), e.name);
          else
            for (int d = 0; d < (zero_ ? dp_ : 1); ++d)
              look(fmt::format("optimizer-tp{:02}-stage{:02}-dp{:02}.safetensors", rank, stage, d), kind + "/" + e.name);
          if (part.pieces.empty()) break;
          have.insert(e.rows);
          if (found.shape.empty() && !(zero_ && kind != kModel)) found.shape = e.original_shape(local, tp_);
          auto block = e.slice(found.shape, rank, tp_);
          if (!block) return block.error();
          part.block = *block;
          std::uint64_t bytes = element_size(dtype);
          for (auto n : part.block.shape) bytes *= static_cast<std::uint64_t>(n);
          if (bytes != part.bytes())
            return failure(fmt::format("{}: {} ({}) has {} bytes at tp rank {}, params.yaml says {}", folder_, e.name, kind, part.bytes(),
                                       rank, bytes),
                           {}, "input");
          found.dtype = dtype;
          found.parts.push_back(std::move(part));
        }
      }
    }
    return found;
  }

  /// Steps by original name.
  std::map<std::string, double> steps() const {
    std::map<std::string, double> out;
    if (!index.contains("steps")) return out;
    for (const auto& [name, value] : index["steps"].items()) {
      std::string source = name;
      if (!single())
        for (const Entry& e : layouts_.entries)
          if (e.name == name) source = e.source;
      out[layouts_.canonical(source)] = value.get<double>();
    }
    return out;
  }

 private:
  std::optional<Diagnostic> add(const std::string& key, const std::string& path) {
    auto f = SafetensorsFile::open(path);
    if (!f) return f.error();
    files_.emplace(key, std::move(*f));
    return std::nullopt;
  }

  std::string folder_;
  Layouts layouts_;
  std::map<std::string, SafetensorsFile> files_;
  int tp_ = 1, dp_ = 1, stages_ = 1;
  bool zero_ = false;
};

/// A tensor to write.
struct Output {
  std::string name, kind;
  Found from;
  Block block;
  const Entry* entry = nullptr;
};

std::uint64_t bytes_of(const Output& o) {
  std::uint64_t n = element_size(o.from.dtype);
  for (auto s : o.block.shape) n *= static_cast<std::uint64_t>(s);
  return n;
}

void fill(std::vector<char>& buffer, const std::string& dtype, double value) {
  std::fill(buffer.begin(), buffer.end(), '\0');
  if (value == 0) return;
  auto repeat = [&](const void* one, std::size_t n) {
    for (std::size_t at = 0; at + n <= buffer.size(); at += n) std::memcpy(buffer.data() + at, one, n);
  };
  const float f = static_cast<float>(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &f, 4);
  const auto upper = static_cast<std::uint16_t>(bits >> 16);
  if (dtype == "F64") repeat(&value, 8);
  else if (dtype == "F32") repeat(&f, 4);
  else if (dtype == "BF16") repeat(&upper, 2);
}

/// Writes one file, tensor by tensor.
Expected<SafetensorsWriter> write_file(const std::string& path, const std::vector<Output>& outputs,
                                       const std::map<std::string, std::string>& metadata, ReshardResult& result) {
  std::vector<std::pair<std::string, TensorInfo>> infos;
  for (const Output& o : outputs) infos.emplace_back(o.name, TensorInfo{o.from.dtype, o.block.shape, 0, bytes_of(o)});
  auto w = SafetensorsWriter::create(path, std::move(infos), metadata);
  if (!w) return w.error();
  for (const Output& o : outputs) {
    std::vector<char> to(bytes_of(o)), from;
    if (o.entry && !o.entry->pad.empty()) fill(to, o.from.dtype, o.entry->pad_value);
    for (const Part& p : o.from.parts) {
      from.clear();
      from.shrink_to_fit();
      from.resize(p.bytes());
      std::uint64_t at = 0;
      for (const auto& [file, info] : p.pieces) {
        if (auto r = file->read(*info, from.data() + at); !r) return r.error();
        at += info->bytes;
      }
      copy_common(o.block, to.data(), p.block, from.data(), element_size(o.from.dtype));
      result.largest = std::max<std::uint64_t>(result.largest, from.size());
    }
    result.largest = std::max<std::uint64_t>(result.largest, to.size());
    if (auto r = w->write(to.data(), to.size()); !r) return r.error();
    ++result.tensors;
  }
  if (auto r = w->finish(); !r) return r.error();
  ++result.files;
  result.bytes += w->bytes();
  return w;
}

Expected<bool> write_text(const std::string& path, const std::string& text) { return support::write_file(path, text); }

/// The newest complete checkpoint of a folder, or the folder itself.
Expected<std::string> checkpoint_folder(const std::string& path) {
  if (support::is_file(path + "/index.json")) return path;
  if (auto latest = support::read_file(path + "/latest")) {
    std::string name = *latest;
    while (!name.empty() && (name.back() == '\n' || name.back() == ' ')) name.pop_back();
    if (support::is_file(path + "/" + name + "/complete")) return path + "/" + name;
  }
  std::string best;
  std::error_code ec;
  for (const auto& d : fs::directory_iterator(path, ec))
    if (d.path().filename().string().rfind("iter_", 0) == 0 && support::is_file(d.path().string() + "/complete"))
      best = std::max(best, d.path().string());
  if (best.empty())
    return failure(path + ": no complete checkpoint there (expected a folder that training wrote with --save, or a .safetensors file)", {},
                   "input");
  return best;
}

/// Removes what was begun, unless it was completed.
struct Temporary {
  std::string path;
  bool keep = false;
  ~Temporary() {
    std::error_code ec;
    if (!keep && !path.empty()) fs::remove_all(path, ec);
  }
};

Expected<ReshardResult> to_single(const Input& in, const Layouts& layouts, std::string out, ReshardResult result) {
  if (fs::path(out).extension() != ".safetensors") out = (fs::path(out) / "model.safetensors").string();
  std::error_code ec;
  if (fs::path(out).has_parent_path()) fs::create_directories(fs::path(out).parent_path(), ec);
  std::set<std::string> wanted;  // names of the original
  const bool recorded = in.index.contains("names");
  if (recorded)
    for (const auto& n : in.index["names"]) wanted.insert(n.get<std::string>());
  for (const Entry& e : layouts.entries) {
    if (recorded) break;
    wanted.insert(e.source);
    wanted.insert(layouts.canonical(e.source));
    wanted.insert(e.tied.begin(), e.tied.end());
  }
  std::vector<std::string> kinds{kModel};
  kinds.insert(kinds.end(), in.kinds.begin(), in.kinds.end());
  std::vector<Output> model, optimizer;
  for (const auto& kind : kinds)
    for (const auto& name : wanted) {
      if (kind != kModel && layouts.canonical(name) != name && wanted.count(layouts.canonical(name)))
        continue;  // a tied tensor has one state
      auto found = in.find(kind, name);
      if (!found) return found.error();
      if (found->parts.empty()) continue;  // a buffer that is made anew, or a parameter that has no state
      Output o{kind == kModel ? name : kind + "/" + name, kind, *found, whole_block(found->shape), nullptr};
      (kind == kModel ? model : optimizer).push_back(std::move(o));
    }
  for (const Entry& e : layouts.entries)
    if (!e.buffer &&
        std::none_of(model.begin(), model.end(), [&](const Output& o) { return layouts.canonical(o.name) == layouts.canonical(e.source); }))
      return failure(fmt::format("the checkpoint has no tensor {}, which params.yaml describes", e.source), {}, "input");
  Temporary temporary{out + ".tmp"}, beside{optimizer.empty() ? "" : optimizer_beside(out) + ".tmp"};
  auto w = write_file(temporary.path, model, {{"format", "pt"}}, result);
  if (!w) return w.error();
  if (!optimizer.empty()) {
    json about = json::object();
    for (const char* k : {"iteration", "numbers", "extra"})
      if (in.index.contains(k)) about[k] = in.index[k];
    about["steps"] = in.steps();
    auto o = write_file(beside.path, optimizer, {{"format", "pt"}, {"shardwright", about.dump()}}, result);
    if (!o) return o.error();
    fs::rename(beside.path, optimizer_beside(out), ec);
    if (ec) return failure(optimizer_beside(out) + ": " + ec.message(), {}, "input");
    beside.keep = true;
  }
  fs::rename(temporary.path, out, ec);
  if (ec) return failure(out + ": " + ec.message(), {}, "input");
  temporary.keep = true;
  result.out = out;
  return result;
}

Expected<ReshardResult> to_grid(const Input& in, const Layouts& layouts, const ReshardRequest& request, ReshardResult result) {
  if (layouts.stages % request.to_pp)
    return failure(fmt::format("--to {},{}: {} is for {} pipeline stages", request.to_tp, request.to_pp, request.params, layouts.stages),
                   {}, "usage");
  const int tp = request.to_tp;
  const long iteration = in.index.value("iteration", 0L);
  std::error_code ec;
  fs::create_directories(request.out, ec);
  if (!support::is_directory(request.out)) return failure(request.out + ": cannot be made a folder", {}, "input");
  Temporary temporary{fmt::format("{}/.saving-{:07}-reshard{}", request.out, iteration, getpid())};
  fs::create_directories(temporary.path, ec);
  std::vector<std::string> kinds(in.kinds.begin(), in.kinds.end());
  json files = json::object(), shapes = json::object(), steps = json::object();
  const auto known_steps = in.steps();
  std::set<std::string> used;
  for (int stage = 0; stage < layouts.stages; ++stage)
    for (int rank = 0; rank < tp; ++rank)
      for (bool optimizer : {false, true}) {
        std::vector<Output> outputs;
        for (const auto& kind : optimizer ? kinds : std::vector<std::string>{kModel})
          for (const Entry& e : layouts.entries) {
            if (!e.on(stage) || (optimizer && e.buffer)) continue;
            auto found = in.find(kind, e.source);
            if (!found) return found.error();
            if (found->parts.empty()) {
              if (!optimizer && !e.buffer)
                return failure(fmt::format("what is read has no tensor {}, which {} describes", e.source, request.params), {}, "input");
              continue;
            }
            if (!e.shape.empty() && e.shape != found->shape)
              return failure(fmt::format("{} has shape [{}], {} says [{}]", e.source, fmt::join(found->shape, ", "), request.params,
                                         fmt::join(e.shape, ", ")),
                             {}, "input");
            auto block = e.slice(found->shape, rank, tp);
            if (!block) return block.error();
            const std::string source = layouts.canonical(e.source);
            shapes[source] = found->shape;
            used.insert(source);
            if (auto s = known_steps.find(source); optimizer && s != known_steps.end()) steps[e.name] = s->second;
            outputs.push_back({optimizer ? kind + "/" + e.name : e.name, kind, std::move(*found), std::move(*block), &e});
          }
        if (outputs.empty() && optimizer) continue;
        const std::string name = optimizer ? fmt::format("optimizer-tp{:02}-stage{:02}-dp00.safetensors", rank, stage)
                                           : fmt::format("model-tp{:02}-stage{:02}.safetensors", rank, stage);
        auto w = write_file(temporary.path + "/" + name, outputs, {{"format", "pt"}}, result);
        if (!w) return w.error();
        files[name] = {{"bytes", w->bytes()}, {"crc32", fmt::format("{:08x}", w->crc())}};
      }
  for (const auto& name : in.names)
    if (!used.count(layouts.canonical(name)))
      return failure(fmt::format("{}: {} does not describe {}", request.in, request.params, name), {}, "input");
  if (auto r = write_text(temporary.path + "/params.yaml", layouts.text); !r) return r.error();
  files["params.yaml"] = {{"bytes", layouts.text.size()},
                          {"crc32", fmt::format("{:08x}", crc32(0, layouts.text.data(), layouts.text.size()))}};
  std::vector<int> ranks;
  for (int r = 0; r < tp * request.to_pp; ++r) ranks.push_back(r);
  json index{{"version", 1},
             {"iteration", iteration},
             {"grid", {{"tp", tp}, {"pp", request.to_pp}, {"dp", 1}, {"stages", layouts.stages}, {"zero", false}}},
             {"ranks", ranks},
             {"files", files},
             {"shapes", shapes},
             {"steps", steps},
             {"kinds", kinds},
             {"numbers", in.index.contains("numbers") ? in.index["numbers"] : json{{"groups", json::array()}, {"scaler", nullptr}}},
             {"extra", in.index.contains("extra") ? in.index["extra"] : json{{"consumed", 0}}}};
  if (in.single()) index["names"] = in.names;
  else if (in.index.contains("names")) index["names"] = in.index["names"];
  const std::string text = index.dump(1);
  if (auto r = write_text(temporary.path + "/index.json", text); !r) return r.error();
  if (auto r = write_text(temporary.path + "/complete", fmt::format("{:08x}", crc32(0, text.data(), text.size()))); !r) return r.error();
  std::string name = fmt::format("iter_{:07}", iteration);
  for (int k = 2; fs::exists(request.out + "/" + name); ++k) name = fmt::format("iter_{:07}-{}", iteration, k);
  fs::rename(temporary.path, request.out + "/" + name, ec);
  if (ec) return failure(request.out + "/" + name + ": " + ec.message(), {}, "input");
  temporary.keep = true;
  if (auto r = write_text(request.out + "/latest", name); !r) return r.error();
  result.out = request.out + "/" + name;
  return result;
}

}  // namespace

Expected<ReshardResult> reshard(const ReshardRequest& request) {
  try {
    auto layouts = Layouts::load(request.params);
    if (!layouts) return layouts.error();
    std::error_code ec;
    const bool is_folder = support::is_directory(request.in);
    if (!is_folder && !support::is_file(request.in)) return failure(request.in + ": there is no such file or folder", {}, "input");
    std::string path = request.in;
    if (is_folder) {
      auto found = checkpoint_folder(request.in);
      if (!found) return found.error();
      path = *found;
    }
    auto in = is_folder ? Input::folder(path, *layouts, request.check) : Input::file(path, *layouts);
    if (!in) return in.error();
    const int tp = in->tp(), pp = is_folder ? in->index["grid"].value("pp", 1) : 1;
    if ((request.from_tp && request.from_tp != tp) || (request.from_pp && request.from_pp != pp))
      return failure(fmt::format("--from {},{}: {} is of tp {}, pp {}", request.from_tp, request.from_pp, path, tp, pp), {}, "usage");
    if (request.to_tp < 1 || request.to_pp < 1) return failure("--to: expected two positive numbers, tp,pp", {}, "usage");
    const bool single = request.to_tp == 1 && request.to_pp == 1;
    return single ? to_single(*in, *layouts, request.out, {}) : to_grid(*in, *layouts, request, {});
  } catch (const std::exception& e) {  // of the JSON library: an index that is no index
    return failure(fmt::format("{}: {}", request.in, e.what()), {}, "input");
  }
}

}  // namespace shardwright::checkpoint
