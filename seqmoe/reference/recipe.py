"""The recipe of the reference model: one frozen value that fixes the model, the text mixture and the training."""

from __future__ import annotations

from dataclasses import asdict, dataclass

END_OF_TEXT = "<|endoftext|>"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that `seqmoe reference train` needs besides the text itself.

    Sizes are counts; ``tokens`` is the training budget in tokens, ``learning_rate`` the peak of a
    warm-up / constant / linear-decay schedule whose two ramps are given as shares of all steps. Routing is held within
    bounds (see `seqmoe.reference.routing_losses`): a layer's load-balancing loss counts above ``balance_margin``, and
    after ``reuse_start_share`` of the steps its overlap between consecutive tokens is drawn up to ``reuse_target``.
    """

    hidden_size: int = 96
    layers: int = 12
    attention_heads: int = 4
    key_value_heads: int = 2
    head_size: int = 32
    experts: int = 64
    top_k: int = 6
    expert_width: int = 32
    vocabulary: int = 4096
    context: int = 2048

    sequence_length: int = 512
    sequences_per_step: int = 4
    tokens: int = 10_000_000
    learning_rate: float = 2e-3
    warmup_share: float = 0.03
    decay_share: float = 0.35
    weight_decay: float = 0.05
    gradient_clip: float = 1.0
    balance_weight: float = 0.3
    balance_margin: float = 1.7
    reuse_weight: float = 0.5
    reuse_target: float = 0.4
    reuse_start_share: float = 0.433
    capacity_factor: float = 1.5
    held_out_share: float = 0.02
    seed: int = 0

    def __post_init__(self) -> None:
        if self.expert_width % 32:
            raise ValueError(f"expert_width={self.expert_width}: CPU matrix kernels need a multiple of 32")
        if not 0 < self.top_k <= self.experts:
            raise ValueError(f"top_k={self.top_k} must lie in 1..experts={self.experts}")
        if self.warmup_share + self.decay_share > 1:
            raise ValueError("warmup_share + decay_share must not exceed 1")

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one optimizer step sees."""
        return self.sequence_length * self.sequences_per_step

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return max(1, self.tokens // self.tokens_per_step)

    def learning_rate_at(self, step: int) -> float:
        """Learning rate of optimizer step ``step`` (from 0): linear warm-up, plateau, linear decay to 2 %."""
        warmup = max(1, round(self.steps * self.warmup_share))
        decay = max(1, round(self.steps * self.decay_share))
        if step < warmup:
            return self.learning_rate * (step + 1) / warmup
        remaining = self.steps - step
        if remaining >= decay:
            return self.learning_rate
        return self.learning_rate * max(0.02, remaining / decay)

    def as_dict(self) -> dict[str, int | float]:
        """The recipe as plain values, for the model card and the checkpoint."""
        return asdict(self)
