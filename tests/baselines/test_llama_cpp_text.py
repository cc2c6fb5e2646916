"""Protects the vocabulary of a GGUF: llama.cpp cuts text into the tokens that the checkpoint's tokenizer does."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from gguf_samples import save_expressible
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from seqmoe.harness.environments import environment_python, is_installed
from seqmoe.reference.gguf_file import cutting
from seqmoe.reference.gguf_file.file import export_gguf
from seqmoe.spec.baseline import load_baselines
from seqmoe.spec.paths import find_home

VOCABULARY = 300 + 256
TRAINED = [
    "The cat's mat, and IT'S 1234 hats: don't!\n\n  def mat(cat):\n    return cat.Hat + 12\n",
    "naïve CafÉ au lait",
] * 9
TEXTS = [
    "the cat", " The cat's hat isn't IT'S 2024 or 12345678", "def  mat(x):\n\n\treturn x /= 3//2\n",
    "naïve cafe\u0301 ÉA", "Γειά σου 世界 \U0001f600!", "a   b\r\n\r\n c ",
]  # fmt: skip
ASK = """
import json, sys
from urllib.request import Request, urlopen
import xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.n_ctx, parameters.warmup, parameters.ui, parameters.fit_params = 64, False, False, False
server = xllamacpp.Server(parameters)
found = []
for text in json.loads(sys.argv[2]):
    body = json.dumps({"content": text, "add_special": True}).encode()
    request = Request(server.listening_address + "/tokenize", body, {"Content-Type": "application/json"})
    found.append(json.load(urlopen(request))["tokens"])
print(json.dumps(found))
"""


def byte_level(split=None):
    """As Qwen's, OpenAI's and GPT-2's tokenizers: bytes, cut by an expression of their own or the built-in one."""
    made = Tokenizer(models.BPE())
    cut = [pre_tokenizers.Split(Regex(split), behavior="isolated")] if split else []
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not split)
    made.pre_tokenizer = pre_tokenizers.Sequence([*cut, level]) if split else level
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    made.train_from_iterator(TRAINED, trainer)
    return json.loads(made.to_str())


def sentence_piece(later=False):
    """As Mixtral's, of which there are two spellings: unknown characters become bytes, and text begins with <s>."""
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    sign = "\u2581"
    if later:
        made.pre_tokenizer = pre_tokenizers.Metaspace(sign, prepend_scheme="first", split=False)
    else:
        made.normalizer = normalizers.Sequence([normalizers.Prepend(sign), normalizers.Replace(" ", sign)])
    codes = [f"<0x{code:02X}>" for code in range(256)]
    # Words are joined to nothing after them, or whole sentences would become tokens.
    cut = Tokenizer(models.BPE())
    cut.pre_tokenizer = pre_tokenizers.Metaspace(sign, prepend_scheme="always", split=True)
    cut.train_from_iterator(TRAINED, trainers.BpeTrainer(vocab_size=VOCABULARY - 260))
    learned = json.loads(cut.to_str())["model"]
    tokens = ["<unk>", "<s>", "</s>", *codes, *learned["vocab"]]
    merges = [tuple(merge) for merge in learned["merges"]]
    made.model = models.BPE(
        vocab={token: number for number, token in enumerate(tokens)}, merges=merges, unk_token="<unk>",
        byte_fallback=True, fuse_unk=True,
    )  # fmt: skip
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return json.loads(made.to_str())


CASES = {
    "qwen2": lambda: byte_level(cutting.QWEN2_SPLIT),
    "qwen35": lambda: byte_level(cutting.QWEN35_SPLIT),
    "gpt-4o": lambda: byte_level(cutting.O200K_SPLIT),
    "gpt-2": byte_level,
    "llama": sentence_piece,
    "llama, later files": lambda: sentence_piece(later=True),
}


@pytest.fixture(scope="module")
def python():
    home = find_home(Path(__file__).parent)
    baseline = load_baselines(home.baselines)["llama_cpp"]
    if not is_installed(baseline, home):
        pytest.skip("llama.cpp's environment is not installed here; make it with: nox -s baseline-llama-cpp")
    return environment_python(baseline, home)


@pytest.mark.parametrize("name", CASES)
def test_text_becomes_the_same_tokens(name, python, tmp_path):
    declared = CASES[name]()
    # Later files of SentencePiece put no space before one that is there, as `seqmoe.reference.gguf_file.cutting` says.
    texts = [text.lstrip(" ") for text in TEXTS] if "later" in name else TEXTS
    folder = save_expressible("qwen3_moe", tmp_path, vocab_size=VOCABULARY)
    (folder / "tokenizer.json").write_text(json.dumps(declared))
    path = export_gguf(folder, tmp_path / "model.gguf")
    asked = subprocess.run([str(python), "-c", ASK, str(path), json.dumps(texts)], capture_output=True, text=True)
    assert asked.returncode == 0, asked.stderr[-2000:]
    tokenizer = Tokenizer.from_str(json.dumps(declared))
    wanted = [tokenizer.encode(text).ids for text in texts]
    assert json.loads(asked.stdout.splitlines()[-1]) == wanted
    assert len({token for ids in wanted for token in ids if token > 260}) > 9, "merges were used"
