#include <nlohmann/json.hpp>

#include "lint/report.h"

namespace shardwright::lint {
namespace {

using Json = nlohmann::ordered_json;

Json placed(const support::Range& r, const support::SourceManager& sm) {
  const Place p = place_of(r, sm);
  return {{"file", p.file}, {"line", p.line}, {"column", p.column}, {"end_line", p.end_line}, {"end_column", p.end_column}};
}

}  // namespace

std::string json_report(const Findings& findings, const support::SourceManager& sm) {
  Json list = Json::array();
  for (const auto& d : findings) {
    Json j{{"code", d.code}, {"severity", severity_name(d.severity)}};
    j.update(placed(d.range, sm));
    j["message"] = d.message;
    j["related"] = Json::array();
    for (const auto& n : d.notes) {
      Json related = placed(n.range, sm);
      related["message"] = n.message;
      j["related"].push_back(std::move(related));
    }
    j["fix"] = nullptr;
    if (d.fix) {
      Json edits = Json::array();
      for (const auto& e : d.fix->edits) {
        Json edit = placed(e.range, sm);
        edit["text"] = e.text;
        edits.push_back(std::move(edit));
      }
      j["fix"] = {{"applicability", d.fix->applicability}, {"edits", std::move(edits)}};
    }
    list.push_back(std::move(j));
  }
  return list.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace shardwright::lint
