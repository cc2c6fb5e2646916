"""Words that the host and the device share: loads and stores at system scope.

Loads and stores, never a read-modify-write: of mapped host memory only they are atomic between a CPU and a GPU on PCIe
(libcu++, "Memory model", atomicity). Triton has no such operations of its own, hence the assembly; the interpreter's
plain loads and stores are ordered by x86.
"""

from __future__ import annotations

from seqmoe.runtime.kernels.language import INTERPRETED, Pointer, Value, tl, triton

LANES = 32

_LANES = tl.constexpr(LANES)
_ACQUIRE = tl.constexpr("""{
    .reg .pred wanted; .reg .b64 word;
    setp.ne.b32 wanted, $2, 0; mov.b64 word, 0;
    @wanted ld.acquire.sys.global.b64 word, [$1];
    mov.b64 $0, word;
}""")
_RELEASE = tl.constexpr("""{
    .reg .pred first; .reg .b32 thread;
    mov.u32 thread, %tid.x; setp.eq.u32 first, thread, 0;
    @first st.release.sys.global.b64 [$1], $2;
    mov.b32 $0, 0;
}""")
_TELL = tl.constexpr("""{
    .reg .pred first; .reg .b32 thread;
    mov.u32 thread, %tid.x; setp.eq.u32 first, thread, 0;
    @first st.relaxed.sys.global.b64 [$1], $2;
    mov.b32 $0, 0;
}""")


@triton.jit
def acquire(words: Pointer, COUNT: tl.constexpr) -> Value:
    """The first COUNT of int64 [`LANES`] from ``words`` on; what their writer wrote before is seen after.

    For kernels of one warp: every lane reads one word, so all take one way over the link, and no two threads can see
    one word differently. The barrier orders the other lanes' loads after those that acquired.
    """
    lane = tl.arange(0, _LANES)
    if INTERPRETED:
        values = tl.load(words + lane, mask=lane < COUNT, other=0)
    else:
        wanted = (lane < COUNT).to(tl.int32)
        values = tl.inline_asm_elementwise(
            _ACQUIRE, "=l,l,r", [words + lane, wanted], dtype=tl.int64, is_pure=False, pack=1
        )
        tl.debug_barrier()
    return values


@triton.jit
def release(word: Pointer, value: Value) -> None:
    """Store an int64: whoever acquires it sees all that this program stored before."""
    tl.debug_barrier()
    if INTERPRETED:
        tl.store(word, value)
    else:
        tl.inline_asm_elementwise(_RELEASE, "=r,l,l", [word, value], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def tell(word: Pointer, value: Value) -> None:
    """Store an int64 that nothing else depends on, without waiting for what was stored before."""
    if INTERPRETED:
        tl.store(word, value)
    else:
        tl.inline_asm_elementwise(_TELL, "=r,l,l", [word, value], dtype=tl.int32, is_pure=False, pack=1)
