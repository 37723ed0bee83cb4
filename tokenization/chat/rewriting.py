"""A template's syntax tree, rewritten so that every operation is a call of the environment's, and every block pays."""

# ruff: noqa: N802 - the visitor calls its methods by the names of nodes

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.visitor import NodeTransformer

MOST_NODES = 20_000  # the largest templates of models have a fifth of it
NODES_A_STEP = 8  # most nodes only name something
REFUSED: dict[type[nodes.Node], str] = {
    nodes.Include: "includes another template",
    nodes.Import: "imports another template",
    nodes.FromImport: "imports another template",
    nodes.Extends: "extends another template",
    nodes.ScopedEvalContextModifier: "changes how texts are escaped",
    nodes.EvalContextModifier: "changes how texts are escaped",
}
BLOCKS = ("body", "else_")  # the fields of a statement that hold statements; `elif_` holds whole ones


def rewrite(tree: nodes.Template) -> nodes.Template:
    """Raises TemplateSyntaxError for a tree that is too large, reads other templates, or changes the escaping."""
    if _count(tree, but=()) > MOST_NODES:
        raise TemplateSyntaxError(f"it has more than {MOST_NODES:,} parts", 1)
    tree = Rewriter().visit(tree)
    tree.body.insert(0, _payment(tree.body, 1))
    return tree


class Rewriter(NodeTransformer):
    """See `sandbox.ChatEnvironment` for what the calls do."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        if type(node) in REFUSED:
            raise TemplateSyntaxError(f"it {REFUSED[type(node)]}, which a chat template may not", node.lineno)
        return super().visit(node, *args, **kwargs)

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        node = super().generic_visit(node, *args, **kwargs)
        if isinstance(node, nodes.Stmt):
            for name in BLOCKS:
                body = getattr(node, name, None)
                if body:
                    body.insert(0, _payment(body, node.lineno))
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        visited = [self.visit(child) for child in node.nodes]
        node.nodes = [child if isinstance(child, nodes.TemplateData) else _call("printed", child) for child in visited]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        return _call("concatenated", *map(self.visit, node.nodes), lineno=node.lineno)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return _call("kept", self.generic_visit(node))

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        return _call("kept", self.generic_visit(node))

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        visited = self.generic_visit(node)
        return _call("kept", visited) if node.ctx == "load" else visited

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _call("weighed", node.expr)
        for operand in node.ops:
            operand.expr = _call("weighed", operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        bounds = (bound or nodes.Const(None) for bound in (node.arg.start, node.arg.stop, node.arg.step))
        return _call("sliced", node.node, *bounds)

    def visit_For(self, node: nodes.For) -> nodes.Node:
        each = _steps([node.test]) if node.test else 1
        self.generic_visit(node)
        node.iter = _call("iterated", node.iter, nodes.Const(each))
        return node


def _call(name: str, *arguments: nodes.Node, lineno: int | None = None) -> nodes.Call:
    function = nodes.EnvironmentAttribute(name)
    line = lineno or next((argument.lineno for argument in arguments if argument.lineno), None)
    return nodes.Call(function, list(arguments), [], None, None, lineno=line)


def _payment(body: list[nodes.Node], line: int) -> nodes.Node:
    """The statement that pays for a block, but not for the blocks in it."""
    return nodes.ExprStmt(_call("tick", nodes.Const(_steps(body)), lineno=line), lineno=line)


def _steps(body: list[Any]) -> int:
    return 1 + sum(map(_count, body)) // NODES_A_STEP


def _count(node: nodes.Node, but: tuple[str, ...] = BLOCKS) -> int:
    """Nodes of a tree, but for those in these fields."""
    return 1 + sum(_count(child, but) for child in node.iter_child_nodes(exclude=but))
