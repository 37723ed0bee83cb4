"""Mirostat: the surprise of the drawn tokens is kept near a target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated

import numpy as np

from ringlet.core.candidates import Candidates
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext

TAU = Parameter("the surprise aimed at, in bits a token", minimum=0)
ETA = Parameter("how fast the surprise allowed follows what is drawn", minimum=0)


class MirostatLoop(ABC):
    """Feedback: what surprised more than τ lowers the surprise allowed, μ, and what surprised less raises it.

    μ begins at 2τ; after a draw of surprise s = −log₂ p, with p among the tokens that were left, μ ← μ − η(s − τ). The
    drawn token is read from the text at the next step, so μ belongs to a step: a text that is rewound finds it again.
    """

    takes_candidates = True

    def __init__(self, tau: float, eta: float) -> None:
        self.tau, self.eta = tau, eta
        self._mu = [2 * tau]  # by step
        self._left: Candidates | None = None  # of the latest step

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        self._follow(context)
        self._left = self.truncate(candidates, self._mu[context.step])
        return self._left

    def pick(self, candidates: Candidates, context: SamplerContext) -> int:
        return self(candidates, context).draw(context.rng)

    @abstractmethod
    def truncate(self, candidates: Candidates, mu: float) -> Candidates:
        """Without what would surprise too much."""

    def _follow(self, context: SamplerContext) -> None:
        """Bring μ to the context's step."""
        if context.step < len(self._mu):  # this step again, or one before
            del self._mu[context.step + 1 :]
            return
        mu = self._mu[-1]
        if context.step == len(self._mu) and self._left is not None:
            drawn = np.flatnonzero(self._left.ids == context.token_ids[-1])
            if len(drawn):  # else another chose the token
                surprise = -np.log2(self._left.probabilities[drawn[0]])
                mu -= self.eta * (surprise - self.tau)
        self._mu += [mu] * (context.step + 1 - len(self._mu))


class Mirostat(MirostatLoop):
    """Keeps the surprise of the drawn tokens near τ, by a top-k that follows it.

    Basu et al. 2021, Mirostat, algorithm 1; as in llama.cpp. Of the m likeliest tokens, the exponent s of Zipf's law
    is estimated, s = Σ tᵢbᵢ / Σ tᵢ², tᵢ = ln((i+1)/i), bᵢ = ln(pᵢ/pᵢ₊₁) (eq. 6); then

        k = ((ε·2^μ) / (1 − N^−ε))^(1/s),  ε = s − 1,  N = d_vocab

    of the likeliest tokens are left (eq. 5), one at least. It draws the token, and stands last.
    """

    name = "mirostat"

    def __init__(
        self,
        tau: Annotated[float, TAU] = 5.0,
        eta: Annotated[float, ETA] = 0.1,
        m: Annotated[int, Parameter("the likeliest tokens that Zipf's law is fitted to", minimum=2)] = 100,
    ) -> None:
        super().__init__(tau, eta)
        self.m = m

    def truncate(self, candidates: Candidates, mu: float) -> Candidates:
        s = zipf_exponent(candidates.top(self.m).logits)
        if np.isnan(s):
            return candidates
        epsilon, log_n = s - 1, np.log(candidates.d_vocab)
        ratio = -epsilon / np.expm1(-epsilon * log_n) if epsilon else 1 / log_n  # ε / (1 − N^−ε), and its limit
        k = np.power(ratio * np.exp2(mu), np.divide(1, s))
        return candidates.top(max(1, int(min(k, len(candidates)))))


def zipf_exponent(logits: np.ndarray) -> float:
    """The exponent s of pᵢ ∝ i^−s that fits these logits best; NaN for fewer than two."""
    if len(logits) < 2:
        return np.nan
    ordered = -np.sort(-logits.astype(np.float64))
    ranks = np.arange(1, len(ordered))
    t, b = np.log((ranks + 1) / ranks), ordered[:-1] - ordered[1:]
    return float((t * b).sum() / (t * t).sum())


class MirostatV2(MirostatLoop):
    """Keeps the surprise of the drawn tokens near τ, by removing what would surprise more than μ follows.

    Basu et al. 2021, Mirostat, as its authors simplified it (github.com/basusourya/mirostat) and llama.cpp has it:
    tokens with −log₂ pᵢ ≤ μ are left, the likeliest at least. It draws the token, and stands last.
    """

    name = "mirostat_v2"

    def __init__(self, tau: Annotated[float, TAU] = 5.0, eta: Annotated[float, ETA] = 0.1) -> None:
        super().__init__(tau, eta)

    def truncate(self, candidates: Candidates, mu: float) -> Candidates:
        log_p_of_likeliest = -np.log(candidates.total)
        return candidates.at_least(candidates.largest + min(0.0, -log_p_of_likeliest - mu * np.log(2)))


@hookimpl
def register_samplers(register: Register) -> None:
    register(Mirostat)
    register(MirostatV2)
