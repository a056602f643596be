"""The configuration that the arguments ask for."""

import argparse
import os
from pathlib import Path

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.errors import UserError

OPTIONS = {f"training.{name}": name for name in ("seed", "minutes", "threads", "device", "precision")}
OPTIONS |= {path: path.split(".")[1] for path in configs.PATHS}
"""The key of a setting -> the name of its own option."""


def load_config(name: str) -> Config:
    """A preset, or a TOML file if the name looks like one."""
    return configs.load(Path(name)) if name.endswith(".toml") else configs.preset(name)


def with_options(config: Config, args: argparse.Namespace) -> Config:
    """The configuration with the changes that --set and the options for single settings ask for."""
    settings = dict(configs.parse_setting(text) for text in args.settings)
    given = {key: getattr(args, option) for key, option in OPTIONS.items() if getattr(args, option, None) is not None}
    if both := sorted(given.keys() & settings):
        raise UserError(f"--set {both[0]}: an option sets the same; give one of them")
    if "data.directory" in given and any(key.startswith("data.") for key in given if key != "data.directory"):
        raise UserError(
            "--data names a directory, --train-source, --text and the like single files: give one or the other"
        )
    settings |= given
    if settings.get("training.device") == "cpu":  # where a precision for a GPU means nothing
        settings.setdefault("training.precision", "")
    config = configs.with_settings(config, settings)
    named = {key: path for key, path in configs.flat(config).items() if key in configs.PATHS and path}
    absolute = {
        key: os.path.abspath(path) if isinstance(path, str) else tuple(map(os.path.abspath, path))
        for key, path in named.items()
    }
    return configs.with_settings(config, absolute)


def require_effect(config: Config, args: argparse.Namespace) -> None:
    """Refuse a setting of --set that has no effect beside the others, or none without validation."""
    from scratchformer.tasks.translation import has_validation_text

    configs.require_effect(config, set(named_settings(args)), has_validation_text(config.data))


def named_settings(args: argparse.Namespace) -> list[str]:
    """The settings that --set names."""
    return [configs.parse_setting(text)[0] for text in args.settings]


def adapt_to_data(config: Config, args: argparse.Namespace) -> tuple[Config, str]:
    """The configuration with the settings that its text requires, and a line that says what this changes.

    Settings that --set names stay as they are.
    """
    from scratchformer.tasks.translation import follow_names, follow_preparation

    config, told = follow_preparation(config, named_settings(args))
    return (config, told) if told else follow_names(config, named_settings(args))
