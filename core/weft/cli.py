"""The ``weft`` command: what is installed, what of it works, and what to do about the rest."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from weft import plugins
from weft.cache import LIMIT, is_off, open_cache
from weft.errors import PluginError
from weft.factory import DEFAULT_BACKEND
from weft.passes import PIPELINE, PeepholeGraphPass
from weft.plugins import BACKENDS, PASSES, BackendStatus, PluginRecord, Step
from weft.running import run_model

app = typer.Typer(add_completion=False)
cache_app = typer.Typer(help="Show where compiled programs are kept, or remove them.")
app.add_typer(cache_app, name="cache")
app.command("run")(run_model)

_SLOW_CORETYPE = "Haswell"
_VARIABLES = {
    "WEFT_BACKEND": "the backend that is used where none is named",
    "WEFT_CACHE": "0 compiles everything anew and keeps nothing",
    "WEFT_CACHE_DIR": "the folder in which compiled programs are kept",
    "WEFT_CACHE_SIZE": f"megabytes that this folder may hold; {LIMIT} where it is not set",
    "WEFT_CUPY_DEVICE": "the NVIDIA device of the cupy backend: its number, or a part of its name",
    "WEFT_DISABLE_PLUGINS": "plugins that are left out: names or group:name, separated by commas",
    "WEFT_DUMP": "a folder that gets the text of graphs before and after each pass",
    "WEFT_OPENCL_DEVICE": "the OpenCL device: its number, a part of its name, or platform:device",
    "OPENBLAS_CORETYPE": f"{_SLOW_CORETYPE} makes matmul about half as fast",
    "OPENBLAS_NUM_THREADS": "threads of a matmul; all cores where it is not set",
}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"weft {_version_of('weft') or 'not installed as a distribution'}")
        raise typer.Exit


_Version = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
]


@app.callback(invoke_without_command=True)
def main(context: typer.Context, version: _Version = False) -> None:
    """Show which parts of the tensor graph compiler are installed and usable here."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("backends")
def show_backends() -> None:
    """List the backends: whether each can be used, and on what device or why not."""
    table = _table("backend", "distribution", "usable", "device, or what is missing")
    for status in _backend_statuses():
        usable = status.usable
        table.add_row(*_cells(status.name, status.distribution, _yes_no(usable), usable.reason))
    _print(table)


@app.command("passes")
def show_passes() -> None:
    """List the passes, each with its first line of documentation or why it cannot be loaded.

    A transform rewrites a graph as a whole, a pattern an op wherever it stands.
    """
    table = _table("pass", "kind", "distribution", "description")
    for record in plugins.records(PASSES):
        cells = record.name, _kind(record), record.distribution, _first_doc_line(record)
        table.add_row(*_cells(*cells))
    _print(table)


@app.command("plugins")
def show_plugins(
    load: Annotated[
        bool, typer.Option(help="Load every plugin to see whether that works, or only list them.")
    ] = True,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Print the tracebacks of those that failed.")
    ] = False,
) -> None:
    """List every plugin with its state; load each first to see whether that works."""
    for record in plugins.records() if load else ():
        _trouble_of_loading(record)
    table = _table("group", "name", "distribution", "version", "state", "reason")
    records = plugins.records()
    for record in records:
        origin = (record.distribution, record.version)
        table.add_row(*_cells(record.group, record.name, *origin, record.state, record.reason))
    _print(table)
    for record in records:
        if traceback and record.traceback:
            _print(_plain(f"\n{record.group} {record.name}\n{record.traceback}"))


@app.command("doctor")
def show_doctor() -> None:
    """Print versions, backends, broken plugins and variables; fail if the defaults do not work."""
    versions = _table("what", "version")
    for name, version in _versions():
        versions.add_row(*_cells(name, version))
    _print(versions)
    statuses = _backend_statuses()
    _print(_backend_table(statuses))
    unusable = _unusable_plugins()
    if unusable:
        broken = _table("plugin that cannot be used", "distribution", "reason")
        for record in unusable:
            name = f"{record.group}:{record.name}"
            broken.add_row(*_cells(name, record.distribution, record.reason))
        _print(broken)
    variables = _table("variable", "value", "meaning")
    for name, value, meaning in _variables(statuses):
        variables.add_row(*_cells(name, value, meaning))
    _print(variables)
    troubles = list(_troubles())
    for trouble in troubles:
        _print(_plain(trouble))
    if troubles:
        raise typer.Exit(1)


@cache_app.callback(invoke_without_command=True)
def show_cache(context: typer.Context) -> None:
    """Show where compiled programs are kept, how many files there are and how large they are."""
    if context.invoked_subcommand is not None:
        return
    cache = open_cache()
    files, size = cache.usage()
    table = _table("folder", "files", "bytes", "at most", "in use")
    in_use = "no, WEFT_CACHE switches it off" if is_off() else "yes"
    table.add_row(*_cells(str(cache.folder), str(files), str(size), str(cache.limit), in_use))
    _print(table)


@cache_app.command("clear")
def clear_cache() -> None:
    """Remove all compiled programs from the folder."""
    cache = open_cache()
    removed = cache.clear()
    _print(_plain(f"removed {removed} {'file' if removed == 1 else 'files'} from {cache.folder}"))


def _backend_statuses() -> list[BackendStatus]:
    names = dict.fromkeys(record.name for record in plugins.records(BACKENDS))
    return [plugins.backend_status(name) for name in names]


def _unusable_plugins() -> list[PluginRecord]:
    for record in plugins.records():
        _trouble_of_loading(record)
    states = ("failed", "disabled", "duplicate")
    return [record for record in plugins.records() if record.state in states]


def _troubles() -> Iterator[str]:
    """Yield what keeps a program that names no backend and no passes from working."""
    backend = os.environ.get("WEFT_BACKEND") or DEFAULT_BACKEND
    usable = plugins.backend_status(backend).usable
    if not usable:
        yield f"The backend {backend!r} would be used and is not usable: {usable.reason}"
    for name in dict.fromkeys(PIPELINE):
        try:
            plugins.load(PASSES, name)
        except PluginError as error:
            yield f"The default pipeline does not work: {error}"


def _backend_table(statuses: list[BackendStatus]) -> Table:
    table = _table("backend", "installed", "importable", "device", "usable", "reason")
    for status in statuses:
        steps = (status.installed, status.importable, status.device, status.usable)
        table.add_row(*_cells(status.name, *map(_yes_no, steps), status.usable.reason))
    return table


def _kind(record: PluginRecord) -> str:
    if _trouble_of_loading(record):
        return ""
    found = plugins.load(record.group, record.name)
    is_pattern = isinstance(found, type) and issubclass(found, PeepholeGraphPass)
    return "pattern" if is_pattern else "transform"


def _first_doc_line(record: PluginRecord) -> str:
    trouble = _trouble_of_loading(record)
    if trouble:
        return trouble
    documentation = str(plugins.load(record.group, record.name).__doc__ or "")
    return next(iter(documentation.strip().splitlines()), "(not documented)")


def _trouble_of_loading(record: PluginRecord) -> str:
    try:
        plugins.load(record.group, record.name)
    except PluginError as error:
        return str(error)
    return ""


def _versions() -> Iterator[tuple[str, str]]:
    yield "python", platform.python_version()
    yield "weft", _version_of("weft") or "not installed as a distribution"
    for requirement in _requirements():
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        extra = re.search(r"extra == ['\"](.+?)['\"]", requirement)
        missing = f"not installed: pip install 'weft[{extra[1]}]'" if extra else "not installed"
        yield name, _version_of(name) or missing


def _requirements() -> list[str]:
    try:
        found = importlib.metadata.requires("weft")
    except importlib.metadata.PackageNotFoundError:
        found = None
    return [each for each in found or ["numpy", "pluggy"] if "extra == 'dev'" not in each]


def _version_of(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _variables(statuses: list[BackendStatus]) -> Iterator[tuple[str, str, str]]:
    others = sorted(name for name in os.environ if name.startswith("OPENBLAS_"))
    for name in dict.fromkeys([*_VARIABLES, *others]):
        value = os.environ.get(name)
        shown = "(not set)" if value is None else value
        yield name, shown, _VARIABLES.get(name, "") + _remark(name, value, statuses)


def _remark(name: str, value: str | None, statuses: list[BackendStatus]) -> str:
    if name == "OPENBLAS_CORETYPE" and (value or "").lower() == _SLOW_CORETYPE.lower():
        return "; unset it unless that is wanted"
    if name == "WEFT_BACKEND" and value:
        usable = {status.name for status in statuses if status.usable}
        return "" if value in usable else "; this one is not usable"
    if name == "WEFT_DISABLE_PLUGINS" and value:
        return "".join(map(_remark_on_disabled, filter(None, map(str.strip, value.split(",")))))
    return ""


def _remark_on_disabled(word: str) -> str:
    group, _, name = word.rpartition(":")
    groups = (group, f"weft.{group}") if group else tuple(plugins.GROUPS)
    found = {record.group for record in plugins.records() if record.name == name}
    found = found.intersection(groups)
    if not found:
        return f"; there is no plugin {word}"
    needed = PASSES in found and name in PIPELINE
    return f"; {word} is part of the default pipeline" if needed else ""


def _yes_no(step: Step) -> str:
    return "yes" if step else "no"


def _table(*columns: str) -> Table:
    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _cells(*values: str | None) -> list[Text]:
    return [_plain(value or "-") for value in values]


def _plain(value: str) -> Text:
    """Return text that a terminal shows as it is: no markup, no control characters."""
    return Text(re.sub(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", " ", value))


def _print(what: Table | Text) -> None:
    """Print to a terminal of its width, and to anything else without breaking any line."""
    console = Console()
    if not console.file.isatty():
        wide = console.options.update(max_width=100_000)
        console.width = max(100, console.measure(what, options=wide).maximum)
    console.print(what)
