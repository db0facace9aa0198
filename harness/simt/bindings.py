"""The `functions` argument of load_inline: names bound with PYBIND11_MODULE."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence


def as_functions(functions: Sequence[str] | Mapping[str, str] | str | None) -> dict[str, str]:
    """Name -> docstring; empty when the source binds itself."""
    if not functions:
        return {}
    if isinstance(functions, str):
        return {functions: functions}
    if isinstance(functions, Mapping):
        return dict(functions)
    return {name: name for name in functions}


def module_code(functions: Mapping[str, str]) -> str:
    lines = [
        f"m.def({json.dumps(f)}, SIMT_BIND({f}), {json.dumps(d)});" for f, d in functions.items()
    ]
    body = "\n".join(lines)
    return f'#line 1 "bindings"\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{body}\n}}\n'
