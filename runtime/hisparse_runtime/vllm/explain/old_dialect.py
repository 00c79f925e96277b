"""The announcement's command line: the host pool in `hisparse_config`, which no release takes, and how it is said today."""

from hisparse_runtime.vllm.command_line.edits import Edit, set_json
from hisparse_runtime.vllm.command_line.meaning import ATTENTION, KV_TRANSFER, read_meaning
from hisparse_runtime.vllm.command_line.transfer_config import with_hisparse
from hisparse_runtime.vllm.command_line.words import CommandLine
from hisparse_runtime.vllm.explain.findings import Rejection, Stage

OLD_POOL_KEYS = ("hisparse_config", "host_pool_gib")


def old_dialect_rejection(typed: str, *, says: str) -> Rejection:
    return Rejection(
        code="OldDialect",
        stage=Stage.ARGPARSE,
        option=typed,
        message=(
            f"{typed}: host_pool_gib in hisparse_config is the dialect of the hisparse-glm branch, of the announcement; every"
            f" release refuses it: the host pool is a HiSparseConnector's, in {KV_TRANSFER}, beside the other connectors"
        ),
        says=says,
        edit=Edit(what=f"moved host_pool_gib into a HiSparseConnector of {KV_TRANSFER}", apply=_translated),
    )


def _translated(line: CommandLine) -> CommandLine:
    meaning = read_meaning(line)
    attention = {**meaning.config(ATTENTION)}
    hisparse = {**attention.pop("hisparse_config")}
    pool = hisparse.pop("host_pool_gib")
    if hisparse:
        attention["hisparse_config"] = hisparse
    transfer = with_hisparse({**meaning.config(KV_TRANSFER)}, pool)
    return set_json(set_json(line, ATTENTION, attention), KV_TRANSFER, transfer)
