"""Write docs/lessons/wrong_answers.md: what the exercise checker says to the classic wrong answers.

python tools/wrong_answers.py
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "tests" / "lessons" / "exercises"), str(ROOT / "lessons")]

from mistakes import page  # noqa: E402

if __name__ == "__main__":
    path = ROOT / "docs" / "lessons" / "wrong_answers.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(page(), encoding="utf-8")
    print(path)
