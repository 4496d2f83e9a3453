"""Exchanges layers of a live module for other implementations, which are judged as they run.

    with verax.torch.substitute(net, {"layer1.*.conv2": numpy_conv}) as run:
        loss = criterion(net(x), y)
        loss.backward()
    print(run)

Parameters stay the module's own, so optimizers go on working, and gradients reach them through the
layer's meaning. Leaving the block puts everything back, after an exception too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from verax.base.errors import UsageError
from verax.base.optional import optional
from verax.torch.calls import LayerCall, call_of_function, call_of_module
from verax.torch.custom import overload_of
from verax.torch.exchange import ExchangeSite
from verax.torch.live_module import LiveModule, live_module_of
from verax.torch.replacements import Replacement, parameters_of, replacement_of
from verax.torch.substituted import LayerReport, Sides, SubstitutionReport

torch: Any = optional("torch", "to use verax.torch")
BACKWARDS = ("reference", "own")
LOSSES = ("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
          "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div")  # fmt: skip
"""Functions of torch.nn.functional that are seen when they are given what the network gave."""


class substitute(SubstitutionReport):
    """Exchange layers of `net` while a `with` block runs; the block's value is the report.

    replacements: what is exchanged, and for what. A key is a pattern of module names
    ("layer1.*.conv2"), a type of module, a predicate of (name, module), or a function such as
    `F.conv2d` or an operator of torch.library, whose calls inside of the network are caught. A
    value is a function of arrays, a pair of forward and backward, `of_tensors(function)`, a module,
    an operator of `verax.torch.operator`, a compiled program, a runner's name ("onnxruntime"), or
    `verax.torch.reference`. A function is given the layer's inputs by
    position, and the parameters and settings that its signature names (weight, bias, stride, ...).
    The first key that fits wins, and an outer module before those in it.
    backward: "reference" derives gradients from the layer's meaning in float64; "own" asks the
    replacement for them and judges them against that.
    calls: how many calls of each layer are judged, None for all, 0 for none. compare: also run the
    network as it was, so that `loss`, `accuracy` and each layer's `drift` have a before. winograd:
    whether a replacement may use Winograd's algorithm.

    Raises `UsageError` when a key fits nothing or a value cannot be a replacement; in the block,
    `UsageError` when a replacement gives other shapes than the layer, and `UnsupportedError` when
    the layer's meaning is not known.
    """

    def __init__(
        self,
        net: Any,
        replacements: Mapping[Any, Any],
        *,
        backward: str = "reference",
        calls: int | None = 1,
        compare: bool = True,
        winograd: bool = True,
    ) -> None:
        super().__init__()
        if backward not in BACKWARDS:
            raise UsageError(
                f"backward is {backward!r}", next_step=f"choose one of {', '.join(BACKWARDS)}"
            )
        self.net, self.compare = net, compare
        self._options: dict[str, Any] = {
            "own": backward == "own",
            "calls": calls,
            "winograd": winograd,
        }
        self._live_module = live_module_of(net)
        self._modules, self._functions = _selected_layers(net, self._live_module, replacements)
        self._saved: list[tuple[Any, Any]] = []
        self._mode: Any = None
        self._plain = False  # whether the network runs as it was
        self._inside = 0
        self._counts: dict[str, int] = {}
        self._before: dict[str, Any] = {}
        self._last: tuple[Any, Any] | None = None

    def __enter__(self) -> substitute:
        if self._saved:
            raise UsageError("the block is open already", next_step="call substitute again")
        try:
            for name, (module, replacement) in self._modules.items():
                self._put(module, self._exchanged(name, module, replacement))
            self._put(self.net, self._network_forward())
            if self._functions or self.compare:
                self._mode = _Catching(self)
                self._mode.__enter__()
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            if self._mode is not None:
                self._mode.__exit__(*error)
        finally:
            self._mode = None
            self._restore()

    def _put(self, module: Any, forward: Callable[..., Any]) -> None:
        attribute = self._live_module.attribute
        self._saved.append((module, vars(module).get(attribute)))
        vars(module)[attribute] = forward  # past Keras's own ways of setting

    def _restore(self) -> None:
        while self._saved:
            module, before = self._saved.pop()
            if before is None:
                vars(module).pop(self._live_module.attribute, None)
            else:
                vars(module)[self._live_module.attribute] = before

    def _exchanged(self, name: str, module: Any, replacement: Replacement) -> Callable[..., Any]:
        plain = getattr(module, self._live_module.attribute)
        names = _positional(plain)
        site = self._site(name, type(module).__name__, replacement)

        def forward(*args: Any, **kwargs: Any) -> Any:
            if self._plain:
                result = plain(*args, **kwargs)
                self._before[name] = result
                return result
            call = call_of_module(name, module, self._live_module, plain, names, args, kwargs)
            if any(t.is_meta for t in call.tensors):  # somebody asks for shapes, as Keras does
                return plain(*args, **kwargs)
            return self._run_replacement(site, call)

        return forward

    def _run_replacement(self, site: ExchangeSite, call: LayerCall) -> Any:
        with self._as_it_was():  # whatever the layer calls is its own affair
            result = site(call)
        site.report.drifts_from(self._before.pop(call.name, None), result)
        return result

    def _site(self, name: str, operator: str, replacement: Replacement) -> ExchangeSite:
        report = LayerReport(name, operator, replacement.words)
        self.layers[name] = report
        return ExchangeSite(replacement, report, **self._options)

    def _network_forward(self) -> Callable[..., Any]:
        """The network's own forward: counts calls, and runs it as it was first where asked to."""
        plain = getattr(self.net, self._live_module.attribute)

        def forward(*args: Any, **kwargs: Any) -> Any:
            if self._plain or self._inside:
                return plain(*args, **kwargs)
            before = self._as_before(plain, args, kwargs) if self.compare else None
            self._counts.clear()
            self._inside += 1
            try:
                result = plain(*args, **kwargs)
            finally:
                self._inside -= 1
            self._last = (result, before)
            return result

        return forward

    def _as_before(self, plain: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """What the network gives as it was; buffers and random numbers are as if it had not run."""
        buffers = [(v, v.detach().clone()) for v in self._live_module.changing(self.net)]
        self._counts.clear()
        self._inside += 1
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]), self._as_it_was():
                return plain(*args, **kwargs)
        finally:
            self._inside -= 1
            with torch.no_grad():
                for v, saved in buffers:
                    v.copy_(saved)

    def _as_it_was(self) -> _AsItWas:
        return _AsItWas(self)

    # Functions that are called inside, and losses of what came out

    def caught(self, function: Any, args: Any, kwargs: Any) -> Any:
        """A call of PyTorch's while the block runs."""
        replacement = self._functions.get(function) if self._inside else None
        if replacement is not None:
            return self._function(function, replacement, args, kwargs)
        result = function(*args, **kwargs)
        kind = getattr(function, "__name__", "")
        if not self._inside and self._last is not None and kind in LOSSES and args:
            outputs, before = self._last
            if args[0] is outputs and before is not None:
                self._seen_loss(function, result, before, args, kwargs)
        return result

    def _function(self, function: Any, replacement: Replacement, args: Any, kwargs: Any) -> Any:
        schema = getattr(function, "_schema", None)  # of an operator of torch.library
        kind = str(schema.name if schema else getattr(function, "__name__", function))
        index = self._counts.get(kind, 0)
        self._counts[kind] = index + 1
        name = f"{kind} {index}"
        if self._plain:
            self._before[name] = result = function(*args, **kwargs)
            return result
        report = self.layers.get(name)
        site = self._sites.get(name)
        if report is None or site is None:
            site = self._sites[name] = self._site(name, kind, replacement)
        return self._run_replacement(
            site, call_of_function(name, function, _positional(function), args, kwargs)
        )

    def _seen_loss(self, function: Any, after: Any, before: Any, args: Any, kwargs: Any) -> None:
        with torch.no_grad():
            was = function(before, *args[1:], **kwargs)
        if after.numel() == 1:
            self.losses.append(Sides(float(was), float(after.detach())))
        target = args[1] if len(args) > 1 else kwargs.get("target")
        outputs = args[0].detach()
        classes = isinstance(target, torch.Tensor) and not target.is_floating_point()
        if classes and outputs.ndim == target.ndim + 1:
            right = [float((o.argmax(1) == target).double().mean()) for o in (before, outputs)]
            self.accuracies.append(Sides(*right))


class _AsItWas:
    """While it is entered, layers are as they were; it may be entered again inside."""

    def __init__(self, run: substitute) -> None:
        self.run, self.was = run, run._plain

    def __enter__(self) -> None:
        self.was, self.run._plain = self.run._plain, True

    def __exit__(self, *error: Any) -> None:
        self.run._plain = self.was


class _Catching(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
    def __init__(self, run: substitute) -> None:
        super().__init__()
        self.run = run

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self.run.caught(function, args, kwargs or {})


def _selected_layers(
    net: Any, live_module: LiveModule, replacements: Mapping[Any, Any]
) -> tuple[dict[str, tuple[Any, Replacement]], dict[Any, Replacement]]:
    """Modules by name and functions, with what takes their place."""
    layers = list(live_module.layers(net))
    modules: dict[str, tuple[Any, Replacement]] = {}
    functions: dict[Any, Replacement] = {}
    for key, value in replacements.items():
        replacement = replacement_of(value)
        overload = overload_of(key)
        if isinstance(overload, torch._ops.OpOverload):
            functions[overload] = replacement
            continue
        if not isinstance(key, str | type) and torch.overrides.resolve_name(key) is not None:
            functions[key] = replacement
            continue
        matches = {n: m for n, m in layers if _fits(key, n, m)}
        if not matches:
            outer = {n.rpartition(".")[0] for n, _ in layers}
            listed = ", ".join(n for n, _ in layers if n not in outer)
            raise UsageError(
                f"no layer fits {key!r}",
                place=type(net).__name__,
                next_step=f"its layers are {listed}",
            )
        for name, module in matches.items():
            modules.setdefault(name, (module, replacement))
    # A module inside of one that is exchanged is never called.
    inner = {n for n in modules for outer in modules if n.startswith(f"{outer}.")}
    return {n: pair for n, pair in modules.items() if n not in inner}, functions


def _fits(key: Any, name: str, module: Any) -> bool:
    if isinstance(key, str):
        return fnmatchcase(name, key)
    if isinstance(key, type):
        return isinstance(module, key)
    if callable(key):
        return bool(key(name, module))
    raise UsageError(
        f"a layer cannot be chosen by a {type(key).__name__}",
        next_step="give a pattern of names, a type, a predicate of (name, module), or a function "
        "such as torch.nn.functional.conv2d",
    )


def _positional(function: Callable[..., Any]) -> list[str]:
    """Names of a function's positional parameters."""
    return [p.name for p in parameters_of(function) if p.kind is not p.VAR_KEYWORD]
