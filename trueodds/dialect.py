"""YAML limited to the values that readers of YAML 1.1 and 1.2 read alike.

PyYAML reads YAML 1.1; DVC, with ruamel.yaml, reads YAML 1.2. A value that the two read differently is an error.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from trueodds.texts import LONG, short

_DIFFER = {
    r"[-+]?0[0-9_]+": "a number in base 8 to one reader and in base 10 to another; write it without the leading zero",
    r"[-+]?0o[0-7_]+": "a number to one reader and text to another; write it in base 10",
    r"[-+]?0b[01_]+": "a number to one reader and text to another; write it in base 10",
    r"[-+]?(0x[0-9a-fA-F]*|[0-9][0-9.]*)_[0-9a-fA-F._]*": (
        "a number to one reader and text to another; write it without _"
    ),
    r"[-+]\.[0-9]+([eE][-+]?[0-9]+)?": "a number to one reader and text to another; write a 0 before the point",
    r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?": "a number in base 60 to one reader and text to another",
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt \t].*)?": "a date, and no parameter is one",
    r"yes|Yes|YES|no|No|NO": "true or false to one reader and text to another; write true or false",
    r"on|On|ON|off|Off|OFF": "true or false to one reader and text to another; write true or false",
}


_INT = "tag:yaml.org,2002:int"


class DialectError(yaml.YAMLError):
    """Error for a value that two readers of YAML understand differently, or for a key that occurs twice."""


def difference(text: str) -> str:
    """Describe how readers of YAML differ on a text without quotes; "" if they agree."""
    return next((words for pattern, words in _DIFFER.items() if re.fullmatch(pattern, text)), "")


def read_yaml(text: str) -> Any:
    """Parse YAML text.

    Raises:
        yaml.YAMLError: The text is not YAML.
        DialectError: Readers of YAML differ on a value, or a key occurs twice.
    """
    return yaml.load(text, Loader=_Loader)  # a SafeLoader


class _Loader(yaml.SafeLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.ScalarNode) and node.style is None and (words := difference(node.value)):
            where = f"line {node.start_mark.line + 1}: {node.value}"
            raise DialectError(f"{where} is {words}, or '{node.value}', in quotes, for text")
        if isinstance(node, yaml.ScalarNode) and node.tag == _INT and len(node.value) >= LONG:
            where = f"line {node.start_mark.line + 1}: {short(node.value)}"
            raise DialectError(f"{where} has {len(node.value):,} digits; allowed are numbers of fewer than {LONG:,}")
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := next((key for n, key in enumerate(keys) if key in keys[:n]), None):
            raise DialectError(f"line {node.start_mark.line + 1} and below: the key {twice} comes twice; keep one")
        return super().construct_mapping(node, deep)


# PyYAML reads 1e-3 as text; here, as for DVC, it is a number.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)
