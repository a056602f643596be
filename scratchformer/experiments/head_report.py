"""All that is measured of the attention heads of a run: what `scratchformer heads` prints."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np
from tqdm import tqdm

from scratchformer.decoding.translator import Translator
from scratchformer.experiments.head_importance import (
    Curve,
    Text,
    bleus_without_each,
    computing,
    gradient_importance,
    greedy_bleu,
    greedy_order,
    head_names,
    losses_without_each,
    order_by,
    pruning_curve,
    relative_to_layer,
    sentence_losses,
)
from scratchformer.experiments.head_roles import MOSTLY, Roles, alignment_accuracies, corrected_z, roles_of_heads
from scratchformer.experiments.statistics import Correlation, mean_and_error, rank_correlation
from scratchformer.text.bleu import bleu_metric
from scratchformer.text.bundled import Example

N_RANDOM = 5
"""How many random orders are tried."""


class HeadReport(NamedTuple):
    """What was measured. Arrays over heads are (A, H), see `head_importance`.

    names          of the heads, in the order of their numbers
    n_sentences    sentence pairs; n_tokens: of the target, </s> included
    loss, bleu     of the whole model: nats per token; greedy translations
    rises, errors  by how much the loss rises without a head, and the standard error
    bleus          BLEU without a head
    gradients      E |dL/dxi|, nats per token
    correlations   of `gradients` with `rises`: as they are, and relative to the layer
    roles          see Roles
    alignment      accuracy against the gold alignment, of attention and of baselines; empty without annotations
    curves         name of an order -> the model while heads are removed in this order
    tokenizer      sacreBLEU's, with which BLEU was computed
    """

    names: list[str]
    n_sentences: int
    n_tokens: int
    loss: float
    bleu: float
    rises: np.ndarray
    errors: np.ndarray
    bleus: np.ndarray
    gradients: np.ndarray
    correlations: dict[str, Correlation]
    roles: Roles
    alignment: dict[str, float]
    curves: dict[str, Curve]
    tokenizer: str

    def as_json(self) -> dict[str, Any]:
        """Everything, for JSON; heads by name."""
        per_head = {"rise": self.rises, "error": self.errors, "bleu": self.bleus, "gradient": self.gradients}
        flat = {name: values.reshape(-1).tolist() for name, values in per_head.items()}
        return {
            "sentences": self.n_sentences,
            "tokens": self.n_tokens,
            "loss": self.loss,
            "bleu": self.bleu,
            "tokenizer": self.tokenizer,
            "heads": {name: {key: flat[key][head] for key in flat} for head, name in enumerate(self.names)},
            "correlations": {name: found._asdict() for name, found in self.correlations.items()},
            "roles": [
                {name: plain(value) for name, value in role._asdict().items()}
                | {"heads": self.roles.heads_with(role).tolist()}
                for role in self.roles.roles
            ],
            "comparisons": self.roles.n_tried,
            "z": self.roles.z,
            "distances": {kind: values.tolist() for kind, values in self.roles.distances.items()},
            "uniform_distances": self.roles.uniform_distances,
            "alignment": self.alignment,
            "curves": {
                name: {
                    "order": [self.names[head] for head in curve.order],
                    "losses": curve.losses,
                    "bleus": curve.bleus,
                }
                for name, curve in self.curves.items()
            },
        }

    def as_text(self) -> str:
        """A line for each head, then what holds for all of them."""
        needed = self.rises > corrected_z(self.rises.size) * self.errors
        width = max(map(len, self.names))
        lines = [
            f"{len(self.names)} heads, {self.n_sentences} sentence pairs, {self.n_tokens} target tokens: "
            f"loss {self.loss:.4f} nats a token, BLEU {self.bleu:.2f} (greedy, tok:{self.tokenizer})",
            "",
            f"{'without':{width}} {'loss':>8}  {'BLEU':>6} {'|dL/dxi|':>9}  role: score (a head that knows nothing)",
        ]
        for head, name in enumerate(self.names):
            rise, bleu, gradient = (each.reshape(-1)[head] for each in (self.rises, self.bleus, self.gradients))
            mark = "*" if needed.reshape(-1)[head] else " "
            lines.append(f"{name:{width}} {rise:+8.4f}{mark} {bleu:6.2f} {gradient:9.4f}  {self.role_of(name)}")
        lines += [
            "",
            f"* the loss rises beyond chance (corrected for {len(self.names)} heads)",
            "[role]: no role, only what comes nearest to one",
            f"A place is a role if its score exceeds {MOSTLY}, another statistic if it exceeds the number in brackets,",
            f"by more than chance allows in {self.roles.n_tried} comparisons.",
            "words away in the mean: "
            + ", ".join(
                f"{kind} {values.min():.1f} to {values.max():.1f} (uniform {self.roles.uniform_distances[kind]:.1f})"
                for kind, values in self.roles.distances.items()
            ),
            "rank correlation with the loss without a head: "
            + ", ".join(
                f"{name} {found.rho:.2f} ({found.low:.2f} to {found.high:.2f})"
                for name, found in self.correlations.items()
            ),
        ]
        if self.alignment:
            found = ", ".join(f"{name} {accuracy:.2f}" for name, accuracy in self.alignment.items())
            lines.append(f"right source word, by the corpus's alignment: {found}")
        return "\n".join([*lines, "", *self.pruning_lines()])

    def role_of(self, name: str) -> str:
        """The roles of a head, or in brackets the statistic that exceeds its baseline most."""
        kind, _, place = name.partition(" ")
        layer, head = (int(number) - 1 for number in place.split("."))
        own = [role for role in self.roles.roles if role.kind == kind]
        texts = {
            id(role): f"{role.name} {role.scores[layer, head]:.2f} ({role.by} {role.baseline:.2f})" for role in own
        }
        has = [texts[id(role)] for role in own if self.roles.heads_with(role)[layer, head]]
        nearest = max(own, key=lambda role: role.scores[layer, head] - role.baseline)
        return ", ".join(has) or f"[{texts[id(nearest)]}]"

    def pruning_lines(self) -> list[str]:
        """Loss and BLEU for the numbers of removed heads for which there is BLEU."""
        shown = list(next(iter(self.curves.values())).bleus)
        lines = [
            "Loss and BLEU while heads are removed, least needed first (reversed: most needed first). The orders were",
            "found on other sentences; `scratchformer heads` takes half of the sentences for each.",
            f"{'heads removed':20}" + "".join(f"{count:>15}" for count in shown),
        ]
        for name, curve in self.averaged_curves().items():
            cells = [f"{curve.losses[count]:8.3f} {curve.bleus[count]:6.2f}" for count in shown]
            lines.append(f"{name:20}" + "".join(f"{cell:>15}" for cell in cells))
        return lines

    def averaged_curves(self) -> dict[str, Curve]:
        """The curves, with the mean of the random ones in their place."""
        named = {name: curve for name, curve in self.curves.items() if not name.startswith("random")}
        drawn = [curve for name, curve in self.curves.items() if name.startswith("random")]
        losses = np.mean([curve.losses for curve in drawn], axis=0).tolist()
        bleus = {count: float(np.mean([curve.bleus[count] for curve in drawn])) for count in drawn[0].bleus}
        return named | {f"random, mean of {len(drawn)}": Curve([], losses, bleus)}


def plain(value: Any) -> Any:
    """The value with lists in place of arrays."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def measure_heads(
    translator: Translator,
    text: Text,
    to_order: Text,
    to_prune: Text,
    examples: Sequence[Example] | None = None,
    pairs: Sequence[Example] = (),
    greedy: bool = False,
    bleu_at: int = 4,
) -> HeadReport:
    """Measure everything.

    text      the sentences on which each head is measured
    to_order  where the orders of removal are found; to_prune: where the curves are measured, other sentences
    examples  the sentences of `text` with their annotations, if there are any; pairs: minimal pairs
    greedy    also find the greedy order: each step removes the head without which the loss rises least
    bleu_at   into how many parts BLEU divides a curve
    """
    names, n_tokens, intact = head_names(translator.model), text.n_tokens, sentence_losses(translator, text)
    with tqdm(total=7 + N_RANDOM + greedy, unit=" parts", disable=None, leave=False) as bar:

        def begin(part: str) -> None:
            bar.set_description(part)
            bar.update()

        begin("loss without each head")
        rises, errors = mean_and_error(losses_without_each(translator, text) - intact[:, None, None], n_tokens)
        gradients = gradient_importance(translator, text)
        begin("BLEU without each head")
        bleus = bleus_without_each(translator, text)
        begin("roles")
        unknown = [Example(*sentences, "", "", [], None) for sentences in zip(*text.pairs[:2])]
        with computing(translator):
            roles = roles_of_heads(translator, examples or unknown, examples is not None, pairs)
            alignment = alignment_accuracies(translator, examples) if examples else {}
        begin("orders")
        by_loss = order_by(losses_without_each(translator, to_order).sum(axis=0))
        by_gradient = order_by(gradient_importance(translator, to_order))
        orders = {"by loss": by_loss, "by gradient": by_gradient, "by loss, reversed": by_loss[::-1]}
        if greedy:
            begin("greedy order")
            orders = {"greedy": greedy_order(translator, to_order)} | orders
        for seed in range(N_RANDOM):
            orders[f"random {seed}"] = np.random.default_rng(seed).permutation(len(names)).tolist()
        marks = {round(len(names) * part / bleu_at) for part in range(bleu_at + 1)}
        curves = {}
        for name, order in orders.items():
            begin(f"remove heads {name}")
            curves[name] = pruning_curve(translator, to_prune, order, marks)
    return HeadReport(
        names,
        len(intact),
        int(n_tokens.sum()),
        float(intact.sum() / n_tokens.sum()),
        greedy_bleu(translator, text),
        rises,
        errors,
        bleus,
        gradients,
        {
            "|dL/dxi|": rank_correlation(gradients, rises),
            "|dL/dxi| relative to its layer": rank_correlation(relative_to_layer(gradients), rises),
        },
        roles,
        alignment,
        curves,
        bleu_metric(text.language).tokenizer.signature(),
    )
