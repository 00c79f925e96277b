"""The demo fails unless it saw what it promises."""

import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tools.demo.traffic import read_conversations
from tools.demo.watching import Seen

NOW = datetime(2027, 3, 4, 5, 6, 30, tzinfo=UTC)
RESOURCE = {
    "status": {
        "residency": {
            "observedAt": "2027-03-04T05:06:20Z",
            "hostPool": {"usedPercent": 30, "usedBytes": 3000},
            "requests": {"mixed": 2, "none": 1},
            "pages": {"hostOnly": 40},
        }
    }
}


def changed(**parts: Any) -> dict[str, Any]:
    resource: dict[str, Any] = copy.deepcopy(RESOURCE)
    resource["status"]["residency"].update(parts)
    return resource


def seen(resource: dict[str, Any], *, now: datetime = NOW) -> Seen:
    looks = Seen()
    looks.look(resource, now=now)
    return looks


def test_everything_seen_is_no_fault() -> None:
    assert seen(RESOURCE).missing(asked=120, answered=120) == []


def test_the_highest_of_all_looks_counts() -> None:
    looks = seen(RESOURCE)
    looks.look(changed(hostPool={"usedPercent": 0, "usedBytes": 0}, requests={"mixed": 0, "none": 3}), now=NOW)
    assert (looks.looks, looks.host_used_percent, looks.host_used_bytes, looks.mixed, looks.none) == (2, 30, 3000, 2, 3)
    assert looks.oldest_seconds == 10


@pytest.mark.parametrize(
    ("looks", "asked", "answered", "fault"),
    [
        (seen(changed(hostPool={"usedPercent": 0, "usedBytes": 0})), 120, 120, "host-pool use never rose above zero"),
        (seen(changed(requests={"mixed": 0, "none": 4})), 120, 120, "no request was ever mixed"),
        (seen(RESOURCE, now=NOW + timedelta(seconds=21)), 120, 120, "31 s old"),
        (seen(RESOURCE), 120, 119, "119 of 120 requests"),
        (seen(RESOURCE), 0, 0, "0 of 0 requests"),
    ],
)
def test_what_was_not_seen_is_a_fault(looks: Seen, asked: int, answered: int, fault: str) -> None:
    (found,) = looks.missing(asked=asked, answered=answered)
    assert fault in found


def test_an_object_without_numbers_is_no_look() -> None:
    assert seen({"status": {}}).looks == 0


def test_the_shipped_conversations_grow_from_what_they_share() -> None:
    conversations = read_conversations(Path(__file__).resolve().parents[3] / "examples" / "agent-traffic.jsonl")
    assert len(conversations) == 24
    for conversation in conversations:
        for before, turn in zip(conversation.turns, conversation.turns[1:], strict=False):
            assert turn.shared_prefix_tokens <= before.prompt_tokens
            assert turn.shared_prefix_tokens < turn.prompt_tokens


def test_a_file_of_another_format_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    path.write_text('{"format": "agent-traffic/9"}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="agent-traffic/9"):
        read_conversations(path)
