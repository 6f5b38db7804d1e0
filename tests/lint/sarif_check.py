"""A structural check of SARIF 2.1.0: the properties, required ones and values that the standard's schema has for what we write.

Written from the standard (OASIS SARIF 2.1.0, appendix: the schema); what we do not write is not allowed here, so that a new property has
to be looked up."""

PLACE = {"startLine": (int, True), "startColumn": (int, False), "endLine": (int, False), "endColumn": (int, False)}
OBJECTS = {
    "log": {"version": ({"2.1.0"}, True), "$schema": (str, False), "runs": (["run"], True)},
    "run": {"tool": ("tool", True), "columnKind": ({"utf16CodeUnits", "unicodeCodePoints"}, False), "originalUriBaseIds": (dict, False), "results": (["result"], False)},
    "tool": {"driver": ("component", True)},
    "component": {"name": (str, True), "semanticVersion": (str, False), "rules": (["descriptor"], False), "informationUri": (str, False)},
    "descriptor": {"id": (str, True), "shortDescription": ("text", False), "fullDescription": ("text", False), "help": ("text", False), "defaultConfiguration": ("configuration", False), "properties": (dict, False)},
    "configuration": {"level": ({"none", "note", "warning", "error"}, False)},
    "text": {"text": (str, True), "markdown": (str, False)},
    "result": {"ruleId": (str, False), "ruleIndex": (int, False), "level": ({"none", "note", "warning", "error"}, False), "message": ("text", True), "locations": (["location"], False), "relatedLocations": (["location"], False), "fixes": (["fix"], False)},
    "location": {"id": (int, False), "physicalLocation": ("physical", False), "message": ("text", False)},
    "physical": {"artifactLocation": ("artifact", True), "region": ("region", False)},
    "artifact": {"uri": (str, True), "uriBaseId": (str, False)},
    "region": PLACE,
    "fix": {"description": ("text", False), "artifactChanges": (["change"], True)},
    "change": {"artifactLocation": ("artifact", True), "replacements": (["replacement"], True)},
    "replacement": {"deletedRegion": ("region", True), "insertedContent": ("text", False)},
}


def check_sarif(value, kind="log", where="$"):
    """What is wrong, as texts."""
    if not isinstance(value, dict):
        return [f"{where}: an object is expected"]
    faults = [f"{where}: unknown property {k}" for k in value if k not in OBJECTS[kind]]
    for key, (what, required) in OBJECTS[kind].items():
        at = f"{where}.{key}"
        if key not in value:
            if required:
                faults.append(f"{at}: missing")
            continue
        v = value[key]
        if isinstance(what, set):
            faults += [f"{at}: {v!r}"] if v not in what else []
        elif isinstance(what, list):
            if not isinstance(v, list):
                faults.append(f"{at}: a list is expected")
            else:
                for i, item in enumerate(v):
                    faults += check_sarif(item, what[0], f"{at}[{i}]")
        elif isinstance(what, str):
            faults += check_sarif(v, what, at)
        elif not isinstance(v, what) or isinstance(v, bool):
            faults.append(f"{at}: {v!r}")
        elif what is int and v < (0 if key in ("ruleIndex", "id") else 1):
            faults.append(f"{at}: {v}")
    if kind == "region" and (value.get("endLine", 0), value.get("endColumn", 0)) < (value["startLine"], value.get("startColumn", 0)):
        faults.append(f"{where}: ends before it begins")
    if kind == "artifact" and any(c in value.get("uri", "") for c in ' <>"{}|\\^`'):
        faults.append(f"{where}: {value['uri']!r} is no URI")
    return faults
