"""Functions of regular expressions with Java's meaning, in time linear in the text.

Law: a pattern is a constant, read once (`regex`). Rust's engine, by way of polars, runs it for all
texts where it finds what Java finds; the others go to `pike`: texts that end with a line end if the
pattern has a `$`, and matches that may be empty where each one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from viewkeep.deferred import pl
from viewkeep.errors import TypeMismatch, Unsupported
from viewkeep.ops.functions import like, rowtexts
from viewkeep.ops.functions.function import Build, Constants, Function, Resolve, Signature, Site
from viewkeep.ops.functions.pike import Slots, machine
from viewkeep.ops.functions.regex import ENDS, Regex, regex
from viewkeep.ops.functions.rowwise import each
from viewkeep.ops.functions.signatures import constant_int, constant_text, fixed
from viewkeep.types import BOOLEAN, INT, STRING, DataType

LONGEST = 16_384
"""Bytes of a text in which all matches of a pattern that runs on are found: 0.1 s at worst."""
LONGEST_REPEATED = rowtexts.LONGEST


def _constant_pattern(
    name: str,
    known: Resolve,
    check: Callable[[Regex, Constants, int], None] | None = None,
) -> Resolve:
    """A function whose second argument is a constant pattern; NULL is one too."""

    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        signature = known(given, constants)
        if not (1 in constants and constants[1] is None):
            pattern = regex(constant_text(name, constants, 1, "pattern"))
            if pattern.has_end:
                machine(pattern)
            if check:
                check(pattern, constants, len(given))
        return signature

    return resolve


def _refuse_quadratic(name: str, pattern: Regex, by_row: bool) -> None:
    """Refuse what would take quadratic time in Python; Rust does it for texts of `LONGEST`."""
    if pattern.runs_on and (by_row or pattern.has_end):
        raise Unsupported(
            f"in {name}, the regular expression {pattern.pattern!r} would take quadratic time: it "
            "may match without a repetition that goes on to the end of the text",
            hint="Say where the repetition ends, as in a([^ab]*b)?, or leave out $ and what may "
            "match an empty text",
        )


def _short(text: pl.Expr, pattern: Regex) -> pl.Expr:
    """The text; NULL where finding all matches could take quadratic time and it is long."""
    if not pattern.runs_on:
        return text
    return pl.when(text.str.len_bytes() <= LONGEST).then(text)


def _unless_null(result: DataType, build: Callable[[Site, Regex], pl.Expr]) -> Build:
    def built(site: Site) -> pl.Expr:
        pattern = site.constants[1]
        if not isinstance(pattern, str):
            return pl.lit(None, dtype=result.polars)
        return build(site, regex(pattern))

    return built


def _ended(
    site: Site, pattern: Regex, fast: pl.Expr, dtype: pl.DataType, one: Callable[[str], object]
) -> pl.Expr:
    """`fast`, but by row where the text ends with a line end, before which `$` holds too."""
    if not pattern.has_end:
        return fast
    ends = site.first.str.contains(rf"[{ENDS}]\z")
    return pl.when(ends).then(each(one, dtype, pl.when(ends).then(site.first))).otherwise(fast)


def _refuse_turns(name: str, pattern: Regex) -> None:
    """Refuse what engines may go through in other turns, where the turns can be seen."""
    if pattern.empty_loop:
        raise Unsupported(
            f"in {name}, the regular expression {pattern.pattern!r} repeats what may be empty",
            hint="Write (a+)* for (a*)*, and a* for (a?)*",
        )


def _rlike(site: Site, pattern: Regex) -> pl.Expr:
    def one(text: str) -> bool:
        return next(machine(pattern).matches(text), None) is not None

    return _ended(site, pattern, site.first.str.contains(pattern.rust), pl.Boolean(), one)


def _check_group(pattern: Regex, constants: Constants, count: int) -> None:
    _refuse_turns("regexp_extract", pattern)
    group = constant_int("regexp_extract", constants, 2, "group") if count == 3 else 1
    if not 0 <= group <= pattern.groups:
        raise TypeMismatch(
            f"the pattern of regexp_extract has no group {group}",
            hint=f"It has {pattern.groups}; 0 is the whole match",
        )


def _extract(site: Site, pattern: Regex) -> pl.Expr:
    group = site.constants.get(2, 1)
    assert isinstance(group, int)
    found = site.first.str.extract(pattern.rust, group).fill_null("")
    fast = pl.when(site.first.is_not_null()).then(found)

    def one(text: str) -> str:
        slots = next(machine(pattern).matches(text), None)
        return "" if slots is None else _group(text, slots, group)

    return _ended(site, pattern, fast, pl.String(), one)


def _group(text: str, slots: Slots, group: int) -> str:
    start, stop = slots[2 * group], slots[2 * group + 1]
    return "" if start < 0 else text[start:stop]


def _check_count(pattern: Regex, constants: Constants, count: int) -> None:
    _refuse_turns("regexp_count", pattern)
    _refuse_quadratic("regexp_count", pattern, pattern.may_be_empty)
    if pattern.may_be_empty:
        machine(pattern)


def _count(site: Site, pattern: Regex) -> pl.Expr:
    def one(text: str) -> int:
        return sum(1 for _ in machine(pattern).matches(text))

    if pattern.may_be_empty:
        # By row: Rust's engine finds no empty match next to another one.
        return each(one, pl.Int32(), site.first)
    fast = _short(site.first, pattern).str.count_matches(pattern.rust).cast(pl.Int32)
    return _ended(site, pattern, fast, pl.Int32(), one)


def _replacement(text: str, groups: int) -> list[str | int]:
    """Java's replacement text as texts and numbers of groups."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\\" and at < len(text):
            parts.append(text[at])
            at += 1
        elif char == "$":
            if not text[at : at + 1].isdecimal() or int(text[at]) > groups:
                raise TypeMismatch(
                    f"in the replacement {text!r}, $ stands before no group of the pattern",
                    hint="Write \\$ for the sign itself",
                )
            number, at = int(text[at]), at + 1
            while text[at : at + 1].isdecimal() and number * 10 + int(text[at]) <= groups:
                number, at = number * 10 + int(text[at]), at + 1
            parts.append(number)
        else:
            parts.append(char)
    return parts


def _check_replacement(pattern: Regex, constants: Constants, count: int) -> None:
    _refuse_turns("regexp_replace", pattern)
    _refuse_quadratic("regexp_replace", pattern, pattern.may_be_empty)
    if pattern.may_be_empty:
        machine(pattern)
    if not (2 in constants and constants[2] is None):
        _replacement(constant_text("regexp_replace", constants, 2, "replacement"), pattern.groups)


def _replace(site: Site, pattern: Regex) -> pl.Expr:
    new = site.constants[2]
    if not isinstance(new, str):
        return pl.lit(None, dtype=pl.String)
    parts = _replacement(new, pattern.groups)

    def one(text: str) -> str | None:
        made, at = [], 0
        size = before = len(text.encode())
        for slots in machine(pattern).matches(text):
            made.append(text[at : slots[0]])
            put = [p if isinstance(p, str) else _group(text, slots, p) for p in parts]
            made += put
            at = slots[1]
            size += sum(len(p.encode()) for p in put) - len(text[slots[0] : at].encode())
            if size > before + LONGEST_REPEATED:
                return None  # what is left of the text cannot make up for it
        return None if size > max(before, LONGEST_REPEATED) else "".join(made) + text[at:]

    if pattern.may_be_empty and new:
        # By row: Rust's engine finds no empty match next to another one.
        return each(one, pl.String(), site.first)
    by = "".join(f"${{{p}}}" if isinstance(p, int) else p.replace("$", "$$") for p in parts)
    text = _replaceable(_short(site.first, pattern), pattern, parts)
    return _ended(site, pattern, text.str.replace_all(pattern.rust, by), pl.String(), one)


def _replaceable(text: pl.Expr, pattern: Regex, parts: list[str | int]) -> pl.Expr:
    """The text; NULL where the replacement makes it longer, and too long."""
    put = sum(len(part.encode()) for part in parts if isinstance(part, str))
    groups = [part for part in parts if isinstance(part, int)]
    if not put and not groups:
        return text
    size = text.str.len_bytes().cast(pl.Int64)
    # Only where there could be so many matches and groups are their sizes added up.
    most = size + (size + 1) * put + size * len(groups)
    doubtful = pl.when(most > LONGEST_REPEATED).then(text)

    def without_matches(instead: str) -> pl.Expr:
        return doubtful.str.replace_all(pattern.rust, instead).str.len_bytes().cast(pl.Int64)

    rest = without_matches("")
    made = rest + doubtful.str.count_matches(pattern.rust).cast(pl.Int64) * put
    for group in groups:
        made += without_matches(f"${{{group}}}") - rest
    too_long = made > pl.max_horizontal(size, LONGEST_REPEATED)
    return pl.when(too_long).then(None).otherwise(text)


FUNCTIONS: tuple[Function, ...] = (
    *like.FUNCTIONS,
    Function(
        "rlike",
        _constant_pattern("rlike", fixed("rlike", STRING, STRING, result=BOOLEAN)),
        _unless_null(BOOLEAN, _rlike),
        "Whether a regular expression is found in the text.",
        "'abc' RLIKE '^a.c$'",
        ("regexp", "regexp_like"),
    ),
    Function(
        "regexp_replace",
        _constant_pattern(
            "regexp_replace",
            fixed("regexp_replace", STRING, STRING, STRING, result=STRING),
            _check_replacement,
        ),
        _unless_null(STRING, _replace),
        "With every match of a regular expression replaced; $1 stands for its first group; NULL if "
        "that makes it longer, and more than 1 MiB.",
        "regexp_replace('a1b22', '([0-9]+)', '<$1>')",
    ),
    Function(
        "regexp_extract",
        _constant_pattern(
            "regexp_extract",
            fixed("regexp_extract", STRING, STRING, INT, result=STRING, optional=1),
            _check_group,
        ),
        _unless_null(STRING, _extract),
        "A group (1 unless given, 0 for all) of the first match, '' if there is none.",
        "regexp_extract('a12', '([a-z])([0-9]+)', 2)",
    ),
    Function(
        "regexp_count",
        _constant_pattern(
            "regexp_count", fixed("regexp_count", STRING, STRING, result=INT), _check_count
        ),
        _unless_null(INT, _count),
        "How many matches of a regular expression there are.",
        "regexp_count('a1b2', '[0-9]')",
    ),
)
