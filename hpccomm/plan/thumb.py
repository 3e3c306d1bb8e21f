"""The rule of thumb of many articles, held against predicted times.

It says: a ring up to 8 GPUs, a tree on 4 to 16 nodes, a hierarchy from 100 nodes on; and nothing of all else.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpccomm.plan.outlook import Cell, Outlook


@dataclass(frozen=True)
class Verdict:
    """What following the rule costs in one cell.

    Attributes:
        cell: Where.
        rule: The algorithm that it takes; of hierarchies the best one.
    """

    cell: Cell
    rule: str

    @property
    def ratio(self) -> float:
        """Time of the rule's algorithm over that of the best."""
        return self.cell.times_s[self.rule] / self.cell.times_s[self.cell.best]


def verdicts(outlook: Outlook) -> list[Verdict]:
    """Judge the rule in every cell of which it speaks."""
    found = [(cell, ruled(cell, outlook.ranks_per_node)) for cell in outlook.cells]
    return [Verdict(cell, rule) for cell, rule in found if rule is not None]


def ruled(cell: Cell, ranks_per_node: int) -> str | None:
    """Give the algorithm that the rule takes, None where it takes none."""
    if cell.num_nodes * ranks_per_node <= 8:
        return _if_there(cell, "ring")
    if 4 <= cell.num_nodes <= 16:
        return _if_there(cell, "tree")
    hierarchies = [name for name in cell.times_s if name.startswith("hierarchical")]
    return min(hierarchies, key=cell.times_s.__getitem__) if cell.num_nodes >= 100 and hierarchies else None


def _if_there(cell: Cell, name: str) -> str | None:
    return name if name in cell.times_s else None
