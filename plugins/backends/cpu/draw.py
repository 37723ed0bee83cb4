"""A token drawn from the likeliest of a row of logits, as a `core.drawing_plan` says: the samplers' twin in one call.

Tokens that penalties change are kept in a hash table, with the logits they have now. Those of the list that are not in
it, and all of the table, are what may be drawn from; the `k` highest of them are left, and narrowed further in order.
"""

from __future__ import annotations

import math

import numpy as np

from ringlet.core.drawing_plan import KINDS
from ringlet.plugins.backends.cpu.compiling import kernel
from ringlet.plugins.backends.cpu.likeliest import IDS, SIGN, offer, put_down, rank
from ringlet.plugins.backends.cpu.memory import (
    choice_at,
    load_f32,
    load_f64,
    load_i32,
    load_i64,
    store_f32,
    store_i64,
    store_u32,
)
from ringlet.plugins.backends.cpu.records import ENTRY_BYTES, OPERATION_BYTES

REPETITION, FREQUENCY, PRESENCE, TOP_K, TOP_P, MIN_P, TEMPERATURE = range(len(KINDS))
LARGEST = float(np.finfo(np.float32).max)
INFINITY, ZERO = np.float32(np.inf), np.float32(0)
EMPTY = -1  # no id
NOT_TOLD = -1
VALUE, COUNT = 8, 12  # bytes into an entry: float32, int32


@kernel
def draw(choice_address):
    """Writes the id that is drawn, or NOT_TOLD. choice_address: of a records.CHOICE."""
    choice = choice_at(choice_address, 0)
    for at in range(0, choice.n_entries * ENTRY_BYTES, ENTRY_BYTES):
        store_i64(choice.table + at, EMPTY)
    for i in range(choice.n_removed):
        store_f32(entry_of(choice, load_i64(choice.removed + 8 * i)) + VALUE, -INFINITY)
    first, is_right = 0, load_f32(choice.listed_values) < INFINITY
    while first < choice.n_operations and kind_of(choice, first) <= PRESENCE:
        is_right = penalise(choice, first) and is_right
        first += 1
    n = take_highest(choice)
    for index in range(first, choice.n_operations):
        n = narrow(choice, index, n)
    found = NOT_TOLD
    if is_right and n > 0:
        found = load_i64(choice.ids) if choice.draws == 0 else at_share(choice, n)
    store_i64(choice.found, found)


@kernel
def kind_of(choice, index):
    return int(load_f64(choice.operations + OPERATION_BYTES * index))


@kernel
def entry_of(choice, token_id):
    """Address of the token's entry; a new one has the token's logit, and the count 0."""
    mask = choice.n_entries - 1
    place = (token_id * 0x9E3779B1 >> 7) & mask
    while True:
        entry = choice.table + ENTRY_BYTES * place
        held = load_i64(entry)
        if held == token_id:
            return entry
        if held == EMPTY:
            store_i64(entry, token_id)
            store_f32(entry + VALUE, load_f32(choice.logits + 4 * token_id))
            store_u32(entry + COUNT, 0)
            return entry
        place = (place + 1) & mask


@kernel
def penalise(choice, index):
    """Change the logits of the tokens that count. False where one is no number any more, or too large for one."""
    at = choice.operations + OPERATION_BYTES * index
    amount, window, of_completion = load_f64(at + 8), load_f64(at + 16), load_f64(at + 24)
    start, kind, is_right = choice.prompt_length if of_completion != 0 else 0, kind_of(choice, index), True
    if window >= 0:
        start = max(start, choice.n_tokens - int(window))
    for i in range(start, choice.n_tokens):
        token_id = load_i32(choice.token_ids + 4 * i)
        if 0 <= token_id < choice.d_vocab:
            entry = entry_of(choice, token_id)
            store_u32(entry + COUNT, load_i32(entry + COUNT) + 1)
    for i in range(start, choice.n_tokens):
        token_id = load_i32(choice.token_ids + 4 * i)
        if 0 <= token_id < choice.d_vocab:
            entry = entry_of(choice, token_id)
            count, before = load_i32(entry + COUNT), load_f32(entry + VALUE)
            if count > 0:  # its first occurrence
                store_u32(entry + COUNT, 0)
                if before > -INFINITY:
                    after = penalised(kind, amount, before, count)
                    is_right = is_right and after < INFINITY
                    store_f32(entry + VALUE, after)
    return is_right


@kernel
def penalised(kind, amount, logit, count):
    """See plugins/samplers/penalties.py."""
    if kind == REPETITION:
        changed = logit * amount if logit < ZERO else logit / amount
        return np.float32(min(max(changed, -LARGEST), LARGEST))
    if kind == FREQUENCY:
        return np.float32(logit - amount * count)
    return logit - np.float32(amount)


@kernel
def take_highest(choice):
    """The `k` highest tokens: ids int64 and values float32, the highest first. Returns how many there are, or 0 where
    tokens that are not listed may be among them."""
    k, n_held, n_unchanged = choice.k, 0, 0
    for i in range(choice.n_listed):
        token_id = load_i32(choice.listed_ids + 4 * i)
        if n_unchanged < k and not is_in_table(choice, token_id):
            n_unchanged += 1
            n_held = offer_number(choice, n_held, token_id, load_f32(choice.listed_values + 4 * i))
    if n_unchanged < k and choice.n_listed < choice.d_vocab:
        return 0
    for at in range(0, choice.n_entries * ENTRY_BYTES, ENTRY_BYTES):
        token_id = load_i64(choice.table + at)
        if token_id != EMPTY:
            n_held = offer_number(choice, n_held, token_id, load_f32(choice.table + at + VALUE))
    for left in range(n_held - 1, -1, -1):
        least = load_i64(choice.heap)
        put_down(choice.heap, left, load_i64(choice.heap + 8 * left))
        store_i64(choice.ids + 8 * left, IDS - (least & IDS))
        ordered = least >> 32
        store_u32(choice.values + 4 * left, ordered if ordered >= 0 else SIGN - ordered)
    return n_held


@kernel
def is_in_table(choice, token_id):
    mask = choice.n_entries - 1
    place = (token_id * 0x9E3779B1 >> 7) & mask
    while True:
        held = load_i64(choice.table + ENTRY_BYTES * place)
        if held == token_id or held == EMPTY:  # noqa: SIM109 - no tuples in kernels
            return held == token_id
        place = (place + 1) & mask


@kernel
def offer_number(choice, n_held, token_id, value):
    """Keep it, if it is a number above −∞ and among the highest so far. Returns how many are held."""
    if not value > -INFINITY:
        return n_held
    store_f32(choice.number, value)
    return offer(choice.heap, n_held, choice.k, rank(choice.number, 0) - token_id)


@kernel
def narrow(choice, index, n):
    """How many of the n highest are left."""
    kind, amount = kind_of(choice, index), load_f64(choice.operations + OPERATION_BYTES * index + 8)
    if n == 0:
        return 0
    if kind == TOP_K:
        return min(n, int(amount)) if amount > 0 else n
    if kind == TOP_P:
        return nucleus(choice, n, amount)
    if kind == MIN_P:
        border = float(load_f32(choice.values)) + amount
        while float(load_f32(choice.values + 4 * (n - 1))) < border:
            n -= 1
        return n
    return heat(choice, n, np.float32(min(amount, LARGEST)))


@kernel
def weight(choice, place):
    """exp(logit − largest), float64."""
    return math.exp(float(load_f32(choice.values + 4 * place)) - float(load_f32(choice.largest)))


@kernel
def weigh_all(choice, n):
    """The sum of the weights."""
    largest = load_f32(choice.values)
    for place in range(1, n):
        largest = max(largest, load_f32(choice.values + 4 * place))
    store_f32(choice.largest, largest)
    total = 0.0
    for place in range(n):
        total += weight(choice, place)
    return total


@kernel
def nucleus(choice, n, p):
    """See `Candidates.nucleus`; 1 keeps all."""
    if p == 1:
        return n
    needed, reached, left = p * weigh_all(choice, n), weight(choice, 0), 1
    while left < n and reached < needed:
        reached += weight(choice, left)
        left += 1
    return left


@kernel
def heat(choice, n, temperature):
    """See plugins/samplers/temperature.py."""
    if not temperature > ZERO:
        return 1
    largest, left = load_f32(choice.values), 0
    for place in range(n):
        value = (load_f32(choice.values + 4 * place) - largest) / temperature
        store_f32(choice.values + 4 * place, value)
        left += 1 if value > -INFINITY else 0
    return left


@kernel
def at_share(choice, n):
    """The token at which the cumulative sum of the weights, by ascending ids, exceeds the uniform number's share."""
    sort_by_id(choice, n)
    wanted, reached = choice.uniform * weigh_all(choice, n), 0.0
    found = load_i64(choice.ids)
    for place in range(n):
        w = weight(choice, place)
        if w > 0 and reached <= wanted:  # the last of these, should rounding keep the sum below what is wanted
            found = load_i64(choice.ids + 8 * place)
        reached += w
    return found


@kernel
def sort_by_id(choice, n):
    for i in range(1, n):
        token_id, value, place = load_i64(choice.ids + 8 * i), load_f32(choice.values + 4 * i), i
        while place > 0 and load_i64(choice.ids + 8 * place - 8) > token_id:
            store_i64(choice.ids + 8 * place, load_i64(choice.ids + 8 * place - 8))
            store_f32(choice.values + 4 * place, load_f32(choice.values + 4 * place - 4))
            place -= 1
        store_i64(choice.ids + 8 * place, token_id)
        store_f32(choice.values + 4 * place, value)
