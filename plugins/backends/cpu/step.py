"""A whole forward step in one compiled call, which every thread runs with its own number.

The step is a row of pieces of work, each shared out anew (see `work`): rows of the weights in the products, tokens
where tokens are independent, heads in attention. Read `step` from top to bottom for the order, which is that of
`backends/numpy.py`. A share's result does not depend on who computes it, nor on how many threads there are.
"""

from __future__ import annotations

import numpy as np

from ringlet.plugins.backends.cpu import elementwise
from ringlet.plugins.backends.cpu.attention import attend, place_token
from ringlet.plugins.backends.cpu.attention_places import padded_bytes
from ringlet.plugins.backends.cpu.byte_rows import fill_byte_row
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.likeliest import find_block_maxima, list_likeliest
from ringlet.plugins.backends.cpu.memory import (
    angle_row_at,
    job_at,
    layer_at,
    load_i64,
    model_at,
    rope_at,
    run_code,
)
from ringlet.plugins.backends.cpu.records import LOGITS_A_BLOCK, RUN, WORK_BYTES
from ringlet.plugins.backends.cpu.work import ROWS_A_SHARE, finish, share_count, share_size, take, wait

ONE, ZERO = np.float32(1), np.float32(0)
LOGITS_AT_ONCE = 1024  # a multiple of the rows that matrices are multiplied by at once, and of a block's logits
EMBED, PLACE, HEADS_TO_BYTES, ADD_ATTENTION, ADD_FEED_FORWARD, FINAL_NORM, LIST_LIKELIEST = range(7)


@kernel
def step(thread, job_address):
    """Compute the job's logits, and write its keys and values into the rings. job_address: of a records.JOB."""
    job = job_at(job_address, 0)
    model = model_at(job.model, 0)
    memory, work = job.thread_memory + thread * job.thread_bytes, job.work
    work = fill_rotations(job, model, work)
    work = for_tokens(EMBED, job, model, 0, job.n_tokens, memory, work)
    for index in range(model.n_layers):
        layer = layer_at(model.layers, index)
        work = project(job, layer, memory, work)
        work = for_tokens(PLACE, job, model, index, job.n_tokens, memory, work)
        work = attend(job_address, model, index, memory, work)
        if model.heads_row != 0:
            work = for_tokens(HEADS_TO_BYTES, job, model, index, job.n_tokens, memory, work)
        work = product(job, layer.W_o, job.heads, job.heads_bytes, memory, job.projected, work)
        work = for_tokens(ADD_ATTENTION, job, model, index, job.n_tokens, memory, work)
        work = feed_forward(job, model, layer, memory, work)
        work = product(job, layer.W_down, job.hidden, job.hidden_bytes, memory, job.projected, work)
        work = for_tokens(ADD_FEED_FORWARD, job, model, index, job.n_tokens, memory, work)
    work = for_tokens(FINAL_NORM, job, model, 0, job.n_wanted, memory, work)
    work = logits(job, model, memory, work)
    if job.n_listed != 0:
        for_tokens(LIST_LIKELIEST, job, model, 0, job.n_wanted, memory, work)


@kernel
def for_tokens(what, job, model, index, n_tokens, memory, work):
    """One thing for each token, a share some tokens. Returns where the next piece of work is, as all of these do."""
    size = share_size(n_tokens, 1, job.n_threads)
    n_shares, share = share_count(n_tokens, size), take(work)
    while share < n_shares:
        for token in range(share * size, min(n_tokens, (share + 1) * size)):
            do_token(what, job, model, index, token, memory)
        finish(work)
        share = take(work)
    wait(job, work, n_shares)
    return work + WORK_BYTES


@kernel
def do_token(what, job, model, index, token, memory):
    if what == EMBED:
        embed(job, model, token)
    elif what == PLACE:
        place_token(job, model, layer_at(model.layers, index), index, token, memory + job.thread_head)
    elif what == HEADS_TO_BYTES:
        to_bytes(model.heads_row, job.heads, model.n_heads * model.d_v, token, job.heads_bytes)
    elif what == ADD_ATTENTION:
        add_attention(job, model, layer_at(model.layers, index), token)
    elif what == ADD_FEED_FORWARD:
        add_feed_forward(job, model, layer_at(model.layers, index), index, token)
    elif what == FINAL_NORM:
        final_norm(job, model, token)
    else:
        list_row(job, model, token)


@kernel
def product(job, matrix, x, x_in_bytes, memory, out, work):
    """out = x·W + b; x and out are padded rows of activations."""
    out_bytes = padded_bytes(matrix.n_rows)
    n_shares = multiply_shares(job, matrix, x, x_in_bytes, job.n_tokens, memory, out, out_bytes, work)
    wait(job, work, n_shares)
    return work + WORK_BYTES


@kernel
def multiply_shares(job, matrix, x, x_in_bytes, n_tokens, memory, out, out_bytes, work):
    """The same, out_bytes from token to token in `out`, not waiting for the others. Returns the number of shares."""
    size = share_size(matrix.n_rows, ROWS_A_SHARE, job.n_threads)
    n_shares, share = share_count(matrix.n_rows, size), take(work)
    while share < n_shares:
        start, stop = share * size, min(matrix.n_rows, (share + 1) * size)
        multiply(job, matrix, start, stop, x, x_in_bytes, n_tokens, memory, out, out_bytes)
        finish(work)
        share = take(work)
    return n_shares


@kernel
def multiply(job, matrix, start, stop, x, x_in_bytes, n_tokens, memory, out, out_bytes):
    """out[t, r] = x[t]·W[r] + b[r] for the rows from start to stop."""
    taken = x_in_bytes if matrix.takes_bytes else x
    rows, columns, panel = matrix.address, matrix.n_columns, memory + job.thread_rows
    run_code(matrix.code, (rows, matrix.row_bytes, columns, start, stop, taken, n_tokens, panel, out, out_bytes))
    if matrix.bias != 0:
        for token in range(n_tokens):
            elementwise.add_exactly(out + token * out_bytes + 4 * start, matrix.bias + 4 * start, stop - start)


@kernel
def to_bytes(row_bytes, rows, n_columns, token, byte_rows):
    """A token's activations as a byte row, where a matrix takes it."""
    if row_bytes != 0:
        x, row = rows + token * padded_bytes(n_columns), byte_rows + token * row_bytes
        fill_byte_row(x, n_columns, 0, n_columns // RUN, row)


@kernel
def fill_rotations(job, model, work):
    """cos and sin for every rotation that the step needs, once."""
    size = share_size(job.n_angle_rows, 1, job.n_threads)
    n_shares, share = share_count(job.n_angle_rows, size), take(work)
    while share < n_shares:
        for row in range(share * size, min(job.n_angle_rows, (share + 1) * size)):
            angle_row = angle_row_at(job.angle_rows, row)
            cos = job.angles + row * 2 * job.angle_width * 4
            rope = rope_at(model.ropes, angle_row.rope)
            elementwise.fill_angles(rope, angle_row.position, cos, cos + job.angle_width * 4)
        finish(work)
        share = take(work)
    wait(job, work, n_shares)
    return work + WORK_BYTES


@kernel
def embed(job, model, token):
    """A token to its vector, and the first norm."""
    width, matrix, positions = padded_bytes(model.d_model), model.embedding, model.positions
    x, normed = job.x + token * width, job.normed + token * width
    row = load_i64(job.token_ids + 8 * token)
    run_code(matrix.code, (matrix.address + row * matrix.row_bytes, model.d_model, x))
    if model.embedding_scale != ONE:
        elementwise.scale(x, model.d_model, model.embedding_scale)
    if positions.address != 0:
        row = load_i64(job.positions + 8 * token)
        run_code(positions.code, (positions.address + row * positions.row_bytes, model.d_model, normed))
        elementwise.add(x, normed, model.d_model)
    norm(job, model, layer_at(model.layers, 0).attention_norm, x, token)


@kernel
def norm(job, model, weights, x, token):
    """The norm of a token's residual, and its bytes."""
    elementwise.norm(model, weights, x, job.normed + token * padded_bytes(model.d_model))
    to_bytes(model.normed_row, job.normed, model.d_model, token, job.normed_bytes)


@kernel
def project(job, layer, memory, work):
    """Q, K and V of the normed residual; none waits for another."""
    x, bytes, n, next = job.normed, job.normed_bytes, job.n_tokens, WORK_BYTES
    q, k, v = layer.W_q, layer.W_k, layer.W_v
    n_q = multiply_shares(job, q, x, bytes, n, memory, job.q, padded_bytes(q.n_rows), work)
    n_k = multiply_shares(job, k, x, bytes, n, memory, job.k, padded_bytes(k.n_rows), work + next)
    n_v = multiply_shares(job, v, x, bytes, n, memory, job.v, padded_bytes(v.n_rows), work + 2 * next)
    wait(job, work, n_q)
    wait(job, work + next, n_k)
    wait(job, work + 2 * next, n_v)
    return work + 3 * next


@kernel
def add_attention(job, model, layer, token):
    """Add what attention returns to the residual, and norm for the feed-forward part, which in a parallel block sees
    the residual before."""
    width = padded_bytes(model.d_model)
    x, attended = job.x + token * width, job.projected + token * width
    if model.parallel:
        norm(job, model, layer.feed_forward_norm, x, token)
        elementwise.add(x, attended, model.d_model)
    else:
        if layer.attention_post_norm.weight != 0:
            elementwise.norm(model, layer.attention_post_norm, attended, attended)
        elementwise.add(x, attended, model.d_model)
        norm(job, model, layer.feed_forward_norm, x, token)


@kernel
def feed_forward(job, model, layer, memory, work):
    """activation(x·W_gate) * (x·W_up), or activation(x·W_up), a share some of d_ff."""
    size = share_size(model.d_ff, ROWS_A_SHARE, job.n_threads)
    n_shares, share = share_count(model.d_ff, size), take(work)
    while share < n_shares:
        hide(job, model, layer, share * size, min(model.d_ff, (share + 1) * size), memory)
        finish(work)
        share = take(work)
    wait(job, work, n_shares)
    return work + WORK_BYTES


@kernel
def hide(job, model, layer, start, stop, memory):
    """The hidden activations from start to stop."""
    width, x, bytes, n = padded_bytes(model.d_ff), job.normed, job.normed_bytes, job.n_tokens
    up = job.up if model.gated else job.hidden
    multiply(job, layer.W_up, start, stop, x, bytes, n, memory, up, width)
    if model.gated:
        multiply(job, layer.W_gate, start, stop, x, bytes, n, memory, job.hidden, width)
    for token in range(job.n_tokens):
        at = token * width + 4 * start
        elementwise.activate(model.activation, job.hidden + at, stop - start)
        if model.gated:
            elementwise.multiply(job.hidden + at, job.up + at, stop - start)
        if model.hidden_row != 0:
            row = job.hidden_bytes + token * model.hidden_row
            fill_byte_row(job.hidden + token * width, model.d_ff, start // RUN, stop // RUN, row)


@kernel
def add_feed_forward(job, model, layer, index, token):
    """Add what the feed-forward part returns to the residual, and norm for the next layer's attention."""
    width = padded_bytes(model.d_model)
    x, fed = job.x + token * width, job.projected + token * width
    if layer.feed_forward_post_norm.weight != 0 and not model.parallel:
        elementwise.norm(model, layer.feed_forward_post_norm, fed, fed)
    elementwise.add(x, fed, model.d_model)
    if index + 1 < model.n_layers:
        norm(job, model, layer_at(model.layers, index + 1).attention_norm, x, token)


@kernel
def final_norm(job, model, place):
    """The last norm, for the tokens whose logits are wanted, side by side."""
    token = load_i64(job.wanted + 8 * place)
    norm(job, model, model.final_norm, job.x + token * padded_bytes(model.d_model), place)


@kernel
def logits(job, model, memory, work):
    """O_vocab = x·W_t + b_t, capped where the model caps it."""
    n_rows = model.W_t.n_rows
    size = share_size(n_rows, ROWS_A_SHARE, job.n_threads)
    n_shares, share = share_count(n_rows, size), take(work)
    while share < n_shares:
        end = min(n_rows, (share + 1) * size)
        for start in range(share * size, end, LOGITS_AT_ONCE):
            some_logits(job, model, start, min(end, start + LOGITS_AT_ONCE), memory)
        finish(work)
        share = take(work)
    wait(job, work, n_shares)
    return work + WORK_BYTES


@kernel
def some_logits(job, model, start, stop, memory):
    """Those from start to stop of all wanted tokens, and the maxima of their blocks while they are at hand."""
    matrix, row_bytes = model.W_t, 4 * model.W_t.n_rows
    multiply(job, matrix, start, stop, job.normed, job.normed_bytes, job.n_wanted, memory, job.logits, row_bytes)
    for place in range(job.n_wanted):
        row = job.logits + place * row_bytes
        if model.logit_soft_cap != ZERO:
            elementwise.soft_cap(row + 4 * start, stop - start, model.logit_soft_cap)
        if job.n_listed != 0:
            find_block_maxima(row, start, stop, job.block_maxima + place * maxima_bytes(matrix.n_rows))


@kernel
def list_row(job, model, place):
    """The likeliest tokens of a row of logits."""
    n_logits, n = model.W_t.n_rows, job.n_listed
    row, maxima = job.logits + place * 4 * n_logits, job.block_maxima + place * maxima_bytes(n_logits)
    ids, values = job.listed_ids + 4 * place * n, job.listed_values + 4 * place * n
    list_likeliest(row, n_logits, maxima, n, job.listed_heaps + 8 * place * n, ids, values)


@kernel
def maxima_bytes(n_logits):
    """Bytes of a row of block maxima."""
    return padded_bytes(-(-n_logits // LOGITS_A_BLOCK))
