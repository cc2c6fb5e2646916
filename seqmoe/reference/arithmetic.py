"""Worked arithmetic problems: a text source that needs no download and has an answer that can be computed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

_NAMES = (
    "Ada", "Ben", "Cleo", "Dora", "Emil", "Fatima", "Goran", "Hana", "Ivan", "Jun", "Kemal", "Lena", "Mira", "Noor",
    "Otto", "Petra", "Quinn", "Rosa", "Sven", "Tara", "Uma", "Viktor", "Wanda", "Xenia", "Yusuf", "Zoe",
)  # fmt: skip
_THINGS = (
    "apples", "books", "candles", "coins", "cups", "eggs", "flowers", "keys", "lamps", "letters", "marbles",
    "pencils", "plates", "shells", "stamps",
)  # fmt: skip


def _column_sum(rng: random.Random) -> str:
    left, right = rng.randint(12, 9999), rng.randint(12, 9999)
    lines = [f"Problem: Add {left} and {right}.", "Work:"]
    carry, total = 0, left + right
    for place in range(len(str(total))):
        a, b = left // 10**place % 10, right // 10**place % 10
        digit = a + b + carry
        lines.append(f"  {a} + {b} + carry {carry} = {digit}: write {digit % 10}, carry {digit // 10}")
        carry = digit // 10
    return "\n".join([*lines, f"Answer: {total}"])


def _product(rng: random.Random) -> str:
    left, right = rng.randint(3, 999), rng.randint(11, 99)
    tens, ones = right // 10 * 10, right % 10
    return (
        f"Problem: Multiply {left} by {right}.\nWork:\n  {right} = {tens} + {ones}\n"
        f"  {left} * {tens} = {left * tens}\n  {left} * {ones} = {left * ones}\n"
        f"  {left * tens} + {left * ones} = {left * right}\nAnswer: {left * right}"
    )


def _division(rng: random.Random) -> str:
    divisor, quotient = rng.randint(2, 25), rng.randint(2, 400)
    remainder = rng.randrange(divisor)
    number = divisor * quotient + remainder
    return (
        f"Problem: Divide {number} by {divisor}.\nWork:\n  {divisor} * {quotient} = {divisor * quotient}\n"
        f"  {number} - {divisor * quotient} = {remainder}\nAnswer: {quotient} remainder {remainder}"
    )


def _linear_equation(rng: random.Random) -> str:
    a, x, b = rng.randint(2, 19), rng.randint(-30, 30), rng.randint(1, 90)
    return (
        f"Problem: Solve {a}x + {b} = {a * x + b} for x.\nWork:\n  {a}x = {a * x + b} - {b}\n"
        f"  {a}x = {a * x}\n  x = {a * x} / {a}\nAnswer: x = {x}"
    )


def _shopping(rng: random.Random) -> str:
    name, thing = rng.choice(_NAMES), rng.choice(_THINGS)
    count, price, paid_extra = rng.randint(2, 24), rng.randint(2, 40), rng.randint(1, 60)
    cost = count * price
    return (
        f"Question: {name} buys {count} {thing} at {price} dollars each and pays with {cost + paid_extra} dollars. "
        f"How much change does {name} get?\nSolution: The {thing} cost {count} * {price} = {cost} dollars. "
        f"The change is {cost + paid_extra} - {cost} = {paid_extra} dollars.\nAnswer: {paid_extra}"
    )


def _sharing(rng: random.Random) -> str:
    giver, taker = rng.sample(_NAMES, 2)
    thing, start, given = rng.choice(_THINGS), rng.randint(20, 300), rng.randint(2, 19)
    friends = rng.randint(2, 9)
    left = start - given
    return (
        f"Question: {giver} has {start} {thing}. {giver} gives {given} of them to {taker} and shares the rest equally "
        f"among {friends} friends. How many {thing} does each friend get, and how many are left over?\n"
        f"Solution: After the gift {start} - {given} = {left} {thing} remain. {left} divided by {friends} is "
        f"{left // friends}, because {friends} * {left // friends} = {friends * (left // friends)}. "
        f"{left} - {friends * (left // friends)} = {left % friends} are left over.\n"
        f"Answer: {left // friends} each, {left % friends} left over"
    )


def _travel(rng: random.Random) -> str:
    name, speed, hours = rng.choice(_NAMES), rng.randint(8, 120), rng.randint(2, 12)
    rest = rng.randint(5, 90)
    return (
        f"Question: {name} travels {hours} hours at {speed} km per hour and then {rest} km more. "
        f"How far does {name} travel in all?\nSolution: In {hours} hours {name} covers {hours} * {speed} = "
        f"{hours * speed} km. In all that is {hours * speed} + {rest} = {hours * speed + rest} km.\n"
        f"Answer: {hours * speed + rest} km"
    )


_KINDS: tuple[Callable[[random.Random], str], ...] = (
    _column_sum, _product, _division, _linear_equation, _shopping, _sharing, _travel,
)  # fmt: skip


def documents(characters: int, seed: int) -> Iterator[str]:
    """Yield documents of one to six worked problems until about ``characters`` characters were given."""
    rng = random.Random(seed)
    given = 0
    while given < characters:
        document = "\n\n".join(rng.choice(_KINDS)(rng) for _ in range(rng.randint(1, 6))) + "\n"
        given += len(document)
        yield document
