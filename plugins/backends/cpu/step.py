"""A whole forward step in one compiled call, which every thread runs with its own number.

Between two meetings each thread does its part of one thing: tokens where tokens are independent, rows of the weights in
the products, heads in attention. Read `step` from top to bottom for the order, which is that of `backends/numpy.py`.
"""

from __future__ import annotations

import numpy as np

from ringlet.plugins.backends.cpu import elementwise
from ringlet.plugins.backends.cpu.attention import attend, place_token
from ringlet.plugins.backends.cpu.attention_places import padded_bytes
from ringlet.plugins.backends.cpu.barrier import meet
from ringlet.plugins.backends.cpu.byte_rows import fill_byte_row
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.memory import (
    angle_row_at,
    job_at,
    layer_at,
    load_i32,
    load_i64,
    model_at,
    rope_at,
    run_code,
)
from ringlet.plugins.backends.cpu.product import share
from ringlet.plugins.backends.cpu.records import RUN

ONE, ZERO = np.float32(1), np.float32(0)


@kernel
def step(thread, job_address):
    """Compute the job's logits, and write its keys and values into the rings. job_address: of a records.JOB."""
    job = job_at(job_address, 0)
    model = model_at(job.model, 0)
    memory = job.thread_memory + thread * job.thread_bytes
    fill_rotations(job, model, thread)
    embed(job, model, thread)
    meet(job.barrier, job.n_threads)
    for index in range(model.n_layers):
        layer = layer_at(model.layers, index)
        project(job, model, layer, thread, memory)
        meet(job.barrier, job.n_threads)
        for token in tokens_of(job.n_tokens, thread, job.n_threads):
            place_token(job, model, layer, index, token, memory + job.thread_head)
        meet(job.barrier, job.n_threads)
        attend(job_address, model, index, thread, memory)
        meet(job.barrier, job.n_threads)
        if model.heads_row != 0:
            for token in tokens_of(job.n_tokens, thread, job.n_threads):
                to_bytes(model.heads_row, job.heads, model.n_heads * model.d_v, token, job.heads_bytes)
            meet(job.barrier, job.n_threads)
        product(job, layer.W_o, thread, job.heads, job.heads_bytes, job.n_tokens, memory, job.projected)
        meet(job.barrier, job.n_threads)
        add_attention(job, model, layer, thread)
        meet(job.barrier, job.n_threads)
        feed_forward(job, model, layer, thread, memory)
        meet(job.barrier, job.n_threads)
        product(job, layer.W_down, thread, job.hidden, job.hidden_bytes, job.n_tokens, memory, job.projected)
        meet(job.barrier, job.n_threads)
        add_feed_forward(job, model, layer, index, thread)
        meet(job.barrier, job.n_threads)
    final_norm(job, model, thread)
    meet(job.barrier, job.n_threads)
    logits(job, model, thread, memory)
    meet(job.barrier, job.n_threads)


@kernel
def tokens_of(n_tokens, thread, n_threads):
    """The tokens that are this thread's."""
    return range(n_tokens * thread // n_threads, n_tokens * (thread + 1) // n_threads)


@kernel
def product(job, matrix, thread, x, x_in_bytes, n_tokens, memory, out):
    """out = x·W + b for this thread's rows of the matrix; x and out are padded rows of activations."""
    multiply(job, matrix, thread, x, x_in_bytes, n_tokens, memory, out, padded_bytes(matrix.n_rows))


@kernel
def multiply(job, matrix, thread, x, x_in_bytes, n_tokens, memory, out, out_bytes):
    """The same, out_bytes from token to token in `out`."""
    start, stop = share(matrix.n_rows, thread, job.n_threads)
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
def fill_rotations(job, model, thread):
    """cos and sin for every rotation that the step needs, once."""
    for row in tokens_of(job.n_angle_rows, thread, job.n_threads):
        angle_row = angle_row_at(job.angle_rows, row)
        cos = job.angles + row * 2 * job.angle_width * 4
        rope = rope_at(model.ropes, angle_row.rope)
        elementwise.fill_angles(rope, angle_row.position, cos, cos + job.angle_width * 4)


@kernel
def embed(job, model, thread):
    """Tokens to vectors, and the first norm."""
    width, matrix, positions = padded_bytes(model.d_model), model.embedding, model.positions
    for token in tokens_of(job.n_tokens, thread, job.n_threads):
        x, normed = job.x + token * width, job.normed + token * width
        row = load_i32(job.token_ids + 4 * token)
        run_code(matrix.code, (matrix.address + row * matrix.row_bytes, model.d_model, x))
        if model.embedding_scale != ONE:
            elementwise.scale(x, model.d_model, model.embedding_scale)
        if positions.address != 0:
            row = load_i64(job.positions + 8 * token)
            run_code(positions.code, (positions.address + row * positions.row_bytes, model.d_model, normed))
            elementwise.add(x, normed, model.d_model)
        elementwise.norm(model, layer_at(model.layers, 0).attention_norm, x, normed)
        to_bytes(model.normed_row, job.normed, model.d_model, token, job.normed_bytes)


@kernel
def project(job, model, layer, thread, memory):
    """Q, K and V of the normed residual."""
    product(job, layer.W_q, thread, job.normed, job.normed_bytes, job.n_tokens, memory, job.q)
    product(job, layer.W_k, thread, job.normed, job.normed_bytes, job.n_tokens, memory, job.k)
    product(job, layer.W_v, thread, job.normed, job.normed_bytes, job.n_tokens, memory, job.v)


@kernel
def add_attention(job, model, layer, thread):
    """Add what attention returns to the residual, and norm for the feed-forward part, which in a parallel block sees
    the residual before."""
    width = padded_bytes(model.d_model)
    for token in tokens_of(job.n_tokens, thread, job.n_threads):
        x, normed, attended = job.x + token * width, job.normed + token * width, job.projected + token * width
        if model.parallel:
            elementwise.norm(model, layer.feed_forward_norm, x, normed)
            elementwise.add(x, attended, model.d_model)
        else:
            if layer.attention_post_norm.weight != 0:
                elementwise.norm(model, layer.attention_post_norm, attended, attended)
            elementwise.add(x, attended, model.d_model)
            elementwise.norm(model, layer.feed_forward_norm, x, normed)
        to_bytes(model.normed_row, job.normed, model.d_model, token, job.normed_bytes)


@kernel
def feed_forward(job, model, layer, thread, memory):
    """activation(x·W_gate) * (x·W_up), or activation(x·W_up), for this thread's part of d_ff."""
    width = padded_bytes(model.d_ff)
    start, stop = share(model.d_ff, thread, job.n_threads)
    up = job.up if model.gated else job.hidden
    product(job, layer.W_up, thread, job.normed, job.normed_bytes, job.n_tokens, memory, up)
    if model.gated:
        product(job, layer.W_gate, thread, job.normed, job.normed_bytes, job.n_tokens, memory, job.hidden)
    for token in range(job.n_tokens):
        at = token * width + 4 * start
        elementwise.activate(model.activation, job.hidden + at, stop - start)
        if model.gated:
            elementwise.multiply(job.hidden + at, job.up + at, stop - start)
        if model.hidden_row != 0:
            row = job.hidden_bytes + token * model.hidden_row
            fill_byte_row(job.hidden + token * width, model.d_ff, start // RUN, stop // RUN, row)


@kernel
def add_feed_forward(job, model, layer, index, thread):
    """Add what the feed-forward part returns to the residual, and norm for the next layer's attention."""
    width = padded_bytes(model.d_model)
    for token in tokens_of(job.n_tokens, thread, job.n_threads):
        x, fed = job.x + token * width, job.projected + token * width
        if layer.feed_forward_post_norm.weight != 0 and not model.parallel:
            elementwise.norm(model, layer.feed_forward_post_norm, fed, fed)
        elementwise.add(x, fed, model.d_model)
        if index + 1 < model.n_layers:
            elementwise.norm(model, layer_at(model.layers, index + 1).attention_norm, x, job.normed + token * width)
            to_bytes(model.normed_row, job.normed, model.d_model, token, job.normed_bytes)


@kernel
def final_norm(job, model, thread):
    """The last norm, for the tokens whose logits are wanted, side by side."""
    width = padded_bytes(model.d_model)
    for place in tokens_of(job.n_wanted, thread, job.n_threads):
        token = load_i64(job.wanted + 8 * place)
        elementwise.norm(model, model.final_norm, job.x + token * width, job.normed + place * width)
        to_bytes(model.normed_row, job.normed, model.d_model, place, job.normed_bytes)


@kernel
def logits(job, model, thread, memory):
    """O_vocab = x·W_t + b_t, capped where the model caps it."""
    out_bytes = 4 * model.W_t.n_rows
    multiply(job, model.W_t, thread, job.normed, job.normed_bytes, job.n_wanted, memory, job.logits, out_bytes)
    if model.logit_soft_cap != ZERO:
        start, stop = share(model.W_t.n_rows, thread, job.n_threads)
        for place in range(job.n_wanted):
            elementwise.soft_cap(job.logits + place * out_bytes + 4 * start, stop - start, model.logit_soft_cap)
