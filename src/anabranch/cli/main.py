"""`anabranch`: the command line; one module per command.

Commands are imported when they are called, so that `anabranch --help` is quick and never starts
Spark.  Exit codes: 0 ok; 1 the answer is no, or rows were quarantined; 2 bad use or bad input,
nothing written; 3 the run failed; 130 interrupted.
"""

import difflib
import importlib
import json
import logging
import sys
from typing import Final

import click

from anabranch.errors import AnabranchError

COMMANDS: Final = {
    "check": "Validate a stream, and compare its history with another.",
    "clean": "List leftover, old or consumed files, and remove or archive them.",
    "clocks": "Estimate lateness bounds from a recorded stream.",
    "config": "Show the settings in force and where they come from.",
    "demo": "Merge three generated replicas live on local Spark, and check the result.",
    "doctor": "Check Java, Spark, memory and disk.",
    "explain": "Show which merge case the replicas of an inbox permit, and why.",
    "generate": "Write divergent replicas of one random stream, and its true history.",
    "merge": "Merge the replicas of an inbox into one stream, on Spark.",
    "upgrade": "Change the lanes or payload columns of a stopped merge.",
    "windows": "Predict and explain the results of a window query on other engines.",
}
"""Every command and its line in the help."""

log = logging.getLogger("anabranch")


class Commands(click.Group):
    """The commands of `COMMANDS`, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """All names, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command; None if there is no such."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"anabranch.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or name the nearest one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"commands: {', '.join(COMMANDS)}"
            message = f"no command '{args[0]}'; {hint}"
            raise click.UsageError(message, ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-v", "--verbose", count=True, help="Log what is done; -vv logs more.")
@click.version_option(package_name="anabranch")
def cli(*, verbose: int) -> None:
    """Merge fallible replicas of a stream into one complete stream that becomes final.

    Start with `anabranch demo`.
    """
    from anabranch.cli.logs import configure

    configure(verbose)


def main() -> None:
    """The program: run a command, turn what it raises into words and an exit code."""
    wants_json = "--json" in sys.argv
    try:
        code = cli.main(prog_name="anabranch", standalone_mode=False)
    except click.exceptions.Abort:
        code = _interrupted()
    except KeyboardInterrupt:
        code = _interrupted()
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except AnabranchError as error:
        code = _report(error, wants_json=wants_json)
    except BrokenPipeError:
        code = 0  # the reader (head, less) has seen enough
    except RuntimeError as error:  # Python wraps what is raised while a class is made
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        code = _interrupted()
    sys.exit(code if isinstance(code, int) else 0)


def _report(error: AnabranchError, *, wants_json: bool) -> int:
    if wants_json:
        click.echo(json.dumps({"error": error.code, "message": str(error)}))
    else:
        click.echo(f"anabranch: {type(error).__name__}: {error}", err=True)
    log.debug("raised here", exc_info=error)
    return error.exit_code


def _interrupted() -> int:
    click.echo("anabranch: interrupted; what was committed stays", err=True)
    return 130
