"""`scratchformer export` writes a run's weights for PyTorch; `scratchformer import` makes a run of such a file."""

import argparse

from scratchformer.commands.options import Commands, add_command, add_run, path
from scratchformer.commands.terminal import tell


def add(commands: Commands) -> None:
    parser = add_command(commands, "export", export)
    add_run(parser)
    torch = "torch: the state dict of nn.TransformerEncoder, nn.TransformerDecoder and the embeddings"
    parser.add_argument("--to", choices=["torch"], required=True, help=torch)
    parser.add_argument("file", type=path, metavar="FILE")


def add_import(commands: Commands) -> None:
    parser = add_command(commands, "import", import_)
    parser.add_argument("file", type=path, metavar="FILE")
    parser.add_argument("--out", type=path, required=True, metavar="RUN", help="the directory of the new run")


def export(args: argparse.Namespace) -> None:
    """Write a run's weights as a safetensors file that another library can load.

    scratchformer export runs/tiny --to torch tiny.safetensors
    """
    from scratchformer.training.run import RunDirectory
    from scratchformer.training.torch_format import export_run, how_to_load

    config = export_run(RunDirectory(args.path), args.checkpoint, args.file)
    tell(f"{args.file}: written. To load it into PyTorch:")
    print(how_to_load(config.model, args.file), end="")


def import_(args: argparse.Namespace) -> None:
    """Make a run of an exported file.

    scratchformer import tiny.safetensors --out runs/imported
    """
    from scratchformer.training.run import RunDirectory
    from scratchformer.training.torch_format import import_run

    if not import_run(args.file, RunDirectory(args.out)):
        tell(f"{args.file}: its weights have changed since it was exported")
    print(f"{args.out}: a run with the weights of {args.file}; try scratchformer translate {args.out}")
