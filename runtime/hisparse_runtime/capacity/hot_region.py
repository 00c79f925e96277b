"""The hot region of one request: rows that were read back from the host, kept on the GPU in the order of their last use."""

from dataclasses import dataclass

from hisparse_runtime.capacity.errors import FieldNames, SettingsError
from hisparse_runtime.geometry import ModelGeometry, VllmVersion

# Hot slots are numbered by 16-bit integers.
MAX_DEVICE_BUFFER_ROWS = 32768


@dataclass(frozen=True, slots=True, kw_only=True)
class HotRegion:
    """`rows` slots in each layer; a region takes all of its blocks in every hot group at once, or none.

    `topk_rows` are picked for one token; the tokens that one step verifies pick `union_rows` at most.
    """

    rows: int
    topk_rows: int
    union_rows: int
    blocks_per_group: int
    blocks_per_request: int
    padding_rows: int


def hot_region(
    geometry: ModelGeometry,
    *,
    version: VllmVersion,
    num_speculative_tokens: int,
    device_buffer_size: int | None,
    names: FieldNames,
) -> HotRegion:
    """The region that vLLM allocates: room for what one step can select, and one more top-K that may stay from step to step.

    Raises SettingsError for a size that vLLM refuses.
    """
    topk_rows = geometry.model.topk_buffer_rows if version.sizes_by_topk_buffer else geometry.model.index_topk
    union_rows = (1 + num_speculative_tokens) * topk_rows
    default_rows = union_rows + topk_rows
    rows = default_rows if device_buffer_size is None else device_buffer_size
    if rows < union_rows:
        raise SettingsError(
            f"{names.device_buffer_size} {rows:,} does not hold the rows that one step selects: {1 + num_speculative_tokens} x"
            f" top-K {topk_rows:,} = {union_rows:,}: raise it to at least {union_rows:,}, or leave it out for {default_rows:,}"
        )
    if rows > MAX_DEVICE_BUFFER_ROWS:
        ways_out = (
            [f"lower {names.device_buffer_size} to at most {MAX_DEVICE_BUFFER_ROWS:,}"]
            if union_rows <= MAX_DEVICE_BUFFER_ROWS
            else []
        )
        if num_speculative_tokens:
            ways_out.append(f"lower {names.num_speculative_tokens} to {max(0, MAX_DEVICE_BUFFER_ROWS // topk_rows - 2)}")
        raise SettingsError(
            f"{names.device_buffer_size} {rows:,}: a hot region numbers its slots by 16-bit integers and has at most"
            f" {MAX_DEVICE_BUFFER_ROWS:,} rows: {' or '.join(ways_out) or 'the model cannot be served with HiSparse'}"
        )
    blocks_per_group = geometry.pages(rows)
    return HotRegion(
        rows=rows,
        topk_rows=topk_rows,
        union_rows=union_rows,
        blocks_per_group=blocks_per_group,
        blocks_per_request=geometry.num_groups * blocks_per_group,
        padding_rows=0 if device_buffer_size is None else blocks_per_group * geometry.page_tokens - rows,
    )
