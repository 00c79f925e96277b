"""Findings as JSON, as lines for people, and as the message that Kubernetes keeps of a container that ended."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hisparse_runtime.vllm.preflight.findings import Finding, Severity

EXIT_REFUSED = 3
"""Exit status of a container that is not started; 1 and 2 are those of Python and of wrong options."""

# The kubelet cuts what is longer (4096 bytes for each container), wherever that is.
_MOST_MESSAGE_BYTES = 4096
_CUT = " ..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Refusals first. `facts`: what was seen in the container, by name."""

    findings: tuple[Finding, ...]
    facts: Mapping[str, Any]

    @property
    def passed(self) -> bool:
        return not self._refusals

    @property
    def exit_code(self) -> int:
        return 0 if self.passed else EXIT_REFUSED

    def to_json(self) -> dict[str, Any]:
        findings = [
            {"reason": finding.reason.value, "severity": finding.severity.value, "message": finding.message}
            for finding in self.findings
        ]
        return {"passed": self.passed, "findings": findings, "facts": dict(self.facts)}

    def lines(self) -> list[str]:
        """One for the whole, one for each finding."""
        first = "preflight: passed" if self.passed else "preflight: refused, the engine is not started"
        return [first, *(f"preflight: {finding.severity}: {_text(finding)}" for finding in self.findings)]

    def termination_message(self) -> str:
        """`Reason: text` for each refusal, a line each, no longer than Kubernetes keeps; empty when there is none."""
        message = "\n".join(_text(finding) for finding in self._refusals)
        if len(message.encode()) <= _MOST_MESSAGE_BYTES:
            return message
        # a character that is cut in two is left out
        return message.encode()[: _MOST_MESSAGE_BYTES - len(_CUT)].decode(errors="ignore") + _CUT

    @property
    def _refusals(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.REFUSED)


def _text(finding: Finding) -> str:
    return f"{finding.reason}: {finding.message}"
