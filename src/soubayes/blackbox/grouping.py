"""Which block a site belongs to."""

from collections.abc import Iterable, Mapping, Sequence


def block_of(sites: Sequence[str], groups: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """The block of every latent site: its group, or itself.

    >>> block_of(["tau", "mu", "z"], {"top": ["tau", "mu"]})
    {'tau': 'top', 'mu': 'top', 'z': 'z'}
    """
    owner = {name: name for name in sites}
    placed: dict[str, str] = {}
    for group, members in groups.items():
        names = [members] if isinstance(members, str) else list(members)
        for name in names:
            if name not in owner:
                raise ValueError(
                    f"groups puts {name!r} in {group!r}, but the latent sites are {list(sites)}."
                )
            if placed.get(name, group) != group:
                raise ValueError(f"groups puts {name!r} in both {placed[name]!r} and {group!r}.")
            owner[name] = placed[name] = group
        if group in owner and group not in names:
            raise ValueError(
                f"groups calls a block {group!r}, which is a latent site outside of it. Give the "
                "block another name, or put the site into it."
            )
    return owner
