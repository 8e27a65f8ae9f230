"""CloudWatch's metric math, as much of it as alarms need: a reader of expressions, and their value over time.

A series is a list with one value for each period, oldest first; None where there are no data.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

Series = list[float | None]
Value = float | Series

_TOKEN: Final = re.compile(r"\s*(?:(\d+\.?\d*|\.\d+)|([A-Za-z][A-Za-z0-9_]*)|(&&|\|\||[<>=!]=|[-+*/^<>(),]))")


def _divide(left: float, right: float) -> float | None:
    return left / right if right else None


_ARITHMETIC: Final[Mapping[str, Callable[[float, float], float | None]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "^": math.pow,
    "<": lambda left, right: float(left < right),
    "<=": lambda left, right: float(left <= right),
    ">": lambda left, right: float(left > right),
    ">=": lambda left, right: float(left >= right),
    "==": lambda left, right: float(left == right),
    "!=": lambda left, right: float(left != right),
    "AND": lambda left, right: float(bool(left) and bool(right)),
    "OR": lambda left, right: float(bool(left) or bool(right)),
}
# By how tightly they bind, loosest first.
_LEVELS: Final = (("OR",), ("AND",), ("==", "!=", "<", "<=", ">", ">="), ("+", "-"), ("*", "/"), ("^",))
_WORDS: Final = {"&&": "AND", "||": "OR"}
_EACH: Final[Mapping[str, Callable[[float], float]]] = {"ABS": abs, "CEIL": math.ceil, "FLOOR": math.floor}
_OVERALL: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "MAX": max,
    "MIN": min,
    "SUM": sum,
    "AVG": lambda values: sum(values) / len(values),
}
_FUNCTIONS: Final = frozenset({"IF", "FILL", *_EACH, *_OVERALL})


class ExpressionError(ValueError):
    """Report an expression that cannot be computed here. Carries `expression` and `reason`."""

    def __init__(self, expression: str, reason: str) -> None:
        self.expression, self.reason = expression, reason
        super().__init__(f"metric math {expression!r}: {reason}")


@dataclasses.dataclass(frozen=True)
class Node:
    """One part of an expression: a number, a name, an operator or a function, with its operands."""

    kind: str
    """`number`, `name`, `operator` or `function`."""
    text: str
    operands: tuple[Node, ...] = ()

    def names(self) -> set[str]:
        """Return the ids of the metrics and expressions that it needs."""
        found = {self.text} if self.kind == "name" else set()
        return found.union(*(each.names() for each in self.operands))


def parse(expression: str) -> Node:
    """Read an expression. Raises ExpressionError that names what is not understood."""
    return _Parser(expression).whole()


def evaluate(node: Node, series: Mapping[str, Series], length: int) -> Series:
    """Return an expression's value in each of `length` periods, given the series that it names."""
    value = _value(node, series)
    if isinstance(value, list):
        return list(value) or [None] * length  # nothing at all comes of a function over a series without values
    return [value] * length


class _Parser:
    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = list(self._split())
        self._next = 0

    def _split(self) -> list[str]:
        tokens, position = [], 0
        text = self._expression.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._error(f"{text[position:].lstrip()[:20]!r} is not understood here")
            tokens.append(match.group(0).strip())
            position = match.end()
        return tokens

    def _error(self, reason: str) -> ExpressionError:
        return ExpressionError(self._expression, reason)

    def _peek(self) -> str:
        token = self._tokens[self._next] if self._next < len(self._tokens) else ""
        return _WORDS.get(token, token)

    def _take(self, wanted: str = "") -> str:
        token = self._peek()
        if wanted and token != wanted:
            raise self._error(f"{wanted!r} is missing" + (f" before {token!r}" if token else " at its end"))
        self._next += 1
        return token

    def whole(self) -> Node:
        node = self._level(0)
        if self._peek():
            raise self._error(f"{self._peek()!r} is not expected")
        return node

    def _level(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._operand()
        node = self._level(level + 1)
        while self._peek() in _LEVELS[level]:
            name = self._take()
            node = Node("operator", name, (node, self._level(level + 1)))
        return node

    def _operand(self) -> Node:
        token = self._take()
        if token == "(":
            node = self._level(0)
            self._take(")")
            return node
        if token == "-":
            return Node("operator", "-", (Node("number", "0"), self._operand()))
        if token[:1].isdigit() or token[:1] == ".":
            return Node("number", token)
        if not token[:1].isalpha():
            raise self._error(f"a value is missing before {token!r}" if token else "it ends too early")
        if self._peek() == "(":
            return self._function(token)
        return Node("name", token)

    def _function(self, name: str) -> Node:
        if name not in _FUNCTIONS:
            raise self._error(f"the embedded cloud does not know the function {name}")
        self._take("(")
        operands = [self._level(0)]
        while self._peek() == ",":
            self._take()
            operands.append(self._level(0))
        self._take(")")
        counts = {"IF": (2, 3), "FILL": (2,)}.get(name, (1,))
        if len(operands) not in counts:
            raise self._error(f"{name} takes {' or '.join(map(str, counts))} operands")
        if name == "FILL" and not (operands[1].kind == "number" or operands[1].text == "REPEAT"):
            raise self._error("FILL takes a number or REPEAT here")
        if name == "FILL":
            operands[1] = dataclasses.replace(operands[1], kind="number")
        return Node("function", name, tuple(operands))


def _value(node: Node, series: Mapping[str, Series]) -> Value:
    if node.kind == "number":
        return float(node.text)
    if node.kind == "name":
        return series[node.text]
    if node.text == "FILL":
        return _fill(_value(node.operands[0], series), node.operands[1].text)
    operands = [_value(each, series) for each in node.operands]
    if node.kind == "operator":
        calculate = _ARITHMETIC[node.text]
        return _map(lambda *values: None if None in values else calculate(*values), operands)
    if node.text == "IF":
        return _map(_choose, operands)
    if node.text in _EACH:
        change = _EACH[node.text]
        return _map(lambda value: None if value is None else change(value), operands)
    value = operands[0]
    known = [each for each in value if each is not None] if isinstance(value, list) else [value]
    return _OVERALL[node.text](known) if known else []


def _choose(condition: float | None, then: float | None, otherwise: float | None = None) -> float | None:
    if condition is None:
        return None
    return then if condition else otherwise


def _fill(value: Value, how: str) -> Value:
    """Fill the gaps of a series; REPEAT leaves those before its first value, as CloudWatch does."""
    if not isinstance(value, list):
        return value
    filled: Series = []
    for each in value:
        instead = (filled[-1] if filled else None) if how == "REPEAT" else float(how)
        filled.append(instead if each is None else each)
    return filled


def _map(calculate: Callable[..., float | None], operands: Sequence[Value]) -> Value:
    """Apply a function to each period; a number stands for the same value in all of them."""
    lengths = {len(each) for each in operands if isinstance(each, list)}
    if not lengths:
        result = calculate(*operands)
        return [] if result is None else result
    columns = [each if isinstance(each, list) else [each] * max(lengths) for each in operands]
    return [calculate(*values) for values in zip(*columns, strict=False)]
