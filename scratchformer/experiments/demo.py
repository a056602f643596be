"""The demo: train a small translator on the bundled corpus, then show what it has learnt. Newcomers run this first."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np

from scratchformer import config as configs
from scratchformer.decoding.translator import Translator
from scratchformer.experiments import figures
from scratchformer.progress import tqdm
from scratchformer.tasks import start
from scratchformer.text import bundled
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.bundled import Example, both_right, spoken_pronoun
from scratchformer.training import checkpoints, loop
from scratchformer.training.run import RunDirectory, load_run
from scratchformer.training.trainer import Trainer

TEST_SETS = ("test", "test_compositional", "test_long", "test_coreference")
SENTENCES_SHOWN = 10
WATCHED = "The lion did not eat the sausage because it was too hot."
WATCHED_EVERY = 100  # steps
YOUR_SENTENCE = "The suitcase does not fit into the car because it is too small."
ATTENTION_SENTENCE = "The animal did not cross the street because it was too tired."


def run_demo(out: Path) -> bool:
    """Train, or continue a demo that was interrupted; average checkpoints, translate, score, and print the results.

    Returns False if it was interrupted.
    """
    run = RunDirectory(out)
    if run.config_file.exists():
        trainer, remarks = start.resume(run, configs.preset("demo"))  # refuses the run of another model
        print(f"{out} holds a run already: going on with it.\n")
        for remark in remarks:
            print(remark)
    else:
        trainer = start.begin(run, configs.preset("demo"))
    print(f"Training a Transformer made of NumPy arrays: {trainer.summary()}.", flush=True)
    print(f"Meanwhile it translates: {WATCHED}", flush=True)
    began = time.perf_counter()
    with Watch(trainer) as watch:
        run.callbacks.append(watch)
        reason = loop.train(trainer)
    if reason == loop.INTERRUPTED:
        print(f"Interrupted after step {trainer.progress.step}; the same command goes on from there.")
        return False
    print(
        f"{trainer.progress.step} steps, {trainer.progress.target_tokens:,} target tokens, "
        f"{(time.perf_counter() - began) / 60:.1f} minutes.\n"
    )
    last = run.checkpoints.steps()[-trainer.config.training.average_last :]
    checkpoints.save(run.checkpoints.average, checkpoints.average(last))
    report(load_run(out), run)
    return True


class Watch:
    """Translates one sentence now and then during the training, and shows the newest translation in its place.

    Without a terminal, it prints every fourth translation on a line of its own.
    """

    def __init__(self, trainer: Trainer) -> None:
        assert trainer.tokenizer is not None
        self.translator = Translator(trainer.model, trainer.tokenizer)
        self.shown = tqdm(bar_format="{desc}", position=1, file=sys.stderr, disable=None)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: Any) -> None:
        self.shown.close()

    def __call__(self, event: str, values: dict[str, Any]) -> None:
        if event != "step" or values["step"] % (WATCHED_EVERY if not self.shown.disable else 4 * WATCHED_EVERY):
            return
        [translation] = self.translator.translate([WATCHED], beam=1)
        text = f"step {values['step']}: {translation}"
        if self.shown.disable:
            print(text, flush=True)
        else:
            self.shown.set_description_str(text)


def report(translator: Translator, run: RunDirectory) -> None:
    """Translate the held-out sets of the bundled corpus, and print examples, scores and the attention figure's path."""
    corpus = {split: bundled.read(split) for split in TEST_SETS}
    translations = {split: translator.translate([example.source for example in corpus[split]]) for split in TEST_SETS}

    test = corpus["test"]
    for index in range(0, len(test), len(test) // SENTENCES_SHOWN):
        example, translation = test[index], translations["test"][index]
        reference = "the same" if translation == example.target else example.target
        print(f"  source      {example.source}\n  translation {translation}\n  reference   {reference}\n")

    print_by_construction(test, translations["test"])
    for split in ("test", "test_compositional", "test_long"):
        scores = corpus_scores(translations[split], [example.target for example in corpus[split]])
        basis = f"({scores.n_sentences} sentences, {scores.bleu_signature})"
        print(f"BLEU on {split + ':':20} {scores.bleu:5.1f}   {basis}")
    pronouns = coreference_score(translations["test_coreference"], corpus["test_coreference"])
    print(
        f"Pronouns, test_coreference: {pronouns['accuracy']:6.1%} right, {pronouns['pair_accuracy']:.1%} of the "
        "minimal pairs (guessing: at most 50 % and 0 %)"
    )
    figure = figures.attention_figure(translator, ATTENTION_SENTENCE)
    print(f"\nWhere the model looked: {figures.save_in_run(figure, run, 'attention')}")
    command = "scratchformer" if which("scratchformer") else sys.argv[0]  # `make demo` has not activated .venv
    print(f'Try your own:           echo "{YOUR_SENTENCE}" | {command} translate {run.path}')
    print(f"Look inside:            {command} explore {run.path}")


def print_by_construction(examples: list[Example], translations: list[str]) -> None:
    """Print a table: how many sentences of each construction are translated exactly as in the reference."""
    exact: dict[str, list[bool]] = defaultdict(list)
    for example, translation in zip(examples, translations):
        exact[example.construction].append(translation == example.target)
    print("construction              sentences   exactly right")
    for construction, right in sorted(exact.items()):
        print(f"{construction:25} {len(right):9} {sum(right) / len(right):15.0%}")
    print()


def coreference_score(translations: list[str], examples: list[Example]) -> dict[str, float]:
    """Measure how often the German pronoun agrees with its antecedent; other errors do not count.

    accuracy       share of the sentences of test_coreference whose pronoun is right
    pair_accuracy  share of the minimal pairs with both sentences right
    """
    right = np.array(
        [
            spoken_pronoun(translation) == (example.coreference or {})["expected"]
            for translation, example in zip(translations, examples, strict=True)
        ]
    )
    return {"accuracy": float(right.mean()), "pair_accuracy": float(both_right(right, examples).mean())}
