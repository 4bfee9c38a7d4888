"""Functions of text: parts, positions, padding, case and codes.

Law: text is a sequence of code points and positions count from 1; a NULL argument gives NULL,
except in `concat_ws`, which leaves NULLs out. Only spaces are blank unless a call says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from viewkeep.deferred import pl
from viewkeep.ops.functions import rowtexts
from viewkeep.ops.functions.distance import levenshtein
from viewkeep.ops.functions.function import Build, Constants, Function, Resolve, Signature, Site
from viewkeep.ops.functions.rowwise import each
from viewkeep.ops.functions.signatures import fixed, mismatch
from viewkeep.types import BIGINT, BINARY, BOOLEAN, INT, STRING, DataType

_LARGEST = 2**31 - 1
LONGEST_REPEATED = rowtexts.LONGEST
_LATIN = [chr(code) for code in range(256)]


def _variadic(name: str, at_least: int) -> Resolve:
    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        if len(given) < at_least:
            raise mismatch(name, given, f"at least {at_least} strings")
        binary = name == "concat" and len(given) > 0 and all(t == BINARY for t in given)
        type_ = BINARY if binary else STRING
        return (type_,) * len(given), type_

    return resolve


def _text_or_bytes(name: str, *rest: DataType, result: DataType | None, optional: int) -> Resolve:
    """A function of a STRING or a BINARY, which gives the same type unless `result` says."""

    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        type_ = BINARY if given and given[0] == BINARY else STRING
        known = fixed(name, type_, *rest, result=result or type_, optional=optional)
        return known(given, constants)

    return resolve


def _text_only(name: str, *types: DataType, optional: int = 0) -> Resolve:
    """A function that Spark also has for BINARY, with a BINARY result that we do not offer."""
    known = fixed(name, *types, result=STRING, optional=optional)

    def resolve(given: Sequence[DataType], constants: Constants) -> Signature:
        if given and given[0] == BINARY:
            raise mismatch(name, given, ", ".join(map(str, types)))
        return known(given, constants)

    return resolve


def _hexable(given: Sequence[DataType], constants: Constants) -> Signature:
    if len(given) != 1:
        raise mismatch("hex", given, "a STRING, a BINARY or a number")
    if given[0].is_numeric:
        return (BIGINT,), STRING
    return (BINARY if given[0] == BINARY else STRING,), STRING


def _strict(site: Site, value: pl.Expr) -> pl.Expr:
    """The value where no argument is NULL; polars gives NULL lengths and characters a meaning."""
    doubtful = [a for i, a in enumerate(site.args) if site.constants.get(i) is None]
    if not doubtful:
        return value
    known = reduce(lambda a, b: a & b, [arg.is_not_null() for arg in doubtful])
    return pl.when(known).then(value)


def _size(arg: pl.Expr, type_: DataType) -> pl.Expr:
    return (arg.bin.size() if type_ == BINARY else arg.str.len_chars()).cast(pl.Int64)


def _bytes(site: Site) -> pl.Expr:
    return (site.first.bin.size() if site.types[0] == BINARY else site.first.str.len_bytes()).cast(
        pl.Int32
    )


def _concat(site: Site) -> pl.Expr:
    if not site.args:
        return pl.lit("")
    if site.result == BINARY:
        return reduce(lambda a, b: a + b, site.args)
    return pl.concat_str(*site.args)


def _concat_ws(site: Site) -> pl.Expr:
    separator, parts = site.args[0], site.args[1:]
    if not parts:
        return _strict(site, pl.lit(""))
    known = separator.is_not_null()
    constant = site.constants.get(0)
    if isinstance(constant, str):
        return pl.concat_str(*parts, separator=constant, ignore_nulls=True)
    # A list for each separator, also where all the parts are constants.
    lists = pl.concat_list(pl.when(known).then(parts[0]), *parts[1:])
    return pl.when(known).then(lists.list.drop_nulls().list.join(separator))


def _part(site: Site, start: pl.Expr, length: pl.Expr | None) -> pl.Expr:
    """`length` units from `start`, which counts from 0 and may lie before the text."""
    begin = start.clip(0)
    count = None if length is None else ((start + length).clip(0, _LARGEST) - begin).clip(0)
    cut = site.first.bin.slice if site.types[0] == BINARY else site.first.str.slice
    return _strict(site, cut(begin, count))


def _substring(site: Site) -> pl.Expr:
    position = site.args[1].cast(pl.Int64)
    length = site.args[2].cast(pl.Int64) if len(site.args) == 3 else None
    constant = site.constants.get(1)
    if isinstance(constant, int) and constant >= 0:
        return _part(site, pl.lit(max(constant - 1, 0), dtype=pl.Int64), length)
    behind = _size(site.first, site.types[0]) + position
    start = pl.when(position > 0).then(position - 1).when(position < 0).then(behind).otherwise(0)
    return _part(site, start, length)


def _left(site: Site) -> pl.Expr:
    return _part(site, pl.lit(0, dtype=pl.Int64), site.args[1].cast(pl.Int64))


def _right(site: Site) -> pl.Expr:
    count = site.args[1].cast(pl.Int64).clip(0)
    return _part(site, _size(site.first, STRING) - count, count)


def _trim(side: str) -> Build:
    def build(site: Site) -> pl.Expr:
        text = site.first.str
        strip = {
            "both": text.strip_chars,
            "start": text.strip_chars_start,
            "end": text.strip_chars_end,
        }[side]
        return _strict(site, strip(site.args[1])) if len(site.args) == 2 else strip(" ")

    return build


def _times(text: pl.Expr, count: pl.Expr) -> pl.Expr:
    """The text so many times; NULL where one row could take all the memory there is."""
    size, count = text.str.len_bytes().cast(pl.Int64), count.cast(pl.Int64).clip(0)
    wanted = pl.when(size == 0).then(0).when(size * count <= LONGEST_REPEATED).then(count)
    return text.repeat_by(wanted).list.join("")


def _pad(at_start: bool) -> Build:
    def build(site: Site) -> pl.Expr:
        text, length = site.first, site.args[1].cast(pl.Int64).clip(0)
        pad = site.args[2] if len(site.args) == 3 else pl.lit(" ")
        missing = (length - _size(text, STRING)).clip(0)
        # Whole pads, one more than fit, of which the missing characters are taken.
        unit = _size(pad, STRING)
        fill = _times(pad, pl.when(unit > 0).then(missing // unit + 1).otherwise(0))
        fill = fill.str.slice(0, missing)
        kept = text.str.slice(0, length)
        return _strict(site, pl.concat_str(fill, kept) if at_start else pl.concat_str(kept, fill))

    return build


def _replace(site: Site) -> pl.Expr:
    new = site.args[2] if len(site.args) == 3 else pl.lit("")
    search, by = site.constants.get(1), site.constants.get(2, "")
    if search == "":
        return _strict(site, site.first)
    if isinstance(search, str) and isinstance(by, str):
        text = _replaceable(site.first, search, len(search.encode()), len(by.encode()))
        return _strict(site, text.str.replace_all(search, new.fill_null(""), literal=True))
    # By row: polars replaces one constant search text only.
    return each(
        replaced,
        pl.String(),
        site.first,
        site.args[1],
        new,
    )


def _replaceable(text: pl.Expr, search: str, old: int, new: int) -> pl.Expr:
    """The text; NULL where replacing these many bytes by those would make it too long."""
    if new <= old:
        return text
    size = text.str.len_bytes().cast(pl.Int64)
    # Only where every place could make it too long are the places counted.
    doubtful = pl.when(size * new > LONGEST_REPEATED * old).then(text)
    count = doubtful.str.count_matches(search, literal=True).cast(pl.Int64)
    too_long = size + count * (new - old) > pl.max_horizontal(size, LONGEST_REPEATED)
    return pl.when(too_long).then(None).otherwise(text)


def replaced(text: str, old: str, new: str) -> str | None:
    """A text with every occurrence of another replaced; None if that makes it too long."""
    made = rowtexts.replaced(text.encode(), old.encode(), new.encode())
    return None if made is None else made.decode()


_LONGEST_SOUGHT = 10_000  # characters of a constant: polars makes a regular expression of it


def _find(text: pl.Expr, part: pl.Expr, constant: object) -> pl.Expr:
    """The position of a part, or 0. polars counts bytes, so the head is measured."""
    if isinstance(constant, str) and len(constant) > _LONGEST_SOUGHT:
        return each(lambda whole, sought: whole.find(sought) + 1, pl.Int32(), text, part)
    before = text.str.find(part, literal=True)
    head = text.cast(pl.Binary).bin.slice(0, before.fill_null(0).cast(pl.Int64))
    found = head.cast(pl.String).str.len_chars().cast(pl.Int32) + 1
    return pl.when(before.is_null()).then(0).otherwise(found).cast(pl.Int32)


def _instr(site: Site) -> pl.Expr:
    return _strict(site, _find(site.args[0], site.args[1], site.constants.get(1)))


def _locate(site: Site) -> pl.Expr:
    part, text = site.args[0], site.args[1]
    if len(site.args) == 2:
        return _strict(site, _find(text, part, site.constants.get(0)))
    # Spark looks for '' nowhere but at the start, and from a NULL position finds nothing.
    position = site.args[2]
    skipped = position.cast(pl.Int64).clip(1) - 1
    found = _find(text.str.slice(skipped.fill_null(0)), part, site.constants.get(0))
    moved = pl.when(found > 0).then(found + skipped.cast(pl.Int32)).otherwise(0)
    value = pl.when(position < 1).then(0).when(part == "").then(1).otherwise(moved)
    known = part.is_not_null() & text.is_not_null()
    value = pl.when(position.is_null()).then(0).when(known).then(value)
    return value.cast(pl.Int32)


def _split_part(site: Site) -> pl.Expr:
    text, delimiter, n = site.args
    index = pl.when(n > 0).then(n - 1).otherwise(n)
    part = text.str.split(delimiter).list.get(index, null_on_oob=True).fill_null("")
    whole = pl.when(n.abs() == 1).then(text).otherwise(pl.lit(""))
    value = pl.when(delimiter == "").then(whole).otherwise(part)
    return _strict(site, pl.when(n != 0).then(value))


def _substring_index(site: Site) -> pl.Expr:
    delimiter, count = site.constants.get(1), site.constants.get(2)
    if isinstance(delimiter, str) and isinstance(count, int) and not _overlaps(delimiter):
        if delimiter == "" or count == 0:
            return _strict(site, pl.lit(""))
        parts = site.first.str.split(delimiter).list
        return (parts.head(count) if count > 0 else parts.tail(-count)).list.join(delimiter)
    # By row: where delimiters overlap, Spark counts each of them; a split does not.
    return each(_before_delimiter, pl.String(), *site.args)


def _overlaps(delimiter: str) -> bool:
    return any(delimiter.startswith(delimiter[i:]) for i in range(1, len(delimiter)))


def _before_delimiter(text: str, delimiter: str, count: int) -> str:
    if not delimiter or count == 0:
        return ""
    if count > 0:
        at = -1
        for _ in range(count):
            at = text.find(delimiter, at + 1)
            if at < 0:
                return text
        return text[:at]
    at = len(text) - len(delimiter) + 1
    for _ in range(-count):
        at = text.rfind(delimiter, 0, at - 1 + len(delimiter)) if at > 0 else -1
        if at < 0:
            return text
    return text[at + len(delimiter) :]


def _capitalised(text: str) -> str:
    # A sigma at the end of a word depends on the letter before it, so that letter stays in view.
    words = text.split(" ")
    return " ".join(w[:1].title() + w.lower()[len(w[:1].lower()) :] for w in words)


def _chr(site: Site) -> pl.Expr:
    low = (site.first & 255).replace_strict(list(range(256)), _LATIN, return_dtype=pl.String)
    return pl.when(site.first < 0).then(pl.lit("")).otherwise(low)


def _translate(site: Site) -> pl.Expr:
    old, new = site.constants.get(1), site.constants.get(2)
    if isinstance(old, str) and isinstance(new, str):
        table = _translation(old, new)
        if not table:
            return site.first
        return site.first.str.replace_many(list(table), list(table.values()))
    # By row: polars takes one constant list of replacements.
    return each(
        lambda text, a, b: text.translate(str.maketrans(_translation(a, b))),
        pl.String(),
        *site.args,
    )


def _translation(old: str, new: str) -> dict[str, str]:
    """What becomes of each character; the first mention of one counts."""
    table: dict[str, str] = {}
    for i, char in enumerate(old):
        table.setdefault(char, new[i : i + 1])
    return table


def _hex(site: Site) -> pl.Expr:
    if site.types[0] == BIGINT:
        # By row: polars has no text of integers in another base.
        return each(lambda n: f"{n & (2**64 - 1):X}", pl.String(), site.first)
    data = site.first if site.types[0] == BINARY else site.first.cast(pl.Binary)
    return data.bin.encode("hex").str.to_uppercase()


def _unhex(site: Site) -> pl.Expr:
    odd = site.first.str.len_bytes() % 2 == 1
    even = pl.when(odd).then(pl.lit("0") + site.first).otherwise(site.first)
    return even.str.decode("hex", strict=False)


FUNCTIONS: tuple[Function, ...] = (
    Function(
        "concat",
        _variadic("concat", 0),
        _concat,
        "The strings one after the other, also written `a || b`; NULL if one is.",
        "concat('a', 1, 'b')",
        ("||",),
        row=lambda s: " + ".join(s.args) or 'b""',
    ),
    Function(
        "concat_ws",
        _variadic("concat_ws", 1),
        _concat_ws,
        "The strings that are not NULL with the separator, the first argument, between them.",
        "concat_ws('-', 'a', NULL, 'b')",
        row=rowtexts.concat_ws_form,
        sees_nulls=True,
    ),
    Function(
        "upper",
        fixed("upper", STRING, result=STRING),
        lambda s: s.first.str.to_uppercase(),
        "In capital letters.",
        "upper('Straße')",
        ("ucase",),
        row=rowtexts.calls(rowtexts.upper),
    ),
    Function(
        "lower",
        fixed("lower", STRING, result=STRING),
        lambda s: s.first.str.to_lowercase(),
        "In small letters.",
        "lower('ABC')",
        ("lcase",),
        row=rowtexts.calls(rowtexts.lower),
    ),
    Function(
        "initcap",
        fixed("initcap", STRING, result=STRING),
        # By row: polars starts a word after any mark, Spark after a space only.
        lambda s: each(_capitalised, pl.String(), s.first),
        "Words between spaces with a capital first and small letters after it.",
        "initcap('ada o''neil')",
    ),
    Function(
        "length",
        _text_or_bytes("length", result=INT, optional=0),
        lambda s: _size(s.first, s.types[0]).cast(pl.Int32),
        "The number of characters, or of bytes of a BINARY.",
        "length('añb')",
        ("char_length", "character_length", "len"),
        row=rowtexts.length_form,
    ),
    Function(
        "octet_length",
        _text_or_bytes("octet_length", result=INT, optional=0),
        _bytes,
        "The number of bytes.",
        "octet_length('añb')",
        row=lambda s: f"len({s.first})",
    ),
    Function(
        "bit_length",
        _text_or_bytes("bit_length", result=INT, optional=0),
        lambda s: _bytes(s) * 8,
        "The number of bits.",
        "bit_length('ab')",
        row=lambda s: f"len({s.first}) * 8",
    ),
    Function(
        "substring",
        _text_or_bytes("substring", INT, INT, result=None, optional=1),
        _substring,
        "The part from a position on, of a length if given; a negative one counts from the end.",
        "substring('abcdef', -3, 2)",
        ("substr",),
        row=rowtexts.part_form,
    ),
    Function(
        "left",
        _text_or_bytes("left", INT, result=None, optional=0),
        _left,
        "The first n characters.",
        "left('abc', 2)",
        row=rowtexts.left_form,
    ),
    Function(
        "right",
        fixed("right", STRING, INT, result=STRING),
        _right,
        "The last n characters.",
        "right('abc', 2)",
        row=rowtexts.calls(rowtexts.right_part),
    ),
    Function(
        "trim",
        fixed("trim", STRING, STRING, result=STRING, optional=1),
        _trim("both"),
        "Without the spaces at both ends, or the characters given.",
        "trim('  ab ')",
        ("btrim",),
        row=rowtexts.trim_form("strip", rowtexts.trimmed),
    ),
    Function(
        "ltrim",
        fixed("ltrim", STRING, STRING, result=STRING, optional=1),
        _trim("start"),
        "Without the spaces at the start, or the characters given.",
        "ltrim('  ab ')",
        row=rowtexts.trim_form("lstrip", rowtexts.trimmed_start),
    ),
    Function(
        "rtrim",
        fixed("rtrim", STRING, STRING, result=STRING, optional=1),
        _trim("end"),
        "Without the spaces at the end, or the characters given.",
        "rtrim('  ab ')",
        row=rowtexts.trim_form("rstrip", rowtexts.trimmed_end),
    ),
    Function(
        "lpad",
        _text_only("lpad", STRING, INT, STRING, optional=1),
        _pad(True),
        "Filled at the start to a length, with spaces or a text; cut if longer; NULL beyond 1 MiB.",
        "lpad('7', 3, '0')",
    ),
    Function(
        "rpad",
        _text_only("rpad", STRING, INT, STRING, optional=1),
        _pad(False),
        "Filled at the end to a length, with spaces or a text; cut if longer; NULL beyond 1 MiB.",
        "rpad('7', 3, '.')",
    ),
    Function(
        "replace",
        fixed("replace", STRING, STRING, STRING, result=STRING, optional=1),
        _replace,
        "With every occurrence of a text replaced by another, or left out; NULL if that makes it "
        "longer, and more than 1 MiB.",
        "replace('a-b-c', '-', '+')",
        row=rowtexts.calls(rowtexts.replaced),
    ),
    Function(
        "reverse",
        _text_only("reverse", STRING),
        # polars' own reverse keeps combined characters together; Spark turns code points.
        lambda s: s.first.str.split("").list.reverse().list.join(""),
        "The characters from last to first.",
        "reverse('abc')",
    ),
    Function(
        "repeat",
        fixed("repeat", STRING, INT, result=STRING),
        lambda s: _strict(s, _times(s.args[0], s.args[1])),
        "The text n times; NULL if that is more than 1 MiB.",
        "repeat('ab', 3)",
    ),
    Function(
        "space",
        fixed("space", INT, result=STRING),
        lambda s: _strict(s, _times(pl.lit(" "), s.first)),
        "n spaces; NULL if that is more than 1 MiB.",
        "concat('a', space(2), 'b')",
    ),
    Function(
        "instr",
        fixed("instr", STRING, STRING, result=INT),
        _instr,
        "The position of a part in a text, 0 if it is not there.",
        "instr('banana', 'an')",
        row=rowtexts.calls(rowtexts.position),
    ),
    Function(
        "locate",
        fixed("locate", STRING, STRING, INT, result=INT, optional=1),
        _locate,
        "The position of the first argument in the second, from a position on if given, or 0.",
        "locate('an', 'banana', 3)",
        ("position",),
    ),
    Function(
        "startswith",
        fixed("startswith", STRING, STRING, result=BOOLEAN),
        lambda s: s.args[0].str.starts_with(s.args[1]),
        "Whether the text starts with another.",
        "startswith('abc', 'ab')",
        row=lambda s: f"{s.first}.startswith({s.args[1]})",
    ),
    Function(
        "endswith",
        fixed("endswith", STRING, STRING, result=BOOLEAN),
        lambda s: s.args[0].str.ends_with(s.args[1]),
        "Whether the text ends with another.",
        "endswith('abc', 'bc')",
        row=lambda s: f"{s.first}.endswith({s.args[1]})",
    ),
    Function(
        "contains",
        fixed("contains", STRING, STRING, result=BOOLEAN),
        lambda s: s.args[0].str.contains(s.args[1], literal=True),
        "Whether the text has another in it.",
        "contains('abc', 'b')",
        row=lambda s: f"{s.args[1]} in {s.first}",
    ),
    Function(
        "split_part",
        fixed("split_part", STRING, STRING, INT, result=STRING),
        _split_part,
        "The n-th part between delimiters, from the end if n is negative, '' if there is none.",
        "split_part('a.b.c', '.', 2)",
    ),
    Function(
        "substring_index",
        fixed("substring_index", STRING, STRING, INT, result=STRING),
        _substring_index,
        "All before the n-th delimiter, or after the n-th from the end if n is negative.",
        "substring_index('a.b.c', '.', 2)",
    ),
    Function(
        "ascii",
        fixed("ascii", STRING, result=INT),
        # By row: polars has no code of a character.
        lambda s: each(lambda text: ord(text[0]) if text else 0, pl.Int32(), s.first),
        "The code of the first character, 0 for ''.",
        "ascii('A')",
    ),
    Function(
        "chr",
        fixed("chr", BIGINT, result=STRING),
        _chr,
        "The character of a code, taken modulo 256; '' if it is negative.",
        "chr(65)",
        ("char",),
    ),
    Function(
        "translate",
        fixed("translate", STRING, STRING, STRING, result=STRING),
        _translate,
        "With characters of the second argument replaced by those of the third, or left out.",
        "translate('abc', 'ab', 'x')",
    ),
    Function(
        "hex",
        _hexable,
        _hex,
        "A whole number, or the bytes of a text, in hexadecimal digits.",
        "hex(255)",
    ),
    Function(
        "unhex",
        fixed("unhex", STRING, result=BINARY),
        _unhex,
        "The bytes that hexadecimal digits show; NULL if there are other characters.",
        "unhex('6162')",
    ),
    Function(
        "levenshtein",
        fixed("levenshtein", STRING, STRING, result=INT),
        # By row: polars has no edit distance.
        lambda s: each(levenshtein, pl.Int32(), *s.args),
        "How many characters to insert, delete or change to make one text of the other; NULL where "
        "their lengths multiply to more than 64 million.",
        "levenshtein('kitten', 'sitting')",
    ),
)
