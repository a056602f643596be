"""The demo, with little text and a model too small to learn: what it prints and writes."""

import re

from scratchformer.experiments import demo
from scratchformer.text import bundled


def test_demo_trains_translates_scores_and_can_be_run_again(tmp_path, small_config, monkeypatch, capsys):
    small = small_config(**{"data.directory": "", "vocab_size": 300, "tokens_per_batch": 512, "steps": 4})
    monkeypatch.setitem(demo.configs.PRESETS, "demo", small)
    monkeypatch.setattr(demo, "WATCHED_EVERY", 1)
    corpus = {split: bundled.read(split)[:50] for split in bundled.SPLITS}
    monkeypatch.setattr(bundled, "read", corpus.__getitem__)
    monkeypatch.setenv("PATH", "")  # .venv is not activated
    monkeypatch.setattr("sys.argv", [".venv/bin/scratchformer", "demo"])
    demo.run_demo(tmp_path / "run")
    printed = capsys.readouterr().out
    assert f"translates: {demo.WATCHED}\nstep 4: " in printed
    assert printed.count("  source      ") == demo.SENTENCES_SHOWN == printed.count("  reference   ")
    assert re.search(r"BLEU on test: +\d+\.\d", printed) and re.search(r"BLEU on test_compositional: +\d+\.\d", printed)
    assert re.search(r"Pronouns, test_coreference: +\d+\.\d% right", printed)
    assert re.search(r"\npronoun_choice +\d+ +\d+%", printed)
    assert printed.endswith(f" .venv/bin/scratchformer explore {tmp_path / 'run'}\n")
    assert (tmp_path / "run" / "figures" / "attention.png").stat().st_size > 10_000

    demo.run_demo(tmp_path / "run")
    again = capsys.readouterr().out
    assert "going on with it" in again
    assert again[again.index("  source") :] == printed[printed.index("  source") :]
