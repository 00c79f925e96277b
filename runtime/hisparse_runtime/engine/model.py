"""The forward pass, written so that a token's result depends on the tokens before it and on nothing else.

Floating-point sums depend on the order of their terms, and a matrix product may order them by the shape of its operands. So every
product here has a shape that the position of a token alone decides:
- Dense products run on tiles of 16 rows aligned to pages: row r of a tile is always a position with position % 16 == r, missing
  rows are padding. Neither the chunk that a prompt is cut into nor the neighbours in the batch change the shape.
- Indexer scores of a position run over all pages up to its own: (index heads x dim) by (dim x 16 (page + 1)).
- Attention of a position runs over index_topk selected rows, in order of position, padded: where the rows live does not matter.
Batched products (numpy stacks) are computed one matrix at a time with the shape of one matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hisparse_runtime.engine.model_config import ModelConfig
from hisparse_runtime.engine.weights import Floats, Weights

Indices = NDArray[np.int64]
PADDING = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Consecutive tokens of one request: positions `start` to `start + len(tokens)`."""

    start: int
    tokens: Sequence[int]
    wants_logits: bool


class KvCache(Protocol):
    """Where the forward pass keeps its rows. `span` counts the spans of the step."""

    def write(self, *, layer: int, span: int, latents: Floats, index_keys: Floats) -> None:
        """Stores the rows of a span: [tokens, row] and [tokens, index_dim]."""

    def index_keys(self, *, layer: int, span: int) -> Floats:
        """Indexer keys of all positions of the span's request, whole pages: [16 x pages, index_dim]."""

    def gather(self, *, layer: int, selections: Sequence[Indices]) -> Floats:
        """Latents of the selected positions of every token of every span, in that order: [all tokens, index_topk, row].

        A selection is [tokens, index_topk], positions ascending, then PADDING (whose rows may hold anything finite).
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tiles:
    """Which tile and row every token of the step is in. `spans` are slices of the token axis."""

    count: int
    tile: Indices  # [tokens]
    row: Indices  # [tokens]
    position: Indices  # [tokens]
    positions: Indices  # [tiles, 16]
    spans: tuple[slice, ...]


class Model:
    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self.weights = weights
        self._page = config.geometry.page_tokens
        half = config.geometry.model.qk_rope_head_dim // 2
        frequencies = config.rope_theta ** (-np.arange(half, dtype=np.float64) / half)
        # A tile may begin before and end after the last position.
        angles = np.arange(config.geometry.model.max_position_embeddings + self._page, dtype=np.float64)[:, None] * frequencies
        self._cos, self._sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        self._scale = np.float32((config.qk_nope_head_dim + config.geometry.model.qk_rope_head_dim) ** -0.5)

    def forward(self, spans: Sequence[Span], cache: KvCache) -> list[int | None]:
        """Runs all spans in one pass; for each that wants it the most likely next token."""
        tiles = self._tile(spans)
        tokens = np.zeros((tiles.count, self._page), dtype=np.int64)
        tokens[tiles.tile, tiles.row] = np.concatenate([np.asarray(span.tokens, dtype=np.int64) for span in spans])
        hidden = self.weights.embedding[tokens]
        for layer, weights in enumerate(self.weights.layers):
            hidden = hidden + self._attend(self._norm(hidden), layer=layer, tiles=tiles, cache=cache)
            normed = self._norm(hidden)
            gate = normed @ weights.gate
            hidden = hidden + (gate / (1 + np.exp(-gate)) * (normed @ weights.up)) @ weights.down
        return self._next_tokens(hidden, tiles, spans)

    def _attend(self, normed: Floats, *, layer: int, tiles: _Tiles, cache: KvCache) -> Floats:
        weights = self.weights.layers[layer]
        geometry, heads, nope = self.config.geometry, self.config.num_attention_heads, self.config.qk_nope_head_dim
        latent_rank, rope = geometry.model.kv_lora_rank, geometry.model.qk_rope_head_dim
        latents = normed @ weights.latent_down
        latents[..., :latent_rank] = self._norm(latents[..., :latent_rank])
        latents[..., latent_rank:] = self._rotate(latents[..., latent_rank:], tiles.positions)
        index_keys = self._norm(normed @ weights.index_key)
        index_keys[..., :rope] = self._rotate(index_keys[..., :rope], tiles.positions)
        flat_latents, flat_keys = latents[tiles.tile, tiles.row], index_keys[tiles.tile, tiles.row]
        for number, part in enumerate(tiles.spans):
            cache.write(layer=layer, span=number, latents=flat_latents[part], index_keys=flat_keys[part])

        compressed = self._norm(normed @ weights.query_down)
        selections = self._select(normed, compressed, layer=layer, tiles=tiles, cache=cache)
        query: Floats = (compressed @ weights.query_up).reshape(tiles.count, self._page, heads, nope + rope)
        # Absorbed: the query moves into the latent space, so that latents are read as they are stored.
        absorbed: Floats = query[..., :nope].transpose(0, 2, 1, 3) @ weights.key_up
        rotated = self._rotate(query[..., nope:], tiles.positions[:, :, None])
        flat_query = np.concatenate((absorbed.transpose(0, 2, 1, 3), rotated), axis=-1)[tiles.tile, tiles.row]

        selected = cache.gather(layer=layer, selections=selections)
        scores = (flat_query @ selected.transpose(0, 2, 1)) * self._scale
        is_padding = np.concatenate(selections) == PADDING
        scores = np.where(is_padding[:, None, :], np.float32(-np.inf), scores)
        weights_of_rows = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights_of_rows /= weights_of_rows.sum(axis=-1, keepdims=True)
        mixed = np.zeros((tiles.count, self._page, heads, latent_rank), dtype=np.float32)
        mixed[tiles.tile, tiles.row] = weights_of_rows @ selected[..., :latent_rank]
        values: Floats = mixed.transpose(0, 2, 1, 3) @ weights.value_up
        by_row = values.transpose(0, 2, 1, 3).reshape(tiles.count, self._page, heads * self.config.v_head_dim)
        attended: Floats = by_row @ weights.output
        return attended

    def _select(self, normed: Floats, compressed: Floats, *, layer: int, tiles: _Tiles, cache: KvCache) -> list[Indices]:
        """The lightning indexer: by span, the index_topk positions with the highest score of every token."""
        weights = self.weights.layers[layer]
        index_heads, rope = self.config.index_n_heads, self.config.geometry.model.qk_rope_head_dim
        query = (compressed @ weights.index_query).reshape(tiles.count, self._page, index_heads, -1)
        query[..., :rope] = self._rotate(query[..., :rope], tiles.positions[:, :, None])
        flat_query = query[tiles.tile, tiles.row]
        flat_weight = (normed @ weights.index_weight)[tiles.tile, tiles.row]
        selections = []
        for number, part in enumerate(tiles.spans):
            keys = cache.index_keys(layer=layer, span=number)
            positions = tiles.position[part]
            selection = np.full((len(positions), self.config.geometry.model.index_topk), PADDING, dtype=np.int64)
            # Page by page, as the number of keys is part of the shape.
            pages = positions // self._page
            edges = np.concatenate(([0], np.flatnonzero(pages[1:] != pages[:-1]) + 1, [len(pages)]))
            for first, last in pairwise(edges.tolist()):
                seen = (int(positions[first]) // self._page + 1) * self._page
                rows = slice(part.start + first, part.start + last)
                scores = np.maximum(flat_query[rows] @ keys[:seen].T, 0)
                scores = (flat_weight[rows][:, None, :] @ scores)[:, 0, :]
                _top_positions(scores, positions=positions[first:last], out=selection[first:last])
            selections.append(selection)
        return selections

    def _next_tokens(self, hidden: Floats, tiles: _Tiles, spans: Sequence[Span]) -> list[int | None]:
        result: list[int | None] = [None] * len(spans)
        wanted = [number for number, span in enumerate(spans) if span.wants_logits]
        if wanted:
            last = np.asarray([tiles.spans[number].stop - 1 for number in wanted])
            logits = self._norm(hidden[tiles.tile[last]]) @ self.weights.logits
            best = logits[np.arange(len(wanted)), tiles.row[last]].argmax(axis=-1)
            for number, token in zip(wanted, best, strict=True):
                result[number] = int(token)
        return result

    def _tile(self, spans: Sequence[Span]) -> _Tiles:
        tile, position, bases, parts = [], [], [], []
        count = tokens = 0
        for span in spans:
            positions = np.arange(span.start, span.start + len(span.tokens), dtype=np.int64)
            first_page, last_page = span.start // self._page, int(positions[-1]) // self._page
            tile.append(count + positions // self._page - first_page)
            position.append(positions)
            bases.append(np.arange(first_page, last_page + 1, dtype=np.int64) * self._page)
            parts.append(slice(tokens, tokens + len(span.tokens)))
            count += last_page - first_page + 1
            tokens += len(span.tokens)
        all_positions = np.concatenate(position)
        return _Tiles(
            count=count,
            tile=np.concatenate(tile),
            row=all_positions % self._page,
            position=all_positions,
            positions=np.concatenate(bases)[:, None] + np.arange(self._page),
            spans=tuple(parts),
        )

    def _norm(self, values: Floats) -> Floats:
        mean = (values * values).mean(axis=-1, keepdims=True, dtype=np.float32)
        normed: Floats = values / np.sqrt(mean + np.float32(self.config.rms_norm_eps))
        return normed

    def _rotate(self, values: Floats, positions: Indices) -> Floats:
        half = values.shape[-1] // 2
        cos, sin = self._cos[positions], self._sin[positions]
        first, second = values[..., :half], values[..., half:]
        return np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)


def _top_positions(scores: Floats, *, positions: Indices, out: Indices) -> None:
    """Fills each row of `out` with the top positions up to its own, ascending. `scores` may hold anything for later positions."""
    topk = out.shape[1]
    columns = np.arange(scores.shape[1])
    if scores.shape[1] <= topk:
        out[:, : scores.shape[1]] = np.where(columns <= positions[:, None], columns, PADDING)
        return
    masked = np.where(columns <= positions[:, None], scores, np.float32(-np.inf))
    top = np.argpartition(masked, -topk, axis=1)[:, -topk:]
    top.sort(axis=1)
    # Fewer than topk positions exist at the start of a context; later ones rank last but may be chosen to fill up.
    out[:] = np.where(top <= positions[:, None], top, PADDING)
