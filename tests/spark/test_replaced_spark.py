"""`ab.events(replaced_by=...)`: a row lasts until the next one of its key begins."""

import random
from collections import Counter
from itertools import pairwise
from operator import itemgetter
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import UsageError

pytestmark = pytest.mark.spark

Row = tuple[int, str | None, str, int, int]
COLUMNS = "ts bigint, symbol string, venue string, price bigint, number bigint"
KEYS: dict[str, Any] = {"symbol": 1, "venue": 2}


def rows(seed: int) -> list[Row]:
    """Few keys and few times: many rows of a key begin together, some are doubled."""
    chance = random.Random(seed)
    made: list[Row] = []
    for number in range(120):
        symbol = chance.choice(["A", "B", None])
        price = chance.randrange(4)
        made.append((chance.randrange(30), symbol, chance.choice("xy"), price, number))
    return made


def until_replaced(rows: list[Row], keys: tuple[str, ...], *, by: int) -> Counter[Any]:
    """The slow way: of each key, and of rows that begin together the last by a column."""
    found: Counter[Any] = Counter()
    key = itemgetter(*(KEYS[name] for name in keys)) if keys else lambda _: ()
    for one in {key(row) for row in rows}:
        last: dict[int, Row] = {}
        for row in sorted((row for row in rows if key(row) == one), key=itemgetter(0, by)):
            last[row[0]] = row
        for start, end in pairwise([*last, None]):
            assert start is not None
            found[(start, end, *last[start][1:4])] += 1
    return found


def collected(merged: Any) -> Counter[Any]:
    columns = merged.final().select("start", "end", "symbol", "venue", "price")
    return Counter(map(tuple, columns.collect()))


@pytest.mark.parametrize("keys", [("symbol", "venue"), ("symbol",), ()])
def test_each_row_lasts_until_the_next_of_its_key_in_the_order_of_seq(
    spark: Any, keys: tuple[str, ...]
) -> None:
    given = rows(1)
    df = spark.createDataFrame(given, COLUMNS).repartition(3)
    made = ab.events(df, start="ts", replaced_by=keys, seq="number")
    merged = ab.merge(made, lanes=2)
    assert collected(merged) == until_replaced(given, keys, by=4)
    assert merged.late().count() == 0
    by_column = ab.events(df, start="ts", replaced_by=keys, order=["number"])
    assert collected(ab.merge(by_column, lanes=1)) == until_replaced(given, keys, by=4)


def test_copies_without_an_order_agree_and_do_not_replace_one_another(spark: Any) -> None:
    """Columns in another order, rows in another order, in one DataFrame or in two."""
    given = rows(2)
    df = spark.createDataFrame(given, COLUMNS).drop("number")
    turned = df.select("price", "venue", "symbol", "ts").repartition(3)
    options: dict[str, Any] = {"start": "ts", "replaced_by": ["symbol", "venue"]}
    two = ab.merge(ab.events(df, **options), ab.events(turned, **options), lanes=2)
    expected = until_replaced(given, ("symbol", "venue"), by=3)
    assert collected(two) == expected
    assert two.late().count() == 0
    both = df.selectExpr("*", "'east' as copy").unionByName(turned.selectExpr("*", "'w' copy"))
    one = ab.merge(ab.events(both, replica="copy", **options), lanes=2)
    assert collected(one) == expected


def test_a_merge_rejects_a_stream_with_what_to_do(spark: Any) -> None:
    rate = spark.readStream.format("rate").load()
    stream = ab.events(rate, start="timestamp", replaced_by="value")
    with pytest.raises(UsageError, match=r"only queries read it: .* give end= or lifetime="):
        ab.merge(stream)
