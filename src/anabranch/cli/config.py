"""`anabranch config`: every setting in force, and the place that decided it."""

import json

import click

from anabranch.cli import settings


@click.command("config")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(*, as_json: bool) -> None:
    """Show the settings in force and where each one comes from."""
    loaded = settings.load()
    if as_json:
        click.echo(json.dumps(_to_json(loaded)))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("setting", "value", "comes from", "means"):
        # A cut path would be no answer, and a folded name cannot be searched for.
        table.add_column(name, overflow="fold", no_wrap=name == "setting")
    for key in settings.KEYS:
        value = loaded.values[key.name]
        shown = "(unset)" if value.value is None else str(value.value)
        table.add_row(value.name, shown, value.origin, key.meaning)
    console = Console()
    console.print(table)
    console.print(f"settings file: {loaded.file or 'none'}", highlight=False, markup=False)


def _to_json(loaded: settings.Settings) -> dict[str, object]:
    return {
        "file": None if loaded.file is None else str(loaded.file),
        "settings": {
            name: {
                "value": value.value
                if isinstance(value.value, int | float)
                else _text(value.value),
                "origin": value.origin,
            }
            for name, value in loaded.values.items()
        },
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)
