"""Strings that the author of a run may have chosen."""

import pytest

HOSTILE = [
    "<script>alert(1)</script>",
    "--> <b>",
    "a|b",
    "a\\|b",
    "a\nb",
    "a\r\n| x | y |",
    "a\u2028b",
    "`code` ``two``",
    "[text](javascript:alert)",
    "![picture](http://example.org)",
    "**bold** _slanted_ __init__ ~~gone~~",
    "&lt;b&gt; &#60;i",
    "\x1b[31m\x07\x00",
    "undecodable \udcff\udc80",
    "\u202egpj",
]


@pytest.fixture(params=HOSTILE, ids=ascii)
def hostile(request):
    """A string that would change a page if it were not escaped."""
    return request.param
