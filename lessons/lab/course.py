"""`import course` lets the scripts in this directory import what the lessons import: lessons/support and exercises."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
