"""What a kernel is told, as C-like records that it reads by address: the model once, the rings and the job anew.

Every field named as an address is an int64 address of memory that the Python side keeps alive; 0 means "none".
Activations are float32 and lie token by token; a token's row is padded with zeros to a multiple of PADDING values,
so that vector loops need no tail.
"""

from __future__ import annotations

import numpy as np

PADDING = 16  # float32 values: the widest vector
SEGMENT = 256  # positions that attention scores at a time; a context is split at its multiples
PANEL_ROWS = 16  # rows of weights that are interleaved (see `interleaving`): LANES at most
LOGITS_A_BLOCK = 32  # logits that have a maximum of their own (see `likeliest`)
VALUE_ROWS = 16  # values of a ring unpacked together
ADDRESS = COUNT = CODE = "i8"

# A piece of work (see `work`) has its shares taken at its address, its shares done DONE bytes on
DONE, WORK_BYTES = 64, 128
WORKS_A_LAYER, WORKS_BESIDE = 14, 5  # pieces of work in a layer of the step at most, and outside of the layers

# Activations in bytes (see `byte_rows`): columns that weights share a scale over, and bytes of float32 beside them
RUN, SCALES_BYTES, SUM_BYTES, HALF_SUMS_BYTES = 32, 32, 4, 8


def _record(**fields: object) -> np.dtype:
    return np.dtype(list(fields.items()), align=True)


MATRIX = _record(
    address=ADDRESS,
    n_rows=COUNT,
    n_columns=COUNT,
    row_bytes=COUNT,  # from one row to the next
    bias=ADDRESS,  # float32 (n_rows,)
    code=ADDRESS,  # machine code for its block format: multiplies rows, or unpacks one where only rows are looked up
    takes_bytes=CODE,  # 1: it multiplies byte rows, 0: float32 activations
)

NORM = _record(weight=ADDRESS, bias=ADDRESS)  # float32, padded

LAYER = _record(
    W_q=MATRIX,
    W_k=MATRIX,
    W_v=MATRIX,
    W_o=MATRIX,
    W_gate=MATRIX,
    W_up=MATRIX,
    W_down=MATRIX,
    attention_norm=NORM,
    attention_post_norm=NORM,
    feed_forward_norm=NORM,
    feed_forward_post_norm=NORM,
    q_norm=ADDRESS,  # float32 (d_k,), padded
    k_norm=ADDRESS,
    rope=COUNT,  # index of its rope, or -1
)

ROPE = _record(frequencies=ADDRESS, n_pairs=COUNT, adjacent=CODE, magnitude="f8")  # float64 frequencies

MODEL = _record(
    d_model=COUNT,
    d_k=COUNT,
    d_v=COUNT,
    d_ff=COUNT,
    # Bytes of a byte row of normed, heads and hidden, 0 where no matrix takes it
    normed_row=COUNT,
    heads_row=COUNT,
    hidden_row=COUNT,
    n_layers=COUNT,
    n_heads=COUNT,
    n_kv_heads=COUNT,
    n_ropes=COUNT,
    layers=ADDRESS,
    ropes=ADDRESS,
    embedding=MATRIX,
    positions=MATRIX,
    W_t=MATRIX,
    final_norm=NORM,
    layer_norm=CODE,  # 1: LayerNorm, 0: RMS norm
    activation=CODE,  # index into ACTIVATIONS
    gated=CODE,
    parallel=CODE,
    norm_epsilon="f4",
    embedding_scale="f4",
    score_scale="f4",
    score_soft_cap="f4",  # 0: none
    logit_soft_cap="f4",
)

ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu")

RING_KINDS = ("F32", "F16", "Q8")

RING_LAYER = _record(
    keys=ADDRESS,  # (n_kv_heads, slots, d_k)
    values=ADDRESS,  # (n_kv_heads, slots, d_v)
    kind=CODE,  # what they are stored as: index into RING_KINDS
    key_scales=ADDRESS,  # float32 (n_kv_heads, slots), for int8
    value_scales=ADDRESS,
    code=ADDRESS,  # machine code that attends over a piece of it
    key_bytes=COUNT,  # of one key
    value_bytes=COUNT,
    slots=COUNT,
    capacity=COUNT,
    sinks=COUNT,
    sink_angles=COUNT,  # the ring's own angle row for sinks once a query stands beyond the capacity
)

RING = _record(layers=ADDRESS, angle_row=COUNT)  # where its own angle rows begin

ANGLE_ROW = _record(rope=COUNT, position=COUNT)  # a rotation that this step needs

JOB = _record(
    n_threads=COUNT,
    n_layers=COUNT,
    abandoned=ADDRESS,  # int64, not 0 when nobody is to wait any more
    work=ADDRESS,  # the counters of the first piece of work; the others follow
    model=ADDRESS,
    # The batch: int64 token_ids, positions, sequence (n_tokens,) and wanted (n_wanted,)
    n_tokens=COUNT,
    n_wanted=COUNT,
    token_ids=ADDRESS,
    positions=ADDRESS,
    sequence=ADDRESS,
    wanted=ADDRESS,
    rings=ADDRESS,
    logits=ADDRESS,  # float32 (n_wanted, d_vocab)
    # The likeliest tokens of each row, in order, or n_listed 0
    n_listed=COUNT,
    listed_ids=ADDRESS,  # int32 (n_wanted, n_listed)
    listed_values=ADDRESS,  # float32 (n_wanted, n_listed)
    listed_heaps=ADDRESS,  # int64 (n_wanted, n_listed)
    block_maxima=ADDRESS,  # float32 (n_wanted, blocks padded)
    # Rotations: rows 0 … n_ropes·n_tokens - 1 are those of the tokens, the others the rings' own
    n_angle_rows=COUNT,
    angle_rows=ADDRESS,
    angles=ADDRESS,  # float32 (n_angle_rows, 2, angle_width): cos and sin
    angle_width=COUNT,
    # Activations, float32 (n_tokens, width padded)
    x=ADDRESS,  # the residual stream
    normed=ADDRESS,
    q=ADDRESS,
    k=ADDRESS,
    v=ADDRESS,
    q_ring=ADDRESS,  # (n_tokens, n_heads, d_k padded): rotated at its position
    q_sinks=ADDRESS,  # rotated for the sinks
    heads=ADDRESS,
    projected=ADDRESS,
    hidden=ADDRESS,
    up=ADDRESS,
    # The same as byte rows
    normed_bytes=ADDRESS,
    heads_bytes=ADDRESS,
    hidden_bytes=ADDRESS,
    # Attention in pieces, or 0: float32 (n_tokens, n_kv_heads, pieces, heads of a K/V head, d_v padded + PADDING)
    pieces=COUNT,
    partials=ADDRESS,
    # One thread's own memory, for each thread after the other
    thread_bytes=COUNT,
    thread_memory=ADDRESS,
    thread_rows=COUNT,  # offsets in it
    thread_scores=COUNT,
    thread_head=COUNT,
    thread_state=COUNT,
    thread_piece=COUNT,
)


ENTRY_BYTES, OPERATION_BYTES = 16, 32  # of a table of tokens, and of an operation (see `draw`)

CHOICE = _record(
    listed_ids=ADDRESS,  # int32 (n_listed,), float32 (n_listed,): see `core.likeliest.Logits`
    listed_values=ADDRESS,
    n_listed=COUNT,
    logits=ADDRESS,  # float32 (d_vocab,)
    d_vocab=COUNT,
    removed=ADDRESS,  # int64 (n_removed,), ids that must not be drawn
    n_removed=COUNT,
    token_ids=ADDRESS,  # int32 (n_tokens,), the text so far
    n_tokens=COUNT,
    prompt_length=COUNT,
    operations=ADDRESS,  # float64 (n_operations, NUMBERS): see `core.drawing_plan`
    n_operations=COUNT,
    k=COUNT,
    draws=CODE,
    uniform="f8",
    table=ADDRESS,  # n_entries, a power of two and more than there may be tokens in it
    n_entries=COUNT,
    heap=ADDRESS,  # int64 (k,)
    ids=ADDRESS,  # int64 (k,)
    values=ADDRESS,  # float32 (k,)
    largest=ADDRESS,  # float32, twice
    number=ADDRESS,
    found=ADDRESS,  # int64: the id
)


def padded(n: int) -> int:
    """n rounded up to a multiple of PADDING."""
    return -(-n // PADDING) * PADDING


def byte_row_bytes(n_columns: int) -> int:
    """Bytes of a byte row (see `byte_rows`); n_columns is a multiple of RUN."""
    return n_columns + n_columns // RUN * (SCALES_BYTES + SUM_BYTES + HALF_SUMS_BYTES)


def panel_bytes(n_columns: int) -> int:
    """Bytes of a panel unpacked (see `byte_product`): the weights' bytes and float32 d and m, two of each a run at
    most; and a vector to spare."""
    return PANEL_ROWS * (n_columns + n_columns // RUN * 16 + 4)


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])  # quicker than array.ctypes
