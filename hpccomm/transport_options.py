"""Settings of NCCL and Gloo as typed values: what may be given, whether it fits a host, and what to expect of it.

The libraries read them from the environment, some without a word about values that they replace (a wrong NTHREADS),
others with an error far from the cause. Checked here against NCCL 2.30's own reading. It loads neither library.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from hpccomm.errors import OptionError
from hpccomm.units import format_bytes

_FUNCTIONS = {name.lower(): name for name in ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")}
_ALGORITHMS: Mapping[str, frozenset[str]] = {
    "Ring": frozenset(_FUNCTIONS.values()),
    "Tree": frozenset({"AllReduce"}),
    "CollNetDirect": frozenset({"AllReduce", "AllGather", "ReduceScatter"}),
    "CollNetChain": frozenset({"AllReduce"}),
    "NVLS": frozenset({"AllReduce", "AllGather", "ReduceScatter"}),
    "NVLSTree": frozenset({"AllReduce"}),
    "PAT": frozenset({"AllGather", "ReduceScatter"}),
}
_PROTOCOLS: Mapping[str, frozenset[str]] = dict.fromkeys(("LL", "LL128", "Simple"), frozenset(_FUNCTIONS.values()))
_DEBUG = ("VERSION", "WARN", "INFO", "TRACE")
_THREADS, _WARP, _CHANNELS = (64, 512), 32, 64
_BUFFER = (1 << 16, 1 << 30)


@dataclass(frozen=True)
class Host:
    """What of a host settings name.

    Attributes:
        name: Its own name.
        interfaces: Names of its network interfaces.
        hcas: Names of its InfiniBand and RoCE adapters.
    """

    name: str
    interfaces: Collection[str]
    hcas: Collection[str]


def _setting(variable: str, advice: str, *, write: Callable[[Any], str] = str) -> Any:
    return field(default=None, metadata={"variable": variable, "advice": advice, "write": write})


@dataclass(frozen=True)
class TransportOptions:
    """Settings of one library; None leaves one to the library and to the environment as it is.

    Attributes:
        OF_HOST: Fields that name things of a host, which may differ between hosts.
    """

    OF_HOST: ClassVar[frozenset[str]] = frozenset()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that these settings make, with their values."""
        return {each.metadata["variable"]: text for each, text in self._given()}

    @property
    def of_host(self) -> frozenset[str]:
        """The variables that may differ between hosts."""
        return frozenset(each.metadata["variable"] for each in fields(self) if each.name in self.OF_HOST)

    @classmethod
    def advice(cls) -> dict[str, str]:
        """Give each setting's name and what to expect of it."""
        return {each.name: each.metadata["advice"] for each in fields(cls)}

    def check_host(self, host: Host) -> None:
        """Refuse a setting that names what a host does not have.

        Raises:
            OptionError: The text says what the host has.
        """
        raise NotImplementedError

    def _given(self) -> Iterator[tuple[Any, str]]:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                yield each, each.metadata["write"](value)

    def _refuse(self, name: str, wanted: str) -> OptionError:
        return OptionError(
            f"set {type(self).__name__}({name}={getattr(self, name)!r})",
            found=f"not {wanted}",
            remedy=f"give {wanted}: {self.advice()[name]}",
        )


@dataclass(frozen=True)
class NcclOptions(TransportOptions):
    """Settings of NCCL, of every communicator in this process that is made after they are set.

    Attributes:
        socket_ifname: Interfaces for start-up, and for data without InfiniBand: prefixes (``eth``), ``=eth0`` for
            exact names, ``^docker`` for all others.
        ib_disable: Whether InfiniBand and RoCE are left unused.
        ib_hca: Their adapters, as ``socket_ifname`` names interfaces; a port follows a colon (``=mlx5_0:1``).
        buffsize: Bytes of the buffer between two GPUs, for each channel.
        algo: Algorithms, ``tree`` or ``ring,tree`` or by function ``allreduce:tree;broadcast:ring``.
        proto: Protocols likewise: LL, LL128, Simple.
        nthreads: Threads of a CUDA block.
        max_nchannels: Channels at most, each a CUDA block.
        debug: What NCCL prints: VERSION, WARN, INFO or TRACE.
    """

    OF_HOST: ClassVar[frozenset[str]] = frozenset({"socket_ifname", "ib_hca"})

    socket_ifname: str | None = _setting(
        "NCCL_SOCKET_IFNAME", "NCCL fails where none matches; a plain name is a prefix, so write =eth0 for eth0 alone"
    )
    ib_disable: bool | None = _setting(
        "NCCL_IB_DISABLE",
        "data between hosts then goes over TCP, mostly several times slower; to find faults, not to keep",
        write=lambda value: str(int(value)),
    )
    ib_hca: str | None = _setting(
        "NCCL_IB_HCA", "NCCL takes all adapters by itself; keep it off those of storage networks with ^mlx5_2"
    )
    buffsize: int | None = _setting(
        "NCCL_BUFFSIZE", "4 MiB by default; more takes more GPU memory for each channel and peer, less may slow it down"
    )
    algo: str | None = _setting(
        "NCCL_ALGO",
        "for measuring; NCCL falls back to nothing else, so what fits no link or dtype fails",
        write=lambda value: by_function(value, _ALGORITHMS),
    )
    proto: str | None = _setting(
        "NCCL_PROTO",
        "for measuring; LL128 forced where NCCL does not choose it itself may corrupt data",
        write=lambda value: by_function(value, _PROTOCOLS),
    )
    nthreads: int | None = _setting(
        "NCCL_NTHREADS", "by default 512 on most GPUs; a value that does not fit is replaced by NCCL without an error"
    )
    max_nchannels: int | None = _setting(
        "NCCL_MAX_NCHANNELS", "fewer leave more of the GPU to computation and lower the bandwidth"
    )
    debug: str | None = _setting(
        "NCCL_DEBUG", "WARN says why a call failed; INFO shows rings, trees and adapters, and much else"
    )

    def __post_init__(self) -> None:
        _check_names(self, "socket_ifname", "ib_hca")
        _check_kind(self, "ib_disable", bool)
        self._check_number("buffsize", _BUFFER, lambda size: size & (size - 1) == 0, "a power of two")
        self._check_number("nthreads", _THREADS, lambda count: count % _WARP == 0, "a multiple of 32")
        self._check_number("max_nchannels", (1, _CHANNELS), lambda count: True, "a number")
        for name, known in (("algo", _ALGORITHMS), ("proto", _PROTOCOLS)):
            _check_kind(self, name, str)
            if (text := getattr(self, name)) is not None and (wanted := _fault(text, known)):
                raise self._refuse(name, wanted)
        if self.debug is not None and self.debug not in _DEBUG:
            raise self._refuse("debug", f"one of {', '.join(_DEBUG)}")

    def _check_number(self, name: str, limits: tuple[int, int], fits: Callable[[int], bool], kind: str) -> None:
        _check_kind(self, name, int)
        value, (least, most) = getattr(self, name), limits
        if value is not None and not (least <= value <= most and fits(value)):
            shown = map(format_bytes, limits) if name == "buffsize" else map(str, limits)
            raise self._refuse(name, f"{kind} from {' to '.join(shown)}")

    def check_host(self, host: Host) -> None:
        """Refuse interfaces and adapters that a host does not have."""
        for name, there, kind in (("socket_ifname", host.interfaces, "interface"), ("ib_hca", host.hcas, "adapter")):
            text = getattr(self, name)
            if text is not None and not _matching(text, there):
                raise self._refuse(name, f"any {kind} of {host.name}, which has {', '.join(sorted(there)) or 'none'}")


@dataclass(frozen=True)
class GlooOptions(TransportOptions):
    """Settings of torch's own Gloo groups, such as a script's ``init_process_group("gloo")``.

    Attributes:
        socket_ifname: Interfaces by their exact names, separated by commas.
    """

    OF_HOST: ClassVar[frozenset[str]] = frozenset({"socket_ifname"})

    socket_ifname: str | None = _setting(
        "GLOO_SOCKET_IFNAME", "hpccomm's own backend gloo takes the address that all hosts reach, or HPCCOMM_INTERFACE"
    )

    def __post_init__(self) -> None:
        _check_names(self, "socket_ifname")

    def check_host(self, host: Host) -> None:
        """Refuse interfaces that a host does not have."""
        lacking = [name for name in (self.socket_ifname or "").split(",") if name and name not in host.interfaces]
        if lacking:
            there = ", ".join(sorted(host.interfaces))
            raise self._refuse("socket_ifname", f"interfaces of {host.name}, which has {there}")


def by_function(text: str, known: Mapping[str, frozenset[str]]) -> str:
    """Write names in NCCL's form by function, so that no function is left without one.

    ``NCCL_ALGO=Tree`` would leave all functions but AllReduce without any algorithm, and NCCL fall back to none.

    Args:
        text: Names, or ``function:names`` separated by semicolons; a list may begin with ``^`` for all others.
        known: The functions that have each name.
    """
    said = []
    for entry in text.split(";"):
        function, colon, names = entry.rpartition(":")
        others = "^" if names.startswith("^") else ""
        for each in [function] if colon else _FUNCTIONS:
            if here := _named(names, each, known):
                said.append(f"{each.lower()}:{others}{','.join(here)}")
    return ";".join(said)


def _named(names: str, function: str, known: Mapping[str, frozenset[str]]) -> list[str]:
    """Give the names of a list that a function has; none where it is left without any."""
    having = [name for name, functions in known.items() if _FUNCTIONS[function.lower()] in functions]
    here = [name for one in names.removeprefix("^").split(",") if (name := _spelt(one, known)) in having]
    return [] if names.startswith("^") and set(here) == set(having) else here


def _fault(text: str, known: Mapping[str, frozenset[str]]) -> str:
    """Say what should stand instead of a text, or nothing."""
    for number, entry in enumerate(text.split(";")):
        function, colon, names = entry.rpartition(":")
        chosen = names.removeprefix("^").split(",")
        if colon and function.lower() not in _FUNCTIONS:
            return f"names behind one of the functions {', '.join(_FUNCTIONS.values())}"
        if number and not colon:
            return "a function before each entry but the first"
        if not all(_spelt(name, known) for name in chosen):
            return f"names out of {', '.join(known)}"
        if colon and len(_named(names, function, known)) < len(chosen):
            having = [name for name, functions in known.items() if _FUNCTIONS[function.lower()] in functions]
            return f"for {function} some of {', '.join(having)}"
    return ""


def _spelt(name: str, known: Collection[str]) -> str:
    return next((one for one in known if one.lower() == name.strip().lower()), "")


def _matching(text: str, there: Collection[str]) -> list[str]:
    """Give the names that NCCL would take: by prefix, exactly after ``=``, all others after ``^``."""
    others, text = text.startswith("^"), text.removeprefix("^")
    exact, text = text.startswith("="), text.removeprefix("=")
    wanted = [entry.partition(":")[0] for entry in text.split(",")]
    found = [name for name in there if any(name == one if exact else name.startswith(one) for one in wanted if one)]
    return [name for name in there if name not in found] if others else found


def _check_names(options: TransportOptions, *names: str) -> None:
    for name in names:
        _check_kind(options, name, str)
        if getattr(options, name) is not None and not getattr(options, name).strip("^="):
            raise options._refuse(name, "a name, or several separated by commas")


def _check_kind(options: TransportOptions, name: str, kind: type) -> None:
    value = getattr(options, name)
    if value is not None and type(value) is not kind:
        raise options._refuse(name, f"of type {kind.__name__}")
