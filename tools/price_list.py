"""Write the prices of instances in cluster/aws/price_list.csv.

    python -m tools.price_list --region eu-west-1 --region us-west-2     ask AWS's price list
    python -m tools.price_list --recording FILE --region us-east-1 --date 2026-07-20 --source TEXT
        read prices recorded by others, as lines with "TYPE": PRICE, and note their source

Other regions in the table stay unchanged. Asking AWS needs the permission pricing:GetProducts and is free of charge.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.errors import describe
from cluster.aws.client import Aws
from cluster.aws.errors import aws_errors
from cluster.aws.price_list import FILE, HOUR, SERVICES, Price, PriceList, parse, render
from cluster.aws.prices import INSTANCES, filters, parse_price
from cluster.errors import DeepcdkError

LIST: Final = "AWS's price list: on-demand Linux with shared tenancy"
_RECORDED: Final = re.compile(r'"([a-z0-9-]+\.[a-z0-9-]+)":\s*([0-9.]+)')


def parse_recording(text: str) -> dict[str, float]:
    """Parse the price of each type in a recording. Types with a price of 0, which means no price, are left out."""
    return {kind: float(price) for kind, price in _RECORDED.findall(text) if float(price) > 0}


def parse_products(products: Iterable[str]) -> dict[str, float]:
    """Parse the price of each type from answers of GetProducts. Types without exactly one price are omitted."""
    found: dict[str, list[str]] = {}
    for product in products:
        if kind := json.loads(product)["product"]["attributes"].get("instanceType"):
            found.setdefault(kind, []).append(product)
    prices = {kind: parse_price(each) for kind, each in found.items()}
    return {kind: price for kind, price in prices.items() if price is not None}


def priced(region: str, prices: Mapping[str, float], date: str, source: str) -> PriceList:
    """Convert a region's on-demand prices, by type, to entries of the price list."""
    return {(region, kind): Price(usd=usd, unit=HOUR, date=date, source=source) for kind, usd in sorted(prices.items())}


def ask_aws(region: str) -> PriceList:
    """Return the current on-demand prices of all instance types in a region, from AWS's price list. Raises AwsError."""
    with aws_errors(f"asking the price list for {region}"):
        pages = (
            Aws()
            .client("pricing")
            .get_paginator("get_products")
            .paginate(ServiceCode="AmazonEC2", Filters=filters(INSTANCES, region))
        )
        prices = parse_products(product for page in pages for product in page["PriceList"])
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return priced(region, prices, today, LIST)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. Exits with status 2 if the options do not fit together."""
    parser = argparse.ArgumentParser(prog="python -m tools.price_list", description="Write the table of prices.")
    parser.add_argument(
        "--region",
        action="append",
        required=True,
        help="region of the prices; may be repeated, but not with --recording",
    )
    parser.add_argument("--recording", type=Path, help="file with recorded prices, instead of AWS")
    parser.add_argument("--date", default="", help="date of the recording, for example 2026-07-20")
    parser.add_argument("--source", default="", help="origin of the recording")
    given = parser.parse_args(argv)
    if given.recording:
        if not given.source or len(given.region) != 1:
            parser.error("--recording needs --date, --source and one --region, because the table states its origin")
        try:
            datetime.date.fromisoformat(given.date)
        except ValueError:
            parser.error(f"--date must be a date such as 2026-07-20, not {given.date!r}")
    elif given.source or given.date:
        parser.error("--date and --source need --recording")
    return given


def main(argv: Sequence[str]) -> int:
    """Replace the prices of the given regions' instances in the price list, and print a summary.

    Returns 1, without writing, if prices cannot be read or a region has no prices; else 0.
    """
    given = parse_arguments(argv)
    try:
        if given.recording:
            prices = parse_recording(given.recording.read_text(encoding="utf-8"))
            read = {given.region[0]: priced(given.region[0], prices, given.date, given.source)}
        else:
            read = {region: ask_aws(region) for region in given.region}
        before = parse(FILE.read_text(encoding="utf-8").splitlines()) if FILE.exists() else {}
    except (OSError, ValueError, DeepcdkError) as error:
        print(f"price_list: {describe(error)}", file=sys.stderr)
        return 1
    if empty := [region for region, new in read.items() if not new]:
        print(
            f"price_list: found no price for {', '.join(empty)}; nothing written; check --region or --recording",
            file=sys.stderr,
        )
        return 1
    kept = {(region, item): price for (region, item), price in before.items() if region not in read or item in SERVICES}
    merged = {**kept, **{key: price for new in read.values() for key, price in new.items()}}
    FILE.write_text(render(merged), encoding="utf-8")
    for region, new in read.items():
        print(f"{FILE}: {len(new)} prices of {region}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
