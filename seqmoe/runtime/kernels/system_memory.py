"""Words that the host and the device share: acquire loads and release stores at system scope.

Loads and stores, never a read-modify-write: of mapped host memory only they are atomic between a CPU and a GPU on PCIe
(libcu++, "Memory model", atomicity). Triton has no such operations of its own, hence the assembly; the interpreter's
plain loads and stores are ordered by x86.
"""

from __future__ import annotations

from seqmoe.runtime.kernels.language import INTERPRETED, Pointer, Value, tl, triton

# One lane loads and hands the value to the others: 32 loads could see different values. The barrier then orders the
# other lanes' later loads after the one that acquired.
_ACQUIRE = tl.constexpr("""{
    .reg .pred first; .reg .b32 lane, low, high; .reg .b64 word;
    mov.u32 lane, %laneid; setp.eq.u32 first, lane, 0; mov.b64 word, 0;
    @first ld.acquire.sys.global.b64 word, [$1];
    mov.b64 {low, high}, word;
    shfl.sync.idx.b32 low, low, 0, 31, 0xffffffff;
    shfl.sync.idx.b32 high, high, 0, 31, 0xffffffff;
    mov.b64 $0, {low, high};
}""")
_RELEASE = tl.constexpr("""{
    .reg .pred first; .reg .b32 thread;
    mov.u32 thread, %tid.x; setp.eq.u32 first, thread, 0;
    @first st.release.sys.global.b64 [$1], $2;
    mov.b32 $0, 0;
}""")


@triton.jit
def acquire(word: Pointer) -> Value:
    """The int64 at ``word``; what its writer wrote before is seen after. In kernels of one warp only."""
    if INTERPRETED:
        value = tl.load(word)
    else:
        value = tl.inline_asm_elementwise(_ACQUIRE, "=l,l", [word], dtype=tl.int64, is_pure=False, pack=1)
        tl.debug_barrier()
    return value


@triton.jit
def release(word: Pointer, value: Value) -> None:
    """Store an int64: whoever acquires it sees all that this program stored before."""
    tl.debug_barrier()
    if INTERPRETED:
        tl.store(word, value)
    else:
        tl.inline_asm_elementwise(_RELEASE, "=r,l,l", [word, value], dtype=tl.int32, is_pure=False, pack=1)
