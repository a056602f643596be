"""`scratchformer export` writes a run's weights for PyTorch; `import` makes a run of such a file, or of GPT-2."""

import argparse

from scratchformer.commands.options import Commands, add_command, add_option, add_run, path, setting
from scratchformer.commands.terminal import tell
from scratchformer.errors import UserError


def add(commands: Commands) -> None:
    parser = add_command(commands, "export", export)
    add_run(parser)
    torch = "torch: the state dict of nn.TransformerEncoder, nn.TransformerDecoder and the embeddings"
    parser.add_argument("--to", choices=["torch"], required=True, help=torch)
    parser.add_argument("file", type=path, metavar="FILE")
    parser = add_command(commands, "import", import_)
    llama = "llama: a directory of the Hugging Face Hub with a model of Llama's layout, or a .bin file of llama2.c"
    kinds = f"torch: a state dict with the names of `export` (default); gpt2: OpenAI's published weights; {llama}"
    parser.add_argument("--from", choices=["torch", "gpt2", "llama"], default="torch", dest="kind", help=kinds)
    parser.add_argument("file", type=path, metavar="FILE", help="safetensors or torch.save; for llama its directory")
    add_option(parser, "--config FILE", path, "for torch: a run's config.toml, if `export` did not write the file")
    add_option(parser, "--vocab FILE", path, "GPT-2's vocab.json")
    add_option(parser, "--merges FILE", path, "GPT-2's merges.txt")
    add_option(parser, "--heads N", setting("h"), "attention heads (default: as in GPT-2, one for 64 of d_model)")
    parser.add_argument("--out", type=path, required=True, metavar="RUN", help="the directory of the new run")


def export(args: argparse.Namespace) -> None:
    """Write a run's weights as a safetensors file that another library can load.

    scratchformer export runs/tiny --to torch tiny.safetensors
    """
    from scratchformer.training.run import RunDirectory
    from scratchformer.training.torch_format import export_run, how_to_load, how_to_run

    config = export_run(RunDirectory(args.path), args.checkpoint, args.file)
    tell(f"{args.file}: written. To load it into PyTorch and run it (docs/names.md has all names, and a translator):")
    print(f"{how_to_load(config.model, args.file)}\n\n{how_to_run(config.model)}", end="")


def import_(args: argparse.Namespace) -> None:
    """Make a run of weights from elsewhere.

    scratchformer import tiny.safetensors --out runs/imported
    scratchformer import tuned.pt --config runs/tiny/config.toml --out runs/tuned
    scratchformer import --from gpt2 model.safetensors --vocab vocab.json --merges merges.txt --out runs/gpt2
    scratchformer import --from llama SmolLM2-135M --out runs/smollm
    """
    from scratchformer.training.run import RunDirectory

    run = RunDirectory(args.out)
    if args.kind != "gpt2" and (args.vocab or args.merges or args.heads):
        raise UserError("--vocab, --merges and --heads are for --from gpt2")
    if args.kind != "torch" and args.config:
        raise UserError("--config is for --from torch")
    if args.kind == "llama":
        from scratchformer.training import published

        published.import_llama(args.file, run)
        command = "generate"
    elif args.kind == "gpt2":
        from scratchformer.training import published

        if None in (args.vocab, args.merges):
            raise UserError("--from gpt2 needs its tokenizer, too: --vocab vocab.json --merges merges.txt")
        published.import_gpt2(args.file, args.vocab, args.merges, run, args.heads)
        command = "generate"
    else:
        from scratchformer.training import torch_format

        torch_format.import_run(args.file, run, args.config)
        command = "translate"
    print(f"{args.out}: a run with the weights of {args.file}; try scratchformer {command} {args.out}")
