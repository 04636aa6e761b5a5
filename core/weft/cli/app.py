"""The `weft` command."""

from __future__ import annotations

import io
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

import weft
from weft import plugins
from weft.cache.store import is_off, open_cache
from weft.cli.examination import Tried, loaded, statuses
from weft.cli.health import SLOW, Health, health
from weft.cli.models import bench_model, profile_model, show_model
from weft.cli.run import run_model
from weft.cli.tables import plain, show, show_json, show_table
from weft.plugins.registry import PASSES
from weft.plugins.status import BackendStatus, Step

app = typer.Typer(add_completion=False)
cache_app = typer.Typer(help="Show where compiled programs are kept, or remove them.")
app.add_typer(cache_app, name="cache")
app.command("run")(run_model)
app.command("show")(show_model)
app.command("bench")(bench_model)
app.command("profile")(profile_model)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"weft {weft.__version__}")
        raise typer.Exit


_Version = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
]


@app.callback(invoke_without_command=True)
def main(context: typer.Context, version: _Version = False) -> None:
    """Show which parts of the tensor graph compiler are installed and usable here."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # which may lack letters of names and paths
        sys.stdout.reconfigure(errors="backslashreplace")
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


_Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@app.command("backends")
def show_backends(as_json: _Json = False) -> None:
    """List the backends: whether each can be used, and on what device or why not."""
    found = [tried.status for tried in statuses()]
    if as_json:
        show_json([_backend_as_json(Tried(status)) for status in found])
        return
    heads = ("backend", "distribution", "usable", "device, or what is missing")
    rows = ((each.name, each.distribution, _yes_no(each.usable), _device(each)) for each in found)
    show_table(heads, rows)


@app.command("passes")
def show_passes(as_json: _Json = False) -> None:
    """List the passes, each with its first line of documentation or why it cannot be loaded.

    A transform rewrites a graph as a whole, a pattern an op wherever it stands.
    """
    rows = []
    for each in loaded([PASSES]):
        description = each.record.reason if each.record.state != "loaded" else each.documentation
        rows.append((each.record.name, each.kind, each.record.distribution, description))
    if as_json:
        names = ("name", "kind", "distribution", "description")
        show_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    heads = ("pass", "kind", "distribution", "description")
    show_table(heads, ((*row[:3], row[3] or "(not documented)") for row in rows))


@app.command("plugins")
def show_plugins(
    load: Annotated[
        bool, typer.Option(help="Load every plugin to see whether that works, or only list them.")
    ] = True,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Print the tracebacks of those that failed.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """List every plugin with its state; load each first to see whether that works."""
    records = [each.record for each in loaded()] if load else plugins.records()
    if as_json:
        show_json([asdict(record) for record in records])
        return
    rows = []
    for each in records:
        is_slow = not each.reason and each.seconds >= SLOW
        reason = f"takes {each.seconds:.1f} s to load" if is_slow else each.reason
        rows.append((each.group, each.name, each.distribution, each.version, each.state, reason))
    show_table(("group", "name", "distribution", "version", "state", "reason"), rows)
    for record in records:
        if traceback and record.traceback:
            show(plain(f"\n{record.group} {record.name}\n{record.traceback}"))


@app.command("doctor")
def show_doctor(as_json: _Json = False) -> None:
    """Print what is installed, and try it; fail if the defaults or a usable backend do not work."""
    found = health()
    if as_json:
        show_json(_health_as_json(found))
    else:
        _show_health(found)
    if found.troubles:
        raise typer.Exit(1)


@cache_app.callback(invoke_without_command=True)
def show_cache(context: typer.Context, as_json: _Json = False) -> None:
    """Show where compiled programs are kept, how many files there are and how large they are."""
    if context.invoked_subcommand is not None:
        return
    cache = open_cache()
    files, size = cache.usage()
    if as_json:
        row = {"folder": str(cache.folder), "files": files, "bytes": size}
        show_json({**row, "limit": cache.limit, "in_use": not is_off()})
        return
    in_use = "no, WEFT_CACHE switches it off" if is_off() else "yes"
    heads = ("folder", "files", "bytes", "at most", "in use")
    show_table(heads, [(cache.folder, files, size, cache.limit, in_use)])


@cache_app.command("clear")
def clear_cache() -> None:
    """Remove all compiled programs from the folder."""
    cache = open_cache()
    removed = cache.clear()
    show(plain(f"removed {removed} {'file' if removed == 1 else 'files'} from {cache.folder}"))


def _show_health(found: Health) -> None:
    show_table(("what", "version"), found.versions.items())
    heads = ("backend", "installed", "importable", "device", "usable", "runs", "reason")
    show_table(heads, map(_backend_row, found.backends))
    if found.unusable:
        rows = (
            (f"{each.group}:{each.name}", each.distribution, each.reason) for each in found.unusable
        )
        show_table(("plugin that cannot be used", "distribution", "reason"), rows)
    settings = (
        (name, "(not set)" if value is None else value, meaning)
        for name, value, meaning in found.variables
    )
    show_table(("variable", "value", "meaning"), settings)
    for sentence in (*found.remarks, *found.troubles):
        show(plain(sentence))


def _backend_row(tried: Tried) -> tuple[str, ...]:
    status = tried.status
    steps = (status.installed, status.importable, status.device, status.usable)
    runs = "" if tried.runs is None else _yes_no(tried.runs)
    return (status.name, *map(_yes_no, steps), runs, _device(status))


def _device(status: BackendStatus) -> str:
    """Return the device and what the backend says of it, or why there is none."""
    return "; ".join(filter(None, (status.usable.reason, status.remark)))


def _backend_as_json(tried: Tried) -> dict[str, Any]:
    status = tried.status
    return {
        "name": status.name,
        "distribution": status.distribution,
        "installed": bool(status.installed),
        "importable": bool(status.importable),
        "usable": bool(status.usable),
        "broken": status.is_broken,
        "device": status.usable.reason if status.usable else None,
        "reason": status.remark if status.usable else status.usable.reason,
        **({} if tried.runs is None else {"runs": bool(tried.runs), "failure": tried.runs.reason}),
    }


def _health_as_json(found: Health) -> dict[str, Any]:
    return {
        "versions": found.versions,
        "backends": [_backend_as_json(each) for each in found.backends],
        "unusable": [asdict(record) for record in found.unusable],
        "variables": {name: value for name, value, _ in found.variables},
        "remarks": found.remarks,
        "troubles": found.troubles,
    }


def _yes_no(step: Step) -> str:
    return "yes" if step else "no"
