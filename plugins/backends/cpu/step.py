"""A whole forward step in one compiled call, which every thread runs with its own number.

Between two meetings each thread does its part of one thing: tokens where tokens are independent, rows of the weights in
the products, heads in attention. Read `step` from top to bottom for the order, which is that of `backends/numpy.py`.
"""

from __future__ import annotations

import numpy as np

from ringlet.plugins.backends.cpu import elementwise
from ringlet.plugins.backends.cpu.attention import attend, padded_bytes, place_token
from ringlet.plugins.backends.cpu.barrier import meet
from ringlet.plugins.backends.cpu.compiling import entry_point, kernel
from ringlet.plugins.backends.cpu.memory import angle_row_at, job_at, layer_at, load_i32, load_i64, model_at, rope_at
from ringlet.plugins.backends.cpu.product import multiply_rows, share
from ringlet.plugins.backends.cpu.unpack import unpack_row

ONE, ZERO = np.float32(1), np.float32(0)


@entry_point
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
        attend(job, model, index, thread, memory)
        meet(job.barrier, job.n_threads)
        product(job, layer.W_o, thread, job.heads, job.n_tokens, memory, job.projected)
        meet(job.barrier, job.n_threads)
        add_attention(job, model, layer, thread)
        meet(job.barrier, job.n_threads)
        feed_forward(job, model, layer, thread, memory)
        meet(job.barrier, job.n_threads)
        product(job, layer.W_down, thread, job.hidden, job.n_tokens, memory, job.projected)
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
def product(job, matrix, thread, x, n_tokens, memory, out):
    """out = x·W + b for this thread's rows of the matrix; x and out are padded rows of activations."""
    start, stop = share(matrix.n_rows, thread, job.n_threads)
    x_bytes, out_bytes = padded_bytes(matrix.n_columns), padded_bytes(matrix.n_rows)
    multiply_rows(matrix, start, stop, x, x_bytes, n_tokens, memory + job.thread_rows, out, out_bytes)


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
        unpack_row(matrix.format, matrix.address + row * matrix.row_bytes, model.d_model, x)
        if model.embedding_scale != ONE:
            elementwise.scale(x, model.d_model, model.embedding_scale)
        if positions.address != 0:
            row = load_i64(job.positions + 8 * token)
            unpack_row(positions.format, positions.address + row * positions.row_bytes, model.d_model, normed)
            elementwise.add(x, normed, model.d_model)
        elementwise.norm(model, layer_at(model.layers, 0).attention_norm, x, normed)


@kernel
def project(job, model, layer, thread, memory):
    """Q, K and V of the normed residual."""
    product(job, layer.W_q, thread, job.normed, job.n_tokens, memory, job.q)
    product(job, layer.W_k, thread, job.normed, job.n_tokens, memory, job.k)
    product(job, layer.W_v, thread, job.normed, job.n_tokens, memory, job.v)


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


@kernel
def feed_forward(job, model, layer, thread, memory):
    """activation(x·W_gate) * (x·W_up), or activation(x·W_up), for this thread's part of d_ff."""
    width = padded_bytes(model.d_ff)
    start, stop = share(model.d_ff, thread, job.n_threads)
    product(job, layer.W_up, thread, job.normed, job.n_tokens, memory, job.up if model.gated else job.hidden)
    if model.gated:
        product(job, layer.W_gate, thread, job.normed, job.n_tokens, memory, job.hidden)
    for token in range(job.n_tokens):
        at = token * width + 4 * start
        elementwise.activate(model.activation, job.hidden + at, stop - start)
        if model.gated:
            elementwise.multiply(job.hidden + at, job.up + at, stop - start)


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


@kernel
def final_norm(job, model, thread):
    """The last norm, for the tokens whose logits are wanted, side by side."""
    width = padded_bytes(model.d_model)
    for place in tokens_of(job.n_wanted, thread, job.n_threads):
        token = load_i64(job.wanted + 8 * place)
        elementwise.norm(model, model.final_norm, job.x + token * width, job.normed + place * width)


@kernel
def logits(job, model, thread, memory):
    """O_vocab = x·W_t + b_t, capped where the model caps it."""
    matrix, width, out_bytes = model.W_t, padded_bytes(model.d_model), 4 * model.W_t.n_rows
    start, stop = share(matrix.n_rows, thread, job.n_threads)
    rows = memory + job.thread_rows
    multiply_rows(matrix, start, stop, job.normed, width, job.n_wanted, rows, job.logits, out_bytes)
    if model.logit_soft_cap != ZERO:
        for place in range(job.n_wanted):
            elementwise.soft_cap(job.logits + place * out_bytes + 4 * start, stop - start, model.logit_soft_cap)
