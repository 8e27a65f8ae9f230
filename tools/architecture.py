"""Write the parts of ARCHITECTURE.md that follow from the code: the picture, the way of a run, the import contracts.

    python -m tools.architecture

The picture, docs/architecture.svg, shows the rooms with their packages, the modules that a run passes, and how many
imports lead from room to room, as grimp (the engine of import-linter) counts them. It is drawn here, without Graphviz:
the places of the rooms are chosen by hand, and Graphviz would be one more system package.
"""

from __future__ import annotations

import ast
import dataclasses
import html
import re
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "ARCHITECTURE.md"
PICTURE: Final = ROOT / "docs" / "architecture.svg"

WAY: Final[tuple[tuple[str, str], ...]] = (
    ("cluster.cli.program", "reads the command line, and imports the module of the task that it names"),
    ("cluster.tasks.train", "reads the flags: what to train, on how many nodes, how it is launched"),
    ("cluster.aws.inventory", "asks EC2 and CloudFormation which nodes there are"),
    ("cluster.ssh.connect", "opens the one SSH connection, to the master, and verifies its host key"),
    ("cluster.ssh.push", "uploads the code to the shared file system, once per content"),
    ("cluster.nodes.grow", "grows the worker group after asking, and waits until its nodes have joined"),
    ("cluster.runs.run_spec", "builds the spec of the run, an `agent.spec.run.RunSpec`"),
    ("cluster.runs.supervisor", "sends the spec to the master, and starts the supervisor there"),
    (
        "agent.supervisor.submit",
        "claims nodes, or takes a place in the queue; writes the run's directory; leaves a process behind",
    ),
    ("agent.supervisor.supervisor", "carries out the run, attempt after attempt, to the clean-up of its nodes"),
    ("agent.supervisor.attempts.attempt", "has the nodes prepared and checked; launches, watches and stops the ranks"),
    ("agent.supervisor.prepare_node", "brings each node to the same runtime and packages"),
    ("agent.preflight.runner", "checks the nodes, and proves an allreduce on them"),
    ("agent.launch.horovodrun_command", "builds the command of Horovod's launcher"),
    ("agent.launch.rank", "becomes one rank: directory, variables, program"),
    ("payload.train", "reads the settings, binds the rank to its cores, joins Horovod"),
    ("payload.training.trainer", "trains and evaluates, epoch by epoch"),
    ("payload.training.checkpoints.writer", "writes checkpoints while training goes on"),
    ("payload.training.reporting.reporter", "writes metrics and TensorBoard events; at the end, the result"),
    ("agent.supervisor.archive", "copies the run to the bucket, where it outlives the cluster"),
    ("cluster.runs.follow", "follows the run from the laptop, also over a broken connection"),
    ("cluster.ssh.fetch", "brings the results to the laptop (`fab fetch`)"),
)
"""The modules that a run passes between `fab train` and its results, in order, each with what it does."""

FONT: Final = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Helvetica, Arial, sans-serif"
LIGHT: Final = {
    "text": "#1f2328",
    "soft": "#59636e",
    "room": "#f6f8fa",
    "box": "#ffffff",
    "line": "#c8d1da",
    "way": "#0969da",
}
DARK: Final = {
    "text": "#f0f6fc",
    "soft": "#9198a1",
    "room": "#151b23",
    "box": "#0d1117",
    "line": "#3d444d",
    "way": "#1f6feb",
}
LETTER: Final = 0.57
"""Width of a letter by the size of its font: somewhat more than that of the common sans-serif fonts."""
WIDTH: Final = 1000
GAP: Final = 10
LEFT: Final = (10, 640)
RIGHT: Final = (720, 270)
"""The two columns of rooms: where each begins, and how wide it is."""
BETWEEN: Final = 54
"""Height between two rooms, for the arrow and its number."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Package:
    """A package of a room, or the modules that lie directly in the room."""

    name: str
    text: str
    modules: int
    stations: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Room:
    """A folder of the ground floor, with its packages."""

    name: str
    text: str
    packages: tuple[Package, ...]


def read_graph() -> grimp.ImportGraph:
    """Return who imports whom in the rooms: inside functions too, and behind TYPE_CHECKING."""
    names = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "root_packages"
    ]
    first, *others = names
    return grimp.build_graph(first, *others, exclude_type_checking_imports=False, cache_dir=None)


def room(name: str) -> Room:
    """Read one room from its folder."""
    inner = [path.parent for path in sorted((ROOT / name).glob("*/__init__.py"))]
    direct = sorted(path.stem for path in (ROOT / name).glob("*.py") if path.stem != "__init__")
    packages = [package(f"{name}.{folder.name}", folder) for folder in inner]
    top = Package(
        name=f"{name}/*.py",
        text=textwrap.shorten(", ".join(direct), 90, placeholder=" …"),
        modules=len(direct),
        stations=tuple(number for number, (module, _) in enumerate(WAY, 1) if module.rpartition(".")[0] == name),
    )
    return Room(name=name, text=summary(ROOT / name / "__init__.py"), packages=(top, *packages))


def package(name: str, folder: Path) -> Package:
    """Read one package of a room, with the packages inside it."""
    return Package(
        name=f"{folder.name}/",
        text=summary(folder / "__init__.py"),
        modules=sum(path.name != "__init__.py" for path in folder.rglob("*.py")),
        stations=tuple(number for number, (module, _) in enumerate(WAY, 1) if module.startswith(f"{name}.")),
    )


def summary(path: Path) -> str:
    """Return what a package is, in the first words of its docstring."""
    line = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0].replace("\n", " ")
    line = line.split(". ")[0].rstrip(".")
    before = line.split(":")[0]
    return before if len(before.split()) > 3 else line


def crossings(graph: grimp.ImportGraph) -> dict[tuple[str, str], int]:
    """Count the imports that lead from one room to another."""
    counts: dict[tuple[str, str], int] = {}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            pair = module.split(".")[0], imported.split(".")[0]
            if pair[0] != pair[1]:
                counts[pair] = counts.get(pair, 0) + 1
    return counts


def picture() -> str:
    """Return the picture as SVG, readable on light and on dark pages."""
    counts = crossings(read_graph())
    rooms = {name: room(name) for name in ("cluster", "agent", "payload", "stacks", "localcloud")}
    cluster, height = draw_room(rooms["cluster"], LEFT, 10, columns=3)
    stacks, _ = draw_room(rooms["stacks"], RIGHT, 10, columns=1)
    places = {"cluster": (10, height)}
    agent, agent_end = draw_room(rooms["agent"], LEFT, height + BETWEEN, columns=3)
    localcloud, right = draw_room(rooms["localcloud"], RIGHT, height + BETWEEN, columns=1)
    places["agent"] = height + BETWEEN, agent_end
    payload, height = draw_room(rooms["payload"], LEFT, agent_end + BETWEEN, columns=3)
    places["payload"] = agent_end + BETWEEN, height
    stations, right = draw_way(RIGHT[0], right + 30)
    height = max(height, right) + 10
    parts = [*cluster, *stacks, *agent, *localcloud, *payload, *stations, *draw_arrows(counts, places)]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="{FONT}" role="img" aria-label="The rooms of the code, their packages, and the way of a run">'
    )
    arrow = (
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="tip" d="M0,0 L10,5 L0,10 z"/></marker></defs>'
    )
    dark = f"@media (prefers-color-scheme: dark) {{\n{style(DARK)}}}\n"
    return "\n".join([head, f"<style>\n{style(LIGHT)}{dark}</style>", arrow, *parts, "</svg>"]) + "\n"


def style(colours: dict[str, str]) -> str:
    """Return the style sheet for one set of colours."""
    c = colours
    return (
        f".text {{ fill: {c['text']}; }} .soft {{ fill: {c['soft']}; }}\n"
        f".room {{ fill: {c['room']}; stroke: {c['line']}; }} .box {{ fill: {c['box']}; stroke: {c['line']}; }}\n"
        f".arrow {{ fill: none; stroke: {c['soft']}; stroke-width: 1.6; }} .tip {{ fill: {c['soft']}; }}\n"
        f".way {{ fill: {c['way']}; }} .number {{ fill: #ffffff; }}\n"
    )


def draw_room(drawn: Room, column: tuple[int, int], top: int, *, columns: int) -> tuple[list[str], int]:
    """Draw one room with its packages in rows; return it with the height at which it ends."""
    left, width = column
    parts = [words(left + 14, top + 24, f"{drawn.name}/", size=17, bold=True)]
    y = top + 42
    for line in fold(drawn.text, width - 28, 12):
        parts.append(words(left + 14, y, line, size=12, soft=True))
        y += 15
    box = (width - 2 * GAP - (columns - 1) * GAP) // columns
    for start in range(0, len(drawn.packages), columns):
        row = drawn.packages[start : start + columns]
        lines = [fold(each.text, box - 20, 11) for each in row]
        tall = 28 + 14 * max(map(len, lines)) + 10
        for index, (each, text) in enumerate(zip(row, lines, strict=True)):
            parts += draw_package(each, text, left + GAP + index * (box + GAP), y, box, tall)
        y += tall + GAP + 4
    parts.insert(0, f'<rect class="room" x="{left}" y="{top}" width="{width}" height="{y - top}" rx="8"/>')
    return parts, y


def draw_package(drawn: Package, text: Sequence[str], left: int, top: int, width: int, height: int) -> Iterator[str]:
    """Draw one package: its name, what it is, how many modules it has, and the stations of a run in it."""
    yield f'<rect class="box" x="{left}" y="{top}" width="{width}" height="{height}" rx="5"/>'
    yield words(left + 10, top + 18, drawn.name, size=13, bold=True)
    yield words(left + width - 10, top + 18, str(drawn.modules), size=11, soft=True, anchor="end")
    for number, line in enumerate(text):
        yield words(left + 10, top + 34 + 14 * number, line, size=11, soft=True)
    for index, station in enumerate(drawn.stations):
        yield from draw_station(left + 18 + 21 * index, top + height, station)


def draw_station(x: int, y: int, number: int) -> Iterator[str]:
    """Draw the number of one station."""
    yield f'<circle class="way" cx="{x}" cy="{y}" r="9"/>'
    yield f'<text class="number" x="{x}" y="{y + 4}" font-size="11" text-anchor="middle">{number}</text>'


def draw_way(left: int, top: int) -> tuple[list[str], int]:
    """List the modules that a run passes; return the list with the height at which it ends."""
    parts = [words(left, top + 16, "The way of fab train", size=14, bold=True)]
    y = top + 40
    for number, (module, _) in enumerate(WAY, 1):
        parts += draw_station(left + 9, y - 4, number)
        parts.append(words(left + 25, y, module.replace("horovodrun_command", "horovodrun_…"), size=11))
        y += 21
    parts.append(words(left, y + 4, "In grey: modules. On arrows: imports.", size=11, soft=True))
    return parts, y + 8


def draw_arrows(counts: dict[tuple[str, str], int], places: dict[str, tuple[int, int]]) -> Iterator[str]:
    """Draw who imports whom, with the number of imports. Raises ValueError for an import that has no arrow."""
    middle, edge, channel = LEFT[0] + LEFT[1] // 2, LEFT[0] + LEFT[1], (LEFT[0] + LEFT[1] + RIGHT[0]) // 2
    cluster, agent, payload = places["cluster"], places["agent"], places["payload"]
    paths = {
        ("cluster", "stacks"): (f"M{edge},{cluster[0] + 60} H{RIGHT[0]}", channel, cluster[0] + 52),
        ("cluster", "agent"): (f"M{middle},{cluster[1]} V{agent[0]}", middle + 20, agent[0] - 20),
        ("payload", "agent"): (f"M{middle},{payload[0]} V{agent[1]}", middle + 20, payload[0] - 24),
        ("cluster", "payload"): (
            f"M{edge},{cluster[1] - 40} H{channel} V{payload[0] + 40} H{edge}",
            channel - 14,
            agent[1] + 24,
        ),
    }
    if unknown := counts.keys() - paths.keys():
        raise ValueError(f"rooms import each other where no arrow is drawn: {sorted(unknown)}; add it to draw_arrows")
    for pair, (path, x, y) in paths.items():
        yield f'<path class="arrow" d="{path}" marker-end="url(#tip)"/>'
        yield words(x, y, str(counts.get(pair, 0)), size=13, bold=True, anchor="middle")


def words(x: int, y: int, text: str, *, size: int, bold: bool = False, soft: bool = False, anchor: str = "") -> str:
    """Return one line of text as an SVG element."""
    further = (' font-weight="600"' if bold else "") + (f' text-anchor="{anchor}"' if anchor else "")
    kind = "soft" if soft else "text"
    return f'<text class="{kind}" x="{x}" y="{y}" font-size="{size}"{further}>{html.escape(text)}</text>'


def fold(text: str, width: int, size: int) -> list[str]:
    """Fold a text to lines that fit into a width at a size of the font."""
    return textwrap.wrap(text.replace("`", ""), int(width / (size * LETTER)))


def way() -> str:
    """Return the way of a run as a table of Markdown."""
    rows = [f"| {number} | {code_path(module)} | {text} |" for number, (module, text) in enumerate(WAY, 1)]
    return "\n".join(["| | module | what it does |", "|---|---|---|", *rows])


def code_path(module: str) -> str:
    """Return a module as a link to its file."""
    path = f"{module.replace('.', '/')}.py"
    return f"[`{path}`]({path})"


def contracts() -> str:
    """Return the names of the import contracts as a list of Markdown."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return "\n".join(f"- {contract['name']}." for contract in document["tool"]["importlinter"]["contracts"])


def page(text: str) -> str:
    """Return a page with its generated parts written anew: what stands between `<!-- NAME -->` and `<!-- end -->`."""
    for name, part in (("way", way()), ("contracts", contracts())):
        pattern = re.compile(rf"(<!-- {name} -->\n)(?:(?!<!--).)*(<!-- end -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"{PAGE.name}: no place for {name}; it needs <!-- {name} --> and <!-- end -->")
        text = pattern.sub(lambda match, part=part: f"{match[1]}{part}\n{match[2]}", text)  # type: ignore[misc]
    return text


def main() -> None:
    """Write the picture and the page."""
    PICTURE.write_text(picture(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
