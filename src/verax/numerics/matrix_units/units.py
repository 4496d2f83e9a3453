"""Matrix units of GPUs as data: what each of them computes in a step, and who found out.

A step takes an accumulator and a group of products, cuts each of them some bits below the greatest
exponent among them, adds the cut numbers exactly and writes the sum back. `simulate` executes it.
Measured units reproduce recorded products of one H100 bit for bit. The others are as published and
were never run beside their hardware here: `is_measured` is False, and a verdict must not rest on
equality of bits with one of them.

Sources: [1] Li et al., "FTTN: Feature-Targeted Testing for Numerical Properties of NVIDIA & AMD
Matrix Accelerators", arXiv 2403.00232. [2] Xie et al., "MMA-Sim: Bit-Accurate Reference Model of
Tensor Cores and Matrix Cores", arXiv 2511.10909. [3] Fasi, Higham, Mikaitis, Pranesh, "Numerical
behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330, 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from verax.numerics.formats import FORMATS, FloatFormat
from verax.numerics.matrix_units.conversions import (
    AS_IS,
    BITS_13_CUT,
    FLOAT16_EVEN,
    FLOAT32_CUT,
    FLOAT32_EVEN,
    TF32_CUT,
    FactorConversion,
    WriteBack,
)

FUSED, PAIRWISE, STAGED, EXACT = "fused", "pairwise", "staged", "exact"
H100 = "NVIDIA H100 80GB HBM3, driver 580.159.04, CUDA 13.0"
FTTN, MMA_SIM, FASI = "arXiv 2403.00232", "arXiv 2511.10909", "PeerJ CS 7:e330"


@dataclass(frozen=True)
class MatrixUnit:
    """One kind of step.

    name: what verdicts call it. factors: formats of the left and the right factor.
    products_per_step: size of the group. kept_bits: bits kept below the greatest exponent. The
    exponent of a product is the sum of its factors' exponents (not normalized), and a subnormal
    factor has the least normal exponent. conversion: what the unit does to factors by itself.
    scheme: FUSED (accumulator and products are cut and added together), PAIRWISE (products added by
    pairs in float32, then the accumulator), STAGED (products first, then the accumulator, both cut
    downwards) or EXACT (integers). flushes: subnormal numbers count as zero, in and out.
    interleaved: STAGED sums the products of even and of odd index apart. factor_bits: significant
    bits of factors that have fewer than the format; 0: all of them.
    """

    name: str
    generation: str
    factors: tuple[str, str]
    products_per_step: int
    kept_bits: int
    write_back: WriteBack
    conversion: FactorConversion = AS_IS
    scheme: str = FUSED
    flushes: bool = False
    interleaved: bool = False
    factor_bits: int = 0
    measured_on: str = ""
    source: str = ""

    @property
    def is_measured(self) -> bool:
        return bool(self.measured_on)

    @property
    def formats(self) -> tuple[FloatFormat, FloatFormat]:
        """Formats of the left and the right factor."""
        left, right = self.factors
        return FORMATS[left], FORMATS[right]

    @property
    def product_bits(self) -> int:
        """Bits of a product after the place of its exponent: those of both factors."""
        if self.factor_bits:
            return 2 * (self.factor_bits - 1)
        return sum(f.precision - 1 for f in self.formats)


def _measured(
    name: str, fmt: str, group: int, kept: int, write_back: WriteBack, **more: object
) -> MatrixUnit:
    unit = MatrixUnit(name, "Hopper", (fmt, fmt), group, kept, write_back, measured_on=H100)
    return replace(unit, **more)  # type: ignore[arg-type]


TF32 = _measured("TF32", "tf32", 8, 25, FLOAT32_CUT, conversion=TF32_CUT)
BF16 = _measured("bf16 factors, float32 sums", "bfloat16", 16, 25, FLOAT32_CUT)
FP16 = _measured("fp16 factors, float32 sums", "float16", 16, 25, FLOAT32_CUT)
FP16_ACCUMULATION = _measured("fp16 accumulation", "float16", 16, 25, FLOAT16_EVEN)
FP16_ACCUMULATION_SHORT = replace(FP16_ACCUMULATION, products_per_step=8)
"""The instruction of 8 products, which cuBLAS takes for short sums."""
E4M3 = _measured("fp8 e4m3", "float8_e4m3fn", 32, 13, BITS_13_CUT)
E5M2 = _measured("fp8 e5m2", "float8_e5m2", 32, 13, BITS_13_CUT)
E5M2_E4M3 = replace(
    E5M2,
    name="fp8 e5m2 by e4m3",
    factors=("float8_e5m2", "float8_e4m3fn"),
)
INT8 = MatrixUnit(
    "int8, int32 sums",
    "Hopper",
    ("", ""),
    32,
    0,
    FLOAT32_EVEN,
    scheme=EXACT,
    measured_on=H100,
)
MEASURED = (TF32, BF16, FP16, FP16_ACCUMULATION, FP16_ACCUMULATION_SHORT, E4M3, E5M2, INT8)
E4M3_BY_FP16 = replace(FP16, name="fp8 e4m3 by fp16 units", factor_bits=4)
E5M2_BY_FP16 = replace(FP16, name="fp8 e5m2 by fp16 units", factor_bits=3)
"""What Hopper makes of FP8 in mma.sync."""


def _published(
    generation: str, unit: MatrixUnit, group: int, kept: int, source: str, **more: object
) -> MatrixUnit:
    """A unit of another generation, as the source has it, by its difference to Hopper's."""
    candidate = replace(
        unit,
        generation=generation,
        products_per_step=group,
        kept_bits=kept,
        measured_on="",
        source=source,
    )
    return replace(candidate, **more)  # type: ignore[arg-type]


_TWO = f"{FASI}; {MMA_SIM}"


def _amd(
    generation: str, name: str, fmt: str, group: int, scheme: str, **more: object
) -> MatrixUnit:
    unit = MatrixUnit(
        name,
        generation,
        (fmt, fmt),
        group,
        24,
        FLOAT32_EVEN,
        scheme=scheme,
        source=f"{FTTN}; {MMA_SIM}",
    )
    return replace(unit, **more)  # type: ignore[arg-type]


PUBLISHED = (
    _published("Volta", FP16, 4, 23, _TWO),
    _published("Volta", FP16_ACCUMULATION, 4, 23, _TWO),
    _published("Turing", FP16, 8, 24, MMA_SIM),
    _published("Turing", FP16_ACCUMULATION, 8, 24, MMA_SIM),
    *(
        unit
        for generation in ("Ampere", "Ada")
        for unit in (
            _published(generation, TF32, 4, 24, _TWO),
            _published(generation, BF16, 8, 24, _TWO),
            _published(generation, FP16, 8, 24, _TWO),
            _published(generation, FP16_ACCUMULATION, 8, 24, _TWO),
        )
    ),
    _published("Ada", E4M3, 16, 13, MMA_SIM),
    _published("Ada", E5M2, 16, 13, MMA_SIM),
    _published("Blackwell", TF32, 8, 25, MMA_SIM),
    _published("Blackwell", BF16, 16, 25, MMA_SIM),
    _published("Blackwell", FP16, 16, 25, MMA_SIM),
    _published("Blackwell", FP16_ACCUMULATION, 16, 25, MMA_SIM),
    _published("Blackwell", E4M3, 32, 25, MMA_SIM, write_back=FLOAT32_CUT),
    _published("Blackwell", E5M2, 32, 25, MMA_SIM, write_back=FLOAT32_CUT),
    _amd("CDNA1", "fp16 factors, float32 sums", "float16", 4, PAIRWISE),
    _amd("CDNA1", "bf16 factors, float32 sums", "bfloat16", 2, PAIRWISE),
    _amd("CDNA2", "fp16 factors, float32 sums", "float16", 4, PAIRWISE, flushes=True),
    _amd("CDNA2", "bf16 factors, float32 sums", "bfloat16", 4, PAIRWISE, flushes=True),
    _amd("CDNA3", "TF32", "tf32", 4, STAGED, conversion=TF32_CUT),
    _amd("CDNA3", "fp16 factors, float32 sums", "float16", 8, STAGED),
    _amd("CDNA3", "bf16 factors, float32 sums", "bfloat16", 8, STAGED),
    _amd("CDNA3", "fp8 e4m3", "float8_e4m3fnuz", 16, STAGED, interleaved=True),
    _amd("CDNA3", "fp8 e5m2", "float8_e5m2fnuz", 16, STAGED, interleaved=True),
)
"""Volta to Blackwell (B200), AMD's CDNA 1 to 3 (MI100, MI200, MI300): facts of the sources."""


def published(generation: str) -> tuple[MatrixUnit, ...]:
    """The units of a generation that were not measured here; KeyError with the known names."""
    result = tuple(u for u in PUBLISHED if u.generation == generation)
    if not result:
        known = ", ".join(dict.fromkeys(u.generation for u in PUBLISHED))
        raise KeyError(f"no published units of {generation!r}; known: {known}")
    return result
