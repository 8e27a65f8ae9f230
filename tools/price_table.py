"""Write cluster/aws/price_table.csv: the on-demand prices that ship.

    python -m tools.price_table --region eu-west-1 --region us-west-2     ask AWS's price list
    python -m tools.price_table --recording FILE --region us-east-1 --date 2026-07-20 --source TEXT
        from prices that somebody else recorded, as lines with "TYPE": PRICE, and where they are from

Regions that are not given stay as they are in the table. Asking AWS needs the permission pricing:GetProducts and costs
nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from cluster.aws.client import Aws, aws_errors
from cluster.aws.price_table import TABLE, RegionPrices, parse, render
from cluster.aws.pricing import filters, parse_price
from cluster.errors import DeepcdkError

LIST: Final = "AWS's price list: on-demand Linux with shared tenancy"
_RECORDED: Final = re.compile(r'"([a-z0-9-]+\.[a-z0-9-]+)":\s*([0-9.]+)')


def parse_recording(text: str) -> dict[str, float]:
    """Return the price of each type in a recording; a price of 0 is none."""
    return {kind: float(price) for kind, price in _RECORDED.findall(text) if float(price) > 0}


def parse_products(products: Iterable[str]) -> dict[str, float]:
    """Return the price of each type in answers of GetProducts; a type without exactly one price is left out."""
    found: dict[str, list[str]] = {}
    for product in products:
        if kind := json.loads(product)["product"]["attributes"].get("instanceType"):
            found.setdefault(kind, []).append(product)
    prices = {kind: parse_price(each) for kind, each in found.items()}
    return {kind: price for kind, price in prices.items() if price is not None}


def ask_aws(region: str) -> RegionPrices:
    """Ask the price list for all types of a region. Raises AwsError."""
    wanted = [each for each in filters("", region) if each["Field"] != "instanceType"]
    with aws_errors(f"asking the price list for {region}"):
        pages = Aws().client("pricing").get_paginator("get_products").paginate(ServiceCode="AmazonEC2", Filters=wanted)
        prices = parse_products(product for page in pages for product in page["PriceList"])
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return RegionPrices(region=region, date=today, source=LIST, usd_per_hour=prices)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.price_table", description="Write the table of prices.")
    parser.add_argument("--region", action="append", required=True, help="may be repeated, but not with --recording")
    parser.add_argument("--recording", type=Path, help="recorded prices in place of AWS")
    parser.add_argument("--date", default="", help="day on which they were recorded: 2026-07-20")
    parser.add_argument("--source", default="", help="where the recording is from")
    given = parser.parse_args(argv)
    if given.recording:
        if not given.source or len(given.region) != 1:
            parser.error("--recording needs --date, --source and one --region: a table says where it is from")
        try:
            datetime.date.fromisoformat(given.date)
        except ValueError:
            parser.error(f"--date must be a day as 2026-07-20, not {given.date!r}")
    elif given.source or given.date:
        parser.error("--date and --source belong to --recording")
    return given


def main(argv: Sequence[str]) -> int:
    """Write the table; print what it holds."""
    given = parse_arguments(argv)
    try:
        if given.recording:
            prices = parse_recording(given.recording.read_text(encoding="utf-8"))
            read = [RegionPrices(region=given.region[0], date=given.date, source=given.source, usd_per_hour=prices)]
        else:
            read = [ask_aws(region) for region in given.region]
    except (OSError, DeepcdkError) as error:
        print(f"price_table: {error}", file=sys.stderr)
        return 1
    if empty := [each.region for each in read if not each.usd_per_hour]:
        print(f"price_table: no price for {', '.join(empty)}; nothing written", file=sys.stderr)
        return 1
    before = parse(TABLE.read_text(encoding="utf-8").splitlines()) if TABLE.exists() else {}
    regions = {**before, **{each.region: each for each in read}}
    TABLE.write_text(render(regions.values()), encoding="utf-8")
    for each in read:
        print(f"{TABLE}: {len(each.usd_per_hour)} prices of {each.region}, {each.date}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
