"""Draw docs/pronoun.svg, the picture in the README: which English word decides between es and sie.

    python tools/pronoun_picture.py

The two sentences differ in one word. The decoder gets the encoder's vectors of the first sentence, but those of one
word come from the second sentence. A bar shows how probable *sie* then is. The model is data/tiny_model.
"""

from __future__ import annotations

import html
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "lessons"))

from library.drawing import Box, Drawing  # noqa: E402
from scratchformer.decoding.translator import Translator  # noqa: E402
from scratchformer.experiments.heads import words_of_pieces  # noqa: E402
from scratchformer.text.bundled import words  # noqa: E402
from scratchformer.text.tokenizer import BOS, EOS  # noqa: E402
from scratchformer.training.run import load_run  # noqa: E402

PICTURE = ROOT / "docs" / "pronoun.svg"
TIRED = "The horse leaves the street because it is too tired."
NARROW = "The horse leaves the street because it is too narrow."
BEGINNING = "Das Pferd verlässt die Straße, weil"
LEFT = 108


def probabilities_of_sie(translator: Translator) -> list[float]:
    """For each word of TIRED: P(sie) after BEGINNING, if the vectors of this word come from NARROW."""
    model, tokenizer = translator.model, translator.tokenizer
    tired, narrow = (
        model.encode(np.array([[*tokenizer.encode([sentence])[0], EOS]]))[0] for sentence in (TIRED, NARROW)
    )
    in_tired, in_narrow = (words_of_pieces(tokenizer, sentence) for sentence in (TIRED, NARROW))
    written = np.array([[BOS, *tokenizer.encode([BEGINNING])[0]]])
    sie = tokenizer.encode([f"{BEGINNING} sie"])[0][-1]
    found = []
    for word in range(len(words(TIRED))):
        memory = np.concatenate([tired[:, in_tired != word], narrow[:, in_narrow == word]], axis=1)
        x, _ = model.target_embedding.forward(written)
        x, _ = model.target_positions.forward(x)
        states, _ = model.decoder.forward(x, memory)
        logits, _ = model.unembedding.forward(states[0, -1])
        odds = np.exp(logits.astype(float) - logits.max())
        found.append(float(odds[sie] / odds.sum()))
    return found


def draw(shares: list[float], translations: list[str]) -> Drawing:
    """The two sentences as rows of boxes, their translations beside them, and between the rows a bar for each word."""
    d = Drawing(890, 288)
    upper, lower = row_of_words(d, TIRED, 76), row_of_words(d, NARROW, 218)
    for y, translation, pronoun, noun in zip((28, 266), translations, ("es", "sie"), ("the horse", "the street")):
        d.text(16, y, "German", "soft", 13, "start")
        before, after = (html.escape(part) for part in translation.split(f" {pronoun} "))
        d.parts.append(
            f'<text x="{LEFT}" y="{y + 6}" font-size="18" fill="var(--ink)">{before} '
            f'<tspan fill="var(--forward)" font-weight="600">{pronoun}</tspan> {after}'
            f'<tspan fill="var(--soft)" font-size="14" dx="14">({pronoun} = {noun})</tspan></text>'
        )
    for y in (76, 218):
        d.text(16, y, "English", "soft", 13, "start")
    for i, line in enumerate(("P(sie), if the", "vector of this", "word comes", "from below")):
        d.text(16, 123 + 16 * i, line, "soft", 13, "start")
    for above, below, share in zip(upper, lower, shares):
        d.arrow(below.top, (above.x, 186), "line")
        d.bar(above.x, 136, share, width=30, height=56, role="forward")
        d.text(above.x, 176, f"{share:.2f}", "forward" if share > 0.5 else "soft", 14, bold=share > 0.5)
        d.arrow((above.x, 106), above.bottom, "line")
    return d


def row_of_words(d: Drawing, sentence: str, y: float) -> list[Box]:
    boxes, x = [], float(LEFT)
    for word in words(sentence):
        width = 34 if word == "." else 70
        boxes.append(d.box(x + width / 2, y, word, "forward" if word in ("tired", "narrow") else "plain", width, 36))
        x += width + 4
    return boxes


def main() -> None:
    translator = load_run(ROOT / "data" / "tiny_model")
    shares = probabilities_of_sie(translator)
    PICTURE.write_text(draw(shares, translator.translate([TIRED, NARROW])).svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
