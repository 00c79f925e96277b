"""`python -m tests.contract.upstream_side.telemetry_answer`: runs of vLLM's scheduler with our telemetry, as JSON lines.

In: `{"id": "...", "workload": {...}, "measured": "each step" | "idle" | "as served", "fault": null | "name", "switch": ""}`.
Out: the workload's decisions as a hash, and after each output the page that a scrape gets, and a recount of the engine.
"""

import hashlib
import json
import os
import sys
import traceback
from importlib import import_module, reload
from typing import Any

from tests.contract.trace_driver import drive
from tests.contract.traces import page_set
from tests.contract.upstream_side.scheduling_answer import start
from tests.contract.workloads import Workload

CONNECTOR = "hisparse_runtime.vllm.telemetry.connector"
# Where each can fail: module of the telemetry, owner in it ("" for the module), function.
FAULTS = {
    "sizes_of": ("connector", ""),
    "_attach": ("reporter", "Reporter"),
    "_count_lost": ("reporter", "Reporter"),
    "_count_transfers": ("reporter", "Reporter"),
    "_due_record": ("reporter", "Reporter"),
    "request_levels": ("reporter", ""),
    "pool_levels": ("reporter", ""),
    "_register": ("prometheus", "TelemetryPromMetrics"),
    "_observe_records": ("prometheus", "TelemetryPromMetrics"),
    "_observe_rows": ("prometheus", "TelemetryPromMetrics"),
}


def main() -> int:
    output = start()
    for line in sys.stdin:
        run = json.loads(line)
        answer: dict[str, Any]
        try:
            answer = _answer(run)
        except Exception:  # noqa: BLE001  the one who asks decides what a failed run means
            answer = {"error": traceback.format_exc()}
        output.write(json.dumps({"id": run["id"], **answer}, separators=(",", ":")) + "\n")
        output.flush()
    return 0


def _answer(run: dict[str, Any]) -> dict[str, Any]:
    os.environ["HISPARSE_TELEMETRY"] = run.get("switch", "")
    connector = reload(import_module(CONNECTOR))
    undo = [_replace(*_owner("reporter", ""), name, 0) for name in ("PERIOD_SECONDS", "PAUSE_PER_COST")]
    if run["measured"] != "each step":
        undo.pop()()
        undo.pop()()
    if run.get("fault"):
        undo.append(_replace(*_owner(*FAULTS[run["fault"]]), run["fault"], _fail))
    try:
        return _run(run, connector)
    finally:
        for one in undo:
            one()


def _run(run: dict[str, Any], connector: Any) -> dict[str, Any]:
    from tests.contract.upstream_side.scheduling_driven import UpstreamScheduler  # noqa: PLC0415  after vLLM's platform
    from tests.contract.upstream_side.scheduling_engine import build_engine  # noqa: PLC0415  as above
    from tests.contract.upstream_side.telemetry_scrape import Frontend  # noqa: PLC0415  as above

    workload = Workload.from_json(run["workload"])
    engine = build_engine(workload.settings, hisparse_module=CONNECTOR, log_stats=True)
    if not hasattr(engine.scheduler, "kv_holding_waiting"):  # 0.30, where nothing here asks for it
        engine.scheduler.kv_holding_waiting = ()
    driven = UpstreamScheduler(workload.settings, engine)
    frontend = Frontend(engine, driven.coordinator, connector, clock_stands=run["measured"] == "idle")
    decisions = hashlib.sha256()
    totals = dict.fromkeys(("lost_pages", "adopted_pages", "written_back_pages", "restored_pages"), 0)
    for step in drive(workload, driven):
        decisions.update(repr(step).encode())
        totals["lost_pages"] += sum(len(page_set(pages)) for pages in step.lost.values())
        totals["adopted_pages"] += sum(len(page_set(pages)) for pages in step.adopted.values())
        totals["restored_pages"] += sum(transfer.restore for transfer in step.transfers)
        totals["written_back_pages"] += sum(not transfer.restore for transfer in step.transfers)
    return {
        "decisions": decisions.hexdigest(),
        "steps": frontend.scrapes,
        "totals": totals,
        "sizes": frontend.sizes(),
        "keys": sorted(frontend.keys),
        "snapshots": frontend.num_snapshots,
        "log": frontend.log(),
    }


def _owner(module: str, name: str) -> tuple[Any]:
    owner: Any = import_module(f"hisparse_runtime.vllm.telemetry.{module}")
    return (getattr(owner, name) if name else owner,)


def _replace(owner: Any, name: str, value: Any) -> Any:
    before = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, before)


def _fail(*_: object, **__: object) -> None:
    raise RuntimeError("a fault on purpose")


if __name__ == "__main__":
    sys.exit(main())
