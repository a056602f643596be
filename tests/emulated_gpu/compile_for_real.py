"""Compile what CuPy has compiled on the emulated GPU with NVIDIA's compiler, which needs no GPU, and count it.

python compile_for_real.py CUPY_CACHE_DIR
"""

import json
import sys
from pathlib import Path

from cupy.cuda.compiler import _NVRTCProgram

sources = sorted(Path(sys.argv[1]).rglob("*.json"))
for path in sources:
    source, names, options = json.loads(path.read_text())
    _NVRTCProgram(source, str(path), name_expressions=names, method="cubin").compile(options)
print(len(sources))
