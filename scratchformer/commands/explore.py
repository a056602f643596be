"""`scratchformer explore`: a page in which the trained model runs, to try it and to take it apart."""

import argparse
from contextlib import suppress
from pathlib import Path

from scratchformer.commands.options import Commands, add_checkpoint, add_command, add_option, path, sentence, within
from scratchformer.commands.terminal import tell
from scratchformer.errors import UserError

DEMO = Path("runs/demo")


def add(commands: Commands) -> None:
    parser = add_command(commands, "explore", explore)
    parser.add_argument("path", nargs="?", type=path, metavar="RUN", help=f"a run's directory (default: {DEMO})")
    add_checkpoint(parser)
    add_option(parser, "--out FILE", path, "the page (default: RUN/explorer.html)")
    example = "a sentence to begin with; may be given several times"
    parser.add_argument(
        "--sentence", type=sentence, action="append", default=[], metavar="TEXT", dest="sentences", help=example
    )
    serve = "then show the page to browsers on this machine, until Ctrl-C (exit code 0)"
    parser.add_argument("--serve", action="store_true", help=serve)
    add_option(parser, "--port N", within(0, 65535), "for --serve (default: 0, which takes a free port)")


def explore(args: argparse.Namespace) -> None:
    """Write a page that runs the model in a browser, without a server or a network.

    scratchformer explore runs/tiny
    scratchformer explore runs/tiny --sentence "The dog ate the apple." --out dog.html
    scratchformer explore --serve
    """
    from scratchformer.explorer.model_data import describe
    from scratchformer.explorer.page import require_page_place, write_explorer
    from scratchformer.explorer.server import PageServer
    from scratchformer.training.run import RunDirectory

    if args.port is not None and not args.serve:
        raise UserError("--port is for --serve")
    if args.path is None and not DEMO.exists():
        raise UserError(f"explore: RUN is required, since {DEMO} does not exist; `scratchformer demo` makes it")
    run = RunDirectory(args.path or DEMO)
    run.require()
    out = args.out or run.path / "explorer.html"
    require_page_place(out)
    html = write_explorer(out, *describe(run, args.checkpoint, args.sentences))
    print(out, flush=True)
    tell(f"{out}: {len(html) / 1e6:.1f} MB; open it in a browser")
    if args.serve:
        with PageServer(html, args.port or 0) as server, suppress(KeyboardInterrupt):
            print(server.address, flush=True)
            tell("Ctrl-C stops the server")
            server.serve_forever()
