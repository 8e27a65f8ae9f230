"""A parser and evaluator for the part of CloudWatch's metric math that alarms use.

A series is a list with one value for each period, oldest first. None marks a period without data.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

Series = list[float | None]
Value = float | Series
Expression = Tree[Token]

# Operators in order of precedence, lowest first.
_GRAMMAR: Final = r"""
    ?start: either
    ?either: both | either OR both -> operation
    ?both: comparison | both AND comparison -> operation
    ?comparison: sum | comparison COMPARISON sum -> operation
    ?sum: product | sum SIGN product -> operation
    ?product: power | product FACTOR power -> operation
    ?power: operand | power POWER operand -> operation
    ?operand: NUMBER -> number | NAME -> name | "(" start ")" | "-" operand -> negation
        | NAME "(" start ("," start)* ")" -> function
    OR.1: "OR" | "||"
    AND.1: "AND" | "&&"
    COMPARISON: /[<>=!]=|[<>]/
    SIGN: "+" | "-"
    FACTOR: "*" | "/"
    POWER: "^"
    NUMBER: /\d+\.?\d*|\.\d+/
    NAME: /[A-Za-z][A-Za-z0-9_]*/
    %ignore /\s+/
"""
_REPEAT: Final = "REPEAT"
_OPERATORS: Final[Mapping[str, Callable[..., float | None]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda left, right: left / right if right else None,
    "^": math.pow,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    **dict.fromkeys(("AND", "&&"), lambda left, right: bool(left) and bool(right)),
    **dict.fromkeys(("OR", "||"), lambda left, right: bool(left) or bool(right)),
}
_EACH: Final[Mapping[str, Callable[..., float | None]]] = {"ABS": abs, "CEIL": math.ceil, "FLOOR": math.floor}
_OVERALL: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "MAX": max,
    "MIN": min,
    "SUM": sum,
    "AVG": lambda values: sum(values) / len(values),
}
_OPERANDS: Final[Mapping[str, tuple[int, ...]]] = {
    "IF": (2, 3),
    "FILL": (2,),
    **dict.fromkeys((*_EACH, *_OVERALL), (1,)),
}


class ExpressionError(ValueError):
    """An unsupported or invalid expression. Carries `expression` and `reason`."""

    def __init__(self, expression: str, reason: str) -> None:
        self.expression, self.reason = expression, reason
        super().__init__(f"metric math {expression!r}: {reason}")


@functools.cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr")


def parse(expression: str) -> Expression:
    """Return the syntax tree of an expression. Raises ExpressionError, which names the invalid or unsupported part."""
    try:
        parsed = _parser().parse(expression)
    except UnexpectedToken as error:
        ended = error.token.type == "$END"
        raise ExpressionError(
            expression, "the expression is incomplete" if ended else f"unexpected {str(error.token)!r}"
        ) from None
    except UnexpectedCharacters as error:
        text = expression[error.pos_in_stream :][:20]
        raise ExpressionError(expression, f"the embedded cloud does not support {text!r}") from None
    for function in parsed.find_data("function"):
        name, operands = function.children[0], [each for each in function.children if isinstance(each, Tree)]
        counts = _OPERANDS.get(str(name))
        if counts is None:
            raise ExpressionError(
                expression, f"the embedded cloud does not support the function {name}, only {', '.join(_OPERANDS)}"
            )
        if len(operands) not in counts:
            raise ExpressionError(expression, f"{name} takes {' or '.join(map(str, counts))} operands")
        if name == "FILL" and not _fills_with(operands[1]):
            raise ExpressionError(expression, "the embedded cloud only supports FILL with a number or REPEAT")
    return parsed


def names(expression: Expression) -> set[str]:
    """Return the ids of the metrics and expressions that an expression refers to."""
    return {str(each.children[0]) for each in expression.find_data("name")} - {_REPEAT}


def evaluate(expression: Expression, series: Mapping[str, Series], length: int) -> Series:
    """Return an expression's value in each of `length` periods, oldest first. None marks a period without a value.

    `series` maps each id in the expression to its series, which has `length` values.
    """
    value = _value(expression, series)
    if isinstance(value, list):
        return list(value) or [None] * length  # no data: for example, the maximum of an empty series
    return [value] * length


def _fills_with(operand: Expression) -> str:
    """Return FILL's second operand if it is a number or REPEAT, otherwise ""."""
    text = str(operand.children[0])
    return text if operand.data == "number" or text == _REPEAT else ""


def _value(node: Expression, series: Mapping[str, Series]) -> Value:
    """Return the value of a parsed expression: a number or a series. An empty series means no data."""
    if node.data == "number":
        return float(str(node.children[0]))
    if node.data == "name":
        return series[str(node.children[0])]
    name = next((str(each) for each in node.children if isinstance(each, Token)), "-")
    trees = [each for each in node.children if isinstance(each, Tree)]
    if name == "FILL":
        return _fill(_value(trees[0], series), _fills_with(trees[1]))
    operands = [_value(each, series) for each in trees]
    if node.data == "negation":
        operands.insert(0, 0.0)
    if name == "IF":
        return _map(_choose, operands)
    calculate = _OPERATORS.get(name) or _EACH.get(name)
    if calculate is not None:
        gap = 0.0 if all(isinstance(each, list) for each in operands) else None
        return _map(functools.partial(_calculate, calculate, gap), operands)
    value = operands[0]
    known = [each for each in value if each is not None] if isinstance(value, list) else [value]
    return _OVERALL[name](known) if known else []


def _calculate(calculate: Callable[..., float | None], gap: float | None, *values: float | None) -> float | None:
    """Return an operator's result for the values of one period; None if all are missing, or for a division by 0.

    `gap` replaces a missing value. If `gap` is None, one missing value is enough for the result None.
    """
    if all(each is None for each in values):
        return None
    filled = [gap if each is None else each for each in values]
    return None if None in filled else calculate(*filled)


def _choose(condition: float | None, then: float | None, otherwise: float | None = None) -> float | None:
    """Return the value of IF in one period, or None if the condition is missing. A missing `then` counts as 0.

    Without `otherwise`, a false condition results in None.
    """
    if condition is None:
        return None
    # CloudWatch uses 0 for a missing "true" value, but omits the period for a missing "false" value.
    return (then or 0.0) if condition else otherwise


def _fill(value: Value, how: str) -> Value:
    """Fill the gaps of a series with a number or with the previous value. `how`: the number as text, or REPEAT.

    As in CloudWatch, REPEAT does not fill gaps before the first value. A `value` that is a number is returned
    unchanged.
    """
    if not isinstance(value, list):
        return value
    filled: Series = []
    for each in value:
        instead = (filled[-1] if filled else None) if how == _REPEAT else float(how)
        filled.append(instead if each is None else each)
    return filled


def _map(calculate: Callable[..., float | None], operands: Sequence[Value]) -> Value:
    """Return a function's results for the operands in each period: a series, or a number if all operands are numbers.

    A number has the same value in all periods.
    """
    lengths = {len(each) for each in operands if isinstance(each, list)}
    if not lengths:
        result = calculate(*operands)
        return [] if result is None else float(result)
    columns = [each if isinstance(each, list) else [each] * max(lengths) for each in operands]
    results = (calculate(*values) for values in zip(*columns, strict=False))
    return [None if result is None else float(result) for result in results]
