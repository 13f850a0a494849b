"""Unknown names, refused with the nearest right one."""

import difflib
from collections.abc import Iterable

from evergrad._core.printable import printable


def refuse_unknown(kind: str, given: str, known: Iterable[str], lead: str = "there are") -> None:
    """Refuses a name that is none of the known; `lead` begins the list of those."""
    known = list(known)
    if given in known:
        return
    from evergrad._core.checks import InputError

    lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(given.lower(), lower, n=1, cutoff=0.5)
    hint = f' Did you mean "{printable(lower[near[0]])}"?' if near else ""
    raise InputError(f'the {kind} "{printable(given)}" is unknown: {lead} {printable(", ".join(known))}.{hint}')
