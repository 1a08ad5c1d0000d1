"""A system: who drafts, how long, for which target, and what was measured where. A value only; file.py keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, final

from ...core.identity import Identity
from ...errors import UnsupportedOption

if TYPE_CHECKING:
    from ..engine import Engine

FORM = ("dtype", "weights", "runner", "activations")
USUAL = "as usual"  # activations of which nothing is said
MACHINE = ("device", "hardware", "cores", "threads", "padded", "python", "versions")


@final
@dataclass(frozen=True, slots=True)
class Target:
    """A model, by the name or path that forerun.load takes, who it is, and in which form it was opened."""

    model: str
    identity: Identity
    dtype: str | None = None
    weights: str = ""
    runner: str = "auto"
    activations: int | None = None

    @property
    def form(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in FORM}


@final
@dataclass(frozen=True, slots=True)
class System:
    """A drafter and a policy, each by name with its options. target None: a method that fits any model.

    tuned_on is the machine and the versions that `measured`, any figures, belongs to.
    """

    name: str
    drafter: str
    drafter_options: Mapping[str, Any] = field(default_factory=dict)
    policy: str = "fixed"
    policy_options: Mapping[str, Any] = field(default_factory=dict)
    target: Target | None = None
    tuned_on: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, Any] = field(default_factory=dict)

    def method(self) -> dict[str, Any]:
        """The drafter and the policy as they stand in the file."""
        return {
            "drafter": {"name": self.drafter, **self.drafter_options},
            "policy": {"name": self.policy, **self.policy_options},
        }

    def as_dict(self) -> dict[str, Any]:
        target = {} if self.target is None else {"target": asdict(self.target)}
        figures = {"tuned_on": dict(self.tuned_on), "measured": dict(self.measured)}
        return {"name": self.name, **target, **self.method(), **figures}

    def opening(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The form to open the target in: what is given, and the system's own where None is."""
        own = {} if self.target is None else self.target.form
        return {**own, **{name: value for name, value in given.items() if value is not None}}

    def check(self, identity: Identity) -> None:
        """Raises UnsupportedOption where the system was tuned for another model."""
        reason = None if self.target is None else identity.difference(self.target.identity)
        if self.target is not None and reason is not None:
            raise UnsupportedOption(
                f"the system {self.name!r} was tuned for {self.target.model}, which is another model: {reason}; "
                "tune this one, or load that one"
            )

    def method_on(self, engine: Engine) -> Engine:
        """The engine's model with the system's method. Raises what check and Engine.using raise."""
        self.check(engine.identity)
        return engine.using(
            self.drafter, self.policy, drafter_options=self.drafter_options, policy_options=self.policy_options
        )

    def departures(self, engine: Engine, form: Mapping[str, Any]) -> str | None:
        """A sentence on what an engine, opened in this form, has otherwise than the measurement; None for nothing."""
        from ..measurement_conditions import conditions

        then = {} if self.target is None else self.target.form
        if then:
            then["activations"] = then["activations"] or USUAL
        then |= {name: self.tuned_on[name] for name in MACHINE if name in self.tuned_on}
        now = {
            **conditions(engine, ""),
            "weights": form.get("weights", ""),
            "runner": form.get("runner", "auto"),
            "activations": form.get("activations") or USUAL,
        }
        here = _flat(now)
        found = [
            f"{name} is {_described(here.get(name))} here and {_described(value)} there"
            for name, value in _flat(then).items()
            if here.get(name) != value and (name, value) != ("dtype", None)
        ]
        if not found:
            return None
        return f"the system {self.name!r} was tuned under other conditions, so its speed may differ: {', '.join(found)}"


def target_of(
    engine: Engine, model: str, weights: str = "", runner: str = "auto", activations: int | None = None
) -> Target:
    """The target of a system that was measured on this engine, which was opened from `model` so."""
    dtype = str(engine.runner.dtype).removeprefix("torch.")
    return Target(model, engine.identity, dtype, weights, runner, activations)


def machine_of(engine: Engine) -> dict[str, Any]:
    """What a system's figures depend on beside its target: tuned_on of a system that is measured now."""
    from ..measurement_conditions import conditions

    told = conditions(engine, "")
    return {name: told[name] for name in MACHINE}


def _flat(told: Mapping[str, Any]) -> dict[str, Any]:
    versions = told.get("versions")
    return {
        **{name: value for name, value in told.items() if name != "versions"},
        **(versions if isinstance(versions, Mapping) else {}),
    }


def _described(value: Any) -> str:
    return "unknown" if value is None else "the model's own" if value == "" else str(value)
