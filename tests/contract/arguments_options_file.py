"""Writes the options of four releases into the one file that the runtime package reads."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.bootstrap.environment import REPOSITORY

OPTIONS_FILE = REPOSITORY / "runtime" / "hisparse_runtime" / "vllm" / "command_line" / "serve_options.json"
Table = dict[str, Any]


def merged(tables: Mapping[str, Table]) -> Table:
    """`tables` by version. Entries say in which versions they are, unless they are in all."""
    versions = list(tables)
    options: dict[str, tuple[Table, list[str]]] = {}
    fields: dict[str, dict[str, tuple[str | None, list[str]]]] = {}
    for version, table in tables.items():
        for entry in table["options"]:
            canonical = {**entry, "names": sorted(entry["names"], key=lambda name: not name.startswith("--"))}
            options.setdefault(json.dumps(canonical, sort_keys=True), (canonical, []))[1].append(version)
        for config, found in table["configs"].items():
            for field, nested in found.items():
                known = fields.setdefault(config, {}).setdefault(field, (nested, []))
                known[1].append(version)
    return {
        "versions": versions,
        "options": [
            entry | _where(found, versions) for entry, found in sorted(options.values(), key=lambda known: known[0]["names"])
        ],
        "configs": {
            config: {
                field: ({} if nested is None else {"config": nested}) | _where(found, versions)
                for field, (nested, found) in sorted(known.items())
            }
            for config, known in sorted(fields.items())
        },
    }


def text_of(content: Table) -> str:
    """JSON with an option or a class on each line."""
    lines = [
        "{",
        f'"versions": {json.dumps(content["versions"])},',
        '"options": [',
        ",\n".join(json.dumps(entry) for entry in content["options"]),
        "],",
        '"configs": {',
        ",\n".join(f"{json.dumps(config)}: {json.dumps(fields)}" for config, fields in content["configs"].items()),
        "}",
        "}",
    ]
    return "\n".join(lines) + "\n"


def write(content: Table, path: Path = OPTIONS_FILE) -> None:
    path.write_text(text_of(content), encoding="utf-8")


def _where(found: list[str], versions: list[str]) -> Table:
    return {} if found == versions else {"in": found}
