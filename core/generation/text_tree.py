"""Texts that share their beginnings, as a tree: each token knows the one before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ringlet.core.completion import TokenLogprobs


@dataclass(frozen=True, eq=False)
class Node:
    """A token of a text, in a tree in which texts share their beginnings. depth: how many tokens up to it."""

    parent: Node | None
    token_id: int
    depth: int
    logprobs: TokenLogprobs | None = None

    def since(self, ancestor: Node) -> list[Node]:
        """The nodes after an ancestor, down to this one."""
        path: list[Node] = []
        node: Node | None = self
        while node is not None and node is not ancestor:
            path.append(node)
            node = node.parent
        return path[::-1]


def common_ancestor(nodes: Iterable[Node]) -> Node:
    """The deepest node that all of them are, or come from."""
    left = set(nodes)
    while len(left) > 1:
        deepest = max(left, key=lambda node: node.depth)
        left.remove(deepest)
        if deepest.parent is not None:
            left.add(deepest.parent)
    return left.pop()
