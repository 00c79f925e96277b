"""What the object shows while traffic flows, and whether the demo saw what it is there to show."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

# Readers of the object are promised numbers no older than this while pods answer.
FRESH_SECONDS = 30.0


@dataclass(slots=True)
class Seen:
    """Extremes over all looks at the object."""

    looks: int = 0
    host_used_percent: int = 0
    host_used_bytes: int = 0
    mixed: int = 0
    none: int = 0
    host_only_pages: int = 0
    oldest_seconds: float = 0.0

    def look(self, resource: dict[str, Any], *, now: datetime | None = None) -> None:
        """Take one answer of `kubectl get hsd NAME -o json` into account."""
        residency = resource.get("status", {}).get("residency")
        if residency is None:
            return
        self.looks += 1
        self.host_used_percent = max(self.host_used_percent, residency["hostPool"]["usedPercent"])
        self.host_used_bytes = max(self.host_used_bytes, residency["hostPool"]["usedBytes"])
        self.mixed = max(self.mixed, residency["requests"]["mixed"])
        self.none = max(self.none, residency["requests"]["none"])
        self.host_only_pages = max(self.host_only_pages, residency["pages"]["hostOnly"])
        age = ((now or datetime.now(UTC)) - datetime.fromisoformat(residency["observedAt"])).total_seconds()
        self.oldest_seconds = max(self.oldest_seconds, age)

    def missing(self, *, asked: int, answered: int) -> list[str]:
        """What the demo promised and did not see; empty when all is well."""
        faults = []
        if self.host_used_bytes == 0:
            faults.append("host-pool use never rose above zero")
        if self.mixed == 0:
            faults.append("no request was ever mixed (pages on both sides)")
        if self.oldest_seconds > FRESH_SECONDS:
            faults.append(f"status.residency was {self.oldest_seconds:.0f} s old at one look, {FRESH_SECONDS:.0f} s are promised")
        if asked == 0 or answered < asked:
            faults.append(f"{answered} of {asked} requests were answered")
        return faults
