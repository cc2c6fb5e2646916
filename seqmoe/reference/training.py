"""Training of the reference model from scratch on one CPU thread, killable and resumable at any checkpoint."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM

from seqmoe.reference import capacity_experts, corpus, tokenizer
from seqmoe.reference.recipe import Recipe
from seqmoe.reference.routing_losses import measure_routing, routing_loss

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Data:
    """Token streams (int64, documents joined by end-of-text) and where they came from."""

    train: np.ndarray
    held_out: np.ndarray
    sources: list[dict[str, object]]


def model_config(recipe: Recipe) -> Qwen3MoeConfig:
    """The recipe as a Transformers configuration."""
    return Qwen3MoeConfig(
        vocab_size=recipe.vocabulary,
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.expert_width * recipe.top_k,
        moe_intermediate_size=recipe.expert_width,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.attention_heads,
        num_key_value_heads=recipe.key_value_heads,
        head_dim=recipe.head_size,
        num_experts=recipe.experts,
        num_experts_per_tok=recipe.top_k,
        norm_topk_prob=True,
        max_position_embeddings=recipe.context,
        tie_word_embeddings=True,
        initializer_range=0.04,
        router_aux_loss_coef=0.0,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )


def prepare(recipe: Recipe, folder: Path) -> tuple[PreTrainedTokenizerFast, Data]:
    """Train the tokenizer and tokenize all text once; later calls read both back from ``folder``."""
    stream = folder / "tokens.npz"
    if stream.exists():
        stored = np.load(stream)
        described = json.loads((folder / "sources.json").read_text())
        return (
            PreTrainedTokenizerFast.from_pretrained(folder / "tokenizer"),
            Data(stored["train"].astype(np.int64), stored["held_out"].astype(np.int64), described),
        )
    folder.mkdir(parents=True, exist_ok=True)
    found = corpus.sources(recipe.seed)
    for missing in (s for s in found if not s.documents):
        log.warning("text source %s is absent; the package %s brings it", missing.name, missing.package)
    documents = [text for source in found for text in source.documents]
    learned = tokenizer.train(
        (d for d in documents if not corpus.is_held_out(d, recipe.held_out_share)), recipe.vocabulary
    )
    learned.save_pretrained(folder / "tokenizer")
    order = np.random.default_rng(recipe.seed).permutation(len(documents))
    parts: dict[bool, list[np.ndarray]] = {False: [], True: []}
    for index in order:
        text = documents[index]
        ids = np.asarray([*learned.backend_tokenizer.encode(text).ids, learned.eos_token_id], dtype=np.uint16)
        parts[corpus.is_held_out(text, recipe.held_out_share)].append(ids)
    described = [{"name": s.name, "licence": s.licence, "characters": s.characters} for s in found if s.documents]
    np.savez(stream, train=np.concatenate(parts[False]), held_out=np.concatenate(parts[True]))
    (folder / "sources.json").write_text(json.dumps(described, indent=1))
    return prepare(recipe, folder)


def batch_at(step: int, tokens: np.ndarray, recipe: Recipe) -> torch.Tensor:
    """Token ids [sequences_per_step, sequence_length + 1] of one step: windows drawn from (seed, step) alone."""
    rng = np.random.default_rng((recipe.seed, step))
    starts = rng.integers(0, len(tokens) - recipe.sequence_length - 1, recipe.sequences_per_step)
    return torch.from_numpy(np.stack([tokens[s : s + recipe.sequence_length + 1] for s in starts]))


def held_out_loss(model: Qwen3MoeForCausalLM, tokens: np.ndarray, recipe: Recipe, windows: int) -> float:
    """Mean next-token cross-entropy in nats over the first ``windows`` disjoint held-out windows."""
    length, total, count = recipe.sequence_length, 0.0, 0
    model.eval()
    with torch.no_grad():
        for start in range(0, min(windows * length, len(tokens) - length - 1), length):
            ids = torch.from_numpy(tokens[start : start + length + 1])[None]
            logits = model(ids[:, :-1]).logits.float()
            total += torch.nn.functional.cross_entropy(logits[0], ids[0, 1:], reduction="sum").item()
            count += length
    model.train()
    return total / count


def held_out_perplexity(checkpoint: Path, tokens: np.ndarray, recipe: Recipe) -> float:
    """Perplexity per token of a saved checkpoint, in float32, over all held-out windows."""
    model = Qwen3MoeForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    return math.exp(held_out_loss(model, tokens, recipe, windows=len(tokens) // recipe.sequence_length))


def train(recipe: Recipe, folder: Path, checkpoint_minutes: float = 5.0) -> Path:
    """Train to the end of the recipe; returns the folder of the finished checkpoint (bf16 safetensors + tokenizer).

    Progress is kept in ``folder``; a second call after an interruption continues from the last checkpoint. One thread:
    two on a busy machine with two cores are many times slower.
    """
    torch.set_num_threads(1)
    learned, data = prepare(recipe, folder)
    torch.manual_seed(recipe.seed)
    config = model_config(recipe)
    config._experts_implementation = capacity_experts.register(recipe.capacity_factor)
    model = Qwen3MoeForCausalLM(config).train()
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=recipe.learning_rate,
        betas=(0.9, 0.95),
        fused=True,
    )
    state_file, first = folder / "state.pt", 0
    if state_file.exists():
        state = torch.load(state_file, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
        log.info("resuming at step %d of %d", first, recipe.steps)

    started = saved = time.monotonic()
    for step in range(first, recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate_at(step)
        ids = batch_at(step, data.train, recipe)
        with torch.autocast("cpu", torch.bfloat16):
            out = model(ids[:, :-1], output_router_logits=True)
        loss = torch.nn.functional.cross_entropy(out.logits.float().flatten(0, 1), ids[:, 1:].flatten())
        routing = measure_routing(out.router_logits, recipe)
        optimizer.zero_grad(set_to_none=True)
        (loss + routing_loss(routing, recipe, step)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.gradient_clip)
        optimizer.step()

        now = time.monotonic()
        if step % 20 == 0:
            rate = (step + 1 - first) * recipe.tokens_per_step / (now - started)
            log.info(
                "step %d/%d loss %.3f balance %.3f overlap %.3f %.0f tok/s",
                step,
                recipe.steps,
                loss.item(),
                routing.balance.mean().item(),
                routing.overlap.mean().item(),
                rate,
            )
        if now - saved > checkpoint_minutes * 60 or step + 1 == recipe.steps:
            saved = now
            _save(state_file, model, optimizer, step + 1)
            _note(folder / "log.jsonl", recipe, step + 1, held_out_loss(model, data.held_out, recipe, windows=64))
            _export(model, learned, folder / "checkpoint")
    return folder / "checkpoint"


def _note(path: Path, recipe: Recipe, step: int, nats: float) -> None:
    """Append one point of the learning curve."""
    point = {"step": step, "tokens": step * recipe.tokens_per_step, "held_out_perplexity": round(math.exp(nats), 2)}
    log.info("step %(step)d, %(tokens)d tokens: held-out perplexity %(held_out_perplexity).1f", point)
    with path.open("a") as stream:
        stream.write(json.dumps(point) + "\n")


def _save(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    partial = path.with_suffix(".partial")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, partial)
    os.replace(partial, path)


def _export(model: Qwen3MoeForCausalLM, learned: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the weights in bf16; the training copy stays in fp32."""
    halved = Qwen3MoeForCausalLM(_plain_config(model)).to(torch.bfloat16)
    halved.load_state_dict({k: v.to(torch.bfloat16) for k, v in model.state_dict().items()})
    halved.save_pretrained(folder)
    learned.save_pretrained(folder)


def _plain_config(model: Qwen3MoeForCausalLM) -> Qwen3MoeConfig:
    """A copy of the model's configuration without the training-only experts function."""
    values = model.config.to_dict()
    values.pop("_experts_implementation", None)
    return Qwen3MoeConfig.from_dict(values)
