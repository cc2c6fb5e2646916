"""Writing of a checkpoint as one GGUF file, and the cache of such files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf

from seqmoe.reference.checkpoint_weights import weight_files
from seqmoe.reference.gguf_file.families import decoder_of
from seqmoe.reference.gguf_file.source import Source, read_config
from seqmoe.reference.gguf_file.vocabulary import Vocabulary, read_vocabulary
from seqmoe.spec.errors import InputError, nearest
from seqmoe.spec.files import files_sha256, replacing

# Part of the cache key: raise it whenever the bytes that `export_gguf` writes for a checkpoint change.
GGUF_REVISION = 1
GGUF_TYPES = {
    "f32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "bf16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
}


def export_gguf(checkpoint: Path, out: Path, matrices: str = "f32") -> Path:
    """Write the checkpoint as one GGUF file of its family's architecture; returns ``out``.

    ``matrices`` is f32 or bf16. bfloat16 weights become float32 without loss, so that llama.cpp's greedy tokens can be
    compared with ours; as bf16 they are what the checkpoint stores, but llama.cpp then rounds activations too. MXFP4
    experts stay what they are. Tensors are written one after another: memory stays at one layer's experts. The file
    appears whole or not at all. Raises `InputError` for a family that is not written and a checkpoint that its
    architecture cannot express, naming the key of config.json.
    """
    if matrices not in GGUF_TYPES:
        raise InputError(f"GGUF type {matrices!r} is unknown; {nearest(matrices, GGUF_TYPES)}")
    kind, file_type = GGUF_TYPES[matrices]
    config = read_config(checkpoint)
    decoder = decoder_of(config, checkpoint)
    vocabulary = read_vocabulary(checkpoint / "tokenizer.json", int(config.vocab_size), _end_of_text(config))
    out.parent.mkdir(parents=True, exist_ok=True)
    with Source(checkpoint, config) as source, replacing(out) as partial:
        writer = gguf.GGUFWriter(partial, decoder.architecture)
        writer.add_file_type(file_type)
        decoder.write(writer, config, checkpoint.name)
        _write_vocabulary(writer, vocabulary)
        tensors = list(decoder.tensors(source))
        for tensor in tensors:
            tensor.announce(writer, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in tensors:
            try:
                writer.write_tensor_data(tensor.values(kind))
            except ValueError as error:
                raise InputError(f"{checkpoint}: {error}") from None
        writer.close()
    return out


def cached_gguf(checkpoint: Path, cache: Path, matrices: str = "f32") -> Path:
    """The checkpoint's GGUF inside the folder ``cache``, named by the checkpoint's content and written only once."""
    out = cache / f"{checkpoint.name}-{checkpoint_hash(checkpoint)[:16]}-{matrices}.gguf"
    return out if out.is_file() else export_gguf(checkpoint, out, matrices)


def checkpoint_hash(checkpoint: Path) -> str:
    """SHA-256 (hex) over the files that an export reads, their names, and the exporter's revision.

    Raises `InputError` where they cannot become a GGUF, before they are read.
    """
    decoder_of(read_config(checkpoint), checkpoint)
    paths = (checkpoint / "config.json", checkpoint / "tokenizer.json", *weight_files(checkpoint))
    return files_sha256(paths, prefix=f"gguf {GGUF_REVISION}")


def _end_of_text(config: Any) -> int | None:
    eos = config.eos_token_id
    return eos[0] if isinstance(eos, list) else eos


def _write_vocabulary(writer: gguf.GGUFWriter, vocabulary: Vocabulary) -> None:
    cutting = vocabulary.cutting
    writer.add_tokenizer_model(cutting.model)
    if cutting.split:
        writer.add_tokenizer_pre(cutting.split)
    writer.add_token_list(list(vocabulary.tokens))
    if cutting.model == "llama":
        writer.add_token_scores(vocabulary.scores)
        writer.add_add_space_prefix(cutting.prefix)
    writer.add_token_types(list(vocabulary.types))
    if cutting.model != "llama":
        writer.add_token_merges(list(vocabulary.merges))
    writer.add_eos_token_id(vocabulary.end_of_text)
    if vocabulary.begin is not None:
        writer.add_bos_token_id(vocabulary.begin)
    writer.add_add_bos_token(vocabulary.begin is not None)
